"""Rows, sessions, keys and events as the steps of a script write them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

from sessionkit._engine.keys.view import StoredKey
from sessionkit._engine.sessions.view import OpenSession
from sessionkit.testing.drivers.frames import Rejection
from sessionkit.testing.drivers.results import ResultRow, SessionRow

__all__ = [
    "EventLine",
    "RowLine",
    "SessionLine",
    "StoredLine",
    "event_line",
    "open_line",
    "plain_key",
    "row_line",
    "session_line",
    "stored_line",
]

SessionLine: TypeAlias = tuple[Any, datetime, datetime, Any]
"""A session: key, start, end, and its result row or its state."""
RowLine: TypeAlias = tuple[Any, Any]
"""A result row: key and row."""
StoredLine: TypeAlias = tuple[Any, Any] | tuple[Any, Any, Mapping[str, datetime]]
"""What is stored of a key: key, state, and its timers by name if it has any."""
EventLine: TypeAlias = tuple[Any, datetime | None]
"""An event: key and event time."""


def session_line(row: SessionRow[Any]) -> SessionLine:
    """Return a session that closed."""
    return plain_key(row.key), row.start, row.end, row.result


def open_line(session: OpenSession[Any]) -> SessionLine:
    """Return a session that is open."""
    return plain_key(session.key), session.start, session.end, session.state


def row_line(row: ResultRow) -> RowLine:
    """Return a result row."""
    return plain_key(row.key), row.result


def stored_line(stored: StoredKey[Any]) -> StoredLine:
    """Return what is stored of a key."""
    key, timers = plain_key(stored.key), {n: timer.at for n, timer in stored.timers.items()}
    return (key, stored.state, timers) if timers else (key, stored.state)


def event_line(rejection: Rejection) -> EventLine:
    """Return a rejected event; a failed output has no time."""
    return plain_key(rejection.key), rejection.event_time


def plain_key(key: Any) -> Any:
    """Return the key as `add` takes it: the value of its only column, else a plain tuple."""
    if not isinstance(key, tuple):
        return key
    return key[0] if len(key) == 1 else tuple(key)
