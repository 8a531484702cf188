"""Turn a DataFrame into result rows, for any kind of spec."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, GroupedData, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from sessionkit._engine.clocks import check_until, end_us
from sessionkit._engine.logic import Memory
from sessionkit._engine.storage import columns_of
from sessionkit._engine.wire.packing import packs_of_groups
from sessionkit._engine.worker import Worker, worker_of
from sessionkit._instants import micros_of
from sessionkit.errors import SchemaError, SpecError, with_hint
from sessionkit.spark._columns import quoted
from sessionkit.spark._libraries import check_libraries, check_workers_of
from sessionkit.spark.checkpoints.seed_rows import sown_rows
from sessionkit.spark.checkpoints.seeds import Seed
from sessionkit.spark.checkpoints.unread import check_unread
from sessionkit.spark.jobs.packed_rows import (
    BUCKET,
    NOTHING,
    Beside,
    bucket_number,
    grouping_key,
    labelled,
    packed,
)
from sessionkit.spark.jobs.pages import check_pages, in_pages
from sessionkit.spark.jobs.pickling import check_picklable
from sessionkit.spark.jobs.public_rows import (
    OUTPUT_SCHEMA,
    counted_rows,
    counted_schema,
    unpacked_rows,
)
from sessionkit.spark.jobs.schema import check_analysis, check_input
from sessionkit.spark.jobs.spared import spare_imports
from sessionkit.spark.jobs.task import rows_of_task, run_of_task
from sessionkit.spec.shared import AnySpec

__all__ = ["Bounds", "memories_until", "run_spec"]

BUCKETS_OF_A_BATCH: Final = 4
"""A batch runs each bucket as a whole, so it uses this many times more buckets."""

TIMEOUTS: Final = {
    "event_time": GroupStateTimeout.EventTimeTimeout,
    "processing_time": GroupStateTimeout.ProcessingTimeTimeout,
    None: GroupStateTimeout.NoTimeout,
}


@attrs.frozen
class Bounds:
    """
    Where a run begins and ends, and what moves its time beside its events.

    Attributes:
        seed: What a stream begins with.
        until: The event time at which a batch ends; by default all event time is over then.
        clock: Times that move the watermark of a stream.
    """

    seed: Seed | None = None
    until: datetime | None = None
    clock: DataFrame | None = None


def run_spec(
    events: DataFrame,
    spec: AnySpec,
    observation: Observation | None,
    *,
    with_rejected: bool,
    bounds: Bounds,
) -> DataFrame:
    """
    Run a spec over a stream or a batch; see `sessionize` and `apply_with_state`.

    Raises:
        UnsupportedError: This release of Spark, or of a library, can't do that, or the Python of
            Spark's workers lacks a library, or this is a query function of a pipeline.
        SchemaError: The columns don't fit the spec.
        NotPicklableError: A function uses something that can't be sent to the executors.
        SpecError: A batch is given a seed, or a stream an end; or a stream may have rows that the
            query of the seed has read.
    """
    check_analysis(events)
    check_libraries(is_streaming=events.isStreaming)
    check_workers_of(events.sparkSession)
    check_input(events, spec)
    check_picklable(spec)
    _check_bounds(events, spec, bounds)
    if not events.isStreaming:
        worker = worker_of(spec, with_rejected=with_rejected)
        return counted_rows(_batch(events, spec, worker, bounds.until), observation)
    if spec.layout == "pages":
        check_pages(events.sparkSession)
    seed = None if bounds.seed is None else bounds.seed.format
    worker = worker_of(spec, with_rejected=with_rejected, seed=seed)
    return unpacked_rows(_stream(events, spec, worker, bounds), worker)


def _check_bounds(events: DataFrame, spec: AnySpec, bounds: Bounds) -> None:
    if bounds.until is not None:
        check_until(spec, bounds.until)
    if events.isStreaming and bounds.until is not None:
        found = "`until` is for a batch, and this is a stream"
        raise SpecError(with_hint(found, "leave it out: a stream ends when you stop it"))
    if not events.isStreaming and bounds.seed is not None:
        found = "`seed` is for a stream, and this is a batch"
        raise SpecError(with_hint(found, "read the events with readStream"))
    if bounds.seed is not None and bounds.seed.progress is not None:
        check_unread(events, bounds.seed.marker)
    if bounds.clock is not None:
        _check_clock(events, spec, bounds.clock)


def _check_clock(events: DataFrame, spec: AnySpec, clock: DataFrame) -> None:
    if not (events.isStreaming and clock.isStreaming):
        found = f"`{'clock' if events.isStreaming else 'events'}` is a batch"
        raise SpecError(with_hint(f"{found}, and only a stream has a clock", "use readStream"))
    if spec.watermark_delay is None:
        found = "`clock` moves a watermark, and the spec has none"
        raise SpecError(with_hint(found, "leave it out, or add watermark_delay=..."))
    if [field.dataType.simpleString() for field in clock.schema.fields] != ["timestamp"]:
        found = f"`clock` must have one column, a timestamp, found {clock.schema.simpleString()}"
        raise SchemaError(with_hint(found, 'write clock=frame.select("at")'))


def _stream(events: DataFrame, spec: AnySpec, worker: Worker, bounds: Bounds) -> DataFrame:
    seed, sown = bounds.seed, None
    if seed is not None:
        sown = sown_rows(seed.path, spec, events.sparkSession)
    beside = Beside(sown, bounds.clock)
    if spec.layout == "pages":
        return in_pages(_in_buckets(events, spec, spec.bucket_count, beside), worker)

    def run(
        group: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        spare_imports("run")
        return worker(group, frames, state, run_of_task(), rows_of_task())

    return _groups(events, spec, beside).applyInPandasWithState(
        run, OUTPUT_SCHEMA, columns_of(worker.logic), "append", TIMEOUTS[spec.clock]
    )


def _batch(events: DataFrame, spec: AnySpec, worker: Worker, until: datetime | None) -> DataFrame:
    now_us, until_us = micros_of(datetime.now(UTC)), end_us(until)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return worker.partition(batches, now_us, until_us)

    return _sorted(events, spec, until).mapInArrow(run, counted_schema(worker))


def memories_until(
    events: DataFrame,
    spec: AnySpec,
    until: datetime,
    rows_of: Callable[[Memory], pa.Table],
    schema: str,
) -> DataFrame:
    """
    Return rows made of what each group of a batch remembers in the end.

    Args:
        events: The batch.
        spec: The spec.
        until: The event time at which it ends.
        rows_of: Makes the rows of a group.
        schema: The columns of the rows, as Spark's SQL has them.

    Raises:
        SchemaError: The columns don't fit the spec.
        NotPicklableError: A function uses something that can't be sent to the executors.
    """
    check_input(events, spec)
    check_picklable(spec)
    worker, now_us, until_us = worker_of(spec), micros_of(datetime.now(UTC)), end_us(until)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for packs in packs_of_groups(batches):
            memory = worker.until(packs, now_us, until_us)[1]
            yield from rows_of(memory).to_batches()

    return _sorted(events, spec, until).mapInArrow(run, schema)


def _sorted(events: DataFrame, spec: AnySpec, until: datetime | None) -> DataFrame:
    """Return the rows of a batch, packed, and sorted by bucket within each partition."""
    if until is not None:
        time = F.col(quoted(spec.event_time or ""))
        # A row without a time is quarantined by the batch.
        events = events.where(time.isNull() | (time < F.lit(until)))
    rows = _in_buckets(events, spec, spec.bucket_count * BUCKETS_OF_A_BATCH)
    return rows.repartition(BUCKET).sortWithinPartitions(BUCKET)


def _groups(events: DataFrame, spec: AnySpec, beside: Beside) -> GroupedData:
    """Return the rows of a stream, packed, and grouped as the state is stored."""
    if spec.layout == "per_key":
        # Spark groups the rows of a stateful operator by columns, not by expressions.
        rows = packed(events, spec, grouping_key(spec), beside)
        return rows.groupBy(*map(quoted, spec.keys))
    return _in_buckets(events, spec, spec.bucket_count, beside).groupBy(BUCKET)


def _in_buckets(
    events: DataFrame, spec: AnySpec, bucket_count: int, beside: Beside = NOTHING
) -> DataFrame:
    rows = packed(events, spec, {BUCKET: bucket_number(spec, bucket_count)}, beside)
    return labelled(rows, bucket_count)
