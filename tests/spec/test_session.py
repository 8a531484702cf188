"""The spec of a session: what it holds, and everything that it refuses on the driver."""

import copy
import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Optional

import attrs
import pytest
from pyspark import cloudpickle

from sessionkit import (
    EventTimeGap,
    Inputs,
    Lateness,
    NoTimeout,
    ProcessingTimeGap,
    Session,
    SessionRules,
    SessionSpec,
    SpecError,
    StatefulSpec,
    Storage,
)
from sessionkit._instants import micros_of
from sessionkit.spec.calls import check_kind
from sessionkit.spec.columns import SESSION_COLUMNS, key_class
from sessionkit.spec.views import session_of
from sessionkit.state import DecimalType
from sessionkit.testing import SessionDriver, StatefulDriver
from sessionkit.testing.strategies import check_merge_law, check_spec
from tests.support.refusals import refusal, says
from tests.support.stateful_specs import summing
from tests.support.strategies import Plan
from tests.support.visit_specs import SILENT, TYPED, Unstorable, View, Visit, spec_of, untyped

HALF_HOUR = timedelta(minutes=30)


def nothing(_: Any) -> None:
    """Return nothing, which is no rule."""


def gap_of(event: View) -> timedelta:
    return HALF_HOUR


def test_specs_that_mean_the_same_are_equal() -> None:
    """Two specs are compared by what they mean, not by how they were spelled."""
    assert spec_of() == spec_of(watermark_delay=timedelta(minutes=10), timeout=EventTimeGap("30m"))
    assert spec_of() != spec_of(storage=Storage(bucket_count=65))


def test_a_spec_cannot_be_changed() -> None:
    """A spec is frozen; a changed one is made by `attrs.evolve`, which checks it again."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        spec_of().order = "event_time"  # type: ignore[misc]
    assert spec_of(storage=Storage(bucket_count=2)) == attrs.evolve(
        spec_of(), storage=Storage(bucket_count=2)
    )
    with pytest.raises(SpecError):
        attrs.evolve(spec_of(), storage=Storage(bucket_count=0))


def test_a_spec_keeps_no_hold_of_what_it_was_given() -> None:
    """Changing the dict of keys afterwards does not change the spec."""
    keys: dict[str, Any] = {"user_id": str}
    spec = spec_of(keys=keys)
    keys["other"] = int
    assert {"user_id": str} == spec.keys


@pytest.mark.parametrize("tool", [pickle, cloudpickle])
def test_a_spec_pickles(tool: Any) -> None:
    """A spec travels to the executors, with either pickle, and is equal there."""
    for spec in (
        spec_of(),
        spec_of(timeout=EventTimeGap(gap_of, max_gap="1h"), inputs=Inputs(passthrough={"x": int})),
    ):
        assert spec == tool.loads(tool.dumps(spec))


def test_a_spec_with_functions_of_the_moment_pickles() -> None:
    """Lambdas and local classes travel by cloudpickle, as in a notebook."""
    row = attrs.make_class("Row", {"n": attrs.field(type=int)})
    spec = spec_of(result=row, finish=lambda _, state: row(state.pages))
    # The fields of a spec are compiled when it is made: those caches must not travel along.
    back = cloudpickle.loads(cloudpickle.dumps(spec))  # type: ignore[no-untyped-call]
    assert 3 == back.finish(None, Visit(3)).n


def test_keys_are_typed_in_their_order() -> None:
    """The key columns keep their order, each with its type."""
    kinds = [str, int, bool, bytes, date, datetime, Decimal, Annotated[Decimal, DecimalType(5, 2)]]
    spec = spec_of(keys=dict(zip("bacdefgh", kinds, strict=True)))
    assert [*"bacdefgh"] == [field.name for field in spec.key_fields]
    assert DecimalType(5, 2) == spec.key_fields[-1].type


def test_the_key_is_a_named_tuple() -> None:
    """Functions get the key by name and by position, of one class for equal names."""
    key = key_class(("user_id", "day"))("ann", 3)
    assert ("ann", 3) == (key.user_id, key.day)
    assert key_class(("user_id",)) is key_class(("user_id",))


def test_a_session_that_reads_its_times_late_is_an_equal_session() -> None:
    """Its times are made when they are read, which nobody can see."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    made = Session(("ann",), "id", start, start + HALF_HOUR, 2, last_event_time=start)

    def lazy() -> Session[Any]:
        start_us, end_us = micros_of(start), micros_of(start + HALF_HOUR)
        return session_of(("ann",), "id", start_us, end_us, start_us, 2, "gap")

    assert (made.session_start, made.session_end) == (lazy().session_start, lazy().session_end)
    assert timedelta(0) == lazy().length
    assert made == lazy()
    assert hash(made) == hash(lazy())
    assert repr(made) == repr(lazy())
    assert attrs.asdict(made) == attrs.asdict(lazy())
    assert attrs.evolve(made, events=3) == attrs.evolve(lazy(), events=3)
    assert made == copy.copy(lazy()) == copy.deepcopy(lazy())
    assert made == pickle.loads(pickle.dumps(lazy()))  # noqa: S301 (what was just written)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        lazy().session_start = start  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"keys": {}}, ["`keys`", "found none"]),
        ({"keys": ["user_id"]}, ["`keys`", "found ['user_id']"]),
        ({"keys": {1: str}}, ["`keys`", "found {1: "]),
        ({"keys": {"price": float}}, ["`price`", "float", "Decimal"]),
        ({"keys": {"user_id": str, "price": float | None}}, ["`price`", "float | None"]),
        ({"keys": {"user_id": Optional[str]}}, ["`user_id`"]),  # noqa: UP045
        ({"keys": {"tags": list[str]}}, ["`tags`", "list[str]"]),
        ({"keys": {"plan": Plan}}, ["`plan`", "Plan"]),
        ({"keys": {"span": timedelta}}, ["`span`", "timedelta"]),
        ({"keys": {"user": object}}, ["`keys.user`", "object"]),
        ({"keys": {"user id": str}}, ["`user id`", "named tuple"]),
        ({"keys": {"_user": str}}, ["`_user`", "named tuple"]),
        ({"keys": {"1st": str}}, ["`1st`", "named tuple"]),
        ({"keys": {"class": str}}, ["`class`", "named tuple"]),
        ({"keys": {"pages": int}}, ["two columns named `pages`", "Row"]),
        ({"keys": {"Pages": str}}, ["two columns named", "Row"]),
        ({"event_time": ""}, ["`event_time`", "found ''"]),
        ({"event_time": None}, ["`event_time`", "found None"]),
        ({"order": "random"}, ["`order`", "'arrival', 'event_time', found 'random'"]),
        ({"sequence": "ofset"}, ["`sequence`", "`ofset`", "it has url"]),
        ({"sequence": "url"}, ["`sequence`", "`View.url`", "int"]),
        ({"on_error": []}, ["`on_error`", "'raise', 'reject'", "found []"]),
        ({"watermark_delay": None}, ["`watermark_delay`", "timedelta or text"]),
        ({"watermark_delay": timedelta(microseconds=1_500)}, ["`watermark_delay`", "milliseconds"]),
        ({"timeout": None}, ["`gap` is missing", 'gap="30 minutes"']),
        ({"timeout": 30}, ["`timeout`", "found 30 (int)", "minutes=30"]),
        ({"timeout": NoTimeout()}, ["`timeout`", "EventTimeGap", "found NoTimeout()"]),
        ({"timeout": ProcessingTimeGap("30m")}, ["`timeout`", "EventTimeGap"]),
        ({"gap": EventTimeGap("30m"), "timeout": None}, ["`gap`", "timeout=EventTimeGap("]),
        ({"gap": gap_of, "timeout": None}, ["gap_of", 'max_gap="1 hour"']),
        ({"timeout": EventTimeGap(lambda: HALF_HOUR, max_gap="1h")}, ["`gap`", "gap(event)"]),  # type: ignore[misc,arg-type]
        ({"merge": None}, ["`merge` is missing", 'order="event_time"']),
        ({"inputs": {"nulls": "refuse"}}, ["`inputs`", "{'nulls': 'refuse'}", "Inputs("]),
        ({"lateness": Lateness(late_events="process")}, ["`late_events`", "StatefulSpec"]),
        (
            {"lateness": Lateness(judged_by="session"), "order": "event_time"},
            ['`judged_by="session"`', 'order="event_time"'],
        ),
    ],
)
def test_a_spec_that_cannot_work_is_refused(changes: dict[str, Any], facts: list[str]) -> None:
    """Each mistake is refused when the spec is made: which argument, and what was found."""
    assert says(refusal(spec_of, **changes), *facts)


@pytest.mark.parametrize("column", SESSION_COLUMNS)
def test_a_result_that_hides_a_column_of_the_session_is_refused(column: str) -> None:
    """The library adds columns to every result, which no field may have the name of."""
    row = attrs.make_class("Row", {column: attrs.field(type=str)})
    expected = f"the result would have two columns named `{column}`"
    text = refusal(spec_of, result=row, finish=untyped)
    assert says(text, expected, "rename", "Row")


@pytest.mark.parametrize("role", ["event", "state", "result"])
def test_a_class_that_cannot_be_stored_is_refused(role: str) -> None:
    """All fields that cannot be stored are named, for each of the three classes."""
    with pytest.raises(SpecError) as refused:
        spec_of(**SILENT | TYPED | {role: Unstorable})
    assert "\n  `Unstorable.tags`: set[str] can't be stored; " in str(refused.value)
    assert "\n  `Unstorable.raw`: object can't be stored; " in str(refused.value)


@pytest.mark.parametrize(
    ("role", "arguments"),
    [
        ("create", "key, event"),
        ("update", "state, event"),
        ("merge", "left, right"),
        ("finish", "session, state"),
    ],
)
def test_a_function_of_other_arguments_is_refused(role: str, arguments: str) -> None:
    """Each function is tried against the arguments that it will be given."""
    text = refusal(spec_of, **TYPED, **{role: lambda one: one})
    assert f"`{role}` must take {role}({arguments}), found {__name__}." in text
    assert text.endswith(f"\n\nHint: write `def {role}({arguments}): ...`")


@pytest.mark.parametrize(
    ("role", "rules"),
    [
        ("gap", EventTimeGap(nothing, max_gap="1h")),  # type: ignore[arg-type]
        ("starts_with", SessionRules("1h", starts_with=nothing)),
        ("state_gap", SessionRules("1h", state_gap=nothing)),  # type: ignore[arg-type]
    ],
)
def test_a_function_annotated_to_return_nothing_is_no_rule(role: str, rules: Any) -> None:
    """Its value is the rule; called, it would stop the first micro-batch."""
    found = refusal(spec_of, timeout=rules)
    assert says(found, f"`{role}` (", "nothing", "never returns anything", "let it return a value")


class Frame:
    """What every frame of Spark has, on Connect too."""

    isStreaming = True  # noqa: N815 (Spark's name)


@pytest.mark.parametrize(
    ("found", "wanted", "shown", "hint"),
    [
        (Frame(), SessionSpec, "Frame", "pass the frame first, and the spec after it"),
        (Frame(), StatefulSpec, "Frame", "pass the frame first, and the spec after it"),
        (Visit, SessionSpec, "the class Visit", "make a spec with it: write SessionSpec.of(Visit,"),
        (Visit, StatefulSpec, "the class Visit", "make a spec with it: write StatefulSpec("),
        (Visit(), SessionSpec, "Visit", "write SessionSpec.of(Visit,"),
        (None, StatefulSpec, "NoneType", "write StatefulSpec(process=...,"),
        (summing(), SessionSpec, "StatefulSpec", "call other, which takes a StatefulSpec"),
    ],
)
def test_what_is_no_spec_says_how_to_make_one(
    found: Any, wanted: type[Any], shown: str, hint: str
) -> None:
    """Only a spec of the other kind belongs to the function for that kind."""
    expected = f"`spec` must be a {wanted.__name__}, found {shown}\n\nHint: {hint}"
    assert refusal(check_kind, found, wanted, "other").startswith(expected)


@pytest.mark.parametrize(
    "use",
    [
        lambda: SessionDriver(Visit),  # type: ignore[arg-type]
        lambda: StatefulDriver(Visit),  # type: ignore[arg-type]
        lambda: check_spec(Visit),  # type: ignore[arg-type]
        lambda: check_merge_law(Visit),  # type: ignore[arg-type]
    ],
)
def test_a_class_is_no_spec(use: Any) -> None:
    """A state class is what a spec is made of, for whatever takes a spec."""
    with pytest.raises(SpecError, match=r"found the class Visit\n\nHint: make a spec with it"):
        use()
