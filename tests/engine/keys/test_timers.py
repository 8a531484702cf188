"""Named timers: when they fire, in which order, what changes them, and what is refused."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from sessionkit import KeyState, KeyTimes, StatefulSpec, Storage
from sessionkit.errors import TimerError
from sessionkit.spec import Timer, by_processing_time
from sessionkit.testing import StatefulDriver, at, minutes
from tests.support.refusals import says
from tests.support.stateful_specs import (
    Added,
    Amount,
    Sum,
    adding,
    driver_of,
    failure,
    report,
    summing,
)

LAYOUTS = ["buckets", "pages"]
MILLI, MICRO = timedelta(milliseconds=1), timedelta(microseconds=1)
NOON = at("12:00")
CALENDAR = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))


def setting(act: Callable[[KeyTimes], Any], **changes: Any) -> StatefulSpec[Any, Any, Any]:
    """Make a spec whose `process` does this with the timers, for the events that say 1."""

    def process(
        key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes
    ) -> Added | None:
        if any(event.number == 1 for event in events):
            act(times)
            return None
        return Added("process", 0)

    return summing(process, **{"on_timer": report, **changes})


def on_both_clocks(act: Callable[[KeyTimes], Any], **changes: Any) -> StatefulSpec[Any, Any, Any]:
    """Make such a spec that may set timers in processing time too."""
    return setting(act, **{"on_timer": by_processing_time(report), **changes})


def armed(driver: StatefulDriver[Any, Any, Any]) -> dict[str, Timer]:
    """Return the timers of the only stored key."""
    (key,) = driver.stored_keys()
    return dict(key.timers)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("instant", "expected"),
    [
        (NOON.astimezone(ZoneInfo("America/New_York")), NOON),
        (pd.Timestamp(NOON) + pd.Timedelta(999, "ns"), NOON),
        *((one, one) for one in (NOON + MICRO, *CALENDAR)),
    ],
)
def test_a_timer_stands_on_an_instant(layout: Any, instant: datetime, expected: datetime) -> None:
    """Of the years 1 to 9999, kept in UTC to the microsecond; pandas' kind is one too."""
    driver = driver_of(
        setting(lambda times: times.set_event_timer("due", instant), storage=Storage(layout=layout))
    )
    adding(driver, "ann", at("11:00"))

    assert {"due": Timer("event_time", expected)} == armed(driver)
    assert datetime is type(armed(driver)["due"].at)


def refusal(act: Callable[[KeyTimes], Any], **changes: Any) -> str:
    """Return the text with which setting a timer is refused; nothing is stored then."""
    driver = driver_of(on_both_clocks(act, **changes), NOON)
    driver.add("ann", at("11:00"), Amount())
    text = failure(driver)
    assert [] == driver.stored_keys()
    return text.partition("\n\nRaised in ")[0]


@pytest.mark.parametrize("setter", ["set_event_timer", "set_processing_timer"])
@pytest.mark.parametrize(
    ("instant", "found"),
    [
        (datetime(2026, 1, 1), "no time zone, found datetime.datetime(2026, 1, 1, 0, 0)"),  # noqa: DTZ001 (the fault)
        (pd.Timestamp("2026-01-01"), "no time zone, found Timestamp('2026-01-01 00:00:00')"),
        (1_767_225_600_000, "found 1767225600000 (int)"),
        (1.5, "found 1.5 (float)"),
        (np.int64(5), "found np.int64(5) (int64)"),
        (np.datetime64("2026-01-01"), "(datetime64)"),
        (minutes(5), "found datetime.timedelta(seconds=300) (timedelta)"),
        (NOON.date(), "found datetime.date(2026, 1, 1) (date)"),
        ("12:00", "found '12:00' (str)"),
        (None, "found None (NoneType)"),
        (pd.NaT, "found NaT (NaTType)"),
    ],
)
def test_an_instant_is_an_aware_datetime(setter: str, instant: Any, found: str) -> None:
    """Numbers, texts, naive and missing times are refused where they are set, by the name."""
    text = refusal(lambda times: getattr(times, setter)("due", instant))

    assert says(text, "timer 'due'", f"{found}\n\nHint: ")


@pytest.mark.parametrize(
    "instant",
    [
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
    ],
)
def test_an_instant_lies_in_the_calendar(instant: datetime) -> None:
    """An instant outside the years 1 to 9999 in UTC could not be shown again."""
    text = refusal(lambda times: times.set_event_timer("due", instant))

    assert text.startswith("timer 'due': the instant is outside the years 1 to 9999, found ")
    assert text.endswith("\n\nHint: set no timer for what never comes")


@pytest.mark.parametrize("setter", ["set_event_timer", "set_processing_timer"])
@pytest.mark.parametrize(
    "name", ["", None, 1, "event_time_gap", "processing_time_gap", "time_to_live"]
)
def test_a_name_is_a_text_that_no_policy_has(setter: str, name: Any) -> None:
    """`on_timer` must be able to tell a timer from the end of its key."""
    text = refusal(lambda times: getattr(times, setter)(name, NOON))

    assert (
        f"a timer cannot have the name {name!r}\n\n"
        "Hint: choose a text other than event_time_gap, processing_time_gap, time_to_live"
    ) == text


@pytest.mark.parametrize(
    ("setter", "changes", "found", "hint"),
    [
        (
            # It would never fire.
            "set_event_timer",
            {"watermark_delay": None},
            "the spec has no watermark that could pass an event time",
            'add event_time="ts" and watermark_delay="10 minutes" to the spec',
        ),
        (
            # It costs a micro-batch at every trigger, so no call can switch it on by itself.
            "set_processing_timer",
            {"on_timer": report},
            "the spec does not ask for processing-time timers",
            "pass on_timer=by_processing_time(...); docs/explanation/timers.md says the cost",
        ),
        (
            # Nobody would learn of it.
            "set_event_timer",
            {"on_timer": None},
            "the spec has no function to call when it fires",
            "add on_timer=... to the spec",
        ),
    ],
)
def test_a_timer_needs_what_makes_it_go_off(
    setter: str, changes: dict[str, Any], found: str, hint: str
) -> None:
    """A watermark, the clock that was asked for, and a function to call."""
    text = refusal(lambda times: getattr(times, setter)("due", NOON), **changes)
    assert f"timer 'due': {found}\n\nHint: {hint}" == text


def test_a_refused_timer_is_a_timer_error() -> None:
    """A function may catch it by its class; what was armed before is as it was."""
    seen: list[Exception] = []

    def act(times: KeyTimes) -> None:
        times.set_event_timer("due", NOON)
        try:
            times.set_event_timer("due", 5)  # type: ignore[arg-type]
        except TimerError as error:
            seen.append(error)

    driver = driver_of(setting(act))
    adding(driver, "ann", at("11:00"))

    assert [TimerError] == [type(error) for error in seen]
    assert {"due": Timer("event_time", NOON)} == armed(driver)
