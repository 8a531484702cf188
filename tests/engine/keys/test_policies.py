"""Keys that a policy ends: when, what is called, and what is left."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from sessionkit import EventTimeGap, KeyState, KeyTimes, StatefulSpec, Storage
from sessionkit.testing import StatefulDriver, at
from tests.support.stateful_specs import (
    Added,
    Driver,
    Sum,
    adding,
    driver_of,
    failure,
    report,
    summing,
    texts,
)

LAYOUTS = ["buckets", "pages"]
NOON = at("12:00")


def ending(timeout: Any, **changes: Any) -> StatefulSpec[Any, Any, Any]:
    """Make a spec that adds numbers and reports the end of its keys."""
    return summing(**{"on_timer": report, "timeout": timeout, **changes})


def to_watermark(driver: Driver, *instants: datetime) -> list[str]:
    """Move the watermark step by step, a batch each; return what was reported."""
    for instant in instants:
        driver.advance_watermark_to(instant)
        driver.run_batch()
    return texts(driver.take_results())


def after(driver: Driver, *spans: timedelta) -> list[str]:
    """Move the processing time step by step, a batch each; return what was reported."""
    for span in spans:
        driver.advance_processing_time(span)
        driver.run_batch()
    return texts(driver.take_results())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_last_call_sees_the_state_and_nothing_is_kept(layout: Any) -> None:
    """`on_timer` gets the name of the policy, may report the state, and its key is gone after."""
    spec = ending(EventTimeGap("30m"), storage=Storage(layout=layout))
    driver = driver_of(spec)
    adding(driver, "ann", at("11:30"), 4, 5)
    driver = StatefulDriver.restore(spec, driver.snapshot())
    adding(driver, "bob", at("11:55"))
    driver.advance_watermark_to(NOON)

    (row,) = driver.run_batch().rows

    assert ("ann", Added("event_time_gap", 9)) == (row.key.key, row.result)
    assert ["bob"] == [key.key.key for key in driver.stored_keys()]
    assert 1 == len(driver.snapshot().groups)


def test_without_on_timer_a_key_ends_in_silence() -> None:
    """A policy may be there only to forget; its ends are counted all the same."""
    driver = driver_of(ending(EventTimeGap("30m"), on_timer=None))
    adding(driver, "ann", at("11:30"))

    assert [] == to_watermark(driver, NOON)
    assert (1, []) == (driver.counts.timers, driver.stored_keys())


def refused_at_the_end(act: Any) -> str:
    """Return the text with which the last call of a key is refused something."""

    def on_timer(key: Any, name: str, state: KeyState[Sum], times: KeyTimes) -> None:
        act(state, times)

    driver = driver_of(ending(EventTimeGap("30m"), on_timer=on_timer))
    adding(driver, "ann", at("11:30"))
    driver.advance_watermark_to(NOON)
    return failure(driver).partition("\n\nRaised in ")[0]


def test_nothing_can_be_set_for_a_key_that_is_over() -> None:
    """State and timers would be lost, so setting them is refused with what to do instead."""
    assert (
        "`state.set(...)`: the timeout policy has ended Key(key='ann')\n\n"
        "Hint: return a result row; nothing is kept"
    ) == refused_at_the_end(lambda state, times: state.set(Sum(1)))
    assert (
        "timer 'due': the timeout policy has ended Key(key='ann')\n\n"
        "Hint: set no timer when `name` is that of a policy"
    ) == refused_at_the_end(lambda state, times: times.set_event_timer("due", at("13:00")))


def test_removing_what_is_over_anyway_is_allowed() -> None:
    """One `on_timer` for timers and ends alike may remove the state."""

    def on_timer(key: Any, name: str, state: KeyState[Sum], times: KeyTimes) -> Added:
        state.remove()
        times.delete_timer("due")
        return Added(name, 0)

    driver = driver_of(ending(EventTimeGap("30m"), on_timer=on_timer))
    adding(driver, "ann", at("11:30"))

    assert ["event_time_gap"] == to_watermark(driver, NOON)
