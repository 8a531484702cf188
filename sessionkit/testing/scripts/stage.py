"""What a script is played on: the driver, and what came out of it that no step expected yet."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

import attrs

from sessionkit._engine.keys.program import StoredKey
from sessionkit._engine.sessions.view import OpenSession
from sessionkit.spec.stateful import StatefulSpec
from sessionkit.testing.drivers.driver import SessionDriver, StatefulDriver
from sessionkit.testing.drivers.query import Snapshot
from sessionkit.testing.drivers.results import BatchResult, Rejection, ResultRow, SessionRow
from sessionkit.testing.drivers.rows import plain_key
from sessionkit.testing.pictures.timeline import Event, Fate, Mark, Span, Timeline
from sessionkit.timeouts import Clock

SessionLine: TypeAlias = tuple[Any, datetime, datetime, Any]
"""A session: key, start, end, and its result row or its state."""
RowLine: TypeAlias = tuple[Any, Any]
"""A result row: key and row."""
StoredLine: TypeAlias = tuple[Any, Any] | tuple[Any, Any, Mapping[str, datetime]]
"""What is stored of a key: key, state, and its timers by name if it has any."""
EventLine: TypeAlias = tuple[Any, datetime | None]
"""An event: key and event time."""
AnyDriver: TypeAlias = SessionDriver[Any, Any, Any] | StatefulDriver[Any, Any, Any]
Timers: TypeAlias = dict[tuple[Any, str], tuple[Clock, datetime]]
"""The timers that are set, by key and name: their clocks and times."""


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


@attrs.define
class Stage:
    """The run of a script: its driver, and the rows and rejections that no step expected yet."""

    driver: AnyDriver
    note: str = ""
    rows: list[Any] = attrs.field(factory=list, init=False)
    rejections: list[Rejection] = attrs.field(factory=list, init=False)
    _read: list[EventLine] = attrs.field(factory=list, init=False)
    _rejected: list[EventLine] = attrs.field(factory=list, init=False)
    _over: list[Span | Mark] = attrs.field(factory=list, init=False)
    _clocks: dict[str, list[datetime]] = attrs.field(factory=dict, init=False)

    def run_batch(self, *, sink_fails: bool) -> BatchResult[Any]:
        """Run a batch and keep what it did, unless the sink fails."""
        before, timers = self.driver.snapshot(), _timers(self.driver)
        result: BatchResult[Any] = self.driver.run_batch(sink_fails=sink_fails)
        if result.batch_id is not None and not sink_fails:
            self._keep(before)
            self._clocks = _moved(self._clocks, self.driver, before)
            self._over += _ended(result, timers, self.driver, before)
        return result

    def restart(self) -> None:
        """Let another driver go on with what this one leaves."""
        spec: Any = self.driver.spec
        self.driver = type(self.driver).restore(spec, self.driver.snapshot())

    def take_rows(self) -> list[Any]:
        """Return the rows that no step expected yet."""
        taken, self.rows = self.rows, []
        return taken

    def take_rejections(self, kind: str) -> list[Rejection]:
        """Return the rejections of a kind that no step expected yet."""
        taken = [rejection for rejection in self.rejections if rejection.kind == kind]
        self.rejections = [rejection for rejection in self.rejections if rejection.kind != kind]
        return taken

    def waiting(self) -> list[EventLine]:
        """Return the events that no batch has read."""
        return [self._event(row) for row in self.driver.snapshot().unread]

    def timeline(self) -> list[str]:
        """Draw the run so far."""
        fates: list[tuple[Fate, list[EventLine]]] = [
            ("waiting", self.waiting()),
            ("rejected", [event for event in self._read if event in self._rejected]),
            ("read", [event for event in self._read if event not in self._rejected]),
        ]
        events = [Event(key, time, fate) for fate, some in fates for key, time in some if time]
        clocks = _moved(self._clocks, self.driver, self.driver.snapshot())
        return Timeline(events, [*self._over, *_now(self.driver)], clocks).drawn()

    def _keep(self, before: Snapshot) -> None:
        rejections = self.driver.take_rejections()
        self.rows = sorted([*self.rows, *self.driver.take_rows()], key=_order)
        self.rejections += rejections
        self._read += [self._event(row) for row in before.next_rows]
        self._rejected += [event_line(rejection) for rejection in rejections]

    def _event(self, row: Mapping[str, Any]) -> EventLine:
        spec = self.driver.spec
        key = tuple(row.get(name) for name in spec.keys)
        return plain_key(key), None if spec.event_time is None else row.get(spec.event_time)


def stage_for(spec: Any, processing_time: datetime | None) -> Stage:
    """Return a stage for a spec of either kind."""
    driver: Any = StatefulDriver if isinstance(spec, StatefulSpec) else SessionDriver
    return Stage(driver(spec, processing_time=processing_time))


def _order(row: Any) -> tuple[Any, ...]:
    return row.key, getattr(row, "start", None)


# -- what the timeline shows besides events ----------------------------------------------------


def _ended(
    result: BatchResult[Any], timers: Timers, driver: AnyDriver, before: Snapshot
) -> list[Span | Mark]:
    """Return what ended in a batch: the sessions that closed, or the timers that went off."""
    if isinstance(driver, SessionDriver):
        return [Span(plain_key(row.key), row.start, row.end, is_open=False) for row in result.rows]
    return list(_gone_off(timers, driver, before)) if result.counts.timers else []


def _now(driver: AnyDriver) -> list[Span | Mark]:
    """Return what is open: sessions, or timers that are set."""
    if isinstance(driver, SessionDriver):
        return [
            Span(plain_key(one.key), one.start, one.end, is_open=True)
            for one in driver.open_sessions()
        ]
    timers = _timers(driver)
    return [Mark(key, name, at, is_set=True) for (key, name), (_, at) in timers.items()]


def _timers(driver: AnyDriver) -> Timers:
    if isinstance(driver, SessionDriver):
        return {}
    return {
        (plain_key(stored.key), name): (timer.clock, timer.at)
        for stored in driver.stored_keys()
        for name, timer in stored.timers.items()
    }


def _gone_off(timers: Timers, driver: AnyDriver, before: Snapshot) -> list[Mark]:
    """Return the timers that a batch whose clocks were past them has not left as they were."""
    left = _timers(driver)
    clocks = {
        "event_time": before.clocks.watermark,
        "processing_time": before.clocks.processing,
    }
    return [
        Mark(key, name, at, is_set=False)
        for (key, name), (clock, at) in timers.items()
        if left.get((key, name)) != (clock, at) and (now := clocks[clock]) is not None and at < now
    ]


def _moved(
    clocks: Mapping[str, list[datetime]], driver: AnyDriver, before: Snapshot
) -> dict[str, list[datetime]]:
    """Return the clocks of the batches so far, with those of one more."""
    now = {"watermark": before.clocks.watermark}
    if driver.spec.clock == "processing_time":
        now["processing"] = before.clocks.processing
    found = {name: [*clocks.get(name, []), *([at] if at else [])] for name, at in now.items()}
    return {name: instants for name, instants in found.items() if instants}
