"""The policies: frozen values, valid once they exist."""

import pickle
from datetime import timedelta
from typing import Any

import attrs
import pytest

from sessionkit import EventTimeGap, FirstOf, NoTimeout, ProcessingTimeGap, TimeToLive
from sessionkit.timeouts._policies import Deadline, deadlines_of
from tests.support.refusals import refusal, says

HALF_HOUR = timedelta(minutes=30)


def gap_of(event: object) -> timedelta:
    """Return a gap that belongs to the event."""
    return HALF_HOUR


@pytest.mark.parametrize("policy", [EventTimeGap, ProcessingTimeGap, TimeToLive])
def test_policies_that_mean_the_same_are_equal(policy: Any) -> None:
    """They hash alike too, however their durations are spelled."""
    assert 1 == len({policy("30m"), policy("30 minutes"), policy(HALF_HOUR)})


@pytest.mark.parametrize(
    "policy",
    [
        NoTimeout(),
        ProcessingTimeGap("30m"),
        EventTimeGap("30m", gap_inclusive=False),
        EventTimeGap(gap_of, max_gap="1h"),
        TimeToLive("7 days", since="last_update", clock="event_time"),
        EventTimeGap("30m") | ProcessingTimeGap("1h") | TimeToLive("7d"),
    ],
)
def test_a_policy_is_frozen_and_pickles(policy: Any) -> None:
    """A policy travels to the executors and cannot change on its way."""
    assert policy == pickle.loads(pickle.dumps(policy))  # noqa: S301 - made one line above
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        policy.gap = HALF_HOUR


GAP, WAIT, AGE = EventTimeGap("30m"), ProcessingTimeGap("1h"), TimeToLive("7d")
UPDATED = TimeToLive("1d", since="last_update", clock="event_time")


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        # Spark's watermark has to be declared for the longest gap.
        (lambda: EventTimeGap(gap_of), ["`gap` is a function", 'max_gap="1 hour"']),
        (lambda: EventTimeGap("30m", max_gap="1h"), ["`max_gap`", "found '30m'"]),
        (lambda: EventTimeGap(gap_of, max_gap="0s"), ["`max_gap`", "longer than zero"]),
        (lambda: EventTimeGap("30m", gap_inclusive="both"), ["`gap_inclusive`", "found 'both'"]),  # type: ignore[arg-type]
        (lambda: TimeToLive("7d", since="update"), ["'creation', 'last_update', found 'update'"]),  # type: ignore[arg-type]
        (
            lambda: TimeToLive("7d", clock="event"),  # type: ignore[arg-type]
            ["'processing_time', 'event_time', found 'event'"],
        ),
        (lambda: GAP | NoTimeout(), ["`|`", "found NoTimeout()"]),
        (lambda: NoTimeout() | GAP, ["`|`", "found NoTimeout()"]),
        (lambda: GAP | WAIT | NoTimeout(), ["`|`", "found NoTimeout()"]),
        (lambda: TimeToLive("1d") | "30m", ["`|`", "found '30m'"]),  # type: ignore[operator]
        (lambda: WAIT | None, ["`|`", "found None"]),  # type: ignore[operator]
        (lambda: FirstOf(()), ["`FirstOf`", "found none", "NoTimeout()"]),
        (lambda: FirstOf(GAP), ["tuple of policies, found"]),  # type: ignore[arg-type]
    ],
)
def test_a_policy_that_cannot_be_is_refused(make: Any, facts: list[str]) -> None:
    """Nothing can be added to never; one policy alone isn't a tuple of them."""
    assert says(refusal(make), *facts)


def test_policies_are_joined_flat_and_in_their_order() -> None:
    """However they are grouped, the parts stand in one row, the first named first."""
    expected = FirstOf((GAP, WAIT, AGE))
    assert expected == GAP | WAIT | AGE
    assert expected == GAP | (WAIT | AGE)
    assert (GAP, WAIT, AGE) == expected.policies
    assert expected != AGE | WAIT | GAP


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (GAP, EventTimeGap("1h")),
        (WAIT, ProcessingTimeGap("1h")),
        (AGE, TimeToLive("1d")),
        (UPDATED, attrs.evolve(UPDATED, span="2d")),
    ],
)
def test_two_policies_that_count_alike_are_refused(first: Any, second: Any) -> None:
    """The shorter of them always comes first, so the other one is a mistake."""
    assert says(refusal(lambda: first | second), "`|`", f"{second!r} is the second")


def test_the_age_of_a_state_is_counted_on_one_clock() -> None:
    """A state has one set of stamps; two ages on one clock are fine."""
    other = TimeToLive("1d", clock="event_time")
    assert says(refusal(lambda: AGE | other), "`|`", "TimeToLive on each clock")
    assert 2 == len((AGE | TimeToLive("1d", since="last_update")).policies)


@pytest.mark.parametrize(
    ("expected", "policy"),
    [
        ([], NoTimeout()),
        ([("event_time_gap", "event_time", "last_event_time", HALF_HOUR)], EventTimeGap("30m")),
        (
            [("event_time_gap", "event_time", "last_event_time", timedelta(hours=1))],
            EventTimeGap(gap_of, max_gap="1h"),
        ),
        (
            [("processing_time_gap", "processing_time", "last_processing_time", HALF_HOUR)],
            ProcessingTimeGap("30m"),
        ),
        ([("time_to_live", "processing_time", "created", HALF_HOUR)], TimeToLive("30m")),
        (
            [("time_to_live", "event_time", "updated", HALF_HOUR)],
            TimeToLive("30m", since="last_update", clock="event_time"),
        ),
        (
            [
                ("time_to_live", "processing_time", "created", timedelta(days=7)),
                ("event_time_gap", "event_time", "last_event_time", HALF_HOUR),
            ],
            AGE | GAP,
        ),
    ],
)
def test_a_policy_counts_from_an_instant_on_a_clock(expected: list[Any], policy: Any) -> None:
    """Each part has a name, a clock, what it is counted from and a span."""
    assert tuple(Deadline(*parts) for parts in expected) == deadlines_of(policy)
