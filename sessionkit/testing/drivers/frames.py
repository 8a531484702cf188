"""Spark's part, by hand: rows as the worker gets them, and its output as typed objects."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

import attrs
import pandas as pd

from sessionkit._engine.counts import COUNTED, Counts
from sessionkit._engine.wire.columns import (
    BITS,
    FUTURE_BIT,
    NULL_TIME_BIT,
    TIME_COLUMN,
    WireColumn,
    flag_names,
    is_nested,
    load_wire,
    wire_columns,
    wire_json,
)
from sessionkit._engine.wire.outbound import KINDS, has_floats, output_fields
from sessionkit._instants import micros_of
from sessionkit._spec import AnySpec, key_class
from sessionkit.errors import ScriptError, StateValueError
from sessionkit.state import DecimalType, Field, FloatType, codec_of, inner_type

__all__ = [
    "Rejection",
    "Row",
    "built_result",
    "check_row",
    "input_frame",
    "key_of",
    "key_on_wire",
    "read_output",
]

R = TypeVar("R")
Row: TypeAlias = dict[str, Any]

FILLING: Mapping[str, Any] = {"int64": 0, "double": 0.0, "bool": False, "string": "", "binary": b""}


@attrs.frozen
class Rejection:
    """
    An event that was set aside, or a session or timer whose function failed.

    Attributes:
        kind: `late`, `quarantined`, `failed` or `failed_output`.
        reason: Why, in words.
        key: The key; a null in it is None.
        event_time: The event's time; None where it had none, and for `failed_output`.
        passthrough: The values of the passthrough columns.
    """

    kind: str
    reason: str
    key: Any
    event_time: datetime | None
    passthrough: dict[str, Any]


def check_row(spec: AnySpec, row: Mapping[str, Any]) -> None:
    """
    Check that the values of a row fit their columns.

    Raises:
        ScriptError: A value doesn't have the type of its column.
    """
    for column in wire_columns(spec):
        _wire_value(column, row.get(column.field.name))


def input_frame(
    spec: AnySpec, rows: Sequence[Mapping[str, Any]], is_future: Sequence[bool]
) -> pd.DataFrame:
    """
    Return rows as Spark's projection hands them to the worker.

    Args:
        spec: The spec whose columns cross.
        rows: The values by column name; a value that is missing or None is a null.
        is_future: For each row, whether its event time is too far ahead.
    """
    columns = wire_columns(spec)
    name = spec.event_time
    times = [None if name is None else row.get(name) for row in rows]
    frame: dict[str, Any] = {
        TIME_COLUMN: [0 if time is None else micros_of(time) for time in times],
        **{name: [0] * len(rows) for name in flag_names(spec)},
    }
    for row, future in enumerate(is_future):
        _raise_flag(frame, row, NULL_TIME_BIT, is_raised=times[row] is None)
        _raise_flag(frame, row, FUTURE_BIT, is_raised=future)
    for column in columns:
        values = [_wire_value(column, row.get(column.field.name)) for row in rows]
        filling = FILLING[str(column.type)]
        frame[column.name] = [filling if value is None else value for value in values]
        for row, value in enumerate(values):
            _raise_flag(frame, row, column.bit, is_raised=value is None)
    return pd.DataFrame(frame)


def key_on_wire(spec: AnySpec, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key of a row as Spark groups by it, a null filled."""
    columns = [column for column in wire_columns(spec) if column.role == "key"]
    values = [_wire_value(column, row.get(column.field.name)) for column in columns]
    return tuple(
        FILLING[str(column.type)] if value is None else value
        for column, value in zip(columns, values, strict=True)
    )


def _raise_flag(frame: dict[str, Any], row: int, bit: int, *, is_raised: bool) -> None:
    if is_raised:
        frame[f"_flags_{bit // BITS}"][row] |= 1 << bit % BITS


def _wire_value(column: WireColumn, value: Any) -> Any:
    kind = inner_type(column.field.type)
    if value is None:
        return None
    try:
        exact = kind.coerce(value, column.field.name)
    except StateValueError as error:
        raise ScriptError(str(error)) from error
    if is_nested(kind):
        return wire_json(kind, exact)
    dumped = kind.dump(exact)
    return format(dumped, "f") if isinstance(kind, DecimalType) else dumped


def read_output(
    spec: AnySpec, frames: Iterable[pd.DataFrame]
) -> tuple[list[Row], list[Rejection], Counts]:
    """
    Return the worker's output: result rows, rejections, and the sum of its counts.

    A result row maps column names to Python values.
    """
    fields = output_fields(spec, with_rejected=True)
    results: list[Row] = []
    rejections: list[Rejection] = []
    counts = Counts()
    for frame in frames:
        names = list(frame.columns)
        for values in zip(*(frame[name].tolist() for name in names), strict=True):
            row = dict(zip(names, values, strict=True))
            kind = KINDS[row["kind"]]
            if kind == "counts":
                counts += Counts(**dict(zip(COUNTED, row["counts"], strict=True)))
            elif kind == spec.row_kind:
                results.append(_public(fields, row))
            else:
                rejections.append(_rejection(spec, kind, _public(fields, row)))
    return results, rejections, counts


def _public(fields: Sequence[Field], row: Mapping[Any, Any]) -> dict[str, Any]:
    """Turn a row of the wire into Python values under the names that users see."""
    values = {
        field.name: load_wire(field.type, row[f"out_{place}"]) for place, field in enumerate(fields)
    }
    if has_floats(fields):
        floats = [field.name for field in fields if isinstance(inner_type(field.type), FloatType)]
        for place, name in enumerate(floats):
            if row["nans"] >> place & 1:
                values[name] = float("nan")
    return values


def key_of(spec: AnySpec, row: Mapping[str, Any]) -> Any:
    """Return the key in a row, as the functions of the user see it."""
    return key_class(tuple(spec.keys))(*(row[name] for name in spec.keys))


def built_result(cls: type[R], row: Mapping[str, Any]) -> R:
    """Return the result in a row as an object of its class."""
    kind = codec_of(cls).type
    built: R = kind.build(*(row[field.name] for field in kind.fields))
    return built


def _rejection(spec: AnySpec, kind: str, row: Mapping[str, Any]) -> Rejection:
    passthrough = {name: row[name] for name in spec.passthrough}
    return Rejection(kind, row["reason"], key_of(spec, row), row["event_time"], passthrough)
