"""Functions that fail: what stops the query, what is counted, and what is left as it was."""

from typing import Any

import pytest

from sessionkit import EventTimeGap, KeyState, KeyTimes, Storage
from sessionkit.testing import at, minutes
from tests.support.stateful_specs import (
    Added,
    Amount,
    Sum,
    add,
    adding,
    driver_of,
    failure,
    report,
    summing,
)

LAYOUTS = ["buckets", "pages"]
UNLUCKY = "unlucky"


def strict(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> Any:
    """Add the numbers and set a timer, but fail over 13 when all is done."""
    yield add(key, events, state, times)
    times.set_event_timer("due", at("10:00") + minutes(events[0].number))
    if any(event.number == 13 for event in events):
        times.delete_timer("due")
        state.get().total = 99
        raise ValueError(UNLUCKY)


def strict_timer(key: Any, name: str, state: KeyState[Sum], times: KeyTimes) -> Any:
    """Report the timer, but fail for bob when all is done."""
    yield report(key, name, state, times)
    if key.key == "bob":
        times.set_event_timer("again", at("15:00"))
        state.set(Sum(77))
        raise ValueError(UNLUCKY)


def test_a_failure_is_told_with_function_key_and_traceback() -> None:
    """The traceback is that of the function alone, and the reason is without it."""
    driver = driver_of(summing(strict, report, on_error="reject"))
    adding(driver, "ann", at("09:01"), 13)

    (rejected,) = driver.take_rejections("failed")
    assert rejected.reason == (
        "`process` (tests.engine.keys.test_failures.strict) raised ValueError: unlucky, "
        "for Key(key='ann')"
    )
    trace = str(rejected.traceback).splitlines()
    assert "Traceback (most recent call last):" == trace[0]
    assert ", in strict" in trace[1]
    assert "    raise ValueError(UNLUCKY)" in trace
    assert "ValueError: unlucky" == trace[-1]


@pytest.mark.parametrize("bucket_count", [1, 64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_timer_that_fails_is_unfinished_and_gone(layout: Any, bucket_count: int) -> None:
    """State and other timers are as they were; its key and its name are in the reason."""
    spec = summing(
        strict,
        strict_timer,
        on_error="reject",
        storage=Storage(layout=layout, bucket_count=bucket_count),
    )
    driver = driver_of(spec)
    for key in ("ann", "bob"):
        driver.add(key, at("09:00"), Amount(5))
    driver.run_batch()
    driver.take_rows()
    driver.advance_watermark_to(at("11:00"))
    driver.run_batch()

    (rejected,) = driver.take_rejections()
    assert ("failed_output", ("bob",), None) == (rejected.kind, rejected.key, rejected.event_time)
    assert rejected.reason.startswith(
        "timer 'due': `on_timer` (tests.engine.keys.test_failures.strict_timer) raised ValueError"
    )
    assert ["ann"] == [row.key.key for row in driver.take_rows()]
    assert [("ann", Sum(5), {}), ("bob", Sum(5), {})] == [
        (key.key.key, key.state, dict(key.timers)) for key in driver.stored_keys()
    ]
    assert (2, 1, 0) == (driver.counts.timers, driver.counts.failed_output, driver.counts.failed)
    assert driver.counts.is_balanced


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_key_whose_last_call_fails_is_gone_all_the_same(layout: Any) -> None:
    """The policy has ended it: it is counted as failed_output, not kept forever."""
    spec = summing(
        add,
        strict_timer,
        timeout=EventTimeGap("30m"),
        on_error="reject",
        storage=Storage(layout=layout),
    )
    driver = driver_of(spec)
    adding(driver, "bob", at("09:00"))
    driver.advance_watermark_to(at("09:30"))
    driver.run_batch()

    (rejected,) = driver.take_rejections()
    assert rejected.reason.startswith(
        "timer 'event_time_gap': timer 'again': the timeout policy has ended Key(key='bob')"
    )
    assert ", in strict_timer" in (rejected.traceback or "")
    assert ([], []) == (driver.take_results(), driver.stored_keys())


@pytest.mark.parametrize("value", ["1", 2**63, None])
@pytest.mark.parametrize("bucket_count", [1, 64])
def test_a_state_that_does_not_fit_fails_its_own_call_only(value: Any, bucket_count: int) -> None:
    """Whatever cannot be stored, even if it was spoilt behind `set`, is a failed call."""

    def process(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        held = Sum(1)
        state.set(held)
        if key.key == "bob":
            held.total = value

    driver = driver_of(
        summing(process, on_error="reject", storage=Storage(bucket_count=bucket_count))
    )
    for key in ("ann", "bob", "cid"):
        driver.add(key, at("09:00"), Amount())
    driver.run_batch()

    (rejected,) = driver.take_rejections("failed")
    assert rejected.reason.startswith(
        "`process` (tests.engine.keys.test_failures."
        "test_a_state_that_does_not_fit_fails_its_own_call_only.<locals>.process), "
        "for Key(key='bob'), left a state that does not fit: "
        "`Sum.total` must be an int"
    )
    assert rejected.traceback is None
    assert ["ann", "cid"] == [key.key.key for key in driver.stored_keys()]


@pytest.mark.parametrize("wrong", ["row", Added("a", "1")])  # type: ignore[arg-type]
@pytest.mark.parametrize("role", ["process", "on_timer"])
def test_a_wrong_row_is_a_failed_call(role: str, wrong: Any) -> None:
    """What a function must not return leaves no trace either, under `on_error="reject"`."""

    def process(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> Any:
        state.set(Sum(1))
        times.set_event_timer("due", at("08:00"))
        return wrong if role == "process" else None

    driver = driver_of(summing(process, lambda key, name, state, times: wrong, on_error="reject"))
    driver.advance_watermark_to(at("08:30"))
    adding(driver, "ann", at("09:00"))

    (rejected,) = driver.take_rejections()
    assert ("failed" if role == "process" else "failed_output") == rejected.kind
    assert f"`{role}` (" in rejected.reason
    assert (0 if role == "process" else 1) == len(driver.stored_keys())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_failure_stops_the_query_and_changes_nothing(layout: Any) -> None:
    """As in Spark the batch has not been: its rows wait, and states are as they were."""
    driver = driver_of(summing(strict, report, storage=Storage(layout=layout)))
    adding(driver, "ann", at("09:00"), 1)
    before = driver.snapshot()
    driver.add("ann", at("09:01"), Amount(13))
    driver.add("bob", at("09:01"), Amount(1))

    text = failure(driver)

    assert text.startswith("`process` (tests.engine.keys.test_failures.strict) raised ValueError")
    assert "raise ValueError(UNLUCKY)" in text
    assert text.endswith(
        "\n\nHint: fix the function, or count such events as failed with on_error='reject'"
    )
    after = driver.snapshot()
    assert (before.groups, before.clocks) == (after.groups, after.clocks)
    assert 2 == len(after.unread)


def test_a_function_that_stops_the_interpreter_is_not_held_up() -> None:
    """Only errors are counted as failed; a request to stop passes through."""

    def stop(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        raise KeyboardInterrupt

    driver = driver_of(summing(stop, on_error="reject"))
    driver.add("ann", at("09:01"), Amount())

    with pytest.raises(KeyboardInterrupt):
        driver.run_batch()
