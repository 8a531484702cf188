"""The policies: frozen values, valid once they exist."""

import pickle
from datetime import timedelta
from typing import Any

import attrs
import pytest

from sessionkit.errors import SpecError
from sessionkit.timeouts import EventTimeGap, NoTimeout, ProcessingTimeGap

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


@pytest.mark.parametrize("policy", [EventTimeGap, ProcessingTimeGap])
@pytest.mark.parametrize("gap", [0, None, "", "0s", "-1 minute", "1 month", timedelta(0)])
def test_a_gap_that_is_none_is_refused(policy: Any, gap: object) -> None:
    """A gap that is no positive duration is refused by its name, with a hint."""
    with pytest.raises(SpecError, match="^`gap` [^\n]*\n\nHint: "):
        policy(gap)


@pytest.mark.parametrize(
    "policy",
    [
        NoTimeout(),
        ProcessingTimeGap("30m"),
        EventTimeGap("30m", exact_gap="splits"),
        EventTimeGap(gap_of, at_most="1h"),
    ],
)
def test_a_policy_is_frozen_and_pickles(policy: Any) -> None:
    """A policy travels to the executors and cannot change on its way."""
    assert policy == pickle.loads(pickle.dumps(policy))  # noqa: S301 - made one line above
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        policy.gap = HALF_HOUR


def test_the_longest_gap_is_the_gap() -> None:
    """A gap that is the same for all events is the longest one too."""
    assert HALF_HOUR == EventTimeGap("30m").longest


def test_the_longest_gap_of_a_function_is_declared() -> None:
    """Where a function says the gap, `at_most` bounds it."""
    policy = EventTimeGap(gap_of, at_most="1 hour")
    assert (gap_of, timedelta(hours=1)) == (policy.gap, policy.longest)


def test_the_exact_gap_joins_by_default() -> None:
    """An event exactly one gap later joins, as in Spark, unless the policy says otherwise."""
    assert "joins" == EventTimeGap("30m").exact_gap
    assert "splits" == EventTimeGap("30m", exact_gap="splits").exact_gap


def test_a_function_without_a_longest_gap_is_refused() -> None:
    """Spark's watermark has to be declared for the longest gap, so a function must name it."""
    with pytest.raises(SpecError) as refused:
        EventTimeGap(gap_of)
    expected = (
        "`gap` is a function, so its longest answer must be declared"
        '\n\nHint: add at_most="1 hour", or what fits the function'
    )
    assert expected == str(refused.value)


def test_a_longest_gap_beside_a_fixed_one_is_refused() -> None:
    """An `at_most` that could contradict the gap is refused."""
    with pytest.raises(SpecError) as refused:
        EventTimeGap("30m", at_most="1h")
    expected = (
        "`at_most` is for a gap that is a function, found the gap '30m'"
        "\n\nHint: leave `at_most` out"
    )
    assert expected == str(refused.value)


@pytest.mark.parametrize("at_most", [0, "rubbish", "0s", timedelta(-1)])
def test_a_longest_gap_is_a_duration(at_most: Any) -> None:
    """The longest gap is read as strictly as the gap, under its own name."""
    with pytest.raises(SpecError, match="^`at_most` "):
        EventTimeGap(gap_of, at_most=at_most)


def test_another_rule_for_the_exact_gap_is_refused() -> None:
    """An unknown rule is refused, with the default in the hint."""
    wrong: Any = "both"
    with pytest.raises(SpecError) as refused:
        EventTimeGap("30m", exact_gap=wrong)
    expected = (
        "`exact_gap` must be 'joins' or 'splits', found 'both'"
        "\n\nHint: leave it out for Spark's rule, 'joins'"
    )
    assert expected == str(refused.value)
