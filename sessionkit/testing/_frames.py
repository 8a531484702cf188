"""Rows as the worker gets them, and what it hands out as typed objects: Spark's part, by hand."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypeVar

import attrs
import pandas as pd

from sessionkit._counts import COUNTED, Counts
from sessionkit._instants import micros_of
from sessionkit._output import KINDS, has_floats, output_fields
from sessionkit._spec_input import key_class
from sessionkit._wire import (
    BITS,
    FUTURE_BIT,
    NULL_TIME_BIT,
    WireColumn,
    flag_names,
    inner_type,
    is_nested,
    wire_columns,
    wire_json,
)
from sessionkit.errors import ScriptError, StateValueError
from sessionkit.session import SESSION_COLUMNS, SessionSpec
from sessionkit.state import DecimalType, Field, FieldType, FloatType, codec_of

__all__ = ["ClosedSession", "Rejection", "check_row", "input_frame", "read_output"]

AnySpec: TypeAlias = SessionSpec[Any, Any, Any]
R = TypeVar("R")

FILLING: Mapping[str, Any] = {"int64": 0, "double": 0.0, "bool": False, "string": "", "binary": b""}


@attrs.frozen
class ClosedSession(Generic[R]):
    """
    One result row of a session that is over.

    Attributes:
        key: The key: a named tuple with the columns of `SessionSpec.keys`.
        id: The session's id.
        start: The time of its first event, in UTC.
        end: The time of its last event plus the gap, exclusive.
        result: The row that `finish` returned.
    """

    key: Any
    id: str
    start: datetime
    end: datetime
    result: R


@attrs.frozen
class Rejection:
    """
    An event that became part of no session, or a session whose `finish` failed.

    Attributes:
        kind: `late`, `quarantined`, `failed` or `unfinished`.
        reason: Why, in words.
        key: The key; a null in it is None.
        event_time: The event's time; None where it had none, and for `unfinished`.
        carry: The carried columns.
    """

    kind: str
    reason: str
    key: Any
    event_time: datetime | None
    carry: dict[str, Any]


def check_row(spec: AnySpec, row: Mapping[str, Any]) -> None:
    """
    Check that the values of a row fit their columns.

    Raises:
        ScriptError: A value has another type than its column.
    """
    for column in wire_columns(spec):
        _wire_value(column, row.get(column.field.name))


def input_frame(
    spec: AnySpec, rows: Sequence[Mapping[str, Any]], is_future: Sequence[bool]
) -> pd.DataFrame:
    """
    Return rows as Spark's projection hands them to the worker.

    Args:
        spec: Whose columns cross.
        rows: The values by column name; what is missing or None is a null.
        is_future: For each row, whether its event time is too far ahead.
    """
    columns = wire_columns(spec)
    times = [row.get(spec.event_time) for row in rows]
    frame: dict[str, Any] = {
        "time": [0 if time is None else micros_of(time) for time in times],
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


def _raise_flag(frame: dict[str, Any], row: int, bit: int, *, is_raised: bool) -> None:
    if is_raised:
        frame[f"flags_{bit // BITS}"][row] |= 1 << bit % BITS


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
) -> tuple[list[ClosedSession[Any]], list[Rejection], Counts]:
    """Return what the worker handed out, as typed objects, and the sum of its counts."""
    fields = output_fields(spec, with_rejected=True)
    sessions: list[ClosedSession[Any]] = []
    rejections: list[Rejection] = []
    counts = Counts()
    for frame in frames:
        names = list(frame.columns)
        for values in zip(*(frame[name].tolist() for name in names), strict=True):
            row = dict(zip(names, values, strict=True))
            kind = KINDS[row["kind"]]
            if kind == "counts":
                counts += Counts(**dict(zip(COUNTED, row["counts"], strict=True)))
            elif kind == "session":
                sessions.append(_session(spec, _public(fields, row)))
            else:
                rejections.append(_rejection(spec, kind, _public(fields, row)))
    return sessions, rejections, counts


def _public(fields: Sequence[Field], row: Mapping[Any, Any]) -> dict[str, Any]:
    """Turn a row of the wire into Python values under the names that users see."""
    values = {
        field.name: _loaded(field.type, row[f"out_{place}"]) for place, field in enumerate(fields)
    }
    if has_floats(fields):
        floats = [field.name for field in fields if isinstance(inner_type(field.type), FloatType)]
        for place, name in enumerate(floats):
            if row["nans"] >> place & 1:
                values[name] = float("nan")
    return values


def _loaded(kind: FieldType, value: Any) -> Any:
    inner = inner_type(kind)
    if value is None:
        return None
    return inner.load(json.loads(value)) if is_nested(inner) else inner.load(value)


def _key(spec: AnySpec, row: Mapping[str, Any]) -> Any:
    return key_class(tuple(spec.keys))(*(row[name] for name in spec.keys))


def _session(spec: AnySpec, row: Mapping[str, Any]) -> ClosedSession[Any]:
    result = codec_of(spec.result).type
    built = result.build(*(row[field.name] for field in result.fields))
    identifier, start, end = (row[name] for name in SESSION_COLUMNS)
    return ClosedSession(_key(spec, row), identifier, start, end, built)


def _rejection(spec: AnySpec, kind: str, row: Mapping[str, Any]) -> Rejection:
    carry = {name: row[name] for name in spec.carry}
    return Rejection(kind, row["reason"], _key(spec, row), row["event_time"], carry)
