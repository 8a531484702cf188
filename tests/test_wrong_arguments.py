"""What isn't an argument's type or shape is refused in words of sessionkit, where it's passed."""

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypedDict

import attrs
import pyarrow.compute as pc
import pytest

from sessionkit import (
    Aggregates,
    Events,
    EventTimeGap,
    Every,
    FirstOf,
    Functions,
    Inputs,
    Lateness,
    Memory,
    NoTimeout,
    ProcessingTimeGap,
    Results,
    SessionkitError,
    SessionRules,
    SessionSpec,
    StatefulSpec,
    Storage,
    TimeToLive,
)
from sessionkit import aggregates as agg
from sessionkit.addons import presets
from sessionkit.testing import SessionDriver, StoredKey, at, minutes
from tests.support.misuses import Call, places, raw_errors, right


@attrs.frozen
class View:
    """An event."""

    page: str = ""
    seconds: float = 0.0
    number: int = 0
    is_last: bool = False


@attrs.frozen
class Seen:
    """An event of which each is a row."""

    page: str = ""


@attrs.define
class Visit:
    """A state, and its functions."""

    pages: int = 0

    def update(self, view: View) -> None:
        """Count a page."""
        self.pages += 1

    def merge(self, other: "Visit") -> None:
        """Add the pages."""
        self.pages += other.pages


SHARED: dict[str, Any] = {
    "keys": {"user": str},
    "event_time": "ts",
    "watermark_delay": "10 minutes",
}
TIMED = {**SHARED, "gap": "30 minutes"}
IS_HOME = pc.field("page") == "/"


def update(state: Visit, event: View) -> None:
    state.pages += 1


def process(key: Any, events: list[View], state: Any, times: Any) -> Visit | None:
    return None


def spec(**changes: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.of(Visit, **{**TIMED, **changes})


def counted(**changes: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.aggregate(View, {"pages": agg.count()}, **{**TIMED, **changes})


def ruled(**rules: Any) -> SessionSpec[Any, Any, Any]:
    timeout = SessionRules("30 minutes", **rules)
    return counted(gap=None, timeout=timeout, order="event_time" if timeout.in_order else "arrival")


def remembered(**memory: Any) -> SessionSpec[Any, Any, Any]:
    return counted(memory=Memory(**memory))


def with_inputs(**inputs: Any) -> SessionSpec[Any, Any, Any]:
    return spec(inputs=Inputs(**inputs))


def driver() -> SessionDriver[Any, Any, Any]:
    return SessionDriver(spec(), processing_time=at("10:00"))


def one(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call that binds an aggregate to the event."""

    def bound(*values: Any, **named: Any) -> Any:
        return Aggregates(View, {"one": make(*values, **named)})

    return bound


CALLS: list[Call] = [
    (SessionSpec.of, [Visit], {**TIMED}),
    (SessionSpec.aggregate, [View, {"pages": agg.count()}], {**TIMED, "result": None}),
    (SessionSpec.per_event, [Seen], TIMED),
    (SessionSpec, [], {**TIMED, "logic": Events(Seen)}),
    (StatefulSpec, [], {**SHARED, "process": process, "timeout": "1 day", "state": Visit}),
    (Functions, [], {"update": update, "merge": lambda left, right: left}),
    (Aggregates, [View, {"pages": agg.count()}], {}),
    (Events, [View], {}),
    (with_inputs, [], dict.fromkeys(inspect.signature(Inputs).parameters)),
    (lambda **named: spec(storage=Storage(**named)), [], {"layout": "buckets"}),
    (lambda **named: spec(storage=Storage(**named)), [], {"bucket_count": 8}),
    (lambda **named: spec(storage=Storage(**named)), [], {"upgrade": {}}),
    (lambda **named: spec(storage=Storage(**named)), [], {"version": 1}),
    (lambda **named: spec(results=Results(**named)), [], {"emit": "on_close"}),
    (lambda **named: spec(results=Results(**named)), [], {"with_events": True}),
    (lambda **named: spec(results=Results(**named)), [], {"carries_watermark": True}),
    (lambda **named: spec(lateness=Lateness(**named)), [], {"allowed": "1 hour"}),
    (lambda **named: spec(lateness=Lateness(**named)), [], {"reopen_within": "1 hour"}),
    (lambda **named: spec(lateness=Lateness(**named)), [], {"judged_by": "event"}),
    (lambda **named: spec(lateness=Lateness(**named)), [], {"late_events": "reject"}),
    (
        remembered,
        [],
        {
            "time_to_live": "1 day",
            "first": {"first_pages": "pages"},
            "last": {"last_pages": "pages"},
            "lookback": "1 hour",
            "remember": None,
            "remembered": None,
        },
    ),
    *[
        (ruled, [], {name: None})
        for name in inspect.signature(SessionRules).parameters
        if name != "gap"
    ],
    (SessionRules, ["1 hour"], {}),
    (EventTimeGap, ["1 hour"], {"gap_inclusive": True}),
    (EventTimeGap, [lambda view: timedelta(1)], {"max_gap": "2 days"}),
    (ProcessingTimeGap, ["1 hour"], {}),
    (TimeToLive, ["1 hour"], {"since": "creation", "clock": "event_time"}),
    (FirstOf, [(TimeToLive("1 day"), EventTimeGap("1 hour"))], {}),
    (NoTimeout, [], {}),
    (Every, ["1 hour"], {"clock": "event_time"}),
    (Every, [], {"events": 5}),
    (one(agg.all), [IS_HOME], {"where": IS_HOME}),
    (one(agg.any), [IS_HOME], {"where": IS_HOME}),
    (one(agg.collect), ["page"], {"at_most": 5, "where": IS_HOME}),
    (one(agg.count), ["page"], {"at_most": None, "where": IS_HOME}),
    (one(agg.count_by), ["page"], {"at_most": 5, "rest": "other", "where": IS_HOME}),
    (one(agg.count_distinct), ["page"], {"at_most": 5, "where": IS_HOME}),
    (one(agg.duration), [], {"where": IS_HOME}),
    (one(agg.engaged_time), [], {"cap": "1 minute", "within": "1 hour", "where": IS_HOME}),
    (one(agg.first), ["page"], {"where": IS_HOME}),
    (one(agg.last), ["page"], {"where": IS_HOME}),
    (
        one(agg.funnel),
        [["is_last", "is_last"]],
        {"within": "1 hour", "strict": "order", "allow_reentry": True, "not_between": IS_HOME},
    ),
    (
        one(agg.funnel_times),
        [agg.funnel(["is_last", "is_last"])],
        {"between": ("1", "2")},
    ),
    (one(agg.greatest), [agg.count(), 5], {}),
    (one(agg.least), [agg.count(), 5], {}),
    (one(agg.max), ["number"], {"where": IS_HOME}),
    (one(agg.mean), ["number"], {"where": IS_HOME}),
    (one(agg.min), ["number"], {"where": IS_HOME}),
    (one(agg.path), ["page"], {"at_most": 5, "where": IS_HOME}),
    (one(agg.percentile), ["number", 0.5], {"where": IS_HOME}),
    (one(agg.stddev), ["number"], {"where": IS_HOME}),
    (one(agg.steps), ["page", "/", "/a"], {"at_most": 5, "where": IS_HOME}),
    (one(agg.sum), ["number"], {"where": IS_HOME}),
    (one(agg.top), ["page", 3], {"counts": True, "at_most": 5, "where": IS_HOME}),
    (one(lambda other: agg.count() + other), [5], {}),
    (one(lambda other: agg.count() > other), [5], {}),
    (one(lambda other: (agg.count() > 1) & other), [agg.count() > 2], {}),
    (one(lambda other: agg.count().eq(other)), [5], {}),
    (one(lambda other: agg.count().fill_null(other)), [5], {}),
    (lambda other: EventTimeGap("1 hour") | other, [TimeToLive("1 day")], {}),
    (presets.amplitude, ["web"], {"gap": "1 hour"}),
    (presets.ga4, ["1 hour"], {}),
    (presets.ga4_engaged, [], {"page_view": IS_HOME, "key_event": IS_HOME, "longer_than": "10 s"}),
    (presets.posthog, ["1 hour"], {"opens_with": IS_HOME}),
    (presets.segment, ["1 hour"], {}),
    (presets.snowplow, ["1 hour"], {}),
    (presets.snowplow_unified, ["1 day"], {}),
    (SessionDriver, [spec()], {"state": (), "processing_time": at("10:00")}),
    (lambda *values: driver().add(*values), ["ann", at("10:00"), View()], {}),
    (lambda row: driver().add_row(row), [{"user": "ann"}], {}),
    (lambda key: driver().erase(key), ["ann"], {}),
    (lambda instant: driver().advance_watermark_to(instant), [at("10:00")], {}),
    (lambda span: driver().advance_processing_time(span), ["1 hour"], {}),
    (lambda kind: driver().take_rejections(kind), [None], {}),
    (lambda snapshot: SessionDriver.restore(spec(), snapshot), [driver().snapshot()], {}),
    (lambda other: driver().migrate(other), [spec()], {}),
    (SessionDriver.backfill, [spec(), []], {"until": at("10:00"), "processing_time": None}),
    (at, ["10:00"], {}),
    (minutes, [5], {}),
]


def test_what_a_spec_is_made_of_has_a_hash() -> None:
    """A dict of specs, or a cache by spec, works: equal ones have equal hashes."""
    memory = Memory(time_to_live="1 day", first={"first_pages": "pages"})
    inputs = Inputs(passthrough={"offset": int})
    makes: list[Callable[[], object]] = [
        lambda: counted(inputs=inputs, memory=memory),
        lambda: spec(storage=Storage(upgrade={})),
        lambda: ruled(until=IS_HOME, changes_of=["page"]),
        lambda: StatefulSpec(process=process, timeout="1 day", state=Visit, **SHARED),
        lambda: Aggregates(View, {"pages": agg.count(where=IS_HOME)}),
        lambda: Inputs(passthrough={"offset": int}),
        lambda: memory,
        lambda: Storage(bucket_count=8),
        lambda: agg.funnel(["is_last"], within="1 hour"),
    ]
    for make in makes:
        assert make() == make()
        assert hash(make()) == hash(make())
    assert {spec(): 1} == {spec(): 1}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (spec(), "timeout"),
        (Inputs(), "event_id"),
        (SessionRules("1h"), "gap"),
        (Memory(time_to_live="1 day"), "first"),
        (Storage(), "version"),
    ],
)
def test_what_never_changes_says_how_to_make_another(value: Any, name: str) -> None:
    """A spec and its parts are values; `attrs.evolve` makes a copy with a change."""
    before = repr(value)
    with pytest.raises(SessionkitError, match=rf"attrs\.evolve\(value, {name}=\.\.\.\)") as refused:
        setattr(value, name, "1 hour")

    assert isinstance(refused.value, AttributeError)
    assert before == repr(value)


@pytest.mark.parametrize(
    ("name", "ours"), [("avg", "mean"), ("nunique", "count_distinct"), ("median", "percentile")]
)
def test_an_aggregate_by_the_name_of_another_library_says_ours(name: str, ours: str) -> None:
    """SQL's, Spark's or that of pandas; any other name is Python's own error."""
    with pytest.raises(SessionkitError, match=rf"write agg\.{ours}\("):
        getattr(agg, name)
    assert not hasattr(agg, name)
    assert not hasattr(agg, "nothing_like_it")


def add_by_name() -> None:
    values: dict[str, Any] = {"key": "ann", "event_time": at("10:00"), "event": View()}
    any_driver: Any = driver()
    any_driver.add(**values)


def add_event_by_name() -> None:
    driver().add("ann", at("10:00"), event=View())


def add_in_another_order() -> None:
    any_driver: Any = driver()
    any_driver.add("ann", View(), at("10:00"))


ANY: Any = SessionSpec
ANY_FUNCTIONS: Any = Functions
ANY_DRIVER: Any = SessionDriver
ANY_KEY: Any = StoredKey


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: ANY.aggregate(View, n=agg.count(), **TIMED),
            'Hint: write SessionSpec.aggregate(View, {"pages": agg.count()}, ...)',
        ),
        (
            lambda: ANY.aggregate({"page": str}, {"n": agg.count()}, **TIMED),
            "{'page': <class 'str'>} (dict) isn't a class\n\nHint: declare an attrs class",
        ),
        (
            lambda: ANY.aggregate(View, {"n": agg.count()}, Visit, **TIMED),
            "SessionSpec.aggregate takes only `event`, `aggregates` without a name, found 3",
        ),
        (ANY.of, "SessionSpec.of needs `state`\n\nHint: write SessionSpec.of(Visit, ..."),
        (lambda: ANY.of(state=Visit, **TIMED), "SessionSpec.of needs `state`"),
        (lambda: ANY.per_event(**TIMED), "write SessionSpec.per_event(View, ...)"),
        (
            lambda: ANY.per_event([View], **TIMED),
            "(list) isn't a class\n\nHint: pass an attrs class or a dataclass",
        ),
        (
            add_by_name,
            'Hint: write SessionDriver.add("ann", at("10:00"), View(...)',
        ),
        (add_event_by_name, "without names: add("),
        (add_in_another_order, "the time comes before the event"),
        (lambda: ANY_DRIVER.take_rows(driver(), 5), "SessionDriver.take_rows takes nothing"),
        (lambda: ANY_DRIVER.run_batch(driver(), [View()]), "name the others, such as sink_fails"),
        (lambda: ANY_DRIVER.add_row(driver(), user="ann"), "add_row has no argument `user`"),
        (ANY_KEY, "StoredKey needs `key`, `state`"),
        (lambda: ANY_DRIVER.backfill(spec(), [], until="2026-03-01"), "`until` must be a datetime"),
    ],
)
def test_a_call_of_the_wrong_shape_says_how_to_write_it(call: Callable[[], Any], text: str) -> None:
    """Also of a method or a constructor by name, and of arguments that have no name."""
    with pytest.raises(SessionkitError) as refused:
        call()
    assert text in str(refused.value)


class Typed(TypedDict):
    """A class that no object is an instance of."""

    page: str


def of_typed(state: Visit, event: Typed) -> None:
    state.pages += 1


def makes_typed(key: Typed, event: View) -> Visit:
    return Visit()


def is_typed(event: Typed) -> bool:
    return True


@pytest.mark.parametrize(
    "make",
    [
        lambda: ANY_FUNCTIONS(update=of_typed, event=View),
        lambda: ANY_FUNCTIONS(update=of_typed, state=Visit),
        lambda: ruled(until=is_typed),
        lambda: spec(event=Typed),
    ],
)
def test_a_typed_dict_in_an_annotation_is_refused_in_words(make: Callable[[], Any]) -> None:
    """Python itself refuses `issubclass` with one."""
    with pytest.raises(SessionkitError, match=r"Typed[^\0]*\n\nHint: "):
        make()


def test_a_typed_dict_as_the_key_of_create_is_no_reason_to_fail() -> None:
    """The key is a named tuple; what a function calls it is its own."""
    assert "create" in repr(Functions(create=makes_typed, update=update))


@pytest.mark.parametrize("call", CALLS)
def test_a_call_with_right_values_is_taken(call: Call) -> None:
    """Otherwise each wrong value would be refused for another reason."""
    right(call)


@pytest.mark.parametrize(
    ("call", "place"), [(call, place) for call in CALLS for place in places(call)]
)
def test_a_value_of_any_kind_is_taken_or_refused_in_words(call: Call, place: int | str) -> None:
    """One argument of a call that is right has a wrong value; no error is Python's or Arrow's."""
    assert [] == raw_errors(call, place)
