"""
The events of a group, read from the chunks that Spark hands over; what can't be one aside.

Every chunk is converted by its declared type before chunks are joined.
"""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.rows.table import INSTANT, Rejected, events_schema
from sessionkit._engine.wire.columns import (
    BITS,
    FUTURE_BIT,
    NULL_TIME_BIT,
    TIME_COLUMN,
    WireColumn,
    flag_names,
    is_nested,
    wire_columns,
)
from sessionkit._instants import LAST_INSTANT_US
from sessionkit._spec import AnySpec
from sessionkit.errors import StateValueError
from sessionkit.state import (
    DatetimeType,
    DateType,
    DecimalType,
    EnumType,
    FieldType,
    TimedeltaType,
    inner_type,
)

__all__ = ["read_frames"]

Mask: TypeAlias = npt.NDArray[np.bool_]

LAST_DAY: Final = LAST_INSTANT_US // (24 * 3600 * 1_000_000)
FIRST_DAY: Final = -719_162
FIRST_INSTANT_US: Final = FIRST_DAY * 24 * 3600 * 1_000_000


def read_frames(spec: AnySpec, frames: Sequence[pd.DataFrame]) -> tuple[pa.Table, list[Rejected]]:
    """
    Return the events of the chunks of a group, those that are not fit to be one aside.

    Quarantined, with the reason: no event time, an event time that is not after the epoch or too
    far ahead, a null in a key or a required field, a value that its type cannot hold.
    """
    if not any(len(frame) for frame in frames):
        return events_schema(spec).empty_table(), []
    flags = [_column(frames, name, pa.int64()) for name in flag_names(spec)]
    reasons = _Reasons(len(flags[0]))
    times = _column(frames, TIME_COLUMN, pa.int64())
    if spec.event_time is None:
        time = times.cast(INSTANT)
    else:
        time = _time(times, flags[0], spec.latest_event_us, reasons)
    columns = [_stored(frames, column, flags, reasons) for column in wire_columns(spec)]
    keys = len(spec.key_fields)
    everything = pa.Table.from_arrays(
        [*columns[:keys], time, *columns[keys:]], schema=events_schema(spec)
    )
    return reasons.split(everything)


class _Reasons:
    """Why rows are quarantined: the first reason found for each."""

    def __init__(self, rows: int) -> None:
        self.texts: npt.NDArray[np.object_] = np.full(rows, None, np.object_)
        self.any = False

    def add(self, rows: Mask, text: str) -> None:
        if rows.any():
            self.any = True
            self.texts[rows & (self.texts == None)] = text  # noqa: E711 (for each element)

    def split(self, rows: pa.Table) -> tuple[pa.Table, list[Rejected]]:
        if not self.any:
            return rows, []
        bad = self.texts != None  # noqa: E711 (for each element)
        rejected = Rejected("quarantined", self.texts[bad].tolist(), rows.filter(pa.array(bad)))
        return rows.filter(pa.array(~bad)), [rejected]


def _column(frames: Sequence[pd.DataFrame], name: str, kind: pa.DataType) -> pa.Array:
    chunks = [_chunk(frame[name], kind) for frame in frames]
    return chunks[0] if len(chunks) == 1 else pa.chunked_array(chunks, type=kind).combine_chunks()


def _chunk(values: "pd.Series[Any]", kind: pa.DataType) -> pa.Array:
    if pa.types.is_floating(kind):
        # Arrow takes a NaN of pandas for a null; here nulls are filled, so a NaN is one.
        return pa.array(values.to_numpy(np.float64))
    return pa.Array.from_pandas(values, type=kind)


def _marked(flags: Sequence[pa.Array], bit: int) -> Mask:
    word = flags[bit // BITS].to_numpy()
    marked: Mask = (word >> (bit % BITS)) & 1 == 1
    return marked


def _time(times: pa.Array, flags: pa.Array, last_us: int, reasons: _Reasons) -> pa.Array:
    times_us = times.to_numpy()
    missing = _marked([flags], NULL_TIME_BIT)
    reasons.add(missing, "its event time is null")
    reasons.add(times_us <= 0, "its event time is not after 1970-01-01")
    beyond = times_us > last_us
    reasons.add(beyond, "its event time, or an end counted from it, is after the year 9999")
    reasons.add(_marked([flags], FUTURE_BIT), "its event time is too far in the future")
    return pa.array(times_us, mask=missing | beyond | (times_us < FIRST_INSTANT_US)).cast(INSTANT)


def _stored(
    frames: Sequence[pd.DataFrame],
    column: WireColumn,
    flags: Sequence[pa.Array],
    reasons: _Reasons,
) -> pa.Array:
    path = column.field.name if column.role != "event" else f"event.{column.field.name}"
    values = _column(frames, column.name, column.type)
    missing = _marked(flags, column.bit)
    if missing.any():
        values = pc.if_else(pa.array(missing), pa.scalar(None, values.type), values)
        if column.required:
            reasons.add(missing, f"`{path}` is null")
    return _converted(inner_type(column.field.type), values, path, reasons)


def _converted(kind: FieldType, values: pa.Array, path: str, reasons: _Reasons) -> pa.Array:
    if isinstance(kind, DatetimeType):
        text = f"`{path}` is outside the years 1 to 9999"
        return _within(values, FIRST_INSTANT_US, LAST_INSTANT_US, text, reasons).cast(kind.arrow)
    if isinstance(kind, DateType):
        text = f"`{path}` is outside the years 1 to 9999"
        days = _within(values, FIRST_DAY, LAST_DAY, text, reasons)
        return days.cast(pa.int32()).cast(kind.arrow)
    if isinstance(kind, TimedeltaType):
        return values.cast(kind.arrow)
    if isinstance(kind, EnumType):
        members = pa.array([member.value for member in kind.cls], values.type)
        unknown = pc.and_(values.is_valid(), pc.invert(pc.is_in(values, value_set=members)))
        text = f"`{path}` isn't a member of {kind.cls.__name__}"
        return _without(values, unknown.to_numpy(zero_copy_only=False), text, reasons)
    if isinstance(kind, DecimalType) or is_nested(kind):
        return _one_by_one(kind, values, path, reasons)
    return values


def _within(values: pa.Array, low: int, high: int, text: str, reasons: _Reasons) -> pa.Array:
    outside = pc.or_(pc.less(values, low), pc.greater(values, high)).fill_null(fill_value=False)
    return _without(values, outside.to_numpy(zero_copy_only=False), text, reasons)


def _without(values: pa.Array, bad: Mask, text: str, reasons: _Reasons) -> pa.Array:
    if not bad.any():
        return values
    reasons.add(bad, text)
    return pc.if_else(pa.array(bad), pa.scalar(None, values.type), values)


def _one_by_one(kind: FieldType, values: pa.Array, path: str, reasons: _Reasons) -> pa.Array:
    stored: list[Any] = []
    for place, text in enumerate(values.to_pylist()):
        try:
            stored.append(None if text is None else _parsed(kind, text, path))
        except Exception as error:  # noqa: BLE001 (the user's own validators and converters)
            stored.append(None)
            row = np.zeros(len(values), np.bool_)
            row[place] = True
            first_line = str(error).partition("\n")[0]
            known = isinstance(error, StateValueError)
            reasons.add(row, first_line if known else f"`{path}`: {type(error).__name__}: {error}")
    return pa.array(stored, type=kind.arrow)


def _parsed(kind: FieldType, text: str, path: str) -> Any:
    value = Decimal(text) if isinstance(kind, DecimalType) else kind.load(json.loads(text))
    return kind.dump(kind.coerce(value, path))
