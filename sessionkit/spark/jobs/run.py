"""Turn a DataFrame into result rows, for any kind of spec."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, GroupedData, Observation
from pyspark.sql.streaming.state import GroupStateTimeout

from sessionkit._engine.storage import columns_of
from sessionkit._engine.worker import Worker, worker_of
from sessionkit._instants import micros_of
from sessionkit._spec import AnySpec
from sessionkit.spark._columns import quoted
from sessionkit.spark._libraries import check_libraries
from sessionkit.spark.jobs.packed_rows import (
    BUCKET,
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
from sessionkit.spark.jobs.schema import check_input

__all__ = ["run_spec"]

BUCKETS_OF_A_BATCH: Final = 4
"""A batch runs each bucket as a whole, so it uses this many times more buckets."""

TIMEOUTS: Final = {
    "event_time": GroupStateTimeout.EventTimeTimeout,
    "processing_time": GroupStateTimeout.ProcessingTimeTimeout,
    None: GroupStateTimeout.NoTimeout,
}


def run_spec(
    events: DataFrame, spec: AnySpec, observation: Observation | None, *, with_rejected: bool
) -> DataFrame:
    """
    Run a spec over a stream or a batch; see `sessionize` and `apply_with_state`.

    Raises:
        UnsupportedError: This release of Spark, or of a library, can't do that.
        SchemaError: The columns don't fit the spec.
        NotPicklableError: A function uses something that can't be sent to the executors.
    """
    check_libraries()
    check_input(events, spec)
    check_picklable(spec)
    if spec.layout == "pages" and events.isStreaming:
        check_pages(events.sparkSession)
    worker = worker_of(spec, with_rejected=with_rejected)
    if events.isStreaming:
        return unpacked_rows(_stream(events, spec, worker), worker)
    return counted_rows(_batch(events, spec, worker), observation)


def _stream(events: DataFrame, spec: AnySpec, worker: Worker) -> DataFrame:
    if spec.layout == "pages":
        return in_pages(_in_buckets(events, spec, spec.bucket_count), worker)

    def run(
        group: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        return worker(group, frames, state)

    return _groups(events, spec).applyInPandasWithState(
        run, OUTPUT_SCHEMA, columns_of(worker.logic), "append", TIMEOUTS[spec.clock]
    )


def _batch(events: DataFrame, spec: AnySpec, worker: Worker) -> DataFrame:
    now_us = micros_of(datetime.now(UTC))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return worker.partition(batches, now_us)

    rows = _in_buckets(events, spec, spec.bucket_count * BUCKETS_OF_A_BATCH)
    sorted_rows = rows.repartition(BUCKET).sortWithinPartitions(BUCKET)
    return sorted_rows.mapInArrow(run, counted_schema(worker))


def _groups(events: DataFrame, spec: AnySpec) -> GroupedData:
    """Return the rows of a stream, packed, and grouped as the state is stored."""
    if spec.layout == "per_key":
        # Spark groups the rows of a stateful operator by columns, not by expressions.
        rows = packed(events, spec, grouping_key(spec))
        return rows.groupBy(*map(quoted, spec.keys))
    return _in_buckets(events, spec, spec.bucket_count).groupBy(BUCKET)


def _in_buckets(events: DataFrame, spec: AnySpec, bucket_count: int) -> DataFrame:
    rows = packed(events, spec, {BUCKET: bucket_number(spec, bucket_count)})
    return labelled(rows, bucket_count)
