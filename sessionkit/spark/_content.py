"""The order of rows by content, of columns of any type; and which types have no equality."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionkit.errors import SchemaError

AS_KEY: Final = {
    "map": "take its sorted entries as the key: F.array_sort(F.map_entries(...))",
    "variant": "take a field of it as the key, or its text: F.to_json(...)",
    "interval": 'cast it to "interval day to second", or to string',
    "geometry": 'take its bytes as the key: F.call_function("st_asbinary", ...)',
    "geography": 'take its bytes as the key: F.call_function("st_asbinary", ...)',
}
"""The types whose values Spark doesn't compare, with what to compare in their place."""
SEVERAL: Final = {"geometry": "geometries", "geography": "geographies"} | {
    name: f"{name}s" for name in ("map", "variant", "interval")
}


def uncompared(kind: T.DataType) -> str | None:
    """Return the name of a type in this one whose values Spark doesn't compare; None if none is."""
    match kind:
        case T.MapType():
            return "map"
        case T.ArrayType():
            return uncompared(kind.elementType)
        case T.StructType():
            return next(filter(None, (uncompared(part.dataType) for part in kind)), None)
    # PySpark has no class for some of these before the release that brought them.
    name = kind.simpleString().partition("(")[0]
    return name if name in AS_KEY else None


def check_compared(schema: T.StructType, keys: Sequence[str], *, but: str | None = None) -> None:
    """Check that Spark compares the values of key columns; `but` names a type that passes."""
    for name in keys:
        kind = schema[name].dataType
        found = uncompared(kind)
        if found is not None and found != but:
            text = f"the key `{name}` is a {kind.simpleString()}"
            raise SchemaError(f"{text}: Spark doesn't compare {SEVERAL[found]}", AS_KEY[found])


def in_order(kind: T.DataType, value: Column) -> Column:
    """
    Return a value that Spark orders in place of this one, equal only where all of it is the same.

    Spark's own order takes 0.0 for -0.0, and letters of one collation for each other.
    """
    return value if (ordered := _ordered(kind, value)) is None else ordered


def _ordered(kind: T.DataType, value: Column) -> Column | None:
    """Return what to order in place of a value; None for the value itself."""
    match kind:
        case T.MapType():
            of_key, of_value = kind.keyType, kind.valueType
            entries = F.transform(
                F.map_entries(value),
                lambda entry: F.struct(
                    in_order(of_key, entry["key"]).alias("key"),
                    in_order(of_value, entry["value"]).alias("value"),
                ),
            )
            return _with(F.array_sort(entries), entries)
        case T.ArrayType():
            item = kind.elementType
            if _ordered(item, value) is None:
                return None
            return F.transform(value, lambda one: in_order(item, one))
        case T.StructType():
            return _ordered_struct(kind, value)
        case T.DoubleType() | T.FloatType():
            return _with(value, F.when(value == 0, value.cast("string")))
        case T.StringType() if " collate " in kind.simpleString():
            return _with(value, value.cast("binary"))
    match uncompared(kind):
        case "variant":
            return _with(F.to_json(value), F.call_function("schema_of_variant", value))
        case "interval":
            return value.cast("string")
        case "geometry" | "geography":
            binary = F.call_function("st_asbinary", value)
            return _with(binary, F.call_function("st_srid", value))
    return None


def _ordered_struct(kind: T.StructType, value: Column) -> Column | None:
    parts = {part.name: _ordered(part.dataType, value[part.name]) for part in kind}
    if all(part is None for part in parts.values()):
        return None
    inner = [
        (value[name] if part is None else part).alias(f"part_{place}")
        for place, (name, part) in enumerate(parts.items())
    ]
    return F.when(value.isNotNull(), F.struct(*inner))


def _with(value: Column, rest: Column) -> Column:
    return F.struct(value.alias("value"), rest.alias("rest"))
