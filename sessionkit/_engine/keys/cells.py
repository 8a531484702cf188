"""
The cells of a key's row, in which Spark stores a field each: only flat types keep their values.

Times are whole microseconds, days whole days, decimals text, collections JSON.
"""

import base64
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa

from sessionkit._engine.wire.columns import is_nested
from sessionkit.state import (
    DatetimeType,
    DateType,
    DecimalType,
    FieldType,
    OptionalType,
    TimedeltaType,
    decode_column,
    inner_type,
)

__all__ = ["cells_of", "loaded_cell"]


def cells_of(kind: FieldType, column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as cells."""
    if isinstance(kind, DatetimeType | TimedeltaType):
        column = column.cast(pa.int64())
    if isinstance(kind, DateType):
        column = column.cast(pa.int32())
    if isinstance(kind, DecimalType):
        return [None if value is None else format(value, "f") for value in column.to_pylist()]
    if is_nested(kind):
        values = decode_column(OptionalType(kind), column)
        return [None if value is None else _json(kind, value) for value in values]
    listed: list[Any] = column.to_pylist()
    return listed


def loaded_cell(kind: FieldType, value: Any) -> Any:
    """Return a value in its python form from its cell."""
    inner = inner_type(kind)
    if value is None:
        return None
    return inner.load(json.loads(value)) if is_nested(inner) else inner.load(value)


def _json(kind: FieldType, value: Any) -> str:
    return json.dumps(kind.dump(value), default=_json_text)


def _json_text(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return format(value, "f")
    raise TypeError(type(value).__name__)
