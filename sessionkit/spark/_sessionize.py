"""A spec and a DataFrame become a DataFrame of sessions, on a stream or on a batch."""

from collections.abc import Iterable, Iterator
from functools import reduce
from operator import add
from typing import Any, Final, TypeAlias

import pandas as pd
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from sessionkit._counts import COUNTED
from sessionkit._instants import span_us
from sessionkit._output import KINDS, has_floats, output_fields
from sessionkit._wire import (
    BITS,
    FUTURE_BIT,
    NULL_TIME_BIT,
    WireColumn,
    flag_names,
    inner_type,
    wire_columns,
)
from sessionkit._worker import STATE_SCHEMA, BucketWorker
from sessionkit.session import SessionSpec
from sessionkit.spark._columns import from_wire, quoted, to_wire, wire_type
from sessionkit.spark._input import check_input
from sessionkit.spark._labels import bucket_label
from sessionkit.spark._pickling import check_picklable
from sessionkit.spark._progress import OBSERVATION
from sessionkit.state import DecimalType, FieldType, FloatType

__all__ = ["sessionize"]

AnySpec: TypeAlias = SessionSpec[Any, Any, Any]

EVENT_TIME_COLUMN: Final = "watermark"
BUCKETS_OF_A_BATCH: Final = 4
"""A batch hands over whole buckets as one frame, so it takes this many times as many of them."""


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
            of the event class and `carry`; other columns never reach Python.
        spec: The definition of a session.
        with_rejected: Whether rejected rows come too. Then a first column `kind` tells `session`
            from `late`, `quarantined`, `failed` and `unfinished`, and behind the others come
            `reason`, `event_time` and the carried columns.
        observation: For a batch: where the counts are put once an action has run.

    Raises:
        SchemaError: The columns do not fit the spec.
        NotPicklableError: A function uses what cannot be sent to the executors.
    """
    fields = output_fields(spec, with_rejected=with_rejected)
    check_input(events, spec)
    check_picklable(spec)
    worker = BucketWorker(spec, with_rejected=with_rejected)
    if events.isStreaming:
        rows = _stream(events, spec, worker)
        rows = rows.observe(OBSERVATION, *_sums())
    else:
        rows = _batch(events, spec, worker)
        rows = rows if observation is None else rows.observe(observation, *_sums())
    return _public(rows, fields, with_rejected=with_rejected)


def _stream(events: DataFrame, spec: AnySpec, worker: BucketWorker) -> DataFrame:
    def run(
        key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        return worker(key, frames, state)

    delay_ms = spec.delay_ms + spec.horizon_ms
    crossing = _crossing(events, spec, spec.bucket_count, _time_for_watermark(spec))
    return (
        crossing.withWatermark(EVENT_TIME_COLUMN, f"{delay_ms} milliseconds")
        .groupBy("bucket")
        .applyInPandasWithState(
            run,
            _output_schema(worker),
            STATE_SCHEMA,
            "append",
            GroupStateTimeout.EventTimeTimeout,
        )
    )


def _batch(events: DataFrame, spec: AnySpec, worker: BucketWorker) -> DataFrame:
    def run(frame: pd.DataFrame) -> pd.DataFrame:
        return worker.whole([frame])

    crossing = _crossing(events, spec, spec.bucket_count * BUCKETS_OF_A_BATCH)
    return crossing.groupBy("bucket").applyInPandas(run, _output_schema(worker))


def _crossing(events: DataFrame, spec: AnySpec, bucket_count: int, *more: Column) -> DataFrame:
    """Project the input to what crosses to Python."""
    columns = wire_columns(spec)
    return events.select(
        _bucket(spec, bucket_count).alias("bucket"),
        F.coalesce(F.unix_micros(_time(spec)), F.lit(0)).alias("time"),
        *_flags(events, spec, columns),
        *(to_wire(_column(c.field.name), c.field.type).alias(c.name) for c in columns),
        *more,
    )


def _column(name: str) -> Column:
    return F.col(quoted(name))


def _time(spec: AnySpec) -> Column:
    return _column(spec.event_time)


def _bucket(spec: AnySpec, bucket_count: int) -> Column:
    """Hash the key in a form that is the same for equal values of any type that it may have."""
    keys = [_hashable(_column(field.name), field.type) for field in spec.key_fields]
    labels = F.array(*(F.lit(bucket_label(bucket)) for bucket in range(bucket_count)))
    place = F.pmod(F.xxhash64(*keys), F.lit(bucket_count)).cast("int")
    return F.element_at(labels, place + F.lit(1))


def _hashable(column: Column, kind: FieldType) -> Column:
    """Return a key column to hash: equal decimals of any scale have one nearest double."""
    return column.cast("double") if isinstance(kind, DecimalType) else to_wire(column, kind)


def _is_future(spec: AnySpec) -> Column:
    if spec.max_future_skew is None:
        return F.lit(False)  # noqa: FBT003 (a literal of SQL)
    skew_us = span_us(spec.max_future_skew)
    return F.unix_micros(_time(spec)) > F.unix_micros(F.current_timestamp()) + F.lit(skew_us)


def _time_for_watermark(spec: AnySpec) -> Column:
    """
    Return the event time, null where it must not move the watermark.

    Spark keeps rows without an event time, so those that are quarantined reach Python; it would
    drop those at or before the epoch while its watermark is still 0.
    """
    is_sane = F.unix_micros(_time(spec)).between(1, spec.latest_event_us)
    return F.when(is_sane & ~_is_future(spec), _time(spec)).alias(EVENT_TIME_COLUMN)


def _flags(events: DataFrame, spec: AnySpec, columns: tuple[WireColumn, ...]) -> Iterator[Column]:
    nullable = {field.name for field in events.schema.fields if field.nullable}
    claims = [(NULL_TIME_BIT, _time(spec).isNull()), (FUTURE_BIT, _is_future(spec))]
    claims += [
        (column.bit, _column(column.field.name).isNull())
        for column in columns
        if column.field.name in nullable
    ]
    for word, name in enumerate(flag_names(spec)):
        bits = [
            F.when(claim, F.lit(1 << bit % BITS).cast("bigint")).otherwise(F.lit(0).cast("bigint"))
            for bit, claim in claims
            if bit // BITS == word
        ]
        yield reduce(add, bits, F.lit(0).cast("bigint")).alias(name)


def _output_schema(worker: BucketWorker) -> str:
    fields = output_fields(worker.spec, with_rejected=worker.with_rejected)
    nans = ["nans bigint"] if has_floats(fields) else []
    columns = [f"out_{place} {wire_type(field.type)}" for place, field in enumerate(fields)]
    return ", ".join(["kind int", "counts array<bigint>", *nans, *columns])


def _sums() -> list[Column]:
    counts = F.col("counts")
    return [
        F.coalesce(F.sum(counts.getItem(place)), F.lit(0).cast("bigint")).alias(name)
        for place, name in enumerate(COUNTED)
    ]


def _public(rows: DataFrame, fields: list[Any], *, with_rejected: bool) -> DataFrame:
    """Leave out the counts, and give every column its name and type."""
    floats = [field.name for field in fields if isinstance(inner_type(field.type), FloatType)]
    columns = []
    for place, field in enumerate(fields):
        column = from_wire(F.col(f"out_{place}"), field.type)
        if field.name in floats:
            is_nan = F.col("nans").bitwiseAND(F.lit(1 << floats.index(field.name))) != 0
            column = F.when(is_nan, F.lit(float("nan"))).otherwise(column)
        columns.append(column.alias(field.name))
    if not with_rejected:
        return rows.where(F.col("kind") == KINDS.index("session")).select(*columns)
    kinds = F.array(*(F.lit(kind) for kind in KINDS))
    kind = F.element_at(kinds, F.col("kind") + F.lit(1)).alias("kind")
    return rows.where(F.col("kind") != KINDS.index("counts")).select(kind, *columns)
