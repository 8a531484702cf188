"""A spec and a DataFrame become a DataFrame of sessions, on a stream or on a batch."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import pandas as pd
from pyspark.sql import DataFrame, Observation
from pyspark.sql.streaming.state import GroupStateTimeout

from sessionkit._engine.worker import STATE_SCHEMA, BucketWorker
from sessionkit._spec import check_kind
from sessionkit.session import SessionSpec
from sessionkit.spark.jobs.pickling import check_picklable
from sessionkit.spark.jobs.projection import (
    EVENT_TIME_COLUMN,
    batch_buckets,
    bucket_column,
    crossing,
    output_schema,
    public_rows,
    time_for_watermark,
)
from sessionkit.spark.jobs.schema import check_input

__all__ = ["sessionize"]

AnySpec: TypeAlias = SessionSpec[Any, Any, Any]


def sessionize(
    events: DataFrame,
    spec: AnySpec,
    *,
    with_rejected: bool = False,
    observation: Observation | None = None,
) -> DataFrame:
    """
    Return the sessions of a stream or a batch.

    A streaming frame gives sessions as the watermark passes their ends, in output mode `append`;
    sessionkit declares the watermark itself, so the frame must not have one. A batch frame gives
    all sessions, as if the watermark had passed the end of time.

    The columns are those of the key, `session_id`, `session_start`, `session_end` (event time,
    the end exclusive), and the fields of the result class. The counts of every micro-batch are in
    the query's progress; `batch_counts` reads them.

    Args:
        events: The input. Its columns are matched by name to the key, the event time, the fields
            of the event class and `passthrough`; other columns never reach Python.
        spec: The definition of a session.
        with_rejected: Whether rejected rows come too. Then a first column `kind` tells `session`
            from `late`, `quarantined`, `failed` and `failed_output`, and behind the others come
            `reason`, `event_time` and the carried columns.
        observation: For a batch: where the counts are put once an action has run.

    Raises:
        SchemaError: The columns do not fit the spec.
        NotPicklableError: A function uses what cannot be sent to the executors.
    """
    check_kind(spec, SessionSpec, "apply_with_state")
    check_input(events, spec)
    check_picklable(spec)
    worker = BucketWorker(spec, with_rejected=with_rejected)
    rows = (_stream if events.isStreaming else _batch)(events, spec, worker)
    return public_rows(rows, spec, observation, with_rejected=with_rejected)


def _stream(events: DataFrame, spec: AnySpec, worker: BucketWorker) -> DataFrame:
    def run(
        key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        return worker(key, frames, state)

    delay_ms = spec.delay_ms + spec.retention_ms
    buckets = bucket_column(spec, spec.bucket_count)
    return (
        crossing(events, spec, buckets, time_for_watermark(spec))
        .withWatermark(EVENT_TIME_COLUMN, f"{delay_ms} milliseconds")
        .groupBy("bucket")
        .applyInPandasWithState(
            run,
            output_schema(spec, with_rejected=worker.with_rejected),
            STATE_SCHEMA,
            "append",
            GroupStateTimeout.EventTimeTimeout,
        )
    )


def _batch(events: DataFrame, spec: AnySpec, worker: BucketWorker) -> DataFrame:
    def run(frame: pd.DataFrame) -> pd.DataFrame:
        return worker.whole([frame])

    schema = output_schema(spec, with_rejected=worker.with_rejected)
    return batch_buckets(events, spec).applyInPandas(run, schema)
