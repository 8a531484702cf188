"""Arguments by name: what a spec says of one that it hasn't, and what `help()` shows."""

import inspect
from typing import Any

import attrs
import pytest

from sessionkit import (
    Aggregates,
    Events,
    EventTimeGap,
    Every,
    Functions,
    Inputs,
    Lateness,
    ProcessingTimeGap,
    Results,
    SessionRules,
    SessionSpec,
    SpecError,
    StatefulSpec,
    Storage,
    TimeToLive,
)
from sessionkit import aggregates as agg


@attrs.frozen
class View:
    """An event."""

    url: str


@attrs.define
class Visit:
    """A state, and its functions."""

    pages: int = 0

    def update(self, event: View) -> None:
        """Count a page."""


KEYED: dict[str, Any] = {"keys": {"user_id": str}}
TIMED: dict[str, Any] = {**KEYED, "event_time": "ts", "gap": "30m"}
DELAY = "`watermark_delay`\n\nHint: add "


def hint_for(cls: Any, name: str) -> str:
    """Return what to write in place of an argument that a class hasn't."""
    with pytest.raises(SpecError) as refused:
        cls(**{name: "anything"})
    found, _, hint = str(refused.value).partition("\n\nHint: ")
    assert found == f"{cls.__name__} has no argument `{name}`"
    return hint


@pytest.mark.parametrize("spec", [SessionSpec, StatefulSpec])
@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("layout", "storage=Storage(layout=...)"),
        ("bucket_count", "storage=Storage(bucket_count=...)"),
        ("upgrade", "storage=Storage(upgrade=...)"),
        ("state_version", "storage=Storage(version=...)"),
        ("max_jump", "inputs=Inputs(max_jump=...)"),
        ("drop_duplicates_for", "inputs=Inputs(drop_duplicates_for=...)"),
        ("reopen_within", "lateness=Lateness(reopen_within=...)"),
        ("allowed_lateness", "lateness=Lateness(allowed=...)"),
        ("late_by", "lateness=Lateness(judged_by=...)"),
        ("late", "lateness=Lateness(late_events=...)"),
    ],
)
def test_an_argument_that_is_in_a_group_says_in_which(spec: Any, former: str, now: str) -> None:
    """Most kept their names; the others are known by those that they had."""
    assert f"write {now}" == hint_for(spec, former)


@pytest.mark.parametrize(
    ("cls", "name", "hint"),
    [
        (SessionSpec, "emit", "write results=Results(emit=...)"),
        (SessionSpec, "update", "write logic=Functions(update=...)"),
        (SessionSpec, "watermark_dealy", "did you mean `watermark_delay=...`?"),
        (SessionSpec, "bucket_counts", "did you mean `storage=Storage(bucket_count=...)`?"),
        (StatefulSpec, "gap", "write timeout=..., with the same duration"),
        (StatefulSpec, "on_timers", "did you mean `on_timer=...`?"),
        (Functions, "updates", "did you mean `update=...`?"),
        (Lateness, "allow", "did you mean `allowed=...`?"),
        (Results, "emits", "did you mean `emit=...`?"),
        (Inputs, "null", "did you mean `nulls=...`?"),
        (Storage, "buckets", "did you mean `bucket_count=...`?"),
        (Storage, "xyz", "it has layout, bucket_count, upgrade, version"),
        (SessionRules, "xyz", "it has gap, max_gap, state_gap, "),
        (SessionRules, "at_most", "write max_gap=..."),
        (EventTimeGap, "at_most", "write max_gap=..."),
        (EventTimeGap, "inclusive", "did you mean `gap_inclusive=...`?"),
        (ProcessingTimeGap, "gaps", "did you mean `gap=...`?"),
        (TimeToLive, "sinc", "did you mean `since=...`?"),
        (Every, "event", "did you mean `events=...`?"),
        (Aggregates, "results", "did you mean `result=...`?"),
        (Events, "events", "did you mean `event=...`?"),
        (agg.count, "were", "did you mean `where=...`?"),
        (agg.funnel, "in_order", "it has steps, within, strict, at_most, where"),
    ],
)
def test_an_argument_that_is_misspelt_says_what_is_meant(cls: Any, name: str, hint: str) -> None:
    """The nearest one, also of a group; all of them where none is near."""
    assert hint_for(cls, name).startswith(hint)


@pytest.mark.parametrize(
    ("make", "values", "named", "text"),
    [
        (SessionSpec, [], KEYED, f"SessionSpec needs `event_time`, `logic`, {DELAY}"),
        (SessionSpec.of, [Visit], TIMED, f"SessionSpec needs {DELAY}"),
        (StatefulSpec, [], KEYED, "StatefulSpec needs `process`, `timeout`\n\nHint: add process"),
        (Functions, [], {}, "Functions needs `update`\n\nHint: add update=..."),
        (Aggregates, [View], {}, "Aggregates needs `aggregates`\n\nHint: add aggregates=..."),
        (EventTimeGap, [], {}, "EventTimeGap needs `gap`\n\nHint: add gap=..."),
        (agg.sum, [], {"where": "is_new"}, "sum needs `field`\n\nHint: add field=..."),
    ],
)
def test_a_missing_argument_says_what_to_add(
    make: Any, values: list[Any], named: dict[str, Any], text: str
) -> None:
    """All that are missing are named at once, with an example of each."""
    with pytest.raises(SpecError) as refused:
        make(*values, **named)
    assert str(refused.value).startswith(text)


def test_a_first_spec_is_told_of_the_constructor_that_it_needs() -> None:
    """Whoever passes nothing but a gap has a class with methods, and not yet its `logic`."""
    with pytest.raises(SpecError) as refused:
        SessionSpec(gap="30 minutes")  # type: ignore[call-arg]
    expected = (
        'Hint: add keys={"user_id": str}, event_time="ts", logic=Functions(update=...) '
        '(or call SessionSpec.of(Visit, ...)), watermark_delay="10 minutes"'
    )
    assert str(refused.value).endswith(expected)


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (SessionSpec.of, [Visit]),
        (SessionSpec.aggregate, [View, {"pages": agg.count()}]),
        (SessionSpec.per_event, [View]),
    ],
)
def test_the_constructors_of_sessions_explain_arguments_too(make: Any, values: list[Any]) -> None:
    """What they don't take themselves is an argument of `SessionSpec`."""
    with pytest.raises(SpecError, match=r"no argument `emit`\n\nHint: write results=Results\(emit"):
        make(*values, emit="on_update")


@pytest.mark.parametrize("name", ["of", "aggregate", "per_event"])
def test_help_shows_arguments_and_no_others(name: str) -> None:
    """Not `**settings`; what is required comes first."""
    shown = inspect.signature(getattr(SessionSpec, name)).parameters
    kinds = {one.kind for one in shown.values()}
    names = [*shown]

    assert inspect.Parameter.VAR_KEYWORD not in kinds
    assert names.index("watermark_delay") < names.index("order")
    assert "logic" not in names
