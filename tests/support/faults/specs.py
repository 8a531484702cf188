"""The same sessions by both specs: each lists its numbers, so that nothing can hide."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, cast

import attrs

from sessionkit import (
    EventTimeGap,
    Functions,
    KeyState,
    KeyTimes,
    NoTimeout,
    Results,
    Session,
    SessionSpec,
    StatefulSpec,
    Storage,
)
from tests.support.faults.timeline import DELAY, GAP

CLOSE: Final = "close"


@attrs.frozen
class Reading:
    number: int


@attrs.define
class Open:
    numbers: list[int]
    last: datetime | None = None


@attrs.frozen
class Numbers:
    numbers: list[int]


@attrs.frozen
class Joined:
    """The same in one text: a list would cross packed, and no operator could follow."""

    numbers: str


def create(key: Any, event: Reading) -> Open:
    return Open([event.number])


def update(state: Open, event: Reading) -> Open:
    """Add a number after the others, so that every order shows."""
    state.numbers.append(event.number)
    return state


def finish(session: Session, state: Open) -> Numbers:
    return Numbers(state.numbers)


def join_numbers(session: Session, state: Open) -> Joined:
    return Joined(",".join(map(str, state.numbers)))


def follow(
    key: Any, events: list[Reading], state: KeyState[Open], times: KeyTimes
) -> Iterator[Numbers]:
    """Divide the events of a key by the gap; a timer closes what no event does."""
    found = state.get(Open([]))
    for event, at in zip(events, times.event_times, strict=True):
        if found.last is not None and at - found.last > GAP:
            yield Numbers(found.numbers)
            found = Open([])
        found = Open([*found.numbers, event.number], at)
    state.set(found)
    assert found.last is not None
    times.set_event_timer(CLOSE, found.last + GAP)


def close(key: Any, name: str, state: KeyState[Open], times: KeyTimes) -> Numbers:
    numbers = state.get().numbers
    state.remove()
    return Numbers(numbers)


def sessions(layout: Any) -> SessionSpec[Reading, Open, Numbers]:
    """Return sessions by the gap, with events in the order of their times."""
    return SessionSpec(
        keys={"key": str},
        event_time="at",
        logic=Functions(create=create, update=update, finish=finish),
        timeout=EventTimeGap(GAP),
        watermark_delay=DELAY,
        order="event_time",
        storage=Storage(layout=layout, bucket_count=4),
    )


def chained(layout: Any) -> SessionSpec[Reading, Open, Joined]:
    """Return the same sessions, whose rows operators of Spark may read."""
    logic: Any = Functions(create=create, update=update, finish=join_numbers)
    spec: Any = attrs.evolve(sessions(layout), logic=logic, results=Results(carries_watermark=True))
    return cast("SessionSpec[Reading, Open, Joined]", spec)


def keys(layout: Any) -> StatefulSpec[Reading, Open, Numbers]:
    """Return the same sessions, from a state a key and a timer."""
    return StatefulSpec(
        keys={"key": str},
        event_time="at",
        process=follow,
        on_timer=close,
        timeout=NoTimeout(),
        watermark_delay=DELAY,
        order="event_time",
        storage=Storage(layout=layout, bucket_count=4),
    )


SPECS: Final = {"sessions": sessions, "chained": chained, "keys": keys}


def spec_of(name: str, layout: str) -> Any:
    return SPECS[name](layout)
