"""A seed as a value, and in its folder."""

import base64
import json
import zlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sessionkit._engine.shell.seed import SeedFormat
from sessionkit._instants import BEGINNING_US, instant_of
from sessionkit.errors import SessionkitError, with_hint
from sessionkit.spark._logs import (
    Progress,
    active_session,
    folder_texts,
)
from sessionkit.spark.seeds.rows import ROWS, packed_seed_rows
from sessionkit.spark.seeds.unread import is_of_files, without_files, without_messages
from sessionkit.spec.shared import AnySpec

FORMAT: Final = 1
ABOUT: Final = "about"
NOTHING_READ: Final = "-"
"""What Spark writes down for a source of which nothing has been read yet."""


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


def write_seed(chunks: DataFrame, spec: AnySpec, seed: Seed) -> Seed:
    """Write a seed."""
    spark = chunks.sparkSession
    if folder_texts(spark, f"{seed.path}/{ABOUT}"):
        found = f"there is a seed at {seed.path} already"
        raise SessionkitError(with_hint(found, "write it to a folder of its own"))
    packed_seed_rows(chunks, spec, seed.format).write.mode("overwrite").parquet(
        f"{seed.path}/{ROWS}"
    )
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
