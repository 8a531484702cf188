"""The spec of state per key: what it holds, and everything that it refuses on the driver."""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import attrs
import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from sessionkit import (
    EventTimeGap,
    FirstOf,
    Inputs,
    KeyState,
    KeyTimes,
    Lateness,
    NoTimeout,
    ProcessingTimeGap,
    SpecError,
    StatefulSpec,
    TimeToLive,
)
from sessionkit._instants import LAST_INSTANT_US, span_us
from sessionkit.spec import BatchTimes, BucketResult, by_bucket, by_processing_time
from sessionkit.timeouts._policies import Clock
from tests.support.refusals import refusal, says
from tests.support.stateful_specs import Added, Amount, Sum, add, report, summing
from tests.support.visit_specs import Unstorable

HALF_HOUR = timedelta(minutes=30)


@attrs.frozen
class KeyedSum:
    key: str
    total: int


def fold(events: pa.Table, states: pa.Table, times: BatchTimes) -> BucketResult:
    return BucketResult(states)


def gap_of(event: Amount) -> timedelta:
    return HALF_HOUR


@pytest.mark.parametrize("tool", [pickle, cloudpickle])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"timeout": TimeToLive("1h") | EventTimeGap("30m"), "on_timer": report},
        {"process": by_bucket(fold)},
    ],
)
def test_a_spec_pickles(tool: Any, changes: dict[str, Any]) -> None:
    """A spec travels to the executors, with either pickle, and is equal there."""
    spec = summing(**changes)

    assert spec == tool.loads(tool.dumps(spec))


@pytest.mark.parametrize(
    ("takes_buckets", "function", "process"), [(False, add, add), (True, fold, by_bucket(fold))]
)
def test_the_spec_says_how_its_function_takes_events(
    takes_buckets: bool, function: Any, process: Any
) -> None:
    """`by_bucket` marks the function, and the engine gets it without the mark."""
    spec = summing(process)

    assert (takes_buckets, function) == (spec.takes_buckets, spec.function)


@pytest.mark.parametrize(
    ("expected", "changes"),
    [
        ("event_time", {}),
        ("event_time", {"timeout": EventTimeGap("1m")}),
        ("event_time", {"timeout": FirstOf((EventTimeGap("1m"),))}),
        ("event_time", {"timeout": TimeToLive("1m", clock="event_time")}),
        ("processing_time", {"timeout": ProcessingTimeGap("1m")}),
        ("processing_time", {"timeout": TimeToLive("1m")}),
        ("processing_time", {"timeout": EventTimeGap("1m") | ProcessingTimeGap("1m")}),
        ("processing_time", {"on_timer": by_processing_time(report)}),
        ("processing_time", {"watermark_delay": None, "timeout": TimeToLive("1m")}),
        (None, {"watermark_delay": None}),
        (None, {"watermark_delay": None, "event_time": None}),
    ],
)
def test_the_clock_is_the_one_that_wakes_keys(
    expected: Clock | None, changes: dict[str, Any]
) -> None:
    """Spark's operator has one clock: processing time wherever anything asks for it."""
    assert expected == summing(**changes).clock


@pytest.mark.parametrize(
    ("expected", "delay"), [(600_000, "10m"), (0, "0s"), (1, "1 ms"), (None, None)]
)
def test_the_delay_is_counted_in_milliseconds(expected: int | None, delay: str | None) -> None:
    """In whole ones; it may be nothing, and there may be no watermark at all."""
    assert expected == summing(watermark_delay=delay).delay_ms


@pytest.mark.parametrize(
    ("span", "timeout"),
    [
        (timedelta(0), NoTimeout()),
        (timedelta(0), TimeToLive("7d")),
        (HALF_HOUR, EventTimeGap(HALF_HOUR)),
        (timedelta(days=7), EventTimeGap(HALF_HOUR) | TimeToLive("7d", clock="event_time")),
    ],
)
def test_every_end_in_event_time_lies_in_the_calendar(span: timedelta, timeout: Any) -> None:
    """The last event time that is taken leaves room for the longest end in event time."""
    assert LAST_INSTANT_US - span_us(span) == summing(timeout=timeout).latest_event_us


def test_a_result_row_is_the_key_and_the_result() -> None:
    """The columns of the key stand before those of the result."""
    spec = summing(keys={"user": str, "place": int}, inputs=Inputs(passthrough={"offset": int}))

    assert ["user", "place", "what", "total"] == [field.name for field in spec.result_fields]
    assert ["user", "place"] == [field.name for field in spec.key_fields]
    assert ["offset"] == [field.name for field in spec.passthrough_fields]


def test_the_key_may_be_part_of_the_state_of_a_plain_function() -> None:
    """Only `by_bucket` shows key and state in one table, so only there they must differ."""
    assert KeyedSum is summing(state=KeyedSum).state


ABOUT_SESSIONS: list[Any] = [
    {"lateness": Lateness(allowed="1h")},
    {"lateness": Lateness(reopen_within="1h")},
    {"lateness": Lateness(judged_by="session")},
    {"inputs": Inputs(drop_duplicates_for="1h")},
]
ONE_GAP = ["`timeout`", "one gap", "found EventTimeGap("]


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"keys": {"total": str}}, ["two columns named `total`", "Added"]),
        ({"event_time": None}, ["`watermark_delay`", "`event_time` is missing"]),
        (
            {"watermark_delay": None, "timeout": EventTimeGap("30m")},
            ["`timeout`", "no watermark", "EventTimeGap(", "watermark_delay="],
        ),
        (
            {"watermark_delay": None, "timeout": TimeToLive("30m", clock="event_time")},
            ["`timeout`", "no watermark", "TimeToLive(", "watermark_delay="],
        ),
        (
            {"watermark_delay": None, "lateness": Lateness(late_events="process")},
            ["`late_events`", "without a watermark"],
        ),
        ({"timeout": None}, ["`timeout`", "found None", "NoTimeout()"]),
        ({"timeout": EventTimeGap("30m", gap_inclusive=False)}, ONE_GAP),
        ({"timeout": EventTimeGap(gap_of, max_gap="1h")}, ONE_GAP),
        ({"timeout": TimeToLive("1h") | EventTimeGap(gap_of, max_gap="1h")}, ONE_GAP),
        ({"process": None}, ["`process`", "found None (NoneType)"]),
        ({"process": by_bucket(None)}, ["`process`", "found None (NoneType)"]),  # type: ignore[arg-type]
        ({"on_timer": "report"}, ["`on_timer`", "found 'report' (str)"]),
        ({"on_timer": by_processing_time(None)}, ["`on_timer`", "found None (NoneType)"]),  # type: ignore[arg-type]
        ({"order": "event_time", "watermark_delay": None}, ['`order="event_time"`', "watermark"]),
        (
            {"order": "event_time", "lateness": Lateness(late_events="process")},
            ['`order="event_time"`', '`late_events="process"`'],
        ),
        ({"order": "event_time", "process": by_bucket(fold)}, ["`process`", "by_bucket(...)"]),
        (
            {"process": by_bucket(fold), "on_timer": by_processing_time(report)},
            ["by_processing_time(...)", "by_bucket(...) cannot set one"],
        ),
        ({"process": by_bucket(fold), "state": KeyedSum}, ["two columns named `key`", "KeyedSum"]),
        *((changes, ["is about sessions", "StatefulSpec"]) for changes in ABOUT_SESSIONS),
    ],
)
def test_a_spec_that_cannot_work_is_refused(changes: dict[str, Any], facts: list[str]) -> None:
    """Each mistake is refused when the spec is made: which argument, and what was found."""
    assert says(refusal(summing, **changes), *facts)


@pytest.mark.parametrize("role", ["event", "state", "result"])
def test_a_class_that_cannot_be_stored_is_refused(role: str) -> None:
    """Each of the three is read, as for sessions."""
    with pytest.raises(SpecError, match="`Unstorable.raw`: object can't be stored; "):
        summing(**{role: Unstorable})


@pytest.mark.parametrize(
    ("role", "wrap", "arguments"),
    [
        ("process", None, "key, events, state, times"),
        ("process", by_bucket, "events, states, times"),
        ("on_timer", None, "key, name, state, times"),
    ],
)
def test_a_function_of_other_arguments_is_refused(role: str, wrap: Any, arguments: str) -> None:
    """Each function is tried against the arguments that it will be given."""
    function = lambda one: one  # noqa: E731 (a function without annotations)

    text = refusal(summing, **{role: function if wrap is None else wrap(function)})

    assert says(text, f"{role}({arguments}), found {__name__}.", f"def {role}({arguments})")


def forgets_to_set(key: Any, events: Any, state: KeyState[Sum], times: Any) -> Added:
    held = state.get(Sum(0))
    held = attrs.evolve(held, total=held.total + len(events))
    return Added("is", held.total)


def sets_on_a_timer(key: Any, name: str, state: KeyState[Sum], times: Any) -> None:
    state.set(Sum(1))


def test_a_state_that_is_asked_for_and_never_set_is_refused() -> None:
    """It would never be there; where a function may set it, nothing is said."""
    text = refusal(summing, forgets_to_set)

    assert says(text, "`process` (", "forgets_to_set", "nothing ever sets it", "state.set(...)")
    specs = (
        summing(forgets_to_set, timeout=TimeToLive("1h"), on_timer=sets_on_a_timer),
        summing(lambda *given: [forgets_to_set(*given)]),
    )
    assert [Sum, Sum] == [spec.state for spec in specs]


def holding(annotation: Any, **settings: Any) -> StatefulSpec[Any, Any, Any]:
    """Make a spec whose function says that a `KeyState` holds this."""

    def process(key: Any, events: list[Amount], state: Any, times: Any) -> Added:
        return Added("holding", len(events))

    process.__annotations__["state"] = KeyState[annotation]
    return summing(process, **settings)


@pytest.mark.parametrize("held", [list[Sum], dict[str, Sum], tuple[Sum, ...] | None, int])
@pytest.mark.parametrize("settings", [{}, {"state": Sum}])
def test_a_state_is_an_object_of_one_class(held: Any, settings: Any) -> None:
    """A list of them can be a field of it."""
    assert says(refusal(holding, held, **settings), "KeyState[", "`items: ")


@pytest.mark.parametrize("held", [Sum, Sum | None, Any, object, "Sum"])
def test_a_state_may_be_annotated_more_loosely(held: Any) -> None:
    assert Sum is holding(held, state=Sum).state


def declaring(role: str, **annotations: Any) -> StatefulSpec[Any, Any, Any]:
    """Make a spec with a function of these parameters, in this order."""
    names = ", ".join(annotations)
    function = eval(f"lambda {names}: None")  # noqa: S307 (so that a test can say the order)
    function.__annotations__ = annotations
    return summing(state=Sum, event=Amount, result=Added, **{role: function})


PROCESS, ON_TIMER = "key, events, state, times", "key, name, state, times"
STATE, EVENTS = KeyState[Sum], list[Amount]


@pytest.mark.parametrize(
    ("role", "order", "wanted"),
    [
        ("process", {"key": Any, "s": STATE, "events": EVENTS, "times": KeyTimes}, PROCESS),
        ("process", {"key": Any, "state": Any, "events": Any, "times": Any}, PROCESS),
        ("process", {"key": Any, "events": Any, "times": KeyTimes, "state": STATE}, PROCESS),
        ("on_timer", {"key": Any, "state": STATE, "name": str, "times": KeyTimes}, ON_TIMER),
    ],
)
def test_parameters_in_another_order_are_refused(
    role: str, order: dict[str, Any], wanted: str
) -> None:
    """A state in the place of the events would otherwise be taken for them."""
    assert says(refusal(declaring, role, **order), "found another order: ", f"def {role}({wanted})")


@pytest.mark.parametrize(
    ("changes", "found", "hint"),
    [
        ({"events": Amount}, "`events: Amount`", "declare `events: list[Amount]`"),
        ({"events": Iterator[Amount]}, "`events: Iterator[Amount]`", "`events: list[Amount]`"),
        ({"events": pd.DataFrame}, "`events: DataFrame`", "declare `events: list`"),
        ({"state": Sum}, "`state: Sum`", "declare `state: KeyState[Sum]`"),
        ({"times": BatchTimes}, "`times: BatchTimes`", "declare `times: KeyTimes`"),
    ],
)
def test_an_annotation_of_another_class_is_refused(
    changes: dict[str, Any], found: str, hint: str
) -> None:
    """`process` is given a list of events, and a view of the state rather than the state."""
    declared = {"key": Any, "events": list[Amount], "state": KeyState[Sum], "times": KeyTimes}
    assert says(refusal(declaring, "process", **declared | changes), f"declares {found}", hint)


@pytest.mark.parametrize("events", [list, Sequence[Amount], Iterable[Amount], "list[Amount]", Any])
def test_events_may_be_annotated_more_loosely(events: Any) -> None:
    """Whatever a list is, is right."""
    spec = declaring("process", key=Any, events=events, state=Any, times=Any)

    assert Amount is spec.event
