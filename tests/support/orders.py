"""
Keys that do what their events tell them to: the spec of the tests that draw random programs.

The orders that the functions follow come with the events, and by the name of a timer, so that the
engine and the naive model call the very same functions.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs

from sessionkit import EventTimeGap, NoTimeout, StatefulSpec, TimeToLive
from sessionkit.spec import by_processing_time

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
SECOND, MILLI, MICRO = timedelta(seconds=1), timedelta(milliseconds=1), timedelta(microseconds=1)
NAMES = "xyz"


@attrs.frozen
class Told:
    """An event: its number, and what is to be done."""

    number: int
    orders: list[str]


@attrs.define
class Heard:
    numbers: list[int] = attrs.field(factory=list)


@attrs.frozen
class Seen:
    """A result: who was called, and all that it saw."""

    what: str
    numbers: list[int]
    timers: list[str]
    watermark: datetime | None
    processing_time: datetime


def seen(what: str, state: Any, times: Any) -> Seen:
    timers = [f"{name} {timer.clock} {timer.at}" for name, timer in sorted(times.timers.items())]
    held = state.get(Heard([-1]))
    return Seen(what, list(held.numbers), timers, times.watermark, times.processing_time)


def follow(order: str, number: int, state: Any, times: Any) -> None:
    """Do one thing that a function can do."""
    verb, *rest = order.split()
    if verb == "add":
        state.set(Heard([*state.get(Heard()).numbers, number]))
    elif verb == "touch" and state.exists:
        state.get().numbers.append(99)
    elif verb == "remove":
        state.remove()
    elif verb == "delete":
        times.delete_timer(rest[0])
    elif verb == "fail":
        message = "told to"
        raise ValueError(message)
    elif verb in ("event", "processing"):
        name, base, micros = rest
        clocks = {"noon": NOON, "clock": times.processing_time}
        if verb == "event":
            clocks["clock"] = times.watermark or NOON
        setter = times.set_event_timer if verb == "event" else times.set_processing_timer
        setter(name, clocks[base] + timedelta(microseconds=int(micros)))


def process(key: Any, events: Sequence[Told], state: Any, times: Any) -> Any:
    """Show what there is, then follow the orders of every event."""
    yield seen("process", state, times)
    for event in events:
        for order in event.orders:
            follow(order, event.number, state, times)
    yield seen("processed", state, times)


@attrs.frozen
class OnTimer:
    """Follows orders by the name of the timer; for the end of a key it only looks."""

    orders: dict[str, list[str]]

    def __call__(self, _: Any, name: str, state: Any, times: Any) -> Any:
        """Show what there is, then follow the orders."""
        yield seen(name, state, times)
        for order in self.orders.get(name, []):
            follow(order, -len(name), state, times)
        yield seen(f"{name} done", state, times)


GAP, TTL = EventTimeGap("3 seconds"), TimeToLive("5 seconds", clock="event_time")
EVENT_POLICIES = [NoTimeout(), GAP, TTL, TTL | GAP, GAP | TTL]


def spec_of(
    timeout: Any, on_timer: OnTimer, *, processing_timers: bool = True, **changes: Any
) -> StatefulSpec[Any, Any, Any]:
    settings: dict[str, Any] = {"on_error": "reject", **changes}
    return StatefulSpec(
        keys={"key": str},
        event_time="at",
        watermark_delay=timedelta(seconds=1),
        event=Told,
        state=Heard,
        result=Seen,
        process=process,
        on_timer=by_processing_time(on_timer) if processing_timers else on_timer,
        timeout=timeout,
        **settings,
    )
