"""What a driver has done so far, as a timeline."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

import attrs

from sessionkit._engine.keys.program import stored_keys_of
from sessionkit._engine.sessions.view import OpenSession, open_sessions_of
from sessionkit.spec.base import AnySpec
from sessionkit.spec.session import SessionSpec
from sessionkit.spec.stateful import StatefulSpec
from sessionkit.spec.views import Timer
from sessionkit.testing.drivers.query import Snapshot, memories_of
from sessionkit.testing.drivers.results import BatchResult
from sessionkit.testing.literals import plain_key
from sessionkit.testing.timeline import Event, Fate, Mark, Span, Timeline

EventLine: TypeAlias = tuple[Any, datetime | None]
"""An event: key and event time."""
Timers: TypeAlias = dict[tuple[Any, str], Timer]
"""The timers that are set, by key and name."""

MOST_BATCHES: Final = 100
"""How many micro-batches a driver remembers for its picture."""


@attrs.frozen
class Run:
    """
    The run of a spec on a driver.

    Attributes:
        spec: The definition.
        batches: Its latest micro-batches, each after what the query would have left before it.
        left: What the query would leave now.
    """

    spec: AnySpec
    batches: Sequence[tuple[Snapshot, BatchResult[Any]]]
    left: Snapshot

    @property
    def timeline(self) -> Timeline:
        """What became of the events, where the clocks stood, and the sessions or timers."""
        read = [self._event(row) for before, _ in self.batches for row in before.next_rows]
        rejected = {
            (plain_key(one.key), one.event_time)
            for _, result in self.batches
            for one in result.rejections
        }
        fates: list[tuple[Fate, EventLine]] = [
            *(("rejected" if event in rejected else "read", event) for event in read),
            *(("waiting", self._event(row)) for row in self.left.unread),
        ]
        events = [Event(key, time, fate) for fate, (key, time) in fates if time]
        return Timeline(events, [*self._ended(), *self._open()], self._clocks())

    def _event(self, row: Mapping[str, Any]) -> EventLine:
        spec = self.spec
        key = tuple(row.get(name) for name in spec.keys)
        return plain_key(key), None if spec.event_time is None else row.get(spec.event_time)

    def _ended(self) -> Iterator[Span | Mark]:
        """Yield what ended: the sessions that closed, or the timers that went off."""
        snapshots = [before for before, _ in self.batches] + [self.left]
        for (before, result), after in zip(self.batches, snapshots[1:], strict=True):
            if isinstance(self.spec, SessionSpec):
                closed = [row for row in result.rows if row.is_final]
                # A session may have several rows.
                yield from dict.fromkeys(
                    Span(plain_key(row.key), row.start, row.end, is_open=False) for row in closed
                )
            elif result.counts.timers:
                yield from _gone_off(self.spec, before, after)

    def _open(self) -> Iterator[Span | Mark]:
        """Yield what is open: sessions, or timers that are set."""
        spec: Any = self.spec
        if isinstance(spec, StatefulSpec):
            for (key, name), timer in _timers(spec, self.left).items():
                yield Mark(key, name, timer.at, is_set=True)
            return
        found: list[OpenSession[Any]] = [
            session
            for memory in memories_of(spec, self.left)
            for session in open_sessions_of(spec, memory)
        ]
        for one in sorted(found, key=lambda session: (session.key, session.start)):
            yield Span(plain_key(one.key), one.start, one.end, is_open=True)

    def _clocks(self) -> dict[str, list[datetime]]:
        """Return where the clocks stood in the batches so far, and where they stand now."""
        stood = [*(before.clocks for before, _ in self.batches), self.left.clocks]
        found = {"watermark": [clocks.watermark for clocks in stood]}
        if self.spec.clock == "processing_time":
            found["processing"] = [clocks.processing for clocks in stood]
        shown = {name: [at for at in instants if at] for name, instants in found.items()}
        return {name: instants for name, instants in shown.items() if instants}


def _gone_off(spec: Any, before: Snapshot, after: Snapshot) -> Iterator[Mark]:
    """Yield the timers that a batch whose clocks were past them has not left as they were."""
    now = {"event_time": before.clocks.watermark, "processing_time": before.clocks.processing}
    left = _timers(spec, after)
    for (key, name), timer in _timers(spec, before).items():
        clock = now[timer.clock]
        if left.get((key, name)) != timer and clock is not None and timer.at < clock:
            yield Mark(key, name, timer.at, is_set=False)


def _timers(spec: Any, left: Snapshot) -> Timers:
    stored = [key for memory in memories_of(spec, left) for key in stored_keys_of(spec, memory)]
    return {
        (plain_key(one.key), name): timer
        for one in sorted(stored, key=lambda one: tuple(one.key))
        for name, timer in one.timers.items()
    }
