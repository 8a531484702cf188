"""The open sessions of a stored bucket, as typed objects or as rows."""

from datetime import datetime
from typing import Any, Generic

import attrs
import pyarrow as pa

from sessionkit._arrays import micros
from sessionkit._engine.micro_batch import GroupState
from sessionkit._engine.rows.ids import ids_of
from sessionkit._engine.rows.objects import as_struct, key_struct
from sessionkit._engine.rows.tables import LAST_EVENT
from sessionkit._engine.sessions.folds import state_columns, states_of
from sessionkit._engine.sessions.joining import join
from sessionkit._engine.sessions.plan import Horizon, with_last_event
from sessionkit._engine.sessions.step import SessionLogic, session_views
from sessionkit._instants import instant_of
from sessionkit.spec.base import S
from sessionkit.spec.logic import Aggregates
from sessionkit.spec.session import AnySessionSpec, SessionSpec
from sessionkit.state._codec import codec_of
from sessionkit.timeouts._session_rules import ClosedBy


@attrs.frozen
class OpenSession(Generic[S]):
    """
    A session that is not over. All times are event time, in UTC.

    Attributes:
        key: The key: a named tuple with the columns of `SessionSpec.keys`.
        session_id: The id that it will have if its start stays.
        session_start: The time of its first event so far.
        session_end: The time of its last event so far plus the gap, exclusive.
        last_event_time: The time of its last event so far.
        closes: When it closes if no further event joins it: once the watermark reaches this. It is
            before `session_end` where one of `SessionRules` cuts the session.
        closed_by: The rule that closes it then, by its name: `"gap"`, or one of `SessionRules`.
        events: How many events were folded.
        state: A copy of its state; with aggregates, the row that it would give now.
    """

    key: Any
    session_id: str
    session_start: datetime
    session_end: datetime
    last_event_time: datetime
    closes: datetime
    closed_by: ClosedBy
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
