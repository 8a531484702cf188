"""What a script is played on: the driver, and what came out of it that no step expected yet."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, TypeAlias

import attrs

from sessionkit._engine.keys.program import StoredKey
from sessionkit._engine.sessions.view import OpenSession
from sessionkit.spec.stateful import StatefulSpec
from sessionkit.spec.views import Timer
from sessionkit.testing.drivers.kinds import SessionDriver, StatefulDriver
from sessionkit.testing.drivers.query import Snapshot
from sessionkit.testing.drivers.results import BatchResult, Rejection, ResultRow, SessionRow
from sessionkit.testing.drivers.rows import plain_key
from sessionkit.testing.timeline import Event, Fate, Mark, Span, Timeline

SessionLine: TypeAlias = tuple[Any, datetime, datetime, Any]
"""A session: key, start, end, and its result row or its state."""
RowLine: TypeAlias = tuple[Any, Any]
"""A result row: key and row."""
StoredLine: TypeAlias = tuple[Any, Any] | tuple[Any, Any, Mapping[str, datetime]]
"""What is stored of a key: key, state, and its timers by name if it has any."""
EventLine: TypeAlias = tuple[Any, datetime | None]
"""An event: key and event time."""
AnyDriver: TypeAlias = SessionDriver[Any, Any, Any] | StatefulDriver[Any, Any, Any]
Timers: TypeAlias = dict[tuple[Any, str], Timer]
"""The timers that are set, by key and name."""


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
    """The run of a script: its driver, which holds what no step expected yet, and its batches."""

    driver: AnyDriver
    note: str = ""
    # Each batch, after what the query would have left before it.
    _batches: list[tuple[Snapshot, BatchResult[Any]]] = attrs.field(factory=list, init=False)

    @classmethod
    def of(cls, spec: Any, processing_time: datetime | None) -> "Stage":
        driver: Any = StatefulDriver if isinstance(spec, StatefulSpec) else SessionDriver
        return cls(driver(spec, processing_time=processing_time))

    def run_batch(self, *, sink_fails: bool = False) -> BatchResult[Any]:
        """Run a batch and keep what it did, unless the sink fails."""
        before = self.driver.snapshot()
        result: BatchResult[Any] = self.driver.run_batch(sink_fails=sink_fails)
        if result.batch_id is not None and not sink_fails:
            self._batches.append((before, result))
        return result

    def waiting(self) -> list[EventLine]:
        return [self._event(row) for row in self.driver.snapshot().unread]

    def timeline(self) -> list[str]:
        read = [self._event(row) for before, _ in self._batches for row in before.next_rows]
        rejected = [event_line(one) for _, result in self._batches for one in result.rejections]
        fates: list[tuple[Fate, EventLine]] = [
            *(("waiting", event) for event in self.waiting()),
            *(("rejected" if event in rejected else "read", event) for event in read),
        ]
        events = [Event(key, time, fate) for fate, (key, time) in fates if time]
        return Timeline(events, [*self._ended(), *self._open()], self._clocks()).as_text()

    def _event(self, row: Mapping[str, Any]) -> EventLine:
        spec = self.driver.spec
        key = tuple(row.get(name) for name in spec.keys)
        return plain_key(key), None if spec.event_time is None else row.get(spec.event_time)

    def _ended(self) -> Iterator[Span | Mark]:
        """Yield what ended: the sessions that closed, or the timers that went off."""
        snapshots = [before for before, _ in self._batches] + [self.driver.snapshot()]
        for (before, result), after in zip(self._batches, snapshots[1:], strict=True):
            if isinstance(self.driver, SessionDriver):
                for row in result.rows:
                    yield Span(plain_key(row.key), row.start, row.end, is_open=False)
            elif result.counts.timers:
                yield from self._gone_off(before, after)

    def _gone_off(self, before: Snapshot, after: Snapshot) -> Iterator[Mark]:
        """Yield the timers that a batch whose clocks were past them has not left as they were."""
        now = {
            "event_time": before.clocks.watermark,
            "processing_time": before.clocks.processing,
        }
        left = self._timers(after)
        for (key, name), timer in self._timers(before).items():
            clock = now[timer.clock]
            if left.get((key, name)) != timer and clock is not None and timer.at < clock:
                yield Mark(key, name, timer.at, is_set=False)

    def _open(self) -> Iterator[Span | Mark]:
        """Yield what is open: sessions, or timers that are set."""
        if isinstance(self.driver, SessionDriver):
            for one in self.driver.open_sessions():
                yield Span(plain_key(one.key), one.start, one.end, is_open=True)
        else:
            for (key, name), timer in self._timers(self.driver.snapshot()).items():
                yield Mark(key, name, timer.at, is_set=True)

    def _timers(self, snapshot: Snapshot) -> Timers:
        spec: Any = self.driver.spec
        return {
            (plain_key(stored.key), name): timer
            for stored in StatefulDriver.restore(spec, snapshot).stored_keys()
            for name, timer in stored.timers.items()
        }

    def _clocks(self) -> dict[str, list[datetime]]:
        """Return where the clocks stood in the batches so far, and where they stand now."""
        stood = [*(before.clocks for before, _ in self._batches), self.driver.snapshot().clocks]
        found = {"watermark": [clocks.watermark for clocks in stood]}
        if self.driver.spec.clock == "processing_time":
            found["processing"] = [clocks.processing for clocks in stood]
        shown = {name: [at for at in instants if at] for name, instants in found.items()}
        return {name: instants for name, instants in shown.items() if instants}
