"""
Measures many events of one key, without Spark: `python -m benchmarks.one_key`.

A job stays quick with a hot key, or with a feed that has gone bad, only where the time grows with
the number of events and not with its square. The exponent says which: 1 is linear, 2 is quadratic.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

import attrs

from benchmarks.targets import exponent
from sessionkit import (
    EventTimeGap,
    Functions,
    KeyState,
    KeyTimes,
    Session,
    SessionSpec,
    StatefulSpec,
)
from sessionkit.testing import SessionDriver, StatefulDriver

__all__ = ["CASES", "main", "seconds_of_batch"]

Driver: TypeAlias = SessionDriver[Any, Any, Any] | StatefulDriver[Any, Any, Any]

SIZES: Final = (1_000, 2_000, 4_000)
NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


@attrs.frozen
class Reading:
    """An event: its number in the batch."""

    number: int


@attrs.define
class Total:
    """A state, and its result."""

    events: int = 0


def create(key: object, reading: Reading) -> Total:
    """Open a session."""
    return update(Total(), reading)


def update(total: Total, reading: Reading) -> Total:
    """Count an event."""
    total.events += 1
    return total


def update_or_fail(total: Total, reading: Reading) -> Total:
    """Count an event; every second one fails."""
    if reading.number % 2:
        message = f"reading {reading.number} is broken"
        raise ValueError(message)
    return update(total, reading)


def merge(left: Total, right: Total) -> Total:
    """Join two sessions."""
    return Total(left.events + right.events)


def finish(session: Session, total: Total) -> Total:
    """Close a session."""
    return total


def process(key: object, readings: list[Reading], state: KeyState[Total], times: KeyTimes) -> Total:
    """Count the events of a key."""
    total = Total(state.get(Total()).events + len(readings))
    state.set(total)
    return total


def _sessions(
    update: Callable[[Total, Reading], Total], order: Literal["arrival", "event_time"] = "arrival"
) -> Driver:
    spec = SessionSpec(
        keys={"key": str},
        event_time="ts",
        logic=Functions(create=create, update=update, merge=merge, finish=finish),
        timeout=EventTimeGap("30 minutes"),
        watermark_delay="10 minutes",
        on_error="reject",
        order=order,
    )
    return SessionDriver(spec)


def _state_in_order() -> Driver:
    spec = StatefulSpec(
        keys={"key": str},
        event_time="ts",
        event=Reading,
        state=Total,
        result=Total,
        process=process,
        order="event_time",
        timeout=EventTimeGap("30 minutes"),
        watermark_delay="10 minutes",
    )
    return StatefulDriver(spec)


CASES: Final[Mapping[str, Callable[[], Driver]]] = {
    "sessions": lambda: _sessions(update),
    "sessions, every second event fails": lambda: _sessions(update_or_fail),
    "sessions in order, every second event fails": lambda: _sessions(
        update_or_fail, order="event_time"
    ),
    "state in order": _state_in_order,
}


def seconds_of_batch(driver: Driver, events: int) -> float:
    """
    Return the CPU seconds of two batches: one with this many events of a key, and one that ends it.

    The events are a second apart. A spec in order of event time folds them in the second batch.
    """
    for number in range(events):
        driver.add("k", NOON + timedelta(seconds=number), Reading(number))
    begun = time.process_time()
    driver.run_batch()
    driver.advance_watermark_to(NOON + timedelta(days=1))
    driver.run_batch()
    return time.process_time() - begun


def main() -> None:
    """Measure each case at each size, the best of some rounds, and print a line for each."""
    options = _options()
    seconds_of_batch(CASES["sessions"](), 100)
    for name, make in CASES.items():
        best = [
            min(seconds_of_batch(make(), size) for _ in range(options.rounds))
            for size in options.sizes
        ]
        times = "  ".join(
            f"{size:,}: {each:.3f} s" for size, each in zip(options.sizes, best, strict=True)
        )
        print(f"{name}  {times}  exponent {exponent(options.sizes, best):.2f}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_key", description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="runs of each case and size")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="events of the key")
    return parser.parse_args()


if __name__ == "__main__":
    main()
