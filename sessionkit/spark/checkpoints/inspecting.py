"""Describe the contents of a checkpoint as text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from sessionkit._arrays import flags_in
from sessionkit._engine.boundaries import is_over, watermark_in_force
from sessionkit._engine.rows.tables import has_state
from sessionkit._engine.sessions.features.rules import event_that_closes, rule_text
from sessionkit._engine.sessions.view import OpenSession
from sessionkit._engine.shell.pages import unpack_page
from sessionkit._engine.shell.payload import peek_identity, unpack
from sessionkit._instants import BEGINNING_US, instant_of, micros_of
from sessionkit.errors import StateCorruptedError, StateError
from sessionkit.spark._grouping import bucket_label
from sessionkit.spark._logs import Progress, check_logs, progress_of
from sessionkit.spark.checkpoints.check_state import check_checkpoint
from sessionkit.spark.checkpoints.reading import key_of_texts, read_state
from sessionkit.spark.checkpoints.state_reader import (
    HEAD_BYTES,
    stored_groups,
    stored_pages,
    with_clear_errors,
)
from sessionkit.spec.base import AnySpec
from sessionkit.spec.session import AnySessionSpec, SessionSpec

LARGEST: Final = 5
KILO: Final = 1_000
REMEMBERING: Final = frozenset({"drop_duplicates_for_us", "memory", "revisions"})
"""The entries of an identity under which closed sessions are remembered too."""


def inspected(path: str, spec: AnySpec | None, *, spark: SparkSession) -> Iterator[str]:
    try:
        check_logs(path, spark)
    except StateCorruptedError as error:
        yield _line("damaged", str(error))
    progress = progress_of(path, spark)
    yield _line("checkpoint", path)
    for name, batch in (("finished", progress.batch), ("runs again", progress.planned)):
        yield _line(name, "no batch" if batch is None else f"batch {batch}")
    yield _line("watermark", _watermark_text(progress))
    for number, (offset, files) in enumerate(zip(progress.offsets, progress.files, strict=True)):
        count = f", {len(files):,} files" if files else ""
        yield _line(f"source {number}", offset + count)
    yield from _state_lines(path, spark)
    if spec is None:
        return
    try:
        check_checkpoint(path, spec, spark=spark)
    except StateError as error:
        yield _line("the spec", f"is refused: {error}")
    else:
        yield _line("the spec", "may go on from here")


def _watermark_text(progress: Progress) -> str:
    at_us = watermark_in_force(progress.watermark_ms)
    return "none yet" if at_us == BEGINNING_US else f"{_instant(instant_of(at_us))}, in force next"


def _state_lines(path: str, spark: SparkSession) -> Iterator[str]:
    with with_clear_errors(path, spark):
        groups = stored_groups(path, spark)
        heads = groups.select(F.substring("state.payload", 1, HEAD_BYTES)).limit(1).collect()
        if not heads:
            yield _line("stored", "nothing")
            return
        identity = peek_identity(bytes(heads[0][0]))
        sums = F.sum("state.kept"), F.sum("state.buffered")
        kept, waiting = groups.select(*sums).collect()[0]
        pages = stored_pages(path, spark) if identity["layout"] == "pages" else None
        number = _number_text(groups, pages, identity, kept)
        yield _line("stored", f"{number}, {waiting:,} events that wait")
        buckets = _buckets(groups, pages)
        total, bucket_count = sum(bucket.size for bucket in buckets), buckets[0].bucket_count
        yield _line("bytes", f"{_bytes(total)} in {len(buckets):,} of {bucket_count:,} buckets")
        numbers = {bucket_label(number): number for number in range(bucket_count)}
        for bucket in buckets[:LARGEST]:
            waiting = f", {bucket.buffered:,} waiting" if bucket.buffered else ""
            about = f"{_bytes(bucket.size)}, {bucket.kept:,} kept{waiting}"
            yield _line("", f"bucket {numbers[bucket.key[0]]}: {about}")


def _number_text(
    groups: DataFrame, pages: DataFrame | None, identity: Mapping[str, Any], kept: int
) -> str:
    if identity["kind"] == "stateful":
        return f"{kept:,} keys"
    if not REMEMBERING & identity.keys():
        return f"{kept:,} open sessions"
    rows = groups.select("key", "state.payload")
    if pages is None:
        rows = rows.select("key", "payload", F.lit(0).alias("start"), F.lit(None).cast("binary"))
    else:
        rows = rows.join(pages.withColumnRenamed("payload", "page"), "key")
    counted = rows.drop("key").mapInArrow(_opened, "open bigint").agg(F.sum("open"))
    is_open = counted.collect()[0][0] or 0
    return f"{is_open:,} open sessions, {kept - is_open:,} closed ones that are remembered"


def _opened(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the number of open sessions in each payload, or in its page."""
    for batch in batches:
        numbers = [_open_in(*row.values()) for row in batch.to_pylist()]
        yield pa.RecordBatch.from_pydict({"open": pa.array(numbers, pa.int64())})


def _open_in(payload: bytes, start: int, page: bytes | None) -> int:
    tables = unpack(payload).tables
    kept = tables[0]
    if page is not None:
        rows = pa.ipc.read_record_batch(unpack_page(start, page)[0], tables[1].schema)
        kept = pa.Table.from_batches([rows])
    sessions = kept.filter(pa.array(has_state(kept)))
    return int((~flags_in(sessions, "closed")).sum())


def _buckets(groups: DataFrame, pages: DataFrame | None) -> list[Row]:
    """Return the label, size and counts of each bucket, the largest first."""
    size = F.length("state.payload").cast("bigint").alias("size")
    sized = groups.select("key", "state.bucket_count", "state.kept", "state.buffered", size)
    if pages is not None:
        sums = pages.groupBy("key").agg(F.sum(F.length("payload")).alias("sum"))
        total = F.col("size") + F.coalesce("sum", F.lit(0))
        sized = sized.join(sums, "key", "left").withColumn("size", total)
    return sorted(sized.collect(), key=lambda bucket: (-bucket.size, bucket.key))


def sessions_of_key(
    path: str, spec: AnySpec, key: Sequence[str], *, spark: SparkSession
) -> Iterator[str]:
    progress = progress_of(path, spark)
    key_values = key_of_texts(spec, key)
    yield _line("watermark", _watermark_text(progress))
    if isinstance(spec, SessionSpec):
        sessions = read_state(path, spec, key=key_values, spark=spark)
        for session in sorted(sessions, key=attrgetter("session_start")):
            yield _line("session", session.session_id)
            yield _line("  events", f"{session.events:,} from {_instant(session.session_start)}")
            yield _line("  state", repr(session.state))
            yield _line("  open", _why_open(session, spec, progress))
        if not sessions:
            yield "no session of this key is open"
        return
    key_spec: Any = spec
    keys = read_state(path, key_spec, key=key_values, spark=spark)
    for stored in keys:
        yield _line("state", repr(stored.state))
        for name, timer in stored.timers.items():
            yield _line(f"timer {name}", f"{_instant(timer.at)}, {timer.clock}")
    if not keys:
        yield "nothing is stored of this key"


def _why_open(session: OpenSession[Any], spec: AnySessionSpec, progress: Progress) -> str:
    rule = session.closed_by
    why = f"{_instant(session.closes)}, by `{rule}`: {rule_text(spec, rule)}"
    if is_over(micros_of(session.closes), watermark_in_force(progress.watermark_ms)):
        return f"it was over at {why}; the next micro-batch closes it"
    event = event_that_closes(spec, session.closes)
    text = f"it is over at {why}; an event at {_instant(event)} lets it close"
    if spec.close_idle_after is None:
        return text
    return f"{text}; or it closes by `idle`, once {rule_text(spec, 'idle')}"


def _line(name: str, text: str) -> str:
    return f"{name:<12}{text}"


def _instant(at: datetime) -> str:
    return at.isoformat(sep=" ").replace("+00:00", "Z")


def _bytes(size: int) -> str:
    if size < KILO:
        return f"{size} bytes"
    kilos = size / KILO
    return f"{kilos:,.1f} kB" if kilos < KILO else f"{kilos / KILO:,.1f} MB"
