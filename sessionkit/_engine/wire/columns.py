"""
The columns that cross between Spark and Python, and the forms of their values.

In    `_time`, `_future`, `_key_*`, `_event_*`, `_passthrough_*`: names that no key column can have.
      They reach Python as Arrow columns, with nulls and nested types as they are.
Over  the shuffle, `_events` and `_rejected`: Arrow record batches as bytes (`packing` has both
      ends), and `_watermark`, by which Spark moves its watermark.
Out   `_counts`, and `_rows`: result and rejected rows as bytes too, which a last step in Python
      turns back into columns. So no conversion of pandas can change a value.
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
    "COUNTS_COLUMN",
    "EVENTS_COLUMN",
    "FUTURE_COLUMN",
    "REJECTED_COLUMN",
    "ROWS_COLUMN",
    "TIME_COLUMN",
    "WATERMARK_COLUMN",
    "WireColumn",
    "is_nested",
    "load_wire",
    "wire_columns",
    "wire_json",
    "wire_values",
]

Role: TypeAlias = Literal["key", "event", "passthrough"]

TIME_COLUMN: Final = "_time"
FUTURE_COLUMN: Final = "_future"
WATERMARK_COLUMN: Final = "_watermark"
EVENTS_COLUMN: Final = "_events"
REJECTED_COLUMN: Final = "_rejected"
COUNTS_COLUMN: Final = "_counts"
ROWS_COLUMN: Final = "_rows"

SCALARS: Final = (
    IntType,
    FloatType,
    BoolType,
    StrType,
    BytesType,
    DatetimeType,
    DateType,
    TimedeltaType,
    DecimalType,
    EnumType,
)


@attrs.frozen
class WireColumn:
    """
    One column of the input as it crosses.

    Attributes:
        name: Its name on the wire.
        role: Whether it is part of the key, of the event, or carried.
        field: The user's column and its type.
    """

    name: str
    role: Role
    field: Field

    @property
    def required(self) -> bool:
        """Whether a null quarantines the row."""
        return not isinstance(self.field.type, OptionalType)


def is_nested(kind: FieldType) -> bool:
    """Return whether a type has parts; its values leave Python as JSON."""
    return not isinstance(kind, SCALARS)


def wire_columns(spec: AnySpec) -> tuple[WireColumn, ...]:
    """Return the columns that cross, besides the time."""
    roles: list[tuple[Role, tuple[Field, ...]]] = [
        ("key", spec.key_fields),
        ("event", codec_of(spec.event).type.fields),
        ("passthrough", spec.passthrough_fields),
    ]
    return tuple(
        WireColumn(f"_{role}_{place}", role, field)
        for role, fields in roles
        for place, field in enumerate(fields)
    )


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
