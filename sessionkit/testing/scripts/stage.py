"""What a script is played on: the driver, and what came out of it that no step expected yet."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

import attrs

from sessionkit._instants import micros_of
from sessionkit.testing.drivers.frames import Rejection
from sessionkit.testing.drivers.query import Snapshot
from sessionkit.testing.drivers.results import BatchResult, SessionRow
from sessionkit.testing.drivers.session import SessionDriver
from sessionkit.testing.scripts.timeline import Event, Fate, Span, timeline

__all__ = ["EventLine", "SessionLine", "Stage", "event_line", "session_line"]

SessionLine: TypeAlias = tuple[Any, datetime, datetime, Any]
"""A session as a script writes it: key, start, end, and its result row or its state."""
EventLine: TypeAlias = tuple[Any, datetime | None]
"""An event as a script writes it: key and event time."""

DROPPED: Final = "it was at or behind Spark's own watermark of the batch before"


@attrs.define
class Stage:
    """
    The run of a script.

    Attributes:
        driver: The driver; a restart puts another one in its place.
        note: What the last step did, in words.
        sessions: The sessions that closed and that no step expected yet.
        rejections: The events and sessions that were rejected and that no step expected yet, with
            those that Spark's own filter dropped.
    """

    driver: SessionDriver[Any, Any, Any]
    note: str = ""
    sessions: list[SessionRow[Any]] = attrs.field(factory=list, init=False)
    rejections: list[Rejection] = attrs.field(factory=list, init=False)
    _read: list[EventLine] = attrs.field(factory=list, init=False)
    _refused: list[EventLine] = attrs.field(factory=list, init=False)
    _closed: list[Span] = attrs.field(factory=list, init=False)
    _watermarks: list[datetime] = attrs.field(factory=list, init=False)

    def run_batch(self, *, sink_fails: bool) -> BatchResult[Any]:
        """Run a batch and keep what it did, unless the sink fails."""
        before = self.driver.snapshot()
        result = self.driver.run_batch(sink_fails=sink_fails)
        if result.batch_id is not None and not sink_fails:
            self._keep(before)
        return result

    def restart(self) -> None:
        """Let another driver go on with what this one leaves behind."""
        self.driver = SessionDriver.restore(self.driver.spec, self.driver.snapshot())

    def take_sessions(self) -> list[SessionRow[Any]]:
        """Return the sessions that no step expected yet, in order of key and start."""
        taken, self.sessions = self.sessions, []
        return sorted(taken, key=lambda session: (session.key, session.start))

    def take_rejections(self, kind: str) -> list[Rejection]:
        """Return the rejections of a kind that no step expected yet."""
        taken = [rejection for rejection in self.rejections if rejection.kind == kind]
        self.rejections = [rejection for rejection in self.rejections if rejection.kind != kind]
        return taken

    def open_lines(self) -> list[SessionLine]:
        """Return the open sessions, in order of key and start."""
        found = sorted(self.driver.open_sessions(), key=lambda one: (one.key, one.start))
        return [(_plain(one.key), one.start, one.end, one.state) for one in found]

    def waiting(self) -> list[EventLine]:
        """Return the events that no batch has read."""
        return [self._event(row) for row in self.driver.snapshot().unread]

    def timeline(self) -> list[str]:
        """Draw the run so far."""
        fates: list[tuple[Fate, list[EventLine]]] = [
            ("waiting", self.waiting()),
            ("rejected", [event for event in self._read if event in self._refused]),
            ("read", [event for event in self._read if event not in self._refused]),
        ]
        events = [Event(key, time, fate) for fate, some in fates for key, time in some if time]
        opened = [Span(key, start, end, is_open=True) for key, start, end, _ in self.open_lines()]
        now = [] if self.driver.watermark is None else [self.driver.watermark]
        return timeline(events, [*self._closed, *opened], [*self._watermarks, *now])

    def _keep(self, before: Snapshot) -> None:
        sessions = self.driver.take_rows()
        rejections = self.driver.take_rejections()
        rejections += [self._dropped(row) for row in before.next_rows if self._drops(before, row)]
        self.sessions += sessions
        self.rejections += rejections
        self._read += [self._event(row) for row in before.next_rows]
        self._refused += [event_line(rejection) for rejection in rejections]
        self._closed += [
            Span(_plain(one.key), one.start, one.end, is_open=False) for one in sessions
        ]
        watermark = before.clocks.watermark(self.driver.spec)
        self._watermarks += [] if watermark is None else [watermark]

    def _drops(self, before: Snapshot, row: Mapping[str, Any]) -> bool:
        time = row.get(self.driver.spec.event_time)
        return time is not None and before.clocks.is_dropped(self.driver.spec, micros_of(time))

    def _dropped(self, row: Mapping[str, Any]) -> Rejection:
        key, time = self._event(row)
        passthrough = {name: row.get(name) for name in self.driver.spec.passthrough}
        return Rejection("dropped", DROPPED, key, time, passthrough)

    def _event(self, row: Mapping[str, Any]) -> EventLine:
        key = tuple(row.get(name) for name in self.driver.spec.keys)
        return _plain(key), row.get(self.driver.spec.event_time)


def session_line(session: SessionRow[Any]) -> SessionLine:
    """Return a session as a script writes it."""
    return _plain(session.key), session.start, session.end, session.result


def event_line(rejection: Rejection) -> EventLine:
    """Return a rejected event as a script writes it; a failed output has no time."""
    return _plain(rejection.key), rejection.event_time


def _plain(key: Any) -> Any:
    """Return the key as a script writes it: the value of its only column, else a bare tuple."""
    if not isinstance(key, tuple):
        return key
    return key[0] if len(key) == 1 else tuple(key)
