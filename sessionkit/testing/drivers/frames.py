"""Spark's part, by hand: rows as the worker gets them, and its output as typed objects."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import pandas as pd
import pyarrow as pa

from sessionkit._engine.counts import COUNTED, Counts
from sessionkit._engine.rows.table import INSTANT, whole
from sessionkit._engine.wire.columns import (
    FUTURE_COLUMN,
    TIME_COLUMN,
    WATERMARK_COLUMN,
    WireColumn,
    wire_columns,
)
from sessionkit._engine.wire.outbound import Unpacker, output_fields
from sessionkit._engine.wire.packing import Packer
from sessionkit._instants import micros_of
from sessionkit.errors import ScriptError, StateValueError
from sessionkit.spec.columns import COUNTS_COLUMN, NUMBER_COLUMN, SESSION_COLUMNS
from sessionkit.spec.shared import AnySpec, key_class
from sessionkit.state import (
    Field,
    OptionalType,
    codec_of,
    decode_column,
    inner_type,
    key_form,
)

__all__ = [
    "Rejection",
    "Row",
    "SessionEvent",
    "built_result",
    "check_row",
    "input_frame",
    "key_of",
    "key_on_wire",
    "packed_frames",
    "read_events",
    "read_output",
]

R = TypeVar("R")
Row: TypeAlias = dict[str, Any]

GROUP: Final = "_group"


@attrs.frozen
class Rejection:
    """
    An event that was set aside, or a session or timer whose function failed.

    Attributes:
        kind: `late`, `duplicate`, `quarantined`, `failed` or `failed_output`.
        reason: Why, in words.
        traceback: That of the function that raised; None where none of yours did.
        key: The key; a null in it is None.
        event_time: The event's time; None where it had none, and for `failed_output`.
        passthrough: The values of the passthrough columns.
        event: The values of the event's fields; empty for `failed_output`.
        event_id: By what the event is known, the same in every run; None for `failed_output`.
        session_id: The id of the session that failed; None unless it's a `failed_output` of one.
        session_start: Its start.
        session_end: Its end.
    """

    kind: str
    reason: str
    traceback: str | None
    key: Any
    event_time: datetime | None
    passthrough: dict[str, Any]
    event: dict[str, Any]
    event_id: str | None
    session_id: str | None
    session_start: datetime | None
    session_end: datetime | None


@attrs.frozen
class SessionEvent:
    """
    An event of a closed session, of a spec with `per="both"`.

    Attributes:
        key: The key.
        session_id: The id of its session.
        session_start: The start of that.
        session_end: The end of that.
        number: Which of its events it is, from 1.
        event_time: Its time.
        event: The values of its fields.
        event_id: By what it's known, the same in every run.
        passthrough: The values of the passthrough columns.
    """

    key: Any
    session_id: str
    session_start: datetime
    session_end: datetime
    number: int
    event_time: datetime
    event: dict[str, Any]
    event_id: str
    passthrough: dict[str, Any]


def check_row(spec: AnySpec, row: Mapping[str, Any]) -> None:
    """
    Check that the values of a row fit their columns.

    Raises:
        ScriptError: A value doesn't have the type of its column.
    """
    for column in wire_columns(spec):
        _wire_value(column, row.get(column.field.name))


def packed_frames(
    spec: AnySpec,
    rows: Sequence[Mapping[str, Any]],
    is_future: Sequence[bool],
    groups: Sequence[int],
) -> tuple[dict[int, pd.DataFrame], int | None]:
    """
    Return rows as Spark hands them to the worker: packed, one frame a group.

    Args:
        spec: The spec whose columns cross.
        rows: The values by column name; a value that is missing or None is a null.
        is_future: For each row, whether its event time is too far ahead.
        groups: For each row, the number of its group.

    Returns:
        The frames by group, and the latest event time, in microseconds, that moves the watermark.
    """
    table = _input_table(spec, rows, is_future).append_column(GROUP, pa.array(groups, pa.int64()))
    packer = Packer(spec, (GROUP,), moves_watermark=True)
    packed = [row for batch in packer(table.to_batches()) for row in batch.to_pylist()]
    latest = [micros_of(row[WATERMARK_COLUMN]) for row in packed if row[WATERMARK_COLUMN]]
    frames = {
        group: pd.DataFrame([row for row in packed if row[GROUP] == group], dtype=object)
        for group in dict.fromkeys(groups)
    }
    return frames, max(latest, default=None)


def input_frame(
    spec: AnySpec, rows: Sequence[Mapping[str, Any]], is_future: Sequence[bool]
) -> pd.DataFrame:
    """Return rows of one group as Spark hands them to the worker."""
    frames, _ = packed_frames(spec, rows, is_future, [0] * len(rows))
    return frames[0]


def _input_table(
    spec: AnySpec, rows: Sequence[Mapping[str, Any]], is_future: Sequence[bool]
) -> pa.Table:
    """Return rows as Spark's projection hands them to the packer."""
    columns: dict[str, pa.Array] = {}
    if spec.event_time is not None:
        times = [row.get(spec.event_time) for row in rows]
        columns[TIME_COLUMN] = pa.array(
            [None if time is None else micros_of(time) for time in times], INSTANT
        )
        columns[FUTURE_COLUMN] = pa.array(is_future, pa.bool_())
    for column in wire_columns(spec):
        values = [_wire_value(column, row.get(column.field.name)) for row in rows]
        columns[column.name] = pa.array(values, inner_type(column.field.type).arrow)
    return pa.table(columns)


def key_on_wire(spec: AnySpec, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key of a row as Spark groups by it, a null filled."""
    return tuple(
        _grouped(column, _wire_value(column, row.get(column.field.name)))
        for column in wire_columns(spec)
        if column.role == "key"
    )


def _grouped(column: WireColumn, value: Any) -> Any:
    form = key_form(column.field.type)
    if value is None:
        return form.null
    return value if form.of is None else form.of(value)


def _wire_value(column: WireColumn, value: Any) -> Any:
    kind = inner_type(column.field.type)
    if value is None:
        return None
    try:
        return kind.dump(kind.coerce(value, column.field.name))
    except StateValueError as error:
        raise ScriptError(str(error)) from error


def read_output(
    spec: AnySpec, frames: Iterable[pd.DataFrame]
) -> tuple[list[Row], list[Rejection], Counts]:
    """
    Return the worker's output: result rows, rejections, and the sum of its counts.

    A result row maps column names to Python values.
    """
    frames = list(frames)
    counts = Counts()
    for counted in [found for frame in frames for found in frame[COUNTS_COLUMN].dropna()]:
        counts += Counts(**dict(zip(COUNTED, counted, strict=False)))
    rows = _output_rows(spec, frames)
    results = [row for row in rows if row["kind"] == spec.row_kind]
    others = {spec.row_kind, "event"}
    rejections = [_rejection(spec, row) for row in rows if row["kind"] not in others]
    return results, rejections, counts


def read_events(spec: AnySpec, frames: Iterable[pd.DataFrame]) -> list[SessionEvent]:
    """Return the events of closed sessions in the worker's output."""
    if NUMBER_COLUMN not in spec.rejected_columns:
        return []
    rows = _output_rows(spec, frames)
    return [_session_event(spec, row) for row in rows if row["kind"] == "event"]


def _output_rows(spec: AnySpec, frames: Iterable[pd.DataFrame]) -> list[Row]:
    """Return the rows in the worker's output as Python values, under the names that users see."""
    fields = [f for f in output_fields(spec, with_rejected=True) if f.name != "event"]
    table = Unpacker.of(spec, with_rejected=True).table(frames)
    columns = {field.name: _decoded(field, table[field.name]) for field in fields}
    columns["event"] = _events(spec, table)
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _events(spec: AnySpec, table: pa.Table) -> list[Row]:
    """Return the fields of the events of rejected rows: null where the class would refuse it."""
    fields = codec_of(spec.event).type.fields if "event" in table.column_names else ()
    parts = whole(table["event"]).flatten() if fields else []
    columns = [_decoded(field, part) for field, part in zip(fields, parts, strict=True)]
    names = [field.name for field in fields]
    rows = zip(*columns, strict=True) if fields else [()] * table.num_rows
    return [dict(zip(names, values, strict=True)) for values in rows]


def _decoded(field: Field, column: pa.Array) -> list[Any]:
    return decode_column(OptionalType(inner_type(field.type)), column)


def key_of(spec: AnySpec, row: Mapping[str, Any]) -> Any:
    """Return the key in a row, as the functions of the user see it."""
    return key_class(tuple(spec.keys))(*(row[name] for name in spec.keys))


def built_result(cls: type[R], row: Mapping[str, Any]) -> R:
    """Return the result in a row as an object of its class."""
    kind = codec_of(cls).type
    built: R = kind.build(*(row[field.name] for field in kind.fields))
    return built


def _rejection(spec: AnySpec, row: Mapping[str, Any]) -> Rejection:
    return Rejection(
        kind=row["kind"],
        reason=row["reason"],
        traceback=row["traceback"],
        key=key_of(spec, row),
        event_time=row["event_time"],
        passthrough={name: row[name] for name in spec.passthrough},
        event=row["event"] if row["event_id"] else {},
        event_id=row["event_id"],
        **{name: row.get(name) for name in SESSION_COLUMNS},
    )


def _session_event(spec: AnySpec, row: Mapping[str, Any]) -> SessionEvent:
    return SessionEvent(
        key=key_of(spec, row),
        number=row[NUMBER_COLUMN],
        event_time=row["event_time"],
        event=row["event"],
        event_id=row["event_id"],
        passthrough={name: row[name] for name in spec.passthrough},
        **{name: row[name] for name in SESSION_COLUMNS},
    )
