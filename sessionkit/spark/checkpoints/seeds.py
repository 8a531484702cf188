"""Seeds: written from a checkpoint or from a batch, and what a new query does with them."""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sessionkit._engine.carrying import carried, check_carried
from sessionkit._engine.logic import Memory
from sessionkit._engine.seed import SeedFormat
from sessionkit._engine.storage import logic_of
from sessionkit._instants import BEGINNING_US, instant_of, span_us
from sessionkit.errors import SessionkitError, with_hint
from sessionkit.spark.checkpoints.groups import active_session
from sessionkit.spark.checkpoints.log import (
    Progress,
    files_read,
    folder_texts,
    last_batch_of,
    logs_of,
    progress_of,
)
from sessionkit.spark.checkpoints.memories import mapped_memories
from sessionkit.spark.checkpoints.seed_rows import ROWS, chunks_of, chunks_schema, seed_rows
from sessionkit.spark.checkpoints.unread import is_of_files, without_files, without_messages
from sessionkit.spec.shared import AnySpec
from sessionkit.timeouts import watermark_in_force

__all__ = ["Seed", "carry_over", "read_seed", "write_seed"]

FORMAT: Final = 1
ABOUT: Final = "about"
NOTHING_READ: Final = "-"
"""What Spark writes down for a source of which nothing has been read yet."""
MILLISECOND_US: Final = 1_000


@attrs.frozen
class Seed:
    """
    What a new query begins with: open sessions or keys, and events that wait, in a folder.

    Pass it as `seed=` to `sessionize` or `apply_with_state`, at the first start and at each later
    one: it is one of the sources of the query. Only the first micro-batch reads its rows.

    Attributes:
        path: The folder.
        format: How its rows are written, and the watermark at which it was taken.
        progress: How far the query came from which it was carried over; None after a batch.
    """

    path: str
    format: SeedFormat = attrs.field(repr=False)
    progress: Progress | None = None

    @property
    def watermark(self) -> datetime | None:
        """The watermark at which it was taken, in UTC; None where there was none."""
        at_us = self.format.watermark_us
        return instant_of(at_us) if at_us > BEGINNING_US else None

    @property
    def until(self) -> datetime | None:
        """The event time before which a batch has read every event, in UTC; None without one."""
        at_us = self.format.until_us
        return None if at_us is None else instant_of(at_us)

    def starting_offsets(self, source: int = 0) -> str:
        """
        Return where the old query stopped reading a Kafka source: the option `startingOffsets`.

        Args:
            source: The number of the source in the old query, from 0.

        Raises:
            SessionkitError: There is no such source.
        """
        self._check_source(source)
        return self._progress.offsets[source]

    def unread(self, rows: DataFrame, source: int | None = 0) -> DataFrame:
        """
        Return a stream without the rows that the old query has read.

        Each stream that a query with a seed from `carry_over` reads must go through this, or the
        seed is refused. Rows of files and of Kafka are left out, whatever options read them; with
        `startingOffsets`, Kafka's aren't even read.

        Args:
            rows: What a source reads, right from `readStream`, or from `read_stream` with its
                position.
            source: The number of the source in the old query, from 0. None says that the old query
                has read none of these rows, and leaves nothing out.

        Raises:
            SessionkitError: There is no such source, or its rows don't say where they come from.
        """
        if source is not None:
            self._check_source(source)
            rows = self._without(rows, source)
        return rows.alias(self.marker)

    def _without(self, rows: DataFrame, source: int) -> DataFrame:
        offset = self._progress.offsets[source]
        if offset == NOTHING_READ:
            return rows
        if is_of_files(offset):
            return without_files(rows, self._progress.files[source])
        return without_messages(rows, offset)

    @property
    def marker(self) -> str:
        """The alias of a stream that leaves out what the old query has read."""
        return f"unread_{zlib.crc32(self.path.encode()):08x}"

    @property
    def _progress(self) -> Progress:
        if self.progress is None:
            found = "this seed comes from a batch: no query has read a source"
            hint = "pass the stream as it is: what is before the end of the batch counts as late"
            raise SessionkitError(with_hint(found, hint))
        return self.progress

    def _check_source(self, source: int) -> None:
        number = len(self._progress.offsets)
        if not 0 <= source < number:
            found = f"the old query had {number} sources, and `source` is {source}"
            raise SessionkitError(with_hint(found, "count them from 0, in the order of the query"))


def carry_over(
    checkpoint: str, old: AnySpec, new: AnySpec, to: str, *, spark: SparkSession | None = None
) -> Seed:
    """
    Write what a stopped query remembers as a seed for a query under other rules.

    The gap, the delay, the order, the layout, the bucket count and, where no value is lost, the
    types of the keys may differ; the state class may not. An open session keeps its end: each event
    counts with the gap under which it came. The executors move the state. Needs Spark 4.0 or later.

    Args:
        checkpoint: The checkpoint location of the old query.
        old: Its spec.
        new: The spec of the new query.
        to: A folder for the seed, which must not have one yet.
        spark: The session to work with; by default the active one.

    Raises:
        StateMismatchError: The checkpoint was written under other rules than the old spec's, or the
            new spec differs in what can't be carried over; the message names each difference.
        StateValueError: A stored key doesn't fit its new type.
        SessionkitError: There is no checkpoint, no finished micro-batch, or already a seed there;
            this Spark has no state reader, or no session is active.
    """
    check_carried(old, new)
    session = active_session(spark)
    progress = progress_of(checkpoint, session)
    if progress.batch is None:
        raise _nothing_finished(checkpoint, session)

    def rows_of(memory: Memory) -> pa.Table:
        return chunks_of(new, carried(old, new, memory))

    chunks = mapped_memories(checkpoint, old, rows_of, chunks_schema(new), spark=session)
    watermark_us = BEGINNING_US
    if old.delay_ms is not None:
        watermark_us = watermark_in_force(progress.watermark_ms)
    before, idle_us = _seed_before(progress.files, session), _idle_us(checkpoint, old, session)
    until_us = None if before is None else before.format.until_us
    if before is not None:
        idle_us = max(idle_us, before.format.idle_us)
    form = SeedFormat.of(logic_of(new), watermark_us, until_us, idle_us)
    return write_seed(chunks, new, Seed(to, form, progress))


def _idle_us(checkpoint: str, spec: AnySpec, spark: SparkSession) -> int:
    """Return how far at most a watermark of their own has led groups, under `close_idle_after`."""
    last = last_batch_of(logs_of(checkpoint, spark))
    if spec.close_idle_after is None or spec.watermark_delay is None or last is None:
        return BEGINNING_US
    return last.started_ms * MILLISECOND_US - span_us(spec.watermark_delay)


def _nothing_finished(checkpoint: str, spark: SparkSession) -> SessionkitError:
    logs = logs_of(checkpoint, spark)
    seed = _seed_before(files_read(logs, logs.planned, spark), spark)
    found = f"the query of the checkpoint {checkpoint} has finished no micro-batch"
    if seed is None:
        return SessionkitError(with_hint(found, "start the new query without a seed"))
    way = "hand_over" if seed.progress is None else "carry_over"
    return SessionkitError(
        with_hint(
            f"{found}, and all it remembers is in the seed {seed.path} with which it began",
            f"start the new query with that seed; for other rules, call {way} again, with the new "
            "spec and from what that seed was written from",
        )
    )


def _seed_before(files: Iterable[Iterable[str]], spark: SparkSession) -> Seed | None:
    """Return the seed with which a query that has read these files began, if with one."""
    parted = (path.rpartition(f"/{ROWS}/") for paths in files for path in paths)
    for place in sorted({place for place, found, _ in parted if found}):
        if folder_texts(spark, f"{place}/{ABOUT}"):
            return read_seed(place, spark=spark)
    return None


def write_seed(chunks: DataFrame, spec: AnySpec, seed: Seed) -> Seed:
    """
    Write a seed.

    Args:
        chunks: What groups remember, from `chunks_of`.
        spec: The spec of the new query.
        seed: What is to be written besides its rows.

    Raises:
        SessionkitError: There is one already.
    """
    spark = chunks.sparkSession
    if folder_texts(spark, f"{seed.path}/{ABOUT}"):
        found = f"there is a seed at {seed.path} already"
        raise SessionkitError(with_hint(found, "write it to a folder of its own"))
    seed_rows(chunks, spec, seed.format).write.mode("overwrite").parquet(f"{seed.path}/{ROWS}")
    about = spark.createDataFrame([(_about(seed),)], "value string")
    about.coalesce(1).write.mode("overwrite").text(f"{seed.path}/{ABOUT}")
    return seed


def _about(seed: Seed) -> str:
    form, progress = seed.format, seed.progress
    return json.dumps(
        {
            "format": FORMAT,
            "identity": form.identity.decode(),
            "kept": base64.b64encode(form.kept.serialize()).decode(),
            "held": base64.b64encode(form.held.serialize()).decode(),
            "watermark_us": form.watermark_us,
            "until_us": form.until_us,
            "idle_us": form.idle_us,
            "progress": None if progress is None else attrs.asdict(progress),
        }
    )


def read_seed(path: str, *, spark: SparkSession | None = None) -> Seed:
    """
    Return a seed that has been written.

    Args:
        path: Its folder.
        spark: The session to read with; by default the active one.

    Raises:
        SessionkitError: There is none, another release wrote it, or no session is active.
    """
    texts = folder_texts(active_session(spark), f"{path}/{ABOUT}")
    if not texts:
        found = f"there is no seed at {path}"
        raise SessionkitError(with_hint(found, "write one with carry_over or hand_over"))
    about = _about_in(texts)
    if about["format"] != FORMAT:
        found = f"the seed at {path} has format {about['format']}, this release reads {FORMAT}"
        raise SessionkitError(with_hint(found, "use the release of sessionkit that wrote it"))
    found = about["progress"]
    return Seed(path, _format(about), None if found is None else _progress(found))


def _format(about: dict[str, Any]) -> SeedFormat:
    kept, held = (_schema(about[name]) for name in ("kept", "held"))
    instants = about["watermark_us"], about["until_us"], about.get("idle_us", BEGINNING_US)
    return SeedFormat(about["identity"].encode(), kept, held, *instants)


def _about_in(texts: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads("".join(texts.values()))
    return found


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _progress(found: dict[str, Any]) -> Progress:
    return Progress(
        found["batch"],
        found["planned"],
        found["watermark_ms"],
        tuple(found["offsets"]),
        tuple(map(tuple, found["files"])),
    )
