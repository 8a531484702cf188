"""What a job is given, and where each event must end: decided by a seed and a naive model."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple

import pyarrow as pa

from tests.support.faults.ledger import Row
from tests.support.naive_sessions import Event, naive_sessions

NOON: Final = datetime(2026, 3, 8, 12, tzinfo=UTC)
STEP: Final = timedelta(minutes=10)
GAP: Final = timedelta(minutes=4)
DELAY: Final = timedelta(minutes=30)
"""More than a batch spans: a source may cut one in two, and no event may be late for that."""
DISORDER: Final = timedelta(minutes=15)
TOO_LATE: Final = timedelta(hours=3)
KEYS: Final = 12
ON_TIME: Final = 40
FIRST_WITH_LATE: Final = 3
"""Before, there may be no watermark that an event could be late for."""

NONE: Final[Mapping[int, datetime]] = MappingProxyType({})

Arrival = tuple[str | None, datetime, int]
"""A row before the source: key, time and number; a number comes once."""
Place = tuple[object, ...]
"""Where an event ends: its session, as key and numbers; or the kind of a rejected row."""


class Timeline(NamedTuple):
    """Events in batches, made one by one: any number of them, and the same for the same seed."""

    seed: str
    size: int = ON_TIME
    keys: int = KEYS

    def batch(self, number: int) -> list[Arrival]:
        """Return a batch: events out of order, one without a key and, later on, one too late."""
        random = Random(f"{self.seed}/{number}")
        first = number * (self.size + 2)
        start = NOON + number * STEP
        rows: list[Arrival] = [
            (
                f"k{random.randrange(self.keys)}",
                start + _up_to(random, STEP + DISORDER) - DISORDER,
                n,
            )
            for n in range(first, first + self.size)
        ]
        rows.append((None, start, first + self.size))
        if number >= FIRST_WITH_LATE:
            rows.append(("k0", start - TOO_LATE, first + self.size + 1))
        random.shuffle(rows)
        return rows

    def end(self, number: int) -> list[Arrival]:
        """Return a last batch, which closes the sessions of all keys but its own."""
        return [("the end", NOON + (number + 1000) * STEP, -1)]

    def places(self, batches: int, watermarks: Mapping[int, datetime] = NONE) -> dict[int, Place]:
        """
        Return where each event of the first batches must end, by its number.

        With the watermarks under which a query has read batches, an event that was made too late
        must be in a session if the query had no watermark to see it by.
        """
        rows = [*chain.from_iterable(map(self.batch, range(batches)))]
        places: dict[int, Place] = {}
        on_time = []
        for key, at, number in rows:
            batch, row = divmod(number, self.size + 2)
            is_seen = batch not in watermarks or at < watermarks[batch]
            if key is None:
                places[number] = ("quarantined",)
            elif row == self.size + 1 and is_seen:
                places[number] = ("late",)
            else:
                on_time.append(Event(key, at, number, GAP))
        for found in naive_sessions(on_time):
            places |= dict.fromkeys(found.values, (found.key, found.values))
        return places


def _up_to(random: Random, span: timedelta) -> timedelta:
    return timedelta(microseconds=random.randrange(int(span / timedelta(microseconds=1))))


def table_of(rows: Iterable[Arrival]) -> pa.Table:
    keys, times, numbers = zip(*rows, strict=True)
    at = pa.array(times, pa.timestamp("us", tz="UTC"))
    return pa.table({"key": pa.array(keys, pa.string()), "at": at, "number": numbers})


class Audit(NamedTuple):
    """How many events came to what they should not, and how many ids have two sessions."""

    events: int
    lost: int
    doubled: int
    wrong: int
    shared: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether each event is where it must be, once, and each session has an id of its own."""
        return self.events > 0 and not any(self[1:])

    def __str__(self) -> str:
        return (
            f"{self.lost} lost, {self.doubled} doubled, {self.wrong} wrong, "
            f"{self.shared} ids of two sessions"
        )

    def plus(self, other: "Audit") -> "Audit":
        return Audit(*(mine + its for mine, its in zip(self, other, strict=True)))


def audited(expected: Mapping[int, Place], rows: Iterable[Row]) -> Audit:
    """Compare where events are with where they must be."""
    rows = list(rows)
    found = [*placed(rows)]
    times = Counter(number for number, _ in found)
    strays = {number for number, place in found if expected.get(number) != place}
    sessions = {(row.id, row.key, row.numbers) for row in rows if row.id is not None}
    return Audit(
        events=len(expected),
        lost=len(expected.keys() - times.keys()),
        doubled=sum(count > 1 for count in times.values()),
        wrong=len(strays),
        shared=sum(count > 1 for count in Counter(id_ for id_, *_ in sessions).values()),
    )


def placed(rows: Iterable[Row]) -> Iterator[tuple[int, Place]]:
    """Yield the number and the place of each event in rows."""
    for kind, key, numbers, _ in rows:
        place: Place = (key, numbers) if kind == "session" else (kind,)
        yield from ((number, place) for number in numbers)
