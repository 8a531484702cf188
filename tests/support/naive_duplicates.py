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
    """Runs micro-batches over sets of ids."""

    gap: timedelta
    kept_for: timedelta
    in_order: bool
    by_day: bool = False
    opened: list[Part] = attrs.field(factory=list)
    closed: list[Part] = attrs.field(factory=list)
    remembered: list[tuple[str, frozenset[int], datetime]] = attrs.field(factory=list)
    waiting: list[Arrival] = attrs.field(factory=list)

    def run(self, events: Iterable[Arrival], watermark: datetime) -> Counted:
        if not self.in_order:
            self._close(watermark)
        late = [one for one in events if self._is_late(one, watermark)]
        self.waiting += [one for one in events if one not in late]
        turn = [one for one in self.waiting if one.at <= watermark or not self.in_order]
        self.waiting = [one for one in self.waiting if one not in turn]
        taken: list[Arrival] = []
        for one in sorted(turn, key=lambda event: event[1:]):
            if not self._is_known(one) and (one.key, one.name) not in {
                (other.key, other.name) for other in taken
            }:
                taken.append(one)
        for one in taken:
            self._join(one)
        if self.in_order:
            self._close(watermark)
        return Counted(len(late), len(turn) - len(taken))

    def _is_late(self, event: Arrival, watermark: datetime) -> bool:
        over = event.at if self.in_order else min(event.at + self.gap, self._midnight(event.at))
        return over <= watermark

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
        start, end = event.at, event.at + self.gap
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
