"""Histories with late events, and a spec whose function had a bug."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa

from sessionkit import SessionSpec, Storage

NOON: Final = datetime(2026, 3, 8, 12, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)
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
        gap=10 * MINUTE,
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
