"""The policies: frozen values, valid once they exist."""

import pickle
from datetime import timedelta
from typing import Any

import attrs
import pytest

from sessionkit.errors import SpecError
from sessionkit.timeouts import EventTimeGap, FirstOf, NoTimeout, ProcessingTimeGap, TimeToLive
from sessionkit.timeouts._policies import Deadline, deadlines_of
from tests.support.refusals import refusal, says

HALF_HOUR = timedelta(minutes=30)


def gap_of(event: object) -> timedelta:
    """Return a gap that belongs to the event."""
    return HALF_HOUR


@pytest.mark.parametrize("gap", [HALF_HOUR, "30 minutes", "30m"])
@pytest.mark.parametrize("policy", [EventTimeGap, ProcessingTimeGap])
def test_a_gap_is_read_however_it_is_spelled(policy: Any, gap: timedelta | str) -> None:
    """Two policies are equal, and hash alike, where they mean the same."""
    assert HALF_HOUR == policy(gap).gap
    assert 1 == len({policy(gap), policy(HALF_HOUR)})


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


def test_a_function_without_a_longest_gap_is_refused() -> None:
    """Spark's watermark has to be declared for the longest gap, so a function must name it."""
    with pytest.raises(SpecError) as refused:
        EventTimeGap(gap_of)
    expected = (
        "`gap` is a function, so its longest result must be declared"
        '\n\nHint: add max_gap, such as max_gap="1 hour"'
    )
    assert expected == str(refused.value)


def test_a_longest_gap_beside_a_fixed_one_is_refused() -> None:
    """An `max_gap` that could contradict the gap is refused."""
    assert says(refusal(EventTimeGap, "30m", max_gap="1h"), "`max_gap`", "found '30m'")


@pytest.mark.parametrize("max_gap", [0, "rubbish", "0s", timedelta(-1)])
def test_a_longest_gap_is_a_duration(max_gap: Any) -> None:
    """The longest gap is read as strictly as the gap, under its own name."""
    with pytest.raises(SpecError, match="^`max_gap` "):
        EventTimeGap(gap_of, max_gap=max_gap)


def test_another_rule_for_the_exact_gap_is_refused() -> None:
    """An unknown rule is refused, with the default in the hint."""
    text = refusal(EventTimeGap, "30m", gap_inclusive="both")
    assert says(text, "`gap_inclusive`", "found 'both'")


# ------------------------------------------------------------------------------ the age of a state


@pytest.mark.parametrize("span", [timedelta(days=7), "7 days", "7d", "1w"])
def test_a_time_to_live_is_read_however_it_is_spelled(span: timedelta | str) -> None:
    """It counts from creation, on the engine's clock, unless it says otherwise."""
    policy = TimeToLive(span)
    assert (timedelta(days=7), "creation", "processing_time") == attrs.astuple(policy)


@pytest.mark.parametrize(
    ("option", "value", "facts"),
    [
        ("since", "update", "'creation', 'last_update', found 'update'"),
        ("clock", "event", "'processing_time', 'event_time', found 'event'"),
    ],
)
def test_another_option_of_a_time_to_live_is_refused(option: str, value: str, facts: str) -> None:
    """An unknown option is refused, with the default in the hint."""
    assert says(refusal(TimeToLive, "7d", **{option: value}), f"`{option}`", facts)


# ---------------------------------------------------------------------------- the first of several

GAP, WAIT, AGE = EventTimeGap("30m"), ProcessingTimeGap("1h"), TimeToLive("7d")
UPDATED = TimeToLive("1d", since="last_update", clock="event_time")


def test_policies_are_joined_flat_and_in_their_order() -> None:
    """However they are grouped, the parts stand in one row, the first named first."""
    expected = FirstOf((GAP, WAIT, AGE))
    assert expected == GAP | WAIT | AGE
    assert expected == GAP | (WAIT | AGE)
    assert (GAP, WAIT, AGE) == expected.policies
    assert expected != AGE | WAIT | GAP


@pytest.mark.parametrize(
    ("part", "policies"),
    [
        ("NoTimeout()", lambda: GAP | NoTimeout()),
        ("NoTimeout()", lambda: NoTimeout() | GAP),
        ("NoTimeout()", lambda: GAP | WAIT | NoTimeout()),
        ("'30m'", lambda: TimeToLive("1d") | "30m"),  # type: ignore[operator]
        ("None", lambda: WAIT | None),  # type: ignore[operator]
    ],
)
def test_what_ends_no_key_cannot_be_joined(part: str, policies: Any) -> None:
    """Nothing can be added to never, nor by what isn't a policy."""
    assert says(refusal(policies), "`|`", f"found {part}")


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


def test_a_choice_of_nothing_is_refused() -> None:
    """A key that is never over is said so in words; one policy alone isn't a tuple of them."""
    assert says(refusal(FirstOf, ()), "`FirstOf`", "found none", "NoTimeout()")
    assert says(refusal(FirstOf, GAP), "tuple of policies, found")


# ------------------------------------------------------------------------------ how a policy counts


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
