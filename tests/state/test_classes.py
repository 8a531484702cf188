"""Dataclasses for events, states and rows, where attrs classes are shown otherwise."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sessionkit import (
    KeyState,
    KeyTimes,
    NoTimeout,
    SessionSpec,
    SpecError,
    StatefulSpec,
)
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver, StatefulDriver

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
RULES: dict[str, Any] = {
    "keys": {"user": str},
    "event_time": "ts",
    "gap": "30m",
    "watermark_delay": "0s",
}


@dataclass(frozen=True)
class Place:
    page: str
    depth: int = 0


@dataclass(frozen=True, slots=True)
class View:
    place: Place
    seconds: float | None = None


@dataclass
class Visit:
    """A state with every kind of field."""

    pages: list[str] = field(default_factory=list)
    _seconds: float = 0.0
    last: Place | None = field(default=None, kw_only=True)

    def update(self, event: View) -> None:
        self.pages.append(event.place.page)
        self._seconds += event.seconds or 0.0
        self.last = event.place

    def merge(self, other: "Visit") -> None:
        self.pages += other.pages
        self._seconds += other._seconds
        self.last = other.last


@dataclass
class Shared:
    """A state that can't be changed, though a function would."""

    number: int = 0


@dataclass(frozen=True)
class Fixed:
    number: int = 0

    def update(self, event: View) -> None:
        """Change nothing."""


def closed(spec: SessionSpec[Any, Any, Any]) -> list[Any]:
    """Run two views through a snapshot; return the rows."""
    driver = SessionDriver(spec)
    driver.add("ann", NOON, View(Place("/", 1), 2.0))
    driver.run_batch()
    driver = SessionDriver.restore(spec, driver.snapshot())
    driver.add("ann", NOON + timedelta(minutes=1), View(Place("/buy")))
    driver.run_batch()
    driver.advance_watermark_to(NOON + timedelta(hours=2))
    driver.run_until_idle()
    return driver.take_results()


def test_a_session_is_folded_into_a_dataclass() -> None:
    """Its state is stored and read again, with a dataclass in it."""
    spec = SessionSpec.of(Visit, **RULES)
    assert (View, Visit, Visit) == (spec.event, spec.state, spec.result)

    assert [Visit(["/", "/buy"], 2.0, last=Place("/buy"))] == closed(spec)


def test_aggregates_and_rows_of_events_are_made_of_dataclasses() -> None:
    """The row of an event has its fields."""
    spec = SessionSpec.aggregate(
        View, {"views": agg.count(), "seconds": agg.sum("seconds")}, **RULES
    )
    (row,) = closed(spec)
    assert (2, 2.0) == (row.views, row.seconds)

    rows = closed(SessionSpec.per_event(View, **RULES))
    assert [(1, Place("/", 1)), (2, Place("/buy"))] == [(row.number, row.place) for row in rows]


def test_state_per_key_is_a_dataclass() -> None:
    """The classes come from the annotations."""

    def process(key: Any, events: list[View], state: KeyState[Shared], times: KeyTimes) -> Shared:
        state.set(Shared(state.get(Shared()).number + len(events)))
        return state.get()

    spec = StatefulSpec(keys={"user": str}, process=process, timeout=NoTimeout())
    driver = StatefulDriver(spec)
    for _ in range(2):
        driver.add("ann", None, View(Place("/")))
        driver.run_batch()
    assert [Shared(1), Shared(2)] == driver.take_results()


def test_a_frozen_dataclass_is_not_changed_in_place() -> None:
    """As a frozen attrs class isn't."""
    with pytest.raises(SpecError, match="`update` .* returns None: .*, and Fixed is frozen"):
        SessionSpec.of(Fixed, **RULES, order="event_time")
