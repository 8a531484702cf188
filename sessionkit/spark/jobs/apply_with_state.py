"""A `StatefulSpec` and a DataFrame become a DataFrame of result rows, on a stream or on a batch."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import pandas as pd
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql.streaming.state import GroupStateTimeout

from sessionkit._engine.keyed_worker import (
    KEYED_STATE_SCHEMA,
    KeyedWorker,
    PerKeyWorker,
)
from sessionkit._engine.keys.stored_row import PER_KEY_COLUMNS
from sessionkit._instants import micros_of
from sessionkit._spec import check_kind
from sessionkit.spark._columns import quoted, wire_type
from sessionkit.spark.jobs.pickling import check_picklable
from sessionkit.spark.jobs.projection import (
    EVENT_TIME_COLUMN,
    batch_buckets,
    bucket_column,
    crossing,
    grouping_key,
    output_schema,
    public_rows,
    time_for_watermark,
)
from sessionkit.spark.jobs.schema import check_input
from sessionkit.state import codec_of
from sessionkit.stateful import StatefulSpec

__all__ = ["apply_with_state"]

AnySpec: TypeAlias = StatefulSpec[Any, Any, Any]

TIMEOUTS: Final = {
    "event_time": GroupStateTimeout.EventTimeTimeout,
    "processing_time": GroupStateTimeout.ProcessingTimeTimeout,
    None: GroupStateTimeout.NoTimeout,
}


def apply_with_state(
    events: DataFrame,
    spec: AnySpec,
    *,
    with_rejected: bool = False,
    observation: Observation | None = None,
) -> DataFrame:
    """
    Run the functions of a `StatefulSpec` over a stream or a batch.

    On a streaming frame they are called in every micro-batch, for the keys that have events and
    for those whose timers are due, in output mode `append`. sessionkit declares the watermark
    itself, so the frame must not have one. On a batch frame they are called once a key with all of
    its events, then for the event timers, as if the watermark had passed the end of time; the
    processing time stands still, so what waits for it never comes.

    The columns are those of the key and the fields of the result class. The counts of every
    micro-batch are in the query's progress; `batch_counts` reads them.

    A spec with a clock in processing time never ends under the `availableNow` trigger;
    `start_query` refuses that, `writeStream` does not.

    Args:
        events: The input. Its columns are matched by name to the key, the event time, the fields
            of the event class and `passthrough`; other columns never reach Python.
        spec: The definition.
        with_rejected: Whether rejected rows come too. Then a first column `kind` tells `result`
            from `late`, `quarantined`, `failed` and `failed_output`, and behind the others come
            `reason`, `event_time` and the carried columns.
        observation: For a batch: where the counts are put once an action has run.

    Raises:
        SchemaError: The columns do not fit the spec.
        NotPicklableError: A function uses what cannot be sent to the executors.
    """
    check_kind(spec, StatefulSpec, "sessionize")
    check_input(events, spec)
    check_picklable(spec)
    if events.isStreaming:
        rows = _stream(events, spec, with_rejected=with_rejected)
    else:
        rows = _batch(events, spec, with_rejected=with_rejected)
    return public_rows(rows, spec, observation, with_rejected=with_rejected)


def _stream(events: DataFrame, spec: AnySpec, *, with_rejected: bool) -> DataFrame:
    worker: KeyedWorker | PerKeyWorker
    if spec.layout == "per_key":
        # Spark groups the rows of a stateful operator by columns, not by expressions.
        named = _crossing(events, spec).select(*grouping_key(spec), "*")
        groups = named.groupBy(*map(quoted, spec.keys))
        worker, state_schema = PerKeyWorker(spec, with_rejected), _per_key_schema(spec)
    else:
        buckets = bucket_column(spec, spec.bucket_count)
        groups = _crossing(events, spec, buckets).groupBy("bucket")
        worker, state_schema = KeyedWorker(spec, with_rejected), KEYED_STATE_SCHEMA

    def run(
        key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        return worker(key, frames, state)

    schema = output_schema(spec, with_rejected=with_rejected)
    timeout = TIMEOUTS[spec.clock]
    return groups.applyInPandasWithState(run, schema, state_schema, "append", timeout)


def _crossing(events: DataFrame, spec: AnySpec, *more: Column) -> DataFrame:
    """Project the input, with the watermark where the spec has one."""
    if spec.delay_ms is None:
        return crossing(events, spec, *more)
    delay_ms = spec.delay_ms + spec.retention_ms
    timed = crossing(events, spec, *more, time_for_watermark(spec))
    return timed.withWatermark(EVENT_TIME_COLUMN, f"{delay_ms} milliseconds")


def _per_key_schema(spec: AnySpec) -> str:
    fields = codec_of(spec.state).type.fields
    columns = [f"{quoted(field.name)} {wire_type(field.type)}" for field in fields]
    return ", ".join([*PER_KEY_COLUMNS, *columns])


def _batch(events: DataFrame, spec: AnySpec, *, with_rejected: bool) -> DataFrame:
    worker = KeyedWorker(spec, with_rejected)
    now_us = micros_of(datetime.now(UTC))

    def run(frame: pd.DataFrame) -> pd.DataFrame:
        return worker.whole([frame], now_us)

    schema = output_schema(spec, with_rejected=with_rejected)
    return batch_buckets(events, spec).applyInPandas(run, schema)
