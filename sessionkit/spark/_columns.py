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

__all__ = ["from_wire", "public_type", "quoted", "to_wire", "wire_type"]

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
    """Return a column as it crosses the wire, nulls filled in; its flag says where they were."""
    kind = inner_type(kind)
    crossing = F.to_json(_inside(column, kind)) if is_nested(kind) else _scalar(column, kind)
    filling = FILLING.get(wire_type(kind))
    if filling is None:
        return F.coalesce(crossing, F.lit(bytearray()))
    return F.coalesce(crossing, F.lit(filling))


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
    if isinstance(kind, TimedeltaType):
        return _micros_of_interval(column)
    if isinstance(kind, DecimalType):
        return column.cast("string")
    return column.cast(wire_type(kind))


def _micros_of_interval(column: Column) -> Column:
    """Sum the parts: adding an interval to a timestamp would count its days in local time."""
    # An interval may have fewer fields: an INTERVAL MINUTE has no day to extract.
    column = column.cast("interval day to second")
    whole = [("DAY", 86_400), ("HOUR", 3_600), ("MINUTE", 60)]
    parts = [
        F.extract(F.lit(unit), column).cast("bigint") * F.lit(seconds * 1_000_000)
        for unit, seconds in whole
    ]
    seconds = (F.extract(F.lit("SECOND"), column) * F.lit(1_000_000)).cast("bigint")
    return parts[0] + parts[1] + parts[2] + seconds


def _inside(column: Column, kind: FieldType) -> Column:
    """Return a value inside a collection in a form that JSON preserves exactly."""
    kind = inner_type(kind)
    if isinstance(kind, ListType):
        return F.transform(column, lambda item: _inside(item, kind.item))
    if isinstance(kind, DictType):
        return F.transform(F.map_entries(column), lambda entry: _entry(entry, kind))
    if isinstance(kind, AttrsType | TupleType):
        parts = [_inside(column.getField(name), part).alias(name) for name, part in _parts(kind)]
        return F.when(column.isNotNull(), F.struct(*parts))
    if isinstance(kind, BytesType):
        return F.base64(column)
    return _scalar(column, kind)


def _entry(entry: Column, kind: DictType) -> Column:
    return F.struct(
        _inside(entry.getField("key"), kind.key).alias("key"),
        _inside(entry.getField("value"), kind.value).alias("value"),
    )


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
