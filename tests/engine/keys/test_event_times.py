"""The event times that a call of `process` receives with its events."""

from datetime import datetime
from typing import Any

import pytest

from sessionkit import KeyState, KeyTimes
from sessionkit.testing import at
from tests.support.stateful_specs import Amount, Sum, driver_of, summing


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("arrival", [("10:00", "10:05", "10:05"), ()]),
        ("event_time", [("10:00",), ("10:05", "10:05"), ()]),
    ],
)
def test_a_call_is_told_the_times_of_its_events(
    order: str, expected: list[tuple[str, ...]]
) -> None:
    """They stand in the order of the events; a timer has none."""
    told: list[tuple[datetime, ...]] = []

    def process(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        assert len(events) == len(times.event_times)
        told.append(times.event_times)
        times.set_event_timer("later", at("10:30"))

    def on_timer(key: Any, name: str, state: KeyState[Sum], times: KeyTimes) -> None:
        told.append(times.event_times)

    driver = driver_of(summing(process, on_timer, order=order))
    for time in ("10:05", "10:00", "10:05"):
        driver.add("a", at(time), Amount())
    driver.run_batch()
    driver.advance_watermark_to(at("11:00"))
    driver.run_batch()

    assert [tuple(map(at, times)) for times in expected] == told


def test_without_an_event_time_there_are_none() -> None:
    """Events then come in the order of their content."""
    told: list[tuple[datetime, ...]] = []

    def process(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        told.append(times.event_times)

    driver = driver_of(summing(process, event_time=None, watermark_delay=None))
    driver.add("a", None, Amount())
    driver.run_batch()

    assert [()] == told
