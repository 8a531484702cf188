"""The boundary rules, pinned one microsecond and one millisecond to either side of equality."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit._engine.boundaries import (
    event_that_moves_to,
    has_passed,
    is_late,
    is_late_in_order,
    is_over,
    latest_before_jump,
    processing_timer_ms,
    starts_new_session,
    timer_ms,
    watermark_in_force,
    window_end,
)
from sessionkit._instants import BEGINNING_US, LAST_INSTANT_US

MOMENT_US = 1_700_000_000_000_000
STEPS_US = (-1_000, -1, 0, 1, 1_000)
"""A millisecond and a microsecond before, equality, and the same after."""

FIRST_US = -62_135_596_800_000_000
"""The first instant of the year 1."""

INSTANTS_US = st.integers(1, 250_000_000_000_000_000)
WATERMARKS_MS = st.integers(0, 250_000_000_000_000)


RULES = {
    "an event at the end of a session joins it": (
        lambda us: starts_new_session(us, MOMENT_US, gap_inclusive=True),
        [False, False, False, True, True],
    ),
    "under gap_inclusive=False it begins one": (
        lambda us: starts_new_session(us, MOMENT_US, gap_inclusive=False),
        [False, False, True, True, True],
    ),
    "a session is over when the watermark reaches its end": (
        lambda us: is_over(MOMENT_US, us),
        [False, False, True, True, True],
    ),
    "an event is late when a session of it alone would be over": (
        lambda us: is_late(MOMENT_US, us),
        [False, False, True, True, True],
    ),
    "in time order it is late when the watermark reaches it": (
        lambda us: is_late_in_order(np.array(MOMENT_US), us),
        [False, False, True, True, True],
    ),
    "a named timer fires once its clock is past it": (
        lambda us: has_passed(MOMENT_US, us),
        [False, False, False, True, True],
    ),
}


@pytest.mark.parametrize(("rule", "expected"), RULES.values(), ids=RULES)
def test_each_rule_has_its_side_of_equality(rule: Any, expected: list[bool]) -> None:
    """For one instant, and for many at once."""
    instants_us = [MOMENT_US + step_us for step_us in STEPS_US]

    assert expected == [rule(us) for us in instants_us]
    assert expected == rule(np.array(instants_us)).tolist()


def test_each_event_may_have_a_gap_of_its_own() -> None:
    """The end of its own window is its time plus the gap; many are computed at once."""
    events_us = np.array([10, 20])
    assert [15, 25] == window_end(events_us, 5).tolist()
    assert [15, 22] == window_end(events_us, np.array([5, 2])).tolist()


@pytest.mark.parametrize(
    ("expected", "watermark_ms"), [(BEGINNING_US, -1), (BEGINNING_US, 0), (1_000, 1), (2_000, 2)]
)
def test_no_watermark_is_in_force_while_that_of_spark_is_zero(
    expected: int, watermark_ms: int
) -> None:
    """Spark starts its watermark at 0: until it moves, nothing is late and nothing is over."""
    assert expected == watermark_in_force(watermark_ms)


@pytest.mark.parametrize(
    ("expected", "due_us", "watermark_ms"),
    [
        # The first watermark that isn't before the instant sets it off.
        (97, 98_000, 10),
        (98, 98_999, 10),
        (98, 99_000, 10),
        (99, 99_001, 10),
        # Spark raises for a timer before its watermark, and for one at 0.
        (98, 99_000, 97),
        (98, 99_000, 98),
        (99, 99_000, 99),
        (100, 99_000, 100),
        *((1, us, 0) for us in (FIRST_US, -1, 0, 1, 1_000, 2_000)),
    ],
)
def test_a_timer_is_one_millisecond_before_the_instant(
    expected: int, due_us: int, watermark_ms: int
) -> None:
    """But never before the watermark, and never at zero."""
    assert expected == timer_ms(due_us, watermark_ms)


@given(due_us=INSTANTS_US, armed_ms=WATERMARKS_MS, fired_ms=WATERMARKS_MS)
def test_spark_calls_exactly_when_the_watermark_in_force_reaches_the_instant(
    due_us: int, armed_ms: int, fired_ms: int
) -> None:
    """
    `timer < watermark` holds just when the watermark in force is at the instant or past it.

    Armed a microsecond later, it holds once the watermark is past the instant. So ends, which are
    reached, and named timers, which are passed, share one rule for Spark.

    Precondition: the instant is still to come when the timer is armed, and Spark's watermark can
    say so at all, which begins at 1.
    """
    due_us += watermark_in_force(max(armed_ms, 1))
    later_ms = armed_ms + fired_ms
    in_force = watermark_in_force(later_ms)
    assert (in_force >= due_us) is (timer_ms(due_us, armed_ms) < later_ms)
    assert has_passed(due_us, in_force) is (timer_ms(due_us + 1, armed_ms) < later_ms)


@given(instant_us=st.integers(FIRST_US, LAST_INSTANT_US), delay_ms=WATERMARKS_MS)
def test_an_event_moves_the_watermark_to_an_instant_and_none_before_it_does(
    instant_us: int, delay_ms: int
) -> None:
    """The watermark is the time of the latest event in whole milliseconds, less the delay."""
    event_us = event_that_moves_to(instant_us, delay_ms)
    assert watermark_in_force(event_us // 1_000 - delay_ms) >= instant_us
    assert watermark_in_force((event_us - 1) // 1_000 - delay_ms) < instant_us


@pytest.mark.parametrize(
    ("expected", "due_us"),
    [
        *((1, us) for us in (-5_000, 0, 40_000, 41_000, 41_999, 42_000)),
        *((2, us) for us in (42_001, 42_999, 43_000)),
        (3, 43_001),
    ],
)
def test_a_delay_is_whole_milliseconds_and_positive(expected: int, due_us: int) -> None:
    """Spark takes no delay below one, and fires strictly behind it."""
    assert expected == processing_timer_ms(due_us, 40)


@given(due_us=INSTANTS_US, armed_ms=WATERMARKS_MS, fired_ms=WATERMARKS_MS)
def test_spark_calls_exactly_when_the_processing_time_reaches_the_instant(
    due_us: int, armed_ms: int, fired_ms: int
) -> None:
    """
    `now + delay < later` holds just when the later time is at or past the instant.

    Precondition: the instant is at least a millisecond ahead when the timer is armed.
    """
    due_us += (armed_ms + 1) * 1_000
    later_ms = armed_ms + fired_ms
    timer = armed_ms + processing_timer_ms(due_us, armed_ms)
    assert is_over(due_us, later_ms * 1_000) is (timer < later_ms)


@pytest.mark.parametrize(("offset", "expected"), [(-1, 109), (0, 110), (1, 10)])
def test_a_jump_is_longer_than_the_limit(offset: int, expected: int) -> None:
    """A silence exactly as long as `max_jump` is none: the operator is `>`."""
    assert expected == latest_before_jump(np.array([10, 0, 110 + offset]), 100)


@pytest.mark.parametrize(
    ("times_us", "expected"),
    [
        ([7], 7),
        ([0, 900], 0),
        ([900, 0], 0),
        ([0, 500, 501, 502], 502),
        ([0, 90, 180, 270, 900, 950], 270),
        ([0, 90, 180, 900], 180),
        ([900, 0, 0, 0, 2_000], 0),
    ],
    ids=["one", "two", "unsorted", "too old", "a chain", "the end", "several"],
)
def test_jumps_are_looked_for_from_the_middle(times_us: list[int], expected: int) -> None:
    """Neither a time that is too old nor how far all of them reach makes a jump."""
    assert expected == latest_before_jump(np.array(times_us), 100)
