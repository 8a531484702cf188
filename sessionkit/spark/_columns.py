"""SQL types, and columns on their way to Python, one for each type of a field."""

from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from sessionkit._engine.wire.columns import NULL_KEYS, is_nested
from sessionkit.state import (
    AttrsType,
    BoolType,
    BytesType,
    DatetimeType,
    DateType,
    DecimalType,
    DictType,
    EnumType,
    FieldType,
    FloatType,
    IntType,
    ListType,
    StrType,
    TimedeltaType,
    TupleType,
    inner_type,
)

__all__ = ["OF_REJECTED", "cell_type", "grouping_form", "public_type", "quoted", "to_wire"]

OF_REJECTED: Final = "sessionkit.of_rejected"
"""What the metadata of a column says that result rows don't have, where its name doesn't."""
PUBLIC_TYPES: Final[dict[type[Any], str]] = {
    IntType: "bigint",
    FloatType: "double",
    BoolType: "boolean",
    StrType: "string",
    BytesType: "binary",
    DatetimeType: "timestamp",
    DateType: "date",
    TimedeltaType: "interval day to second",
}
CELL_TYPES: Final[dict[type[Any], str]] = {
    **PUBLIC_TYPES,
    DatetimeType: "bigint",
    DateType: "bigint",
    DecimalType: "string",
}


def quoted(name: str) -> str:
    """Return a column name quoted, so that Spark reads none of its characters as syntax."""
    return f"`{name.replace('`', '``')}`"


def public_type(kind: FieldType) -> str:
    """Return the SQL type of a column of this type, as users see it."""
    kind = inner_type(kind)
    if isinstance(kind, EnumType):
        return public_type(kind.base)
    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, ListType):
        return f"array<{public_type(kind.item)}>"
    if isinstance(kind, DictType):
        return f"map<{public_type(kind.key)},{public_type(kind.value)}>"
    if isinstance(kind, TupleType | AttrsType):
        parts = [f"{quoted(name)}:{public_type(part)}" for name, part in _parts(kind)]
        return f"struct<{','.join(parts)}>"
    return PUBLIC_TYPES[type(kind)]


def cell_type(kind: FieldType) -> str:
    """Return the SQL type of a key column in the form by which Spark groups."""
    return CELL_TYPES[type(kind)]


def to_wire(column: Column, kind: FieldType) -> Column:
    """Return a column as it reaches Python, in a type of which Arrow makes the declared one."""
    kind = inner_type(kind)
    if isinstance(kind, TimedeltaType):
        # An interval may have fewer fields, such as an INTERVAL MINUTE.
        return column.cast("interval day to second")
    if isinstance(kind, DatetimeType | DateType | DecimalType) or is_nested(kind):
        return column
    return column.cast(public_type(kind))


def grouping_form(column: Column, kind: FieldType) -> Column:
    """Return a key column in a form by which Spark groups, nulls filled in."""
    filling = NULL_KEYS[type(kind)]
    filling = bytearray(filling) if isinstance(filling, bytes) else filling
    return F.coalesce(_groupable(column, kind), F.lit(filling))


def _groupable(column: Column, kind: FieldType) -> Column:
    if isinstance(kind, DatetimeType):
        return F.unix_micros(column)
    if isinstance(kind, DateType):
        return F.unix_date(column).cast("bigint")
    return column.cast(public_type(kind))


def _parts(kind: TupleType | AttrsType) -> list[tuple[str, FieldType]]:
    if isinstance(kind, TupleType):
        return [(f"_{place}", item) for place, item in enumerate(kind.items)]
    return [(field.name, field.type) for field in kind.fields]
