"""Why a session closes, in words, and which event lets it close."""

from datetime import timedelta
from typing import Any

import attrs
import pytest

from sessionkit import SessionRules, SessionSpec
from sessionkit._engine.sessions.features.rules import event_that_closes, rule_text
from sessionkit.aggregates import count
from sessionkit.testing import at, minutes
from sessionkit.timeouts._session_rules import CLOSED_BY, ClosedBy


@attrs.frozen
class Click:
    """An event of which rules can read everything."""

    ends: bool
    begins: bool
    keeps: bool
    campaign: str
    device: str


RULES = SessionRules(
    "30 minutes",
    max_duration="4 hours",
    max_events=1_000,
    until="ends",
    starts_with="begins",
    changes_of="campaign",
    midnight="Europe/Berlin",
    close_idle_after="5 minutes",
)
TEXTS: dict[ClosedBy, str] = {
    "until": "an event ends it",
    "max_events": "it has 1,000 events",
    "midnight": "midnight in Europe/Berlin",
    "gap": "no event for 30 minutes",
    "starts_with": "an event starts the next session",
    "changes_of": "an event has another `campaign`",
    "max_duration": "it has lasted 4 hours",
    "idle": "nothing has moved the watermark for 5 minutes of processing time",
}


def spec_of(timeout: Any, delay: Any = "10 minutes") -> SessionSpec[Any, Any, Any]:
    in_order = isinstance(timeout, SessionRules) and timeout.in_order
    return SessionSpec.aggregate(
        Click,
        {"clicks": count()},
        keys={"user": str},
        event_time="ts",
        timeout=timeout,
        watermark_delay=delay,
        order="event_time" if in_order else "arrival",
    )


@pytest.mark.parametrize("rule", CLOSED_BY)
def test_each_rule_is_described_with_its_value(rule: ClosedBy) -> None:
    """They say the value that the spec has for the rule."""
    assert TEXTS[rule] == rule_text(spec_of(RULES), rule)


@pytest.mark.parametrize(
    ("expected", "timeout"),
    [
        ("no event for 30 minutes", "30 minutes"),
        ("no event that extends it for 1 hour", SessionRules("1 hour", extends="keeps")),
        (
            "no event within the gaps of its events",
            SessionRules(lambda event: minutes(5), max_gap="1 hour"),
        ),
    ],
)
def test_a_gap_is_described_as_it_counts(expected: str, timeout: Any) -> None:
    """Whether it's fixed, only some events extend the session, or each event has its own."""
    assert expected == rule_text(spec_of(timeout), "gap")


@attrs.define
class Clicks:
    """A state that says how long the gap is."""

    gap: timedelta = timedelta(minutes=5)

    def update(self, event: Click) -> None:
        """Change nothing."""


def test_a_gap_by_the_state_is_described_by_the_longest() -> None:
    """Which one it is follows from the functions."""
    spec = SessionSpec.of(
        Clicks,
        keys={"user": str},
        event_time="ts",
        timeout=SessionRules("1 hour", state_gap=lambda clicks: clicks.gap),
        watermark_delay="10 minutes",
        order="event_time",
    )
    assert "no event within the gap by its state, of at most 1 hour" == rule_text(spec, "gap")


def test_every_field_that_may_change_is_named() -> None:
    """Which of them did isn't stored."""
    rules = SessionRules("1 hour", changes_of=("campaign", "device"))
    assert "an event has another `campaign` or `device`" == rule_text(spec_of(rules), "changes_of")


@pytest.mark.parametrize(
    ("expected", "closes", "delay"),
    [
        ("10:40", "10:30", "10 minutes"),
        ("10:30", "10:30", "0 seconds"),
        ("10:40:00.001", "10:30:00.0001", "10 minutes"),
        ("1970-01-01 00:10:00.001", "1969-12-31 23:59", "10 minutes"),
    ],
)
def test_an_event_one_delay_later_closes(expected: str, closes: str, delay: str) -> None:
    """In whole milliseconds, as the watermark counts; and it begins after 1970-01-01."""
    assert at(expected) == event_that_closes(spec_of(RULES, delay), at(closes))
