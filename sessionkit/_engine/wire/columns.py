"""
The columns that cross between Spark and Python, and the forms of their values.

In   `_time`, `_flags_*`, `_key_*`, `_event_*`, `_passthrough_*`: names that no key column can have.
     Times are whole microseconds, days whole days, decimals text, collections JSON; nullable
     columns are filled, and a bit in `_flags_*` says which were null. So no conversion of pandas
     can change a value: one null would turn its neighbors' integers into floats, and a naive
     timestamp moves with the zone.
Out  `kind`, `counts`, `nans`, and `out_0`, `out_1`, ... for the columns that users see, in the same
     forms. `nans` says which floats are NaN, since pandas makes them null.
"""

import base64
import json
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

import attrs
import pyarrow as pa

from sessionkit._spec import AnySpec
from sessionkit.state import (
    BoolType,
    BytesType,
    DatetimeType,
    DateType,
    DecimalType,
    EnumType,
    Field,
    FieldType,
    FloatType,
    IntType,
    OptionalType,
    StrType,
    TimedeltaType,
    codec_of,
    decode_column,
    inner_type,
)

__all__ = [
    "BITS",
    "FUTURE_BIT",
    "NULL_TIME_BIT",
    "TIME_COLUMN",
    "WireColumn",
    "flag_names",
    "is_nested",
    "load_wire",
    "wire_columns",
    "wire_json",
    "wire_values",
]

Role: TypeAlias = Literal["key", "event", "passthrough"]

TIME_COLUMN: Final = "_time"
BITS: Final = 62
"""How many bits of a flag column are used."""
NULL_TIME_BIT: Final = 0
FUTURE_BIT: Final = 1
FIRST_COLUMN_BIT: Final = 2

SCALAR_WIRE: Final[dict[type[Any], pa.DataType]] = {
    IntType: pa.int64(),
    FloatType: pa.float64(),
    BoolType: pa.bool_(),
    StrType: pa.string(),
    BytesType: pa.binary(),
    DatetimeType: pa.int64(),
    DateType: pa.int64(),
    TimedeltaType: pa.int64(),
    DecimalType: pa.string(),
}


@attrs.frozen
class WireColumn:
    """
    One column of the input as it crosses.

    Attributes:
        name: Its name on the wire.
        role: Whether it is part of the key, of the event, or carried.
        field: The user's column and its type.
        bit: Which bit of the flags says that it was null.
    """

    name: str
    role: Role
    field: Field
    bit: int

    @property
    def required(self) -> bool:
        """Whether a null quarantines the row."""
        return not isinstance(self.field.type, OptionalType)

    @property
    def type(self) -> pa.DataType:
        """The Arrow type on the wire."""
        kind = inner_type(self.field.type)
        if isinstance(kind, EnumType):
            return SCALAR_WIRE[type(kind.base)]
        return SCALAR_WIRE.get(type(kind), pa.string())


def is_nested(kind: FieldType) -> bool:
    """Return whether a type crosses as JSON."""
    return not isinstance(kind, EnumType) and type(kind) not in SCALAR_WIRE


def wire_columns(spec: AnySpec) -> tuple[WireColumn, ...]:
    """Return the columns that cross, besides the time and the flags."""
    roles: list[tuple[Role, tuple[Field, ...]]] = [
        ("key", spec.key_fields),
        ("event", codec_of(spec.event).type.fields),
        ("passthrough", spec.passthrough_fields),
    ]
    named = [
        (f"_{role}_{place}", role, field)
        for role, fields in roles
        for place, field in enumerate(fields)
    ]
    return tuple(WireColumn(*parts, FIRST_COLUMN_BIT + n) for n, parts in enumerate(named))


def flag_names(spec: AnySpec) -> list[str]:
    """Return the names of the flag columns; each holds `BITS` bits, the lowest first."""
    bits = FIRST_COLUMN_BIT + len(wire_columns(spec))
    return [f"_flags_{n}" for n in range(-(-bits // BITS))]


def wire_json(kind: FieldType, value: Any) -> str:
    """Return the JSON in which a collection crosses, from its python form."""
    return json.dumps(kind.dump(value), default=_json_text)


def _json_text(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return format(value, "f")
    raise TypeError(type(value).__name__)


def wire_values(kind: FieldType, column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a stored column in the forms in which they cross."""
    if isinstance(kind, DatetimeType | TimedeltaType):
        column = column.cast(pa.int64())
    if isinstance(kind, DateType):
        column = column.cast(pa.int32())
    if isinstance(kind, DecimalType):
        return [None if value is None else format(value, "f") for value in column.to_pylist()]
    if is_nested(kind):
        values = decode_column(OptionalType(kind), column)
        return [None if value is None else wire_json(kind, value) for value in values]
    listed: list[Any] = column.to_pylist()
    return listed


def load_wire(kind: FieldType, value: Any) -> Any:
    """Return a value in its python form from the form in which it crosses."""
    inner = inner_type(kind)
    if value is None:
        return None
    return inner.load(json.loads(value)) if is_nested(inner) else inner.load(value)
