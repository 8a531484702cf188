"""Columns to the wire and back, one expression for each type. `_engine.wire` describes the wire."""

from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from sessionkit._engine.wire.columns import is_nested
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

__all__ = ["from_wire", "grouping_form", "public_type", "quoted", "to_wire", "wire_type"]

SCALAR_TYPES: Final[dict[type[Any], tuple[str, str]]] = {
    IntType: ("bigint", "bigint"),
    FloatType: ("double", "double"),
    BoolType: ("boolean", "boolean"),
    StrType: ("string", "string"),
    BytesType: ("binary", "binary"),
    DatetimeType: ("timestamp", "bigint"),
    DateType: ("date", "int"),
    TimedeltaType: ("interval day to second", "bigint"),
}
"""For each type, its SQL type, and the SQL type in which it crosses the wire."""

FILLING: Final[dict[str, Any]] = {
    "bigint": 0,
    "double": 0.0,
    "boolean": False,
    "string": "",
    "int": 0,
}


def quoted(name: str) -> str:
    """Return a column name quoted, so that Spark reads none of its characters as syntax."""
    return f"`{name.replace('`', '``')}`"


def public_type(kind: FieldType) -> str:
    """Return the SQL type of a column of this type, as users see it."""
    kind = inner_type(kind)
    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    return _sql(kind, 0)


def wire_type(kind: FieldType) -> str:
    """Return the SQL type in which a top-level column crosses the wire."""
    kind = inner_type(kind)
    return "string" if is_nested(kind) else _sql(kind, 1)


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
    crossing = _scalar(column, kind)
    filling = FILLING.get(wire_type(kind))
    return F.coalesce(crossing, F.lit(bytearray() if filling is None else filling))


def from_wire(column: Column, kind: FieldType) -> Column:
    """Return an output column as users see it."""
    kind = inner_type(kind)
    if is_nested(kind):
        return _outside(F.from_json(column, _sql(kind, 1)), kind)
    return _outside(column, kind)


def _sql(kind: FieldType, form: int) -> str:
    """Return the SQL type: form 0 as users see it, form 1 as it crosses the wire."""
    kind = inner_type(kind)
    if isinstance(kind, EnumType):
        return _sql(kind.base, form)
    if isinstance(kind, DecimalType):
        return "string" if form else f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, ListType):
        return f"array<{_sql(kind.item, form)}>"
    if isinstance(kind, DictType):
        key, value = _sql(kind.key, form), _sql(kind.value, form)
        return f"array<struct<key:{key},value:{value}>>" if form else f"map<{key},{value}>"
    if isinstance(kind, TupleType | AttrsType):
        parts = [f"{quoted(name)}:{_sql(part, form)}" for name, part in _parts(kind)]
        return f"struct<{','.join(parts)}>"
    return SCALAR_TYPES[type(kind)][form]


def _parts(kind: TupleType | AttrsType) -> list[tuple[str, FieldType]]:
    if isinstance(kind, TupleType):
        return [(f"_{place}", item) for place, item in enumerate(kind.items)]
    return [(field.name, field.type) for field in kind.fields]


def _scalar(column: Column, kind: FieldType) -> Column:
    if isinstance(kind, DatetimeType):
        return F.unix_micros(column)
    if isinstance(kind, DateType):
        return F.unix_date(column).cast("bigint")
    return column.cast(wire_type(kind))


def _outside(column: Column, kind: FieldType) -> Column:
    kind = inner_type(kind)
    if isinstance(kind, ListType):
        return F.transform(column, lambda item: _outside(item, kind.item))
    if isinstance(kind, DictType):
        entries = F.transform(
            column,
            lambda entry: F.struct(
                _outside(entry.getField("key"), kind.key).alias("key"),
                _outside(entry.getField("value"), kind.value).alias("value"),
            ),
        )
        return F.map_from_entries(entries)
    if isinstance(kind, TupleType | AttrsType):
        parts = [_outside(column.getField(name), part).alias(name) for name, part in _parts(kind)]
        return F.when(column.isNotNull(), F.struct(*parts))
    if isinstance(kind, DatetimeType):
        return F.timestamp_micros(column)
    if isinstance(kind, DateType):
        return F.date_from_unix_date(column)
    if isinstance(kind, TimedeltaType):
        return _interval_of_micros(column)
    return column.cast(public_type(kind))


def _interval_of_micros(column: Column) -> Column:
    seconds = column.cast("decimal(20,0)") * F.lit("0.000001").cast("decimal(7,6)")
    nothing = F.lit(0)
    return F.make_dt_interval(nothing, nothing, nothing, seconds.cast("decimal(18,6)"))
