"""Sessions that drop duplicates, one event after the other, and every id in a set."""

from collections.abc import Iterable
from datetime import UTC, datetime, time, timedelta
from typing import NamedTuple

import attrs


class Arrival(NamedTuple):
    """An event; of two at one instant, the one with the smaller name and value comes first."""

    key: str
    at: datetime
    name: int
    value: int


class Part(NamedTuple):
    """A session, or what is left of it: its bounds, its values in time order, and its ids."""

    key: str
    start: datetime
    end: datetime
    values: tuple[int, ...]
    ids: frozenset[int]


class Counted(NamedTuple):
    late: int
    duplicate: int


@attrs.define
class NaiveDuplicates:
    """
    Runs micro-batches over sets of ids.

    With `beats`, an event whose value is a multiple of three extends no session.
    """

    gap: timedelta
    kept_for: timedelta
    in_order: bool
    by_day: bool = False
    beats: bool = False
    opened: list[Part] = attrs.field(factory=list)
    closed: list[Part] = attrs.field(factory=list)
    remembered: list[tuple[str, frozenset[int], datetime]] = attrs.field(factory=list)
    waiting: list[Arrival] = attrs.field(factory=list)

    def run(self, events: Iterable[Arrival], watermark: datetime) -> Counted:
        if not self.in_order:
            self._close(watermark)
        late = [event for event in events if self._is_late(event, watermark)]
        self.waiting += [event for event in events if event not in late]
        turn = [event for event in self.waiting if event.at <= watermark or not self.in_order]
        self.waiting = [event for event in self.waiting if event not in turn]
        taken = self._first(turn)
        while alone := [event for event in taken if self._is_alone(event, taken, watermark)]:
            late += alone
            turn = [event for event in turn if event not in alone]
            taken = self._first(turn)
        repeats = [event for event in turn if event not in taken]
        too_late = [event for event in repeats if self._is_alone(event, taken, watermark)]
        for event in taken:
            self._join(event)
        if self.in_order:
            self._close(watermark)
        return Counted(len(late) + len(too_late), len(repeats) - len(too_late))

    def _first(self, events: Iterable[Arrival]) -> list[Arrival]:
        """Return the events whose id is new, the first of each."""
        taken: list[Arrival] = []
        for event in sorted(events, key=lambda event: event[1:]):
            if not self._is_known(event) and (event.key, event.name) not in {
                (other.key, other.name) for other in taken
            }:
                taken.append(event)
        return taken

    def _extends(self, event: Arrival) -> bool:
        return not (self.beats and event.value % 3 == 0)

    def _end(self, event: Arrival) -> datetime:
        return event.at + self.gap if self._extends(event) else event.at

    def _is_late(self, event: Arrival, watermark: datetime) -> bool:
        if self.in_order:
            return event.at <= watermark
        # One that extends nothing may find an open session.
        over = min(self._end(event), self._midnight(event.at))
        return self._extends(event) and over <= watermark

    def _is_alone(self, event: Arrival, taken: Iterable[Arrival], watermark: datetime) -> bool:
        """Return whether an event before the watermark extends nothing, and finds no session."""
        if self.in_order or self._extends(event) or event.at > watermark:
            return False
        spans = [(part.start, part.end) for part in self.opened if part.key == event.key]
        spans += [
            (near.at, self._end(near))
            for near in taken
            if near.key == event.key and self._extends(near)
        ]
        return not any(start <= event.at <= end for start, end in spans)

    def _midnight(self, at: datetime) -> datetime:
        """Return when the day of an instant ends; never, where that ends no session."""
        if not self.by_day:
            return datetime.max.replace(tzinfo=UTC)
        return datetime.combine(at.date() + timedelta(days=1), time(), UTC)

    def _is_known(self, event: Arrival) -> bool:
        sets = [part.ids for part in self.opened if part.key == event.key]
        sets += [ids for key, ids, _ in self.remembered if key == event.key]
        return any(event.name in ids for ids in sets)

    def _join(self, event: Arrival) -> None:
        start, end = event.at, self._end(event)
        met = [
            part
            for part in self.opened
            if part.key == event.key
            and part.start <= end
            and start <= part.end
            and self._midnight(part.start) == self._midnight(start)
        ]
        self.opened = [part for part in self.opened if part not in met]
        joined = Part(
            event.key,
            min([start, *(part.start for part in met)]),
            max([end, *(part.end for part in met)]),
            (*(value for part in sorted(met) for value in part.values), event.value),
            frozenset({event.name}).union(*(part.ids for part in met)),
        )
        self.opened.append(joined)

    def _close(self, watermark: datetime) -> None:
        over = [p for p in self.opened if min(p.end, self._midnight(p.start)) <= watermark]
        self.opened = [part for part in self.opened if part not in over]
        self.closed += over
        self.remembered += [(part.key, part.ids, part.end + self.kept_for) for part in over]
        self.remembered = [known for known in self.remembered if known[2] > watermark]
