"""The columns that a source makes of a payload: those that the spec reads, with its types."""

from collections.abc import Collection
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionkit._engine.wire.columns import UNREADABLE_COLUMN
from sessionkit.spark._columns import quoted
from sessionkit.spark.sources.values import PAYLOAD
from sessionkit.spec.shared import AnySpec
from sessionkit.state import DatetimeType, Field, OptionalType, codec_of

__all__ = ["SHOWN", "ddl", "payload_fields", "required", "without_long"]

SHOWN: Final = 100
"""How many letters of a value a reason shows."""


def without_long(raw: DataFrame, most: int) -> DataFrame:
    """
    Return rows without payloads that are too long, and with the reasons why they can't be read.

    It's for what comes after to keep a reason that is there: a null payload is no reason then.

    Args:
        raw: Rows with a column `payload` of bytes.
        most: The most bytes of a payload.
    """
    size = F.length(PAYLOAD)
    words = F.lit("its payload has "), size, F.lit(f" bytes, more than the {most} of `max_bytes`")
    reason = F.when(size > most, F.concat(*words))
    short = F.when(size <= most, F.col(PAYLOAD))
    return raw.withColumn(UNREADABLE_COLUMN, reason).withColumn(PAYLOAD, short)


def payload_fields(spec: AnySpec, position: Collection[str]) -> tuple[Field, ...]:
    """
    Return the columns that the spec reads, but for those that say where a row came from.

    Args:
        spec: The spec.
        position: The names of those.
    """
    time = [] if spec.event_time is None else [Field(spec.event_time, DatetimeType(), "")]
    passed = [field for field in spec.passthrough_fields if field.name not in position]
    fields = [*spec.key_fields, *time, *codec_of(spec.event).type.fields, *passed]
    # A key column or the time may be a field of the event too.
    return tuple({field.name: field for field in reversed(fields)}.values())[::-1]


def required(spec: AnySpec, fields: Collection[Field]) -> list[str]:
    """Return the names of those that may not be null in an event."""
    always = {*spec.keys, spec.event_time}
    return [
        field.name
        for field in fields
        if field.name in always or not isinstance(field.type, OptionalType)
    ]


def ddl(fields: Collection[Field]) -> str:
    """Return the columns as Spark's SQL has them."""
    return ", ".join(f"{quoted(field.name)} {field.type.sql}" for field in fields)
