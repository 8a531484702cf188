"""
The user's rows, packed by group and ready for the shuffle.

The package `_engine.wire` describes what crosses. The functions here serve every kind of spec.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

import attrs
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionkit._engine.wire.columns import (
    EVENTS_COLUMN,
    FUTURE_COLUMN,
    REJECTED_COLUMN,
    TIME_COLUMN,
    UNREADABLE_COLUMN,
    WATERMARK_COLUMN,
    wire_columns,
)
from sessionkit._engine.wire.packing import Packer
from sessionkit._instants import span_us
from sessionkit.spark._columns import grouping_form, quoted, to_wire
from sessionkit.spark.jobs.labels import label_of
from sessionkit.spark.jobs.spared import spare_imports
from sessionkit.spec.shared import AnySpec
from sessionkit.state import DecimalType, FieldType

__all__ = [
    "BUCKET",
    "NOTHING",
    "Beside",
    "bucket_number",
    "bucket_of_forms",
    "grouping_key",
    "labelled",
    "packed",
]

BUCKET: Final = "bucket"


@attrs.frozen
class Beside:
    """
    Streams beside that of the events.

    Attributes:
        sown: The rows of a seed.
        clock: Times that move the watermark as events would.
    """

    sown: DataFrame | None = None
    clock: DataFrame | None = None


NOTHING: Final = Beside()


def packed(
    events: DataFrame,
    spec: AnySpec,
    group: Mapping[str, Column],
    beside: Beside = NOTHING,
) -> DataFrame:
    """
    Pack the columns that the spec reads into one row a group and map task.

    Args:
        events: The user's rows.
        spec: The spec.
        group: The columns to group by, and their names; none may be null.
        beside: What comes beside the events.
    """
    moves_watermark = events.isStreaming and spec.delay_ms is not None
    packer = Packer(spec, tuple(group), moves_watermark)

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_imports("pack")
        return packer(batches)

    groups = [column.alias(name) for name, column in group.items()]
    chosen = events.select(*groups, *_crossing(spec, events))
    kinds = {name: chosen.schema[name].dataType.simpleString() for name in group}
    watermark = {WATERMARK_COLUMN: "timestamp"} if moves_watermark else {}
    schema = {**kinds, **watermark, EVENTS_COLUMN: "binary", REJECTED_COLUMN: "binary"}
    text = ", ".join(f"{quoted(name)} {kind}" for name, kind in schema.items())
    rows = chosen.mapInArrow(pack, text)
    if beside.sown is not None:
        rows = rows.unionByName(beside.sown, allowMissingColumns=True)
    if beside.clock is not None:
        times = beside.clock.toDF(WATERMARK_COLUMN)
        rows = rows.unionByName(times.dropna(), allowMissingColumns=True)
    return _under_watermark(rows, spec) if moves_watermark else rows


def _under_watermark(rows: DataFrame, spec: AnySpec) -> DataFrame:
    """Let the marker rows move the watermark, and go no further."""
    timed = rows.withWatermark(WATERMARK_COLUMN, f"{spec.delay_ms} milliseconds")
    # Spark doesn't move a filter on the event time to before the watermark.
    return timed.where(F.col(WATERMARK_COLUMN).isNull())


def bucket_number(spec: AnySpec, bucket_count: int) -> Column:
    """
    Return the number of the bucket of each row.

    The key is hashed in a form in which equal values are equal, whatever types the column may have.
    """
    forms = [_hashable(field.name, field.type) for field in spec.key_fields]
    return bucket_of_forms(spec, forms, bucket_count)


def bucket_of_forms(spec: AnySpec, forms: Sequence[Column], bucket_count: int) -> Column:
    """
    Return the number of the bucket of a key whose columns are in the forms by which Spark groups.

    Equal decimals of any scale, as numbers or as text, have the same nearest double.
    """
    hashed = [
        form.cast("double") if isinstance(field.type, DecimalType) else form
        for field, form in zip(spec.key_fields, forms, strict=True)
    ]
    return F.pmod(F.xxhash64(*hashed), F.lit(bucket_count)).cast("int")


def labelled(rows: DataFrame, bucket_count: int) -> DataFrame:
    """Give each bucket its label in place of its number."""
    return rows.withColumn(BUCKET, label_of(F.col(BUCKET), bucket_count))


def grouping_key(spec: AnySpec) -> dict[str, Column]:
    """
    Return the key columns to group by, under the user's names.

    Equal decimals of any scale have the same text. A decimal that is null or doesn't fit is
    grouped as an empty one; its rows are quarantined.
    """
    return {field.name: grouping_form(field.name, field.type) for field in spec.key_fields}


def _hashable(name: str, kind: FieldType) -> Column:
    """Return a key column in a form that can be hashed: for decimals that is the number itself."""
    return _column(name) if isinstance(kind, DecimalType) else grouping_form(name, kind)


def _crossing(spec: AnySpec, events: DataFrame) -> Iterator[Column]:
    if UNREADABLE_COLUMN in events.columns:
        yield _column(UNREADABLE_COLUMN)
    if spec.event_time is not None:
        yield _column(spec.event_time).alias(TIME_COLUMN)
        if spec.max_future_skew is not None:
            yield _is_future(_column(spec.event_time), spec.max_future_skew).alias(FUTURE_COLUMN)
    for column in wire_columns(spec):
        yield to_wire(_column(column.field.name), column.field.type).alias(column.name)


def _is_future(time: Column, skew: timedelta) -> Column:
    """
    Return whether an event time is too far ahead of the time of the micro-batch.

    Spark writes a number that differs in every micro-batch into the code that it generates, and so
    compiles all of that stage again. It passes an array by reference: here of one number, taken out
    by an index that is always 0, but that Spark can't know before it has the row.
    """
    time_us = F.unix_micros(time)
    latest_us = F.unix_micros(F.current_timestamp()) + F.lit(span_us(skew))
    return time_us > F.get(F.array(latest_us), F.pmod(time_us, F.lit(1)).cast("int"))


def _column(name: str) -> Column:
    return F.col(quoted(name))
