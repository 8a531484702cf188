"""The open sessions of a stored bucket, as typed objects or as rows."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Generic

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arguments import explained
from sessionkit._arrays import micros, whole, with_column
from sessionkit._engine.micro_batch import GroupState
from sessionkit._engine.rows.ids import ids_of
from sessionkit._engine.rows.objects import as_struct, encode_keys, encode_states, key_struct
from sessionkit._engine.rows.tables import LAST_EVENT, SALT
from sessionkit._engine.sessions.folds import state_columns, states_of
from sessionkit._engine.sessions.plan import Horizon, with_last_event
from sessionkit._engine.sessions.step import SessionLogic, session_views
from sessionkit._engine.sessions.verdicts import join
from sessionkit._instants import instant_of
from sessionkit.spec.base import S
from sessionkit.spec.logic import Aggregates
from sessionkit.spec.session import AnySessionSpec, SessionSpec
from sessionkit.state._codec import codec_of, encode_column
from sessionkit.state._scalars import DatetimeType, IntType
from sessionkit.timeouts._session_rules import ClosedBy

_SESSION_END: Final[Any] = attrs.Factory(lambda session: session.session_end, takes_self=True)


@explained(shows_call=False)
@attrs.frozen(kw_only=True)
class OpenSession(Generic[S]):
    """
    A session that is not over. All times are event time, in UTC.

    `open_sessions()` of a `SessionDriver` and `read_state` return them.

    A `SessionDriver` can start with some that you make: pass `key`, `session_start`, `session_end`,
    `events` and `state`. The others follow from these. Pass `last_event_time` too if it isn't
    `session_end` less the gap.

    Attributes:
        key: The key: a named tuple with the columns of `SessionSpec.keys`. If you make one: the
            value of the key column, or a tuple of values.
        session_id: The id that it will have if its start stays.
        session_start: The time of its first event so far.
        session_end: The time of its last event so far plus the gap. An event at exactly this time
            still joins, unless `gap_inclusive=False`.
        last_event_time: The time of its last event so far.
        closes: When it closes if no further event joins it: once the watermark reaches this. It is
            before `session_end` where one of `SessionRules` cuts the session.
        closed_by: The rule that closes it then: `"gap"`, or one of `SessionRules`.
        events: How many events it has.
        state: A copy of its state; with aggregates, the row that it would give now.
    """

    key: Any
    session_id: str = ""
    session_start: datetime
    session_end: datetime
    last_event_time: datetime = _SESSION_END
    closes: datetime = _SESSION_END
    closed_by: ClosedBy = "gap"
    events: int
    state: S


def open_sessions_of(spec: SessionSpec[Any, S, Any], memory: GroupState) -> list[OpenSession[S]]:
    """
    Return the open sessions of a group.

    Under `order="event_time"` the events that wait for their turn are folded in for this view.
    """
    logic = SessionLogic(spec)
    table, program = _open(logic, memory), logic.program
    states = states_of(spec, table)
    closes = map(instant_of, micros(table[program.cuts.column]).tolist())
    sessions = session_views(program, table, ids_of(table))
    return [
        OpenSession(
            key=session.key,
            session_id=session.session_id,
            session_start=session.session_start,
            session_end=session.session_end,
            last_event_time=session.last_event_time,
            closes=at,
            closed_by=session.closed_by,
            events=session.events,
            state=state,
        )
        for session, at, state in zip(sessions, closes, states, strict=True)
    ]


def memory_of_sessions(
    spec: SessionSpec[Any, S, Any], sessions: Sequence[OpenSession[S]]
) -> GroupState:
    """
    Return the memory of a group with these open sessions, whose keys are tuples.

    What else a spec stores of a session begins anew: it has given no row, and remembers no event.
    """
    program = SessionLogic(spec).program
    ends = [session.session_end for session in sessions]
    last = [session.last_event_time for session in sessions]
    columns = {
        **encode_keys(spec, [session.key for session in sessions]),
        "start": _instants("session_start", [session.session_start for session in sessions]),
        "end": _instants("session_end", ends),
        "events": encode_column(IntType(), [session.events for session in sessions], "events"),
        SALT.name: pa.array(np.zeros(len(sessions), np.int64)),
    }
    states = encode_states(
        spec.state, [session.state for session in sessions], lambda n: sessions[n].key
    )
    for field, column in zip(program.state_fields, states, strict=True):
        columns[f"state.{field.name}"] = column
    rows = with_last_event(pa.table(columns), program.gap_us)
    is_earlier = pa.array([at != end for at, end in zip(last, ends, strict=True)])
    known = pc.if_else(is_earlier, _instants("last_event_time", last), whole(rows[LAST_EVENT.name]))
    rows = with_column(rows, LAST_EVENT, known)
    return GroupState(program.migrated(spec, rows), spec.events_schema.empty_table())


def _instants(name: str, times: list[datetime]) -> pa.Array:
    return encode_column(DatetimeType(), times, name)


def open_session_rows(spec: AnySessionSpec, memory: GroupState) -> pa.Table:
    """Return the open sessions of a group as rows, under the names of `OpenSession`."""
    logic = SessionLogic(spec)
    table, program = _open(logic, memory), logic.program
    state = codec_of(spec.result if isinstance(spec.logic, Aggregates) else spec.state).type.fields
    columns = {
        "key": key_struct(spec, table),
        "session_id": pa.array(ids_of(table), pa.string()),
        "session_start": table["start"],
        "session_end": table["end"],
        "last_event_time": table[LAST_EVENT.name],
        "closes": table[program.cuts.column],
        "closed_by": program.cuts.reasons(table),
        "events": table["events"],
        "state": as_struct(state, state_columns(spec, table)),
    }
    return pa.table({name: column for name, column in columns.items() if column is not None})


def _open(logic: SessionLogic, memory: GroupState) -> pa.Table:
    """Return the open sessions, with the events that wait and their last events."""
    sessions = memory.kept
    if memory.buffered.num_rows:
        # An empty horizon: for a view, no event is late.
        sessions = join(logic.program, sessions, memory.buffered, Horizon()).sessions
    sessions = sessions.filter(pa.array(logic.are_open(sessions)))
    return with_last_event(sessions, logic.program.gap_us)
