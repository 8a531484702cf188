"""
The projections around the Python function: the user's columns to the wire, and its output back.

The package `_engine.wire` describes the wire. The functions here serve every kind of spec.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add
from typing import Final

from pyspark.sql import Column, DataFrame, GroupedData, Observation
from pyspark.sql import functions as F

from sessionkit._engine.counts import COUNTED
from sessionkit._engine.wire.columns import (
    BITS,
    FUTURE_BIT,
    NULL_TIME_BIT,
    TIME_COLUMN,
    WireColumn,
    flag_names,
    wire_columns,
)
from sessionkit._engine.wire.outbound import KINDS, has_floats, output_fields
from sessionkit._instants import span_us
from sessionkit._spec import AnySpec
from sessionkit.spark._columns import from_wire, public_type, quoted, to_wire, wire_type
from sessionkit.spark.jobs.labels import bucket_label
from sessionkit.spark.jobs.progress import OBSERVATION
from sessionkit.state import DecimalType, Field, FieldType, FloatType, inner_type

__all__ = [
    "EVENT_TIME_COLUMN",
    "batch_buckets",
    "bucket_column",
    "crossing",
    "grouping_key",
    "output_schema",
    "public_rows",
    "time_for_watermark",
]

EVENT_TIME_COLUMN: Final = "_watermark"
BUCKETS_OF_A_BATCH: Final = 4
"""A batch passes each bucket as one whole frame, so it uses this many times more buckets."""


def crossing(events: DataFrame, spec: AnySpec, *more: Column) -> DataFrame:
    """Project the input to the columns that cross to Python, plus these."""
    columns = wire_columns(spec)
    return events.select(
        _time_us(spec).alias(TIME_COLUMN),
        *_flags(events, spec, columns),
        *(to_wire(_column(c.field.name), c.field.type).alias(c.name) for c in columns),
        *more,
    )


def batch_buckets(events: DataFrame, spec: AnySpec) -> GroupedData:
    """Return the columns of a batch that cross to Python, grouped into buckets."""
    buckets = bucket_column(spec, spec.bucket_count * BUCKETS_OF_A_BATCH)
    return crossing(events, spec, buckets).groupBy("bucket")


def bucket_column(spec: AnySpec, bucket_count: int) -> Column:
    """
    Return the label of the bucket of each row.

    The key is hashed in a form in which equal values are equal, whatever types the column may have.
    """
    keys = [_hashable(_column(field.name), field.type) for field in spec.key_fields]
    labels = F.array(*(F.lit(bucket_label(bucket)) for bucket in range(bucket_count)))
    place = F.pmod(F.xxhash64(*keys), F.lit(bucket_count)).cast("int")
    return F.element_at(labels, place + F.lit(1)).alias("bucket")


def grouping_key(spec: AnySpec) -> list[Column]:
    """Return the key columns to group by, under the user's names."""
    return [
        _groupable(column.name, column.field.type).alias(column.field.name)
        for column in wire_columns(spec)
        if column.role == "key"
    ]


def time_for_watermark(spec: AnySpec) -> Column:
    """
    Return the event time; null where it must not move the watermark.

    Spark keeps rows without an event time, so quarantined rows reach Python; it would drop rows
    at or before the epoch while its watermark is still 0.
    """
    is_sane = F.unix_micros(_time(spec)).between(1, spec.latest_event_us)
    return F.when(is_sane & ~_is_future(spec), _time(spec)).alias(EVENT_TIME_COLUMN)


def output_schema(spec: AnySpec, *, with_rejected: bool) -> str:
    """Return the schema of the rows that Python returns."""
    fields = output_fields(spec, with_rejected=with_rejected)
    nans = ["nans bigint"] if has_floats(fields) else []
    columns = [f"out_{place} {wire_type(field.type)}" for place, field in enumerate(fields)]
    return ", ".join(["kind int", "counts array<bigint>", *nans, *columns])


def public_rows(
    rows: DataFrame, spec: AnySpec, observation: Observation | None, *, with_rejected: bool
) -> DataFrame:
    """
    Return the rows as users see them, with the counts observed.

    Args:
        rows: The rows that Python returned.
        spec: The spec.
        observation: Receives the counts of a batch; those of a stream are in its progress.
        with_rejected: Whether the rows include rejected ones.
    """
    if rows.isStreaming:
        rows = rows.observe(OBSERVATION, *_sums())
    elif observation is not None:
        rows = rows.observe(observation, *_sums())
    fields = output_fields(spec, with_rejected=with_rejected)
    columns = _shown(fields)
    if not with_rejected:
        return rows.where(F.col("kind") == KINDS.index(spec.row_kind)).select(*columns)
    kinds = F.array(*(F.lit(kind) for kind in KINDS))
    kind = F.element_at(kinds, F.col("kind") + F.lit(1)).alias("kind")
    return rows.where(F.col("kind") != KINDS.index("counts")).select(kind, *columns)


def _shown(fields: Sequence[Field]) -> list[Column]:
    """Give every column its name and type."""
    floats = [field.name for field in fields if isinstance(inner_type(field.type), FloatType)]
    columns = []
    for place, field in enumerate(fields):
        column = from_wire(F.col(f"out_{place}"), field.type)
        if field.name in floats:
            is_nan = F.col("nans").bitwiseAND(F.lit(1 << floats.index(field.name))) != 0
            column = F.when(is_nan, F.lit(float("nan"))).otherwise(column)
        columns.append(column.alias(field.name))
    return columns


def _column(name: str) -> Column:
    return F.col(quoted(name))


def _time(spec: AnySpec) -> Column:
    return F.lit(None).cast("timestamp") if spec.event_time is None else _column(spec.event_time)


def _time_us(spec: AnySpec) -> Column:
    return F.coalesce(F.unix_micros(_time(spec)), F.lit(0))


def _hashable(column: Column, kind: FieldType) -> Column:
    """Return a key column to hash: equal decimals of any scale have the same nearest double."""
    return column.cast("double") if isinstance(kind, DecimalType) else to_wire(column, kind)


def _groupable(name: str, kind: FieldType) -> Column:
    """
    Return a key column to group by: equal decimals of any scale have the same text.

    A decimal that is null or doesn't fit is grouped as null; Python quarantines its rows.
    """
    if isinstance(kind, DecimalType):
        return F.expr(f"cast(try_cast({quoted(name)} as {public_type(kind)}) as string)")
    return F.col(name)


def _is_future(spec: AnySpec) -> Column:
    if spec.max_future_skew is None:
        return F.lit(False)  # noqa: FBT003 (a literal of SQL)
    skew_us = span_us(spec.max_future_skew)
    return F.unix_micros(_time(spec)) > F.unix_micros(F.current_timestamp()) + F.lit(skew_us)


def _flags(events: DataFrame, spec: AnySpec, columns: tuple[WireColumn, ...]) -> Iterator[Column]:
    nullable = {field.name for field in events.schema.fields if field.nullable}
    claims = []
    if spec.event_time is not None:
        claims += [(NULL_TIME_BIT, _time(spec).isNull()), (FUTURE_BIT, _is_future(spec))]
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


def _sums() -> list[Column]:
    counts = F.col("counts")
    return [
        F.coalesce(F.sum(counts.getItem(place)), F.lit(0).cast("bigint")).alias(name)
        for place, name in enumerate(COUNTED)
    ]
