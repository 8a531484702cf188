"""The sessions that are not over, read back from a stored bucket as typed objects."""

from datetime import datetime
from typing import Any, Generic

import attrs
import pyarrow as pa

from sessionkit._engine.outcome import Memory
from sessionkit._engine.rows.structs import as_struct, key_struct
from sessionkit._engine.sessions.close import ids_of, sessions_of
from sessionkit._engine.sessions.ways import way_of
from sessionkit._spec import S
from sessionkit.session import AnySessionSpec, SessionSpec
from sessionkit.state import codec_of

__all__ = ["OpenSession", "open_session_rows", "open_sessions_of"]


@attrs.frozen
class OpenSession(Generic[S]):
    """
    A session that is not over. All times are event time, in UTC.

    Attributes:
        key: The key: a named tuple with the columns of `SessionSpec.keys`.
        id: The id that it will have if its start stays.
        start: The time of its first event so far.
        end: The time of its last event so far plus the gap, exclusive.
        events: How many events were folded.
        state: Its state, an object of its own; with aggregates the row that it would be now.
    """

    key: Any
    id: str
    start: datetime
    end: datetime
    events: int
    state: S


def open_sessions_of(spec: SessionSpec[Any, S, Any], memory: Memory) -> list[OpenSession[S]]:
    """
    Return the open sessions of a group.

    Under `order="event_time"` the events that wait for their turn are folded in for this view.
    """
    way = way_of(spec)
    table = way.join(spec, memory.kept, memory.buffered, None).sessions
    states = way.states(spec, table)
    return [
        OpenSession(session.key, session.id, session.start, session.end, session.events, state)
        for session, state in zip(sessions_of(spec, table, ids_of(table)), states, strict=True)
    ]


def open_session_rows(spec: AnySessionSpec, memory: Memory) -> pa.Table:
    """Return the open sessions of a group as rows, under the names of `OpenSession`."""
    way = way_of(spec)
    table = way.join(spec, memory.kept, memory.buffered, None).sessions
    state = codec_of(spec.state if spec.aggregates is None else spec.result).type.fields
    columns = {
        "key": key_struct(spec, table),
        "id": pa.array(ids_of(table), pa.string()),
        **{name: table[name] for name in ("start", "end", "events")},
        "state": as_struct(state, way.columns(spec, table)),
    }
    return pa.table({name: column for name, column in columns.items() if column is not None})
