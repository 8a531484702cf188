"""Arguments by name: what a spec says of one that it hasn't, and what `help()` shows."""

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

import attrs
import pytest

from sessionkit import (
    Aggregates,
    EventTimeGap,
    Every,
    Functions,
    Inputs,
    ProcessingTimeGap,
    SessionRules,
    SessionSpec,
    SpecError,
    StatefulSpec,
    Storage,
)
from sessionkit import aggregates as agg
from sessionkit._arguments import explains
from sessionkit.addons.presets import amplitude
from sessionkit.spark import Kafka, sessions, start_query
from sessionkit.spark.watermarks import check_watermarks, declare_watermark
from sessionkit.spark.windows import tumbling
from sessionkit.testing import SessionDriver, StatefulDriver
from tests.support.refusals import refusal, says


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


INPUTS = Inputs()
KEYED: dict[str, Any] = {"keys": {"user_id": str}}
TIMED: dict[str, Any] = {**KEYED, "event_time": "ts", "gap": "30m"}
DELAYED: dict[str, Any] = {**TIMED, "watermark_delay": "1m"}
ANY: Any = "Any"
DELAY = "`watermark_delay`\n\nHint: add "


def hint_for(cls: Any, name: str) -> str:
    """Return what to write in place of an argument that a class hasn't."""
    found, _, hint = refusal(cls, **{name: "anything"}).partition("\n\nHint: ")
    assert found == f"{cls.__name__} has no argument `{name}`"
    return hint


@pytest.mark.parametrize("spec", [SessionSpec, StatefulSpec])
@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("layout", "storage=Storage(layout=...)"),
        ("max_jump", "inputs=Inputs(max_jump=...)"),
        ("reopen_within", "lateness=Lateness(reopen_within=...)"),
    ],
)
def test_an_argument_that_is_in_a_group_says_in_which(spec: Any, name: str, place: str) -> None:
    """Whoever passes it to the spec itself can copy the hint."""
    assert f"write {place}" == hint_for(spec, name)


@pytest.mark.parametrize(
    ("cls", "name", "hint"),
    [
        (SessionSpec, "emit", "write results=Results(emit=...)"),
        (SessionSpec, "update", "write logic=Functions(update=...)"),
        (SessionSpec, "watermark_dealy", "did you mean `watermark_delay=...`?"),
        (SessionSpec, "aggregates", "write logic=Aggregates(aggregates=...)"),
        (StatefulSpec, "gap", "write timeout=EventTimeGap(gap=...)"),
        (Functions, "updates", "did you mean `update=...`?"),
        (Storage, "buckets", "did you mean `bucket_count=...`?"),
        (Storage, "xyz", "it has layout, bucket_count, upgrade, version"),
        (SessionRules, "xyz", "it has gap, max_gap, state_gap, "),
        (SessionRules, "max_step", "it has gap, max_gap, state_gap, "),
        (SessionRules, "max_steps", "it has gap, max_gap, state_gap, "),
        (SessionRules, "max_duratoin", "did you mean `max_duration=...`?"),
        (SessionRules, "maxgap", "did you mean `max_gap=...`?"),
        (SessionSpec, "max_skew", "did you mean `inputs=Inputs(max_future_skew=...)`?"),
        (agg.duration, "were", "did you mean `where=...`?"),
        (ProcessingTimeGap, "gaps", "did you mean `gap=...`?"),
        (Every, "event", "did you mean `events=...`?"),
        (Aggregates, "results", "did you mean `result=...`?"),
        (agg.count, "were", "did you mean `where=...`?"),
        (sessions, "watermark_dealy", "did you mean `watermark_delay=...`?"),
        (start_query, "tigger", "did you mean `trigger=...`?"),
        (start_query, "outputMode", "did you mean `mode=...`?"),
        (start_query, "query_name", "did you mean `name=...`?"),
        (Kafka, "server", "did you mean `servers=...`?"),
        (SessionDriver, "procesing_time", "did you mean `processing_time=...`?"),
        (agg.funnel, "in_order", "it has steps, within, strict, allow_reentry, "),
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
    assert refusal(make, *values, **named).startswith(text)


def test_a_first_spec_is_told_of_the_constructor_that_it_needs() -> None:
    """Whoever passes nothing but a gap has a class with methods, and not yet its `logic`."""
    expected = (
        'Hint: add keys={"user_id": str}, event_time="ts", logic=Functions(update=...) '
        '(or call SessionSpec.of(Visit, ...)), watermark_delay="10 minutes"'
    )
    assert refusal(SessionSpec, gap="30 minutes").endswith(expected)


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


def test_a_function_says_which_argument_is_meant() -> None:
    """Whatever users call: with a name that it hasn't, too few values, or too many."""

    @explains
    def began(events: object, *, by: str, time: str, inputs: Inputs = INPUTS) -> object:
        return events

    assert "did you mean `time=...`?" == hint_of(began, 1, by="user", tim="ts")
    assert "write inputs=Inputs(nulls=...)" == hint_of(began, 1, by="user", nulls="reject")
    assert "add time=..." == hint_of(began, 1, by="user")
    assert "name the others, such as by=..., time=..." == hint_of(began, 1, "user", "ts")
    assert "name the others, such as time=..." == hint_of(began, 1, "ts", by="user")
    assert "leave one of them out" == hint_of(began, 1, events=1, by="user", time="ts")
    assert 1 == began(1, by="user", time="ts")


def test_a_function_of_any_names_or_values_takes_them() -> None:
    """Its own rules hold for them; a value without a name is told that it needs one."""

    @explains
    def named(**aggregates: int) -> int:
        return len(aggregates)

    @explains
    def several(*frames: int, policy: str = "min") -> int:
        return len(frames)

    assert (2, 3) == (named(a=1, b=2), several(1, 2, 3))
    assert "name each, such as .named(n=...)" == hint_of(named, 1)
    assert "did you mean `policy=...`?" == hint_of(several, 1, polcy="max")


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        (lambda: amplitude(ANY), ["`platform`", "'web', 'mobile'"]),
        (lambda: check_watermarks(policy=ANY), ["`policy`", "'min', 'max'"]),
        (
            lambda: declare_watermark(ANY, "ts", "0s", zero_delay=ANY),
            ["`zero_delay`", "'refused', 'drops_ties'"],
        ),
        (
            lambda: tumbling("1h", event_time="ts").agg(n=ANY).output_mode(ANY),
            ["`mode`", "'append', 'update', 'complete'"],
        ),
        (
            lambda: SessionDriver(
                SessionSpec.of(Visit, **DELAYED, order="event_time")
            ).take_rejections("Late"),
            ["`kind`", "'late', 'duplicate', 'outside', 'quarantined'"],
        ),
    ],
)
def test_a_text_that_is_none_of_the_choices_is_refused(
    call: Callable[[], object], facts: list[str]
) -> None:
    """The choices are named, and the text; none of them is taken in its place."""
    text = refusal(call)

    assert says(text, *facts, "found '")


def hint_of(function: Any, *values: Any, **named: Any) -> str:
    """Return what to write in place of a call that can't be."""
    return refusal(function, *values, **named).partition("\n\nHint: ")[2]


PUBLIC = (
    "sessionkit.aggregates",
    "sessionkit.addons.presets",
    "sessionkit.testing",
    "sessionkit.addons.report",
    "sessionkit.spark",
    "sessionkit.spark.dedup",
    "sessionkit.addons.monitor",
    "sessionkit.addons.sources",
    "sessionkit.spark.watermarks",
    "sessionkit.spark.windows",
    "sessionkit.testing.strategies",
)


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_function_explains_its_arguments(module: str) -> None:
    """Those without arguments have nothing to explain."""
    names = vars(import_module(module))["__all__"]
    public = {name: getattr(import_module(module), name) for name in names}
    functions = {name: one for name, one in public.items() if inspect.isfunction(one)}
    takes = {name for name, one in functions.items() if inspect.signature(one).parameters}

    assert takes == {name for name in takes if hasattr(functions[name], "__wrapped__")}


@pytest.mark.parametrize("cls", [SessionDriver, StatefulDriver, agg.Aggregate])
def test_every_method_that_tests_and_specs_call_explains_its_arguments(cls: type[Any]) -> None:
    """Its own and inherited ones; a method without arguments is told so."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("sessionkit.")]
    methods = {name: one for base in ours for name, one in vars(base).items() if name[0] != "_"}
    functions = {name: getattr(one, "__func__", one) for name, one in methods.items()}
    called = {name for name, one in functions.items() if inspect.isfunction(one)}

    assert called == {name for name in called if hasattr(functions[name], "__wrapped__")}
    assert called
