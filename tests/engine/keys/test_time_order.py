"""Keys under `order="event_time"`: what ends them, and which timers go off first."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sessionkit import (
    EventTimeGap,
    Inputs,
    KeyState,
    KeyTimes,
    NoTimeout,
    ProcessingTimeGap,
    TimeToLive,
    by_processing_time,
)
from sessionkit.testing import at
from tests.support.stateful_specs import Added, Amount, Sum, driver_of, report, summing, texts

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def keep(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> Added:
    """Keep the first number; the second time, forget it and set a timer for 13:00."""
    if state.exists:
        state.remove()
        times.set_event_timer("alone", at("13:00"))
    else:
        state.set(Sum(events[-1].number))
    return Added("process", state.get(Sum(-1)).total)


@pytest.mark.parametrize("stops", [(), ("10:35",), ("11:10", "12:00")])
def test_a_state_that_is_gone_has_no_age(stops: tuple[str, ...]) -> None:
    """Its TimeToLive doesn't end the key, however the watermark gets there."""
    timeout = TimeToLive("1 hour", clock="event_time")
    spec = summing(keep, report, timeout=timeout, order="event_time")
    driver = driver_of(spec)
    driver.add("a", at("10:00"), Amount())
    driver.add("a", at("10:30"), Amount())
    driver.run_batch()
    for stop in (*stops, "14:00"):
        driver.advance_watermark_to(at(stop))
        driver.run_batch()

    assert ["process", "process", "alone"] == texts(driver.take_results())
    assert [] == driver.stored_keys()


@pytest.mark.parametrize("order", ["arrival", "event_time"])
def test_timers_that_are_due_go_off_before_a_policy_in_processing_time_ends_their_key(
    order: str,
) -> None:
    """Whatever the order of events: both clocks have moved, and the timer is heard."""

    def process(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        state.set(Sum(1))
        times.set_event_timer("due", at("10:30"))

    timeout = ProcessingTimeGap("5 minutes")
    driver = driver_of(summing(process, report, timeout=timeout, order=order), NOON)
    driver.add("a", at("10:00"), Amount())
    driver.run_batch()
    driver.advance_watermark_to(at("10:10"))
    driver.run_batch()
    driver.advance_watermark_to(at("11:00"))
    driver.advance_processing_time(timedelta(minutes=6))
    driver.run_batch()

    assert ["due", "processing_time_gap"] == texts(driver.take_results())


def test_a_processing_timer_that_is_due_goes_off_before_event_time_ends_its_key() -> None:
    """Both clocks have moved, and the timer is heard."""

    def process(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        state.set(Sum(1))
        times.set_processing_timer("due", at("12:05"))

    timeout = EventTimeGap("30 minutes")
    spec = summing(process, by_processing_time(report), timeout=timeout, order="event_time")
    driver = driver_of(spec, NOON)
    driver.add("a", at("10:00"), Amount())
    driver.run_batch()
    driver.advance_watermark_to(at("10:10"))
    driver.run_batch()
    driver.advance_watermark_to(at("11:00"))
    driver.advance_processing_time(timedelta(minutes=6))
    driver.run_batch()

    assert ["due", "event_time_gap"] == texts(driver.take_results())


def test_a_timer_goes_off_after_the_events_of_its_instant() -> None:
    """As after all events before it."""

    def process(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> Added:
        times.set_event_timer("due", at("10:05"))
        return Added("process", 0)

    driver = driver_of(summing(process, report, timeout=NoTimeout(), order="event_time"))
    for time in ("10:00", "10:05", "10:06"):
        driver.add("a", at(time), Amount())
    driver.run_batch()
    driver.advance_watermark_to(at("10:05"))
    driver.run_batch()
    driver.advance_watermark_to(at("10:05:01"))
    driver.run_batch()

    assert ["process", "process", "due"] == texts(driver.take_results())


def test_events_at_one_instant_come_in_one_call() -> None:
    """In the order of their content, once the watermark has passed them."""
    seen: list[list[int]] = []

    def process(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        seen.append([event.number for event in events])

    driver = driver_of(summing(process, timeout=NoTimeout(), order="event_time"))
    for time, number in (("10:05", 3), ("10:00", 9), ("10:05", 1)):
        driver.add("a", at(time), Amount(number))
    driver.run_batch()
    assert ([], 3) == (seen, driver.counts.buffered)

    driver.advance_watermark_to(at("10:06"))
    driver.run_batch()
    assert [[9], [1, 3]] == seen
    assert (3, 0) == (driver.counts.processed, driver.counts.buffered)


def test_a_key_may_hold_so_many_events() -> None:
    """Those beyond, in time order, are quarantined."""
    spec = summing(timeout=NoTimeout(), order="event_time", inputs=Inputs(max_buffered_per_key=2))
    driver = driver_of(spec)
    for time in ("10:02", "10:00", "10:01"):
        driver.add("a", at(time), Amount())
    driver.run_batch()

    (rejected,) = driver.take_rejections("quarantined")
    assert at("10:02") == rejected.event_time
    assert "max_buffered_per_key=2" in rejected.reason
