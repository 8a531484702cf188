"""Drivers that start with open sessions or stored keys."""

from datetime import timedelta
from typing import Any

import attrs
import pyarrow.compute as pc
import pytest

from examples.visits import View, Visit, visits
from sessionkit import (
    EventTimeGap,
    KeyState,
    KeyTimes,
    Lateness,
    Memory,
    NoTimeout,
    Results,
    SessionRules,
    SessionSpec,
    StatefulSpec,
    Storage,
    TimeToLive,
)
from sessionkit import aggregates as agg
from sessionkit.errors import DriverError, StateValueError
from sessionkit.spec import Timer
from sessionkit.testing import OpenSession, SessionDriver, StatefulDriver, StoredKey, at, minutes
from tests.support.refusals import says

PAGE = View(url="/", seconds=1.0)
HALF_AN_HOUR = timedelta(minutes=30)
SPECS: dict[str, Any] = {
    "plain": visits,
    "pages": attrs.evolve(visits, storage=Storage(layout="pages")),
    "revising": attrs.evolve(
        visits, results=Results(emit="on_update"), lateness=Lateness(allowed="1 hour")
    ),
    "ruled": attrs.evolve(
        visits,
        timeout=SessionRules("30 minutes", max_duration="1 hour", max_events=9),
        order="event_time",
    ),
    "extended": attrs.evolve(
        visits, timeout=SessionRules("30 minutes", extends=pc.field("seconds") >= 0.0)
    ),
    "remembering": attrs.evolve(visits, memory=Memory(time_to_live="10 days")),
    "by_function": attrs.evolve(
        visits, timeout=EventTimeGap(lambda view: HALF_AN_HOUR, max_gap="2 hours")
    ),
}


def rest_of(driver: SessionDriver[Any, Any, Any]) -> list[Any]:
    """Return what comes out after two more events, and a restart."""
    driver.add("ann", at("10:40"), PAGE)
    driver.run_batch()
    driver = SessionDriver.restore(driver.spec, driver.snapshot())
    driver.add("eve", at("15:00"), PAGE)
    driver.run_until_idle()
    return [
        (row.key, row.session_id, row.session_start, row.session_end, row.closed_by, row.result)
        for row in driver.take_rows()
        if row.is_final
    ]


@pytest.mark.parametrize("name", SPECS)
def test_a_driver_goes_on_with_the_sessions_of_another(name: str) -> None:
    """They're shown at once, and give the rows that they would have given."""
    spec = SPECS[name]
    before = SessionDriver(spec)
    for key, minute in [("ann", "10:00"), ("ann", "10:20"), ("bob", "10:15"), ("eve", "10:30")]:
        before.add(key, at(minute), PAGE)
    before.run_batch()
    before.add("eve", at("10:45"), PAGE)
    before.run_until_idle()
    opened = before.open_sessions()

    driver = SessionDriver(spec, state=opened)

    assert opened == driver.open_sessions()
    assert (None, 0) == (driver.watermark, driver.counts.events)
    assert [row[2:] for row in rest_of(before)] == [row[2:] for row in rest_of(driver)]


def test_a_session_is_said_in_a_line() -> None:
    """Its id, when it closes and why follow; its key is that of `add`."""
    given: OpenSession[Visit] = OpenSession(
        key="ann",
        session_start=at("10:00"),
        session_end=at("10:50"),
        events=2,
        state=Visit(pages=2),
    )
    driver = SessionDriver(visits, state=[given])

    (session,) = driver.open_sessions()
    assert ("ann", at("10:20"), at("10:50")) == (
        session.key.user_id,
        session.last_event_time,
        session.closes,
    )
    driver.add("ann", at("10:50"), PAGE)
    driver.run_batch()
    (session,) = driver.open_sessions()
    assert (at("10:00"), 3, 3) == (session.session_start, session.events, session.state.pages)


def test_state_goes_over_to_another_spec_before_the_first_micro_batch() -> None:
    """A migration takes it along, as it takes what a checkpoint has."""
    given: Any = OpenSession(
        key="ann", session_start=at("10:00"), session_end=at("10:30"), events=1, state=Visit(1)
    )

    driver = SessionDriver(visits, state=[given]).migrate(attrs.evolve(visits, timeout="1 hour"))

    assert [at("10:00")] == [one.session_start for one in driver.open_sessions()]


# -- keys ----------------------------------------------------------------------------------------


@attrs.frozen
class Sum:
    total: int


@attrs.frozen
class Number:
    number: int


def add_up(key: Any, events: list[Number], state: KeyState[Sum], times: KeyTimes) -> None:
    state.set(Sum(state.get(Sum(0)).total + sum(event.number for event in events)))


def at_the_end(key: Any, name: str, state: KeyState[Sum], times: KeyTimes) -> Sum:
    return state.get(Sum(0))


def sums(timeout: Any, **options: Any) -> StatefulSpec[Any, Sum, Any]:
    return StatefulSpec(
        keys={"key": str},
        event_time="ts",
        process=add_up,
        on_timer=at_the_end,
        timeout=timeout,
        watermark_delay="0 minutes",
        **options,
    )


@pytest.mark.parametrize("layout", ["buckets", "pages"])
def test_a_key_ends_a_gap_after_the_last_event_that_it_is_given(layout: Any) -> None:
    """Its state goes on, and so do keys that only have a timer."""
    spec = sums(EventTimeGap("30 minutes"), storage=Storage(layout=layout))
    given = [
        StoredKey("ann", Sum(3), last_event_time=at("10:00")),
        StoredKey("bob", None, {"due": Timer("event_time", at("10:05"))}, at("09:55")),
    ]
    driver = StatefulDriver(spec, state=given)

    found = driver.stored_keys()
    assert [("ann", Sum(3), {}), ("bob", None, given[1].timers)] == [
        (one.key.key, one.state, one.timers) for one in found
    ]
    assert [at("10:00"), at("09:55")] == [one.last_event_time for one in found]
    driver.add("cid", at("10:20"), Number(1))
    driver.run_batch()
    assert [("ann", Sum(3)), ("cid", Sum(1))] == [
        (one.key.key, one.state) for one in driver.stored_keys() if one.state
    ]
    driver.advance_watermark_to(at("10:30"))
    driver.run_batch()
    assert [Sum(3)] == [row.result for row in driver.take_rows() if row.key.key == "ann"]


def test_a_time_to_live_in_processing_time_begins_with_the_driver() -> None:
    """However long the key was stored before."""
    spec = sums(TimeToLive("10 minutes", clock="processing_time"))
    driver = StatefulDriver(spec, state=[StoredKey("ann", Sum(3))], processing_time=at("10:00"))
    driver.add("bob", at("09:00"), Number(1))
    driver.run_batch()
    driver.advance_processing_time(minutes(9))
    driver.run_batch()
    assert ["ann", "bob"] == [one.key.key for one in driver.stored_keys()]
    driver.advance_processing_time(minutes(2))
    driver.run_batch()
    assert [] == driver.stored_keys()


# -- what can't be -------------------------------------------------------------------------------


def opened(**changes: Any) -> OpenSession[Any]:
    values: dict[str, Any] = {
        "key": "ann",
        "session_start": at("10:00"),
        "session_end": at("10:30"),
        "events": 1,
        "state": Visit(1),
    }
    return OpenSession(**{**values, **changes})


REFUSED: list[tuple[Any, Any, list[str]]] = [
    (visits, [StoredKey("ann", Visit(1))], ["takes OpenSession objects, found StoredKey"]),
    (visits, [opened(key=("ann", 1))], ["one value for each of ['user_id']"]),
    (visits, [opened(session_start=at("11:00"))], ["the session of 'ann' must start before"]),
    (
        attrs.evolve(visits, results=Results(with_events=True)),
        [opened()],
        ["`with_events`", "add the events"],
    ),
    (
        attrs.evolve(visits, timeout=SessionRules("1h", changes_of="url"), order="event_time"),
        [opened()],
        ["`changes_of`", "add the events"],
    ),
    (
        SessionSpec.aggregate(
            View,
            {"n": agg.count()},
            keys={"user_id": str},
            event_time="ts",
            gap="1h",
            watermark_delay="0 minutes",
        ),
        [opened()],
        ["a spec without functions", "add the events"],
    ),
]


@pytest.mark.parametrize(("spec", "state", "facts"), REFUSED)
def test_state_that_a_spec_cannot_start_with_is_refused(
    spec: Any, state: Any, facts: list[str]
) -> None:
    """At construction."""
    with pytest.raises(DriverError) as refused:
        SessionDriver(spec, state=state)
    assert says(str(refused.value), *facts)


def test_values_of_another_type_are_refused() -> None:
    """Of a key, and of a state; and a key without the time that its timeout counts from."""
    with pytest.raises(StateValueError, match=r"`key.user_id` must be a str"):
        SessionDriver(visits, state=[opened(key=7)])
    with pytest.raises(StateValueError, match=r"`Visit.pages` must be an int"):
        SessionDriver(visits, state=[opened(state=Visit("x"))])  # type: ignore[arg-type]
    with pytest.raises(DriverError, match="counts from the last event, and 'ann' has none"):
        StatefulDriver(sums(EventTimeGap("1h")), state=[StoredKey("ann", Sum(1))])
    assert [] != StatefulDriver(sums(NoTimeout()), state=[StoredKey("a", Sum(1))]).stored_keys()
