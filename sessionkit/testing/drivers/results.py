"""The typed output of a driver: result rows, rejections and events."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

import attrs
import pandas as pd
import pyarrow as pa

from sessionkit._engine.counts import COUNTED, REJECTED, Counts, DurationSketch
from sessionkit._engine.shell.worker import BINS_AT
from sessionkit._engine.wire.outbound import ROWS_COLUMN
from sessionkit._engine.wire.packing import joined_packs, packs_in
from sessionkit._shown import set_fields
from sessionkit.spec.base import AnySpec
from sessionkit.spec.columns import (
    COUNTS_COLUMN,
    KIND,
    OF_PASSTHROUGH,
    OF_ROWS,
    SESSION_COLUMNS,
    key_class,
)
from sessionkit.spec.session import SessionSpec
from sessionkit.state._codec import codec_of, decode_column
from sessionkit.state._collections import (
    AttrsType,
    DictType,
    Field,
    ListType,
    OptionalType,
    TupleType,
)
from sessionkit.state._derived import EnumType, SecondsType
from sessionkit.state._scalars import TimeType, UUIDType
from sessionkit.state._types import FieldType
from sessionkit.testing.drivers.rows import Row
from sessionkit.timeouts._session_rules import ClosedBy

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
EVENT: Final = f"{OF_ROWS}event"

R_co = TypeVar("R_co", covariant=True)
AnyRow = TypeVar("AnyRow")


@attrs.frozen(repr=False)
class SessionRow(Generic[R_co]):
    """
    One result row of a session: `take_rows()` of a `SessionDriver` returns them.

    Under `Results(emit=...)`, open sessions give rows too.

    Attributes:
        key: The key: a named tuple with the columns of `SessionSpec.keys`.
        session_id: The session's id.
        session_start: The time of its first event, in UTC.
        session_end: The time of its last event plus the gap.
        last_event_time: The time of its last event.
        result: The row that `finish` returned.
        closed_by: The name of the rule that ended it: `"gap"`, or a rule of `SessionRules`; None
            while it's open. (`Session.closed_by`, in `finish`, then has the rule that would end
            it.)
        revision: The number of this row among the rows of the session, from 1.
        is_final: Whether the session was over.
        supersedes: The ids of other sessions whose rows this one replaces, because they were merged
            into it, or because it began under another id.
        memory: The columns of `SessionSpec(memory=...)`, by name.
    """

    key: Any
    session_id: str
    session_start: datetime
    session_end: datetime
    last_event_time: datetime = attrs.field(
        default=attrs.Factory(lambda row: row.session_end, takes_self=True), kw_only=True
    )
    result: R_co
    closed_by: ClosedBy | None = "gap"
    revision: int = 1
    is_final: bool = True
    supersedes: tuple[str, ...] = ()
    memory: Mapping[str, Any] = attrs.field(default=NOTHING, hash=False)

    def __repr__(self) -> str:
        """Leave out fields with default values."""
        shown = [f"{name}={value!r}" for name, value in set_fields(self).items()]
        return f"SessionRow({', '.join(shown)})"


@attrs.frozen
class KeyRow(Generic[R_co]):
    """
    One result row of a key: `take_rows()` of a `StatefulDriver` returns them.

    Attributes:
        key: The key: a named tuple with the columns of `StatefulSpec.keys`.
        result: The row that `process` or `on_timer` returned.
    """

    key: Any
    result: R_co


REJECTIONS: Final = (*REJECTED, "erased")


@attrs.frozen
class Rejection:
    """
    An event that was set aside, a session or timer whose function failed, or an erased key.

    `take_rejections()` of a driver returns them.

    Attributes:
        kind: `late`, `duplicate`, `outside`, `quarantined`, `failed`, `failed_output` or `erased`;
            `Counts` says what each means.
        reason: The reason as text.
        traceback: The traceback of your function that failed; None if none failed.
        key: The key; a null in it is None.
        event_time: The event's time; None where it had none, and for `failed_output` and `erased`,
            which aren't events.
        passthrough: The values of the columns in `Inputs(passthrough=...)`.
        event: The values of the event's fields; empty where it isn't an event.
        event_id: The id of the event, the same in every run; None where it isn't an event.
        session_id: The id of the session, for a `failed_output` of a session; otherwise None.
        session_start: The start of that session; otherwise None, like the next two.
        session_end: The end of that session.
        last_event_time: The time of that session's last event.
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
    last_event_time: datetime | None


@attrs.frozen
class SessionEvent:
    """
    An event of a closed session, of a spec with `Results(with_events=True)`.

    `take_events()` of a `SessionDriver` returns them.

    Attributes:
        key: The key.
        session_id: The id of its session.
        session_start: The start of its session.
        session_end: The end of its session.
        last_event_time: The time of the last event of its session.
        number: The position in the session, from 1.
        event_time: The event's time.
        event: The values of the event's fields.
        event_id: The id of the event, the same in every run.
        passthrough: The values of the columns in `Inputs(passthrough=...)`.
    """

    key: Any
    session_id: str
    session_start: datetime
    session_end: datetime
    last_event_time: datetime
    number: int
    event_time: datetime
    event: dict[str, Any]
    event_id: str
    passthrough: dict[str, Any]


@attrs.frozen
class BatchResult(Generic[AnyRow]):
    """
    The output of one micro-batch.

    Attributes:
        batch_id: The number of the batch, from 0; None if Spark would not have run one.
        watermark: The watermark in force, in UTC; None while there is none.
        rows: The result rows: `SessionRow` from a `SessionDriver`, `KeyRow` from a
            `StatefulDriver`. Rows of one session or key are in the order that the function
            returned.
        rejections: Rejected events, and failures.
        counts: The counts of the events by outcome.
    """

    batch_id: int | None
    watermark: datetime | None
    rows: list[AnyRow]
    rejections: list[Rejection]
    counts: Counts


def frame_of(spec: AnySpec, rows: Iterable[Any]) -> pd.DataFrame:
    """Return result rows as a frame with the columns of Spark."""
    memory = {*_memory_columns(spec)}
    added = [field.name for field in spec.own_fields]
    fields, kinds = codec_of(spec.result).schema.names, [field.type for field in spec.result_fields]

    def values(row: Any) -> list[Any]:
        of_session = (row.memory[name] if name in memory else getattr(row, name) for name in added)
        of_result = (getattr(row.result, name) for name in fields)
        return list(map(_of_spark, kinds, (*row.key, *of_session, *of_result)))

    return pd.DataFrame(map(values, rows), columns=spec.result_schema.names)


def _of_spark(kind: FieldType, value: Any) -> Any:
    """Return a value as a row of Spark has it, collected from a frame; a struct is a tuple."""
    match kind:
        case _ if value is None or kind.plain:
            return value
        case OptionalType(inner):
            return _of_spark(inner, value)
        case ListType(item):
            return [_of_spark(item, part) for part in value]
        case TupleType(items):
            return tuple(map(_of_spark, items, value))
        case DictType(of_key, of_value):
            return {_of_spark(of_key, k): _of_spark(of_value, v) for k, v in value.items()}
        case AttrsType(_, fields):
            return tuple(_of_spark(field.type, getattr(value, field.name)) for field in fields)
        case EnumType() | UUIDType() | SecondsType() | TimeType():
            return kind.dump(value)
    return value


class Output(NamedTuple):
    """The output of a worker for the groups of a micro-batch."""

    rows: list[Any]
    rejections: list[Rejection]
    counts: Counts
    events: list[SessionEvent]


def read_output(spec: AnySpec, frames: Iterable[pd.DataFrame]) -> Output:
    """Read the frames of a worker as typed objects, and sum their counts."""
    frames = list(frames)
    of_groups = [numbers for frame in frames for numbers in frame[COUNTS_COLUMN].dropna()]
    # Two groups with [1, 5, ..] and [2, 0, ..] give [3, 5, ..], without the stats after them.
    sums: dict[str, Any] = dict(zip(COUNTED, map(sum, zip(*of_groups, strict=False)), strict=False))
    bins = zip_longest(*(numbers[BINS_AT:] for numbers in of_groups), fillvalue=0)
    counts = Counts(**sums, behind=DurationSketch(tuple(map(sum, bins))))
    output = Output([], [], counts, [])
    keys = key_class(tuple(spec.keys))
    for row in _output_rows(spec, frames):
        key = keys(*(row[name] for name in spec.keys))
        match row[KIND]:
            case "session":
                output.rows.append(_session_row(spec, key, row))
            case "result":
                output.rows.append(KeyRow(key, _built(spec.result, row)))
            case "event":
                number = row[f"{OF_ROWS}number"]
                output.events.append(SessionEvent(key=key, number=number, **_about(spec, row)))
            case kind:
                why = {name: row[f"{OF_ROWS}{name}"] for name in ("reason", "traceback")}
                about = _about(spec, row)
                output.rejections.append(Rejection(kind=kind, key=key, **why, **about))
    return output


def _session_row(spec: AnySpec, key: Any, row: Row) -> SessionRow[Any]:
    # A field of the result may have one of these names where sessionkit adds no such column.
    added = {field.name: row[field.name] for field in spec.own_fields}
    is_final = added.get("is_final", True)
    return SessionRow(
        key=key,
        **{name: row[name] for name in SESSION_COLUMNS},
        result=_built(spec.result, row),
        closed_by=added.get("closed_by", "gap") if is_final else None,
        revision=added.get("revision", 1),
        is_final=is_final,
        supersedes=tuple(added.get("supersedes", ())),
        memory={name: row[name] for name in _memory_columns(spec)},
    )


def _memory_columns(spec: AnySpec) -> list[str]:
    fields = spec.memory_fields if isinstance(spec, SessionSpec) else ()
    return [field.name for field in fields]


def _built(cls: type[Any], row: Row) -> Any:
    kind = codec_of(cls).type
    return kind.build(*(row[field.name] for field in kind.fields))


def _about(spec: AnySpec, row: Row) -> dict[str, Any]:
    """Return the event and session of a row, None where there is none."""
    of_session = {field.name for field in spec.own_fields}
    return {
        **{name: row[name] if name in of_session else None for name in SESSION_COLUMNS},
        "event_time": row[spec.time_of_rejected],
        "event_id": row[f"{OF_ROWS}event_id"],
        "event": row[EVENT] if row[f"{OF_ROWS}event_id"] else {},
        "passthrough": {name: row[f"{OF_PASSTHROUGH}{name}"] for name in spec.inputs.passthrough},
    }


def _output_rows(spec: AnySpec, frames: Iterable[pd.DataFrame]) -> list[Row]:
    """Decode the rows in the worker's output to Python values."""
    (packs,) = packs_in(frames, ROWS_COLUMN)
    table = joined_packs(spec.schema_with_rejected, packs)
    if not table.num_rows:
        return []
    fields = [field for field in spec.fields_with_rejected if field.name != EVENT]
    rows = _rows(fields, [table[field.name] for field in fields])
    of_event = codec_of(spec.event).type.fields if EVENT in table.column_names else ()
    if not of_event:
        return [{**row, EVENT: {}} for row in rows]
    events = _rows(of_event, table[EVENT].combine_chunks().flatten())
    return [{**row, EVENT: event} for row, event in zip(rows, events, strict=True)]


def _rows(fields: Sequence[Field], columns: Iterable[pa.Array]) -> list[Row]:
    """Decode columns to rows; values may be null where the event class allows none."""
    values: list[list[Any]] = []
    for field, column in zip(fields, columns, strict=True):
        if column.null_count == len(column):
            values.append([None] * len(column))
        else:
            kind = OptionalType(field.type) if column.null_count else field.type
            values.append(decode_column(kind, column))
    names = [field.name for field in fields]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
