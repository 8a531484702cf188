"""What a script is played on: the driver, and what came out of it that no step expected yet."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

import attrs

from sessionkit._engine.keys.program import StoredKey
from sessionkit._engine.sessions.view import OpenSession
from sessionkit.spec.shared import check_kind
from sessionkit.spec.stateful import StatefulSpec
from sessionkit.testing.drivers.kinds import SessionDriver, StatefulDriver
from sessionkit.testing.drivers.picture import EventLine, Run
from sessionkit.testing.drivers.results import Rejection, ResultRow, SessionRow
from sessionkit.testing.pictures.literals import plain_key

SessionLine: TypeAlias = tuple[Any, datetime, datetime, Any]
"""A session: key, start, end, and its result row or its state."""
RowLine: TypeAlias = tuple[Any, Any]
"""A result row: key and row."""
StoredLine: TypeAlias = tuple[Any, Any] | tuple[Any, Any, Mapping[str, datetime]]
"""What is stored of a key: key, state, and its timers by name if it has any."""
AnyDriver: TypeAlias = SessionDriver[Any, Any, Any] | StatefulDriver[Any, Any, Any]


def session_line(row: SessionRow[Any]) -> SessionLine:
    return plain_key(row.key), row.start, row.end, row.result


def open_line(session: OpenSession[Any]) -> SessionLine:
    return plain_key(session.key), session.start, session.end, session.state


def row_line(row: ResultRow) -> RowLine:
    return plain_key(row.key), row.result


def stored_line(stored: StoredKey[Any]) -> StoredLine:
    """Return what is stored of a key."""
    key, timers = plain_key(stored.key), {n: timer.at for n, timer in stored.timers.items()}
    return (key, stored.state, timers) if timers else (key, stored.state)


def event_line(rejection: Rejection) -> EventLine:
    """Return a rejected event; a failed output has no time."""
    return plain_key(rejection.key), rejection.event_time


@attrs.define
class Stage:
    """The run of a script: its driver, which holds what no step expected yet, and a note."""

    driver: AnyDriver
    note: str = ""

    @classmethod
    def of(cls, spec: Any, processing_time: datetime | None) -> "Stage":
        check_kind(spec)
        driver: Any = StatefulDriver if isinstance(spec, StatefulSpec) else SessionDriver
        return cls(driver(spec, processing_time=processing_time))

    @property
    def run(self) -> Run:
        """What the driver has done so far."""
        return self.driver._run  # noqa: SLF001 (no part of what a driver offers to users)
