"""Keys under `order="event_time"`: what ends them, and which timers fire first."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sessionkit import EventTimeGap, Inputs, KeyState, KeyTimes, NoTimeout, ProcessingTimeGap
from sessionkit.spec import by_processing_time
from sessionkit.testing import at
from tests.support.stateful_specs import Amount, Sum, driver_of, report, summing, texts

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("order", ["arrival", "event_time"])
@pytest.mark.parametrize("clock", ["event_time", "processing_time"])
def test_timers_that_are_due_go_off_before_a_policy_of_the_other_clock_ends_their_key(
    clock: str, order: str
) -> None:
    """Both clocks have moved, and the timer is heard."""
    is_event = clock == "event_time"

    def process(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        state.set(Sum(1))
        if is_event:
            times.set_event_timer("due", at("10:30"))
        else:
            times.set_processing_timer("due", at("12:05"))

    timeout = ProcessingTimeGap("5 minutes") if is_event else EventTimeGap("30 minutes")
    on_timer = by_processing_time(report)
    driver = driver_of(summing(process, on_timer, timeout=timeout, order=order), NOON)
    driver.add("a", at("10:00"), Amount())
    driver.run_batch()
    driver.advance_watermark_to(at("10:10"))
    driver.run_batch()
    driver.advance_watermark_to(at("11:00"))
    driver.advance_processing_time(timedelta(minutes=6))
    driver.run_batch()

    ended_by = "processing_time_gap" if is_event else "event_time_gap"
    assert ["due", ended_by] == texts(driver.take_results())


def test_a_key_holds_events_up_to_its_limit() -> None:
    """Those beyond, in time order, are quarantined."""
    spec = summing(timeout=NoTimeout(), order="event_time", inputs=Inputs(max_buffered_per_key=2))
    driver = driver_of(spec)
    for time in ("10:02", "10:00", "10:01"):
        driver.add("a", at(time), Amount())
    driver.run_batch()

    (rejected,) = driver.take_rejections("quarantined")
    assert at("10:02") == rejected.event_time
    assert "max_buffered_per_key=2" in rejected.reason
