"""Histories with late events or holes, and a spec whose function had a bug."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from operator import itemgetter
from random import Random
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa

from sessionkit import SessionSpec, Storage
from sessionkit.testing import SessionDriver

NOON: Final = datetime(2026, 3, 8, 12, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)
GAP: Final = 10 * MINUTE
Event: TypeAlias = tuple[str, datetime, int]
"""Its key, its time, and a value of its own."""


@attrs.frozen
class Reading:
    value: int


@attrs.define
class Right:
    values: list[int] = attrs.field(factory=list)

    def update(self, reading: Reading) -> None:
        self.values = sorted([*self.values, reading.value])

    def merge(self, other: "Right") -> None:
        self.values = sorted([*self.values, *other.values])


@attrs.define
class Wrong(Right):
    """Forgets every third value."""

    def update(self, reading: Reading) -> None:
        if reading.value % 3:
            self.values = sorted([*self.values, reading.value])


def spec_of(state: type[Right], **options: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.of(
        state,
        event=Reading,
        keys={"key": str},
        event_time="at",
        gap=GAP,
        watermark_delay=5 * MINUTE,
        storage=Storage(bucket_count=2),
        **options,
    )


def history_of(random: Random, keys: Sequence[str], count: int) -> list[Event]:
    """Return events of five hours in the order of their arrival, some of them late."""
    events = []
    for value in range(count):
        at = random.randint(0, 300)
        behind = random.choice([0, 0, 0, 2, 20, 60])
        events.append((at + behind, (random.choice(keys), NOON + at * MINUTE, value)))
    return [event for _, event in sorted(events)]


def events_in(events: Sequence[Event]) -> pa.Table:
    keys, times, values = zip(*events, strict=True)
    return pa.table(
        {
            "key": pa.array(keys, pa.string()),
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "value": pa.array(values, pa.int64()),
        }
    )


# -- what history says nothing of -----------------------------------------------------------------


@attrs.frozen
class Row:
    """A session of a table."""

    key: str
    id: str
    start: datetime
    end: datetime
    values: list[int]

    @property
    def columns(self) -> dict[str, Any]:
        names = ("key", "session_id", "session_start", "session_end", "values")
        return dict(zip(names, attrs.astuple(self), strict=True))

    def overlaps(self, other: "Row") -> bool:
        return self.key == other.key and self.start < other.end and other.start < self.end


def sessions_of(events: Sequence[Event], state: type[Right] = Right) -> list[Row]:
    """Return the sessions of a batch."""
    driver = SessionDriver(spec_of(state))
    for key, at, value in events:
        driver.add(key, at, Reading(value))
    driver.run_batch()
    driver.advance_watermark_to(NOON + 100_000 * MINUTE)
    driver.run_until_idle()
    return [
        Row(row.key.key, row.session_id, row.session_start, row.session_end, row.result.values)
        for row in driver.take_rows()
    ]


def visits_of(random: Random) -> list[Event]:
    """Return events of five days, in the order of their times."""
    visits = [(random.choice("abcd"), random.randint(0, 5 * 24 * 60)) for _ in range(80)]
    events = [
        (key, NOON + (start + random.randint(0, 25)) * MINUTE, number)
        for number, (key, start) in enumerate(visits * 2)
    ]
    return sorted(events, key=itemgetter(1))


def with_holes(random: Random, events: Sequence[Event]) -> list[Event]:
    """Return what is left of events that begin late, end early, and lack keys and days."""
    first, last = sorted(random.sample(range(6 * 24 * 60), 2))
    left = [*events]
    if random.random() < 0.5:
        left = [event for event in left if event[1] >= NOON + first * MINUTE]
    if random.random() < 0.5:
        left = [event for event in left if event[1] <= NOON + last * MINUTE]
    keys = random.sample("abcd", random.choice([0, 0, 1, 2]))
    left = [event for event in left if event[0] not in keys]
    days = random.sample(range(6), random.choice([0, 0, 1, 2]))
    left = [event for event in left if (event[1].date() - NOON.date()).days not in days]
    return left or with_holes(random, events)


def spoiled_rows(random: Random, rows: Sequence[Row]) -> list[Row]:
    """Return rows of which some are wrong, missing or one too many."""
    table = list[Row]()
    for row in rows:
        match random.choice(["", "", "", "", "values", "gone", "start", "bogus"]):
            case "values":
                table.append(attrs.evolve(row, values=[-1]))
            case "gone":
                pass
            case "start":
                start = row.start + MINUTE
                table.append(attrs.evolve(row, id=f"{row.id}-later", start=start))
            case "bogus":
                bogus = attrs.evolve(row, id=f"{row.id}-bogus", start=row.end, end=row.end + GAP)
                table += [row, *([] if any(map(bogus.overlaps, rows)) else [bogus])]
            case _:
                table.append(row)
    return table


def days_of(events: Sequence[Event]) -> tuple[date, ...]:
    return tuple(sorted({at.date() for _, at, _ in events}))


def has_beginning(row: Row, history: Sequence[Event]) -> bool:
    """Tell whether history would have the earlier events of a session."""
    before = row.start - GAP
    return before < min(at for _, at, _ in history) or before.date() in days_of(history)


def reached(history: Sequence[Event], start: datetime, settled: datetime) -> Callable[[Row], bool]:
    """Return what tells whether history says all of a session."""
    keys, days = {key for key, *_ in history}, days_of(history)

    def is_reached(row: Row) -> bool:
        if row.key not in keys or row.start < start or row.end > settled:
            return False
        return {row.start.date(), row.end.date()} <= {*days} and has_beginning(row, history)

    return is_reached
