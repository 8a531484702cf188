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
    BatchTimes,
    BucketResult,
    EventTimeGap,
    FirstOf,
    KeyState,
    KeyTimes,
    NoTimeout,
    ProcessingTimeGap,
    StatefulSpec,
    TimeToLive,
    by_bucket,
    by_processing_time,
)
from sessionkit._instants import LAST_INSTANT_US, span_us
from sessionkit.errors import FieldTypeError, SpecError
from sessionkit.timeouts import Clock
from tests.support.options import evolved
from tests.support.stateful_specs import Added, Amount, Sum, add, report, summing

HALF_HOUR = timedelta(minutes=30)


@attrs.frozen
class Unstorable:
    """A class with two fields that cannot be stored."""

    tags: set[str]
    raw: object


@attrs.frozen
class KeyedSum:
    key: str
    total: int


def fold(events: pa.Table, states: pa.Table, times: BatchTimes) -> BucketResult:
    return BucketResult(states)


def gap_of(event: Amount) -> timedelta:
    return HALF_HOUR


def refusal(**changes: Any) -> str:
    """Return the text with which a spec with these changes is refused."""
    with pytest.raises(SpecError) as refused:
        summing(**changes)
    return str(refused.value)


# ------------------------------------------------------------------------------ what a spec holds


def test_durations_are_read_once() -> None:
    """A spec holds durations as `timedelta`, however they were spelled."""
    spec = summing(watermark_delay="10m", max_future_skew="1h")

    assert timedelta(minutes=10) == spec.watermark_delay
    assert timedelta(hours=1) == spec.inputs.max_future_skew


def test_specs_that_mean_the_same_are_equal() -> None:
    """Two specs are compared by what they mean, not by how they were spelled."""
    assert summing() == summing(watermark_delay=timedelta(minutes=10))
    assert summing() != summing(bucket_count=65)


def test_a_spec_cannot_be_changed() -> None:
    """A spec is frozen; a changed one is made by `attrs.evolve`, which checks it again."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        summing().order = "event_time"  # type: ignore[misc]
    with pytest.raises(SpecError):
        evolved(summing(), bucket_count=0)

    assert summing(bucket_count=2) == evolved(summing(), bucket_count=2)


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
        ("event_time", {"timeout": TimeToLive("1m", clock="event_time")}),
        ("processing_time", {"timeout": ProcessingTimeGap("1m")}),
        ("processing_time", {"timeout": TimeToLive("1m")}),
        ("processing_time", {"timeout": EventTimeGap("1m") | ProcessingTimeGap("1m")}),
        ("processing_time", {"processing_timers": True, "on_timer": report}),
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


@pytest.mark.parametrize(("expected", "delay"), [(600_000, "10m"), (0, "0s"), (None, None)])
def test_the_delay_is_counted_in_milliseconds(expected: int | None, delay: str | None) -> None:
    """The watermark delay may be nothing, and there may be no watermark at all."""
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
    spec = summing(keys={"user": str, "place": int}, passthrough={"offset": int})

    assert ["user", "place", "what", "total"] == [field.name for field in spec.result_fields]
    assert ["user", "place"] == [field.name for field in spec.key_fields]
    assert ["offset"] == [field.name for field in spec.passthrough_fields]


def test_the_key_may_be_part_of_the_state_of_a_plain_function() -> None:
    """Only `by_bucket` shows key and state in one table, so only there they must differ."""
    assert KeyedSum is summing(state=KeyedSum).state


def test_settings_are_named() -> None:
    """A spec is not made by position."""
    with pytest.raises(SpecError, match=r"Hint: name the others, such as keys=\.\.\."):
        StatefulSpec({"key": str}, Amount)  # type: ignore[call-arg,arg-type]


# ------------------------------------------------------------------------------ what it refuses


@pytest.mark.parametrize(
    ("changes", "found", "hint"),
    [
        (
            {"keys": {}},
            "`keys` must name at least one column, found none",
            'write keys={"user_id": str}; for one global key add a constant column',
        ),
        (
            {"event_time": ""},
            "`event_time` must be the name of a column, found ''",
            'write event_time="ts"',
        ),
        (
            {"event_time": None},
            "`watermark_delay` needs an event time, and `event_time` is missing",
            'add event_time="ts"',
        ),
        (
            {"watermark_delay": timedelta(microseconds=1_500)},
            "`watermark_delay` must be whole milliseconds, found 0:00:00.001500",
            "Spark's watermark counts in milliseconds: round it",
        ),
        (
            {"watermark_delay": None, "timeout": EventTimeGap("30m")},
            (
                "`timeout` counts in event time, and there is no watermark: "
                f"{EventTimeGap(HALF_HOUR)!r}"
            ),
            'add event_time="ts" and watermark_delay="10 minutes"',
        ),
        (
            {"watermark_delay": None, "timeout": TimeToLive("30m", clock="event_time")},
            (
                "`timeout` counts in event time, and there is no watermark: "
                f"{TimeToLive(HALF_HOUR, clock='event_time')!r}"
            ),
            'add event_time="ts" and watermark_delay="10 minutes"',
        ),
        (
            {"watermark_delay": None, "late_events": "process"},
            "`late_events` has no meaning without a watermark",
            'add watermark_delay="10 minutes", or leave it out',
        ),
        (
            {"timeout": None},
            "`timeout` must be a policy, found None",
            'write timeout=EventTimeGap("30 minutes"), TimeToLive("7 days") or NoTimeout()',
        ),
        (
            {"timeout": EventTimeGap("30m", gap_inclusive=False)},
            (
                "`timeout` of a StatefulSpec has one gap and no events to split, found "
                f"{EventTimeGap('30m', gap_inclusive=False)!r}"
            ),
            'write EventTimeGap("30 minutes")',
        ),
        (
            {"timeout": EventTimeGap(gap_of, max_gap="1h")},
            (
                "`timeout` of a StatefulSpec has one gap and no events to split, found "
                f"{EventTimeGap(gap_of, max_gap='1h')!r}"
            ),
            'write EventTimeGap("30 minutes")',
        ),
        (
            {"timeout": TimeToLive("1h") | EventTimeGap(gap_of, max_gap="1h")},
            (
                "`timeout` of a StatefulSpec has one gap and no events to split, found "
                f"{EventTimeGap(gap_of, max_gap='1h')!r}"
            ),
            'write EventTimeGap("30 minutes")',
        ),
        (
            {"late_events": "own"},
            "`late_events` must be one of 'reject', 'process', found 'own'",
            "the default is 'reject'",
        ),
        (
            {"nulls": None},
            "`nulls` must be one of 'reject', 'refuse', found None",
            "the default is 'reject'",
        ),
        (
            {"on_error": "ignore"},
            "`on_error` must be one of 'raise', 'reject', found 'ignore'",
            "the default is 'raise'",
        ),
        (
            {"layout": "rows"},
            "`layout` must be one of 'buckets', 'pages', found 'rows'",
            "the default is 'buckets'",
        ),
        (
            {"bucket_count": 0},
            "`bucket_count` must be a whole number from 1, found 0",
            "leave it out",
        ),
        (
            {"bucket_count": 65_537},
            "`bucket_count` must be at most 65,536, found 65,537",
            "leave it out, or see docs/explanation/buckets.md",
        ),
        (
            {"version": 0},
            "`version` must be a whole number from 1, found 0",
            "leave it out for the default, 1",
        ),
        (
            {"on_timer": by_processing_time(None)},  # type: ignore[arg-type]
            "`on_timer` must be a function, found None (NoneType)",
            "write `def on_timer(key, name, state, times): ...` and pass its name",
        ),
        *(
            (
                {word: value},
                f"`{word}` is about sessions, and a StatefulSpec has none",
                "leave it out; `late_events` says what becomes of late events",
            )
            for word, value in [
                ("allowed", "1h"),
                ("reopen_within", "1h"),
                ("judged_by", "session"),
            ]
        ),
        (
            {"drop_duplicates_for": "1h"},
            "`drop_duplicates_for` is about sessions, and a StatefulSpec has none",
            "leave it out; docs/how-to/deduplicate.md shows what drops copies before",
        ),
        (
            {"order": "time"},
            "`order` must be one of 'arrival', 'event_time', found 'time'",
            "the default is 'arrival'",
        ),
        (
            {"order": "event_time", "watermark_delay": None},
            '`order="event_time"` waits for the watermark, and there is none',
            'add event_time="ts" and watermark_delay="10 minutes"',
        ),
        (
            {"order": "event_time", "late_events": "process"},
            '`order="event_time"` has no place for the late events of `late_events="process"`',
            'leave `late_events` out, or write order="arrival"',
        ),
        (
            {"order": "event_time", "process": by_bucket(fold)},
            '`order="event_time"` hands out events as a list, and `process` is by_bucket(...)',
            'pass the function over a list of events, or write order="arrival"',
        ),
        (
            {"max_buffered_per_key": 0},
            "`max_buffered_per_key` must be a whole number from 1, found 0",
            "leave it out for the default, 100000",
        ),
        (
            {"process": by_bucket(fold), "state": KeyedSum},
            "a function by_bucket(...) would be given two columns named `key`",
            "leave the key out of KeyedSum",
        ),
        (
            {"keys": {"total": str}},
            "the result would have two columns named `total`",
            "rename the column, or the field of Added",
        ),
    ],
)
def test_a_spec_that_cannot_work_is_refused(changes: dict[str, Any], found: str, hint: str) -> None:
    """Each mistake is refused when the spec is made, with the one thing to change."""
    assert f"{found}\n\nHint: {hint}" == refusal(**changes)


@pytest.mark.parametrize("name", ["watermark_delay", "max_future_skew"])
@pytest.mark.parametrize("value", ["soon", "-1 minute", "1 month", 600])
def test_a_duration_is_refused_under_its_name(name: str, value: object) -> None:
    """Every duration of a spec is read strictly."""
    assert f"`{name}` " == refusal(**{name: value})[: len(name) + 3]


@pytest.mark.parametrize("role", ["event", "state", "result"])
def test_a_class_that_cannot_be_stored_is_refused(role: str) -> None:
    """All fields that cannot be stored are named, for each of the three classes."""
    with pytest.raises(FieldTypeError) as refused:
        summing(**{role: Unstorable})

    assert "\n  `Unstorable.tags`: set[str] can't be stored; " in str(refused.value)
    assert "\n  `Unstorable.raw`: object can't be stored; " in str(refused.value)


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

    text = refusal(**{role: function if wrap is None else wrap(function)})

    assert f"`{role}` must take {role}({arguments}), found {__name__}." in text
    assert text.endswith(f"\n\nHint: write `def {role}({arguments}): ...`")


@pytest.mark.parametrize("role", ["process", "on_timer"])
def test_an_async_function_is_refused(role: str) -> None:
    """No function of a spec may be asynchronous."""

    async def later(key: object, given: object, state: object, times: object) -> None: ...

    text = refusal(**{role: later})

    assert f"`{role}` must be a plain function, found the async " in text
    assert text.endswith("\n\nHint: write it with `def`")


def test_what_is_no_function_is_refused() -> None:
    """A name in place of a function is refused with the line to write."""
    text = refusal(on_timer="report")

    assert "`on_timer` must be a function, found 'report' (str)" in text
    assert text.endswith(
        "Hint: write `def on_timer(key, name, state, times): ...` and pass its name"
    )


@pytest.mark.parametrize("process", [None, by_bucket(None)])  # type: ignore[arg-type]
def test_a_spec_without_process_is_refused(process: Any) -> None:
    """`process` is a function, also where it is marked."""
    assert "`process` must be a function, found None (NoneType)" in refusal(process=process)


def test_a_timeout_may_be_a_choice_of_one() -> None:
    """A `FirstOf` of one policy counts as that policy does."""
    assert "event_time" == summing(timeout=FirstOf((EventTimeGap("1m"),))).clock


def takes_everything(*given: object) -> None:
    """Take whatever comes."""


def test_a_function_may_take_whatever_comes() -> None:
    """A wrapper that passes its arguments on is a function like any other."""
    assert takes_everything is summing(takes_everything, takes_everything).on_timer


def annotated(key: Any, events: list[Amount], state: KeyState[Any], times: KeyTimes) -> Added:
    return Added("annotated", len(events))


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
    with pytest.raises(SpecError) as refused:
        holding(held, **settings)

    assert "says KeyState[" in str(refused.value)
    assert "Hint: declare a class with a field `items: " in str(refused.value)


@pytest.mark.parametrize("held", [Sum, Sum | None, Any, object, "Sum"])
def test_a_state_may_be_annotated_more_loosely(held: Any) -> None:
    assert Sum is holding(held, state=Sum).state


def declaring(role: str, **annotations: Any) -> StatefulSpec[Any, Any, Any]:
    """Make a spec with a function of these parameters, in this order."""
    names = ", ".join(annotations)
    function = eval(f"lambda {names}: None")  # noqa: S307 (so that a test can say the order)
    function.__annotations__ = annotations
    return summing(state=Sum, event=Amount, result=Added, **{role: function})


@pytest.mark.parametrize(
    ("role", "order", "wanted"),
    [
        (
            "process",
            {"key": Any, "s": KeyState[Sum], "events": list[Amount], "times": KeyTimes},
            "key, events, state, times",
        ),
        (
            "process",
            {"key": Any, "state": Any, "events": Any, "times": Any},
            "key, events, state, times",
        ),
        (
            "process",
            {"key": Any, "events": Any, "times": KeyTimes, "state": KeyState[Sum]},
            "key, events, state, times",
        ),
        (
            "on_timer",
            {"key": Any, "state": KeyState[Sum], "name": str, "times": KeyTimes},
            "key, name, state, times",
        ),
    ],
)
def test_parameters_in_another_order_are_refused(
    role: str, order: dict[str, Any], wanted: str
) -> None:
    """A state in the place of the events would otherwise be taken for them."""
    with pytest.raises(SpecError) as refused:
        declaring(role, **order)

    assert f"must take {role}({wanted}), found another order: " in str(refused.value)
    assert str(refused.value).endswith(f"Hint: write `def {role}({wanted}): ...`")


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
    with pytest.raises(SpecError) as refused:
        declaring("process", **declared | changes)

    assert f"declares {found}" in str(refused.value)
    assert str(refused.value).endswith(hint)


@pytest.mark.parametrize("events", [list, Sequence[Amount], Iterable[Amount], "list[Amount]", Any])
def test_events_may_be_annotated_more_loosely(events: Any) -> None:
    """Whatever a list is, is right."""
    spec = declaring("process", key=Any, events=events, state=Any, times=Any)

    assert Amount is spec.event


def test_annotated_views_are_accepted() -> None:
    """`KeyState` and `KeyTimes` are what the functions may be annotated with."""
    assert annotated is summing(annotated, state=Sum).process
