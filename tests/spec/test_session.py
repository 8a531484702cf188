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
    DecimalType,
    EventTimeGap,
    NoTimeout,
    ProcessingTimeGap,
    Session,
    SessionSpec,
    StatefulSpec,
)
from sessionkit._instants import SPELLING, micros_of
from sessionkit.errors import FieldTypeError, SpecError
from sessionkit.spec.shared import SESSION_COLUMNS, check_kind, key_class
from sessionkit.spec.views import session_of
from sessionkit.testing import SessionDriver, StatefulDriver
from sessionkit.testing.strategies import check_merge_law, check_spec
from tests.support.options import evolved, session_spec
from tests.support.stateful_specs import summing
from tests.support.strategies import Plan

HALF_HOUR = timedelta(minutes=30)
KEY_TYPES = "use str, int, bool, bytes, date, datetime, time or Decimal; cast a float to Decimal"


@attrs.define
class View:
    url: str
    seconds: float


@attrs.define
class Visit:
    pages: int = 0


@attrs.frozen
class VisitRow:
    pages: int


@attrs.frozen
class Unstorable:
    """A class with two fields that cannot be stored."""

    tags: set[str]
    raw: object


def create(key: Any, event: View) -> Visit:
    return Visit(1)


def update(state: Visit, event: View) -> Visit:
    return Visit(state.pages + 1)


def merge(left: Visit, right: Visit) -> Visit:
    return Visit(left.pages + right.pages)


def finish(session: Session, state: Visit) -> VisitRow:
    return VisitRow(state.pages)


def silent(first: Any, second: Any) -> Any:
    return first


SILENT: dict[str, Any] = dict.fromkeys(("create", "update", "merge", "finish"), silent)


def gap_of(event: View) -> timedelta:
    return HALF_HOUR


def visits(**changes: Any) -> SessionSpec[View, Visit, VisitRow]:
    """Make a good spec, with some of its settings changed."""
    settings: dict[str, Any] = {
        "keys": {"user_id": str},
        "event_time": "ts",
        "event": View,
        "state": Visit,
        "result": VisitRow,
        "create": create,
        "update": update,
        "merge": merge,
        "finish": finish,
        "timeout": EventTimeGap("30 minutes"),
        "watermark_delay": "10 minutes",
    }
    return session_spec(**{**settings, **changes})


def refusal(**changes: Any) -> str:
    """Return the text with which a spec with these changes is refused."""
    with pytest.raises(SpecError) as refused:
        visits(**changes)
    return str(refused.value)


# ------------------------------------------------------------------------------ what a spec holds


def test_durations_are_read_once() -> None:
    """A spec holds durations as `timedelta`, however they were spelled."""
    spec = visits(watermark_delay="10m", max_future_skew="1h")
    assert timedelta(minutes=10) == spec.watermark_delay
    assert timedelta(hours=1) == spec.inputs.max_future_skew


def test_specs_that_mean_the_same_are_equal() -> None:
    """Two specs are compared by what they mean, not by how they were spelled."""
    assert visits() == visits(watermark_delay=timedelta(minutes=10), timeout=EventTimeGap("30m"))
    assert visits() != visits(bucket_count=65)


def test_a_spec_cannot_be_changed() -> None:
    """A spec is frozen; a changed one is made by `attrs.evolve`, which checks it again."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        visits().order = "event_time"  # type: ignore[misc]
    assert visits(bucket_count=2) == evolved(visits(), bucket_count=2)
    with pytest.raises(SpecError):
        evolved(visits(), bucket_count=0)


def test_a_spec_keeps_no_hold_of_what_it_was_given() -> None:
    """Changing the dict of keys afterwards does not change the spec."""
    keys: dict[str, Any] = {"user_id": str}
    spec = visits(keys=keys)
    keys["other"] = int
    assert {"user_id": str} == spec.keys


@pytest.mark.parametrize("tool", [pickle, cloudpickle])
def test_a_spec_pickles(tool: Any) -> None:
    """A spec travels to the executors, with either pickle, and is equal there."""
    for spec in (
        visits(),
        visits(timeout=EventTimeGap(gap_of, max_gap="1h"), passthrough={"x": int}),
    ):
        assert spec == tool.loads(tool.dumps(spec))


def test_a_spec_with_functions_of_the_moment_pickles() -> None:
    """Lambdas and local classes travel by cloudpickle, as in a notebook."""
    row = attrs.make_class("Row", {"n": attrs.field(type=int)})
    spec = visits(result=row, finish=lambda _, state: row(state.pages))
    # The fields of a spec are compiled when it is made: those caches must not travel along.
    back = cloudpickle.loads(cloudpickle.dumps(spec))  # type: ignore[no-untyped-call]
    assert 3 == back.finish(None, Visit(3)).n


def test_keys_are_typed_in_their_order() -> None:
    """The key columns keep their order, each with its type."""
    spec = visits(
        keys={
            "b": str,
            "a": int,
            "c": bool,
            "d": bytes,
            "e": date,
            "f": datetime,
            "g": Decimal,
            "h": Annotated[Decimal, DecimalType(5, 2)],
        }
    )
    assert ["b", "a", "c", "d", "e", "f", "g", "h"] == [field.name for field in spec.key_fields]
    assert DecimalType(5, 2) == spec.key_fields[-1].type


def test_carried_columns_may_be_null() -> None:
    """A carried column is shown as it came, so it may be null; floats are allowed."""
    spec = visits(passthrough={"offset": int, "payload": bytes, "score": float, "note": str | None})
    assert all(field.type.coerce(None, "passthrough") is None for field in spec.passthrough_fields)
    assert ["offset", "payload", "score", "note"] == [
        field.name for field in spec.passthrough_fields
    ]


@pytest.mark.parametrize(("expected", "delay"), [(600_000, "10m"), (0, "0s"), (1, "1 ms")])
def test_the_delay_is_counted_in_milliseconds(expected: int, delay: str) -> None:
    """The watermark delay may be nothing, and is a whole number of milliseconds."""
    assert expected == visits(watermark_delay=delay).delay_ms


def test_the_largest_and_smallest_settings_are_accepted() -> None:
    """A limit that a refusal names is itself allowed."""
    spec = visits(bucket_count=65_536, watermark_delay="0s", max_buffered_per_key=1)
    assert (65_536, 0, 1) == (
        spec.storage.bucket_count,
        spec.delay_ms,
        spec.inputs.max_buffered_per_key,
    )


def test_a_missing_merge_is_fine_in_event_time_order() -> None:
    """Where events are folded in time order none can bridge two sessions."""
    assert visits(merge=None, order="event_time").functions.merge is None


def test_the_key_is_a_named_tuple() -> None:
    """Functions get the key by name and by position, of one class for equal names."""
    key = key_class(("user_id", "day"))("ann", 3)
    assert ("ann", 3) == (key.user_id, key.day)
    assert key_class(("user_id",)) is key_class(("user_id",))


def test_a_session_is_a_value() -> None:
    """What `finish` is given can be made in a test, compared and not changed."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    one, other = (Session(("ann",), "id", start, start + HALF_HOUR, 2) for _ in range(2))
    assert one == other
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        one.events = 3  # type: ignore[misc]


def test_a_session_of_the_engine_is_the_same_value() -> None:
    """Its times are made when they are read, which nobody can see."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    made = Session(("ann",), "id", start, start + HALF_HOUR, 2)

    def lazy() -> Session[Any]:
        end = start + HALF_HOUR
        return session_of(("ann",), "id", micros_of(start), micros_of(end), 2, "gap")

    assert (made.start, made.end) == (lazy().start, lazy().end)
    assert made == lazy()
    assert hash(made) == hash(lazy())
    assert repr(made) == repr(lazy())
    assert attrs.asdict(made) == attrs.asdict(lazy())
    assert attrs.evolve(made, events=3) == attrs.evolve(lazy(), events=3)
    assert made == copy.copy(lazy()) == copy.deepcopy(lazy())
    assert made == pickle.loads(pickle.dumps(lazy()))  # noqa: S301 (what was just written)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        lazy().start = start  # type: ignore[misc]


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
            {"keys": ["user_id"]},
            "`keys` must be a dict of column names and types, found ['user_id']",
            'write keys={"user_id": str}',
        ),
        (
            {"keys": {1: str}},
            "`keys` must be a dict of column names and types, found {1: <class 'str'>}",
            'write keys={"user_id": str}',
        ),
        (
            {"passthrough": "offset"},
            "`passthrough` must be a dict of column names and types, found 'offset'",
            'write passthrough={"user_id": str}',
        ),
        (
            {"keys": {"price": float}},
            "the key column `price` cannot be a <class 'float'>",
            KEY_TYPES,
        ),
        (
            {"keys": {"user_id": str, "price": float | None}},
            "the key column `price` cannot be a float | None",
            KEY_TYPES,
        ),
        (
            {"keys": {"tags": list[str]}},
            "the key column `tags` cannot be a list[str]",
            KEY_TYPES,
        ),
        (
            {"keys": {"plan": Plan}},
            "the key column `plan` cannot be a <enum 'Plan'>",
            KEY_TYPES,
        ),
        (
            {"keys": {"span": timedelta}},
            "the key column `span` cannot be a <class 'datetime.timedelta'>",
            KEY_TYPES,
        ),
        (
            {"keys": {"user id": str}},
            "the key column `user id` cannot be a field of a named tuple",
            "rename the column, with letters and digits only",
        ),
        (
            {"keys": {"_user": str}},
            "the key column `_user` cannot be a field of a named tuple",
            "rename the column, with letters and digits only",
        ),
        (
            {"keys": {"1st": str}},
            "the key column `1st` cannot be a field of a named tuple",
            "rename the column, with letters and digits only",
        ),
        (
            {"keys": {"pages": int}},
            "the result would have two columns named `pages`",
            "rename the column, or the field of VisitRow",
        ),
        (
            {"event_time": ""},
            "`event_time` must be the name of a column, found ''",
            'write event_time="ts"',
        ),
        (
            {"event_time": None},
            "`event_time` must be the name of a column, found None",
            'write event_time="ts"',
        ),
        (
            {"order": "random"},
            "`order` must be one of 'arrival', 'event_time', found 'random'",
            "the default is 'arrival'",
        ),
        (
            {"judged_by": "session", "order": "event_time"},
            (
                '`judged_by="session"` has no effect with `order="event_time"`, where an event is '
                "late once the watermark has reached it"
            ),
            'leave `judged_by` out, or write order="arrival"',
        ),
        (
            {"judged_by": "never"},
            "`judged_by` must be one of 'event', 'session', found 'never'",
            "the default is 'event'",
        ),
        (
            {"sequence": "ofset"},
            "`sequence` names `ofset`, and View has no such field",
            "it has url, seconds",
        ),
        (
            {"sequence": "seconds"},
            "`sequence` names `View.seconds`, which isn't an int",
            "name an int that no event lacks, such as an offset, a line or an event number",
        ),
        (
            {"nulls": None},
            "`nulls` must be one of 'reject', 'refuse', found None",
            "the default is 'reject'",
        ),
        (
            {"on_error": []},
            "`on_error` must be one of 'raise', 'reject', found []",
            "the default is 'raise'",
        ),
        (
            {"bucket_count": 0},
            "`bucket_count` must be a whole number from 1, found 0",
            "leave it out",
        ),
        (
            {"bucket_count": True},
            "`bucket_count` must be a whole number from 1, found True",
            "leave it out",
        ),
        (
            {"bucket_count": 64.0},
            "`bucket_count` must be a whole number from 1, found 64.0",
            "leave it out",
        ),
        (
            {"bucket_count": 65_537},
            "`bucket_count` must be at most 65,536, found 65,537",
            "leave it out, or see docs/explanation/buckets.md",
        ),
        (
            {"max_buffered_per_key": -1},
            "`max_buffered_per_key` must be a whole number from 1, found -1",
            "leave it out for the default, 100000",
        ),
        (
            {"version": "2"},
            "`version` must be a whole number from 1, found '2'",
            "leave it out for the default, 1",
        ),
        (
            {"watermark_delay": timedelta(microseconds=1_500)},
            "`watermark_delay` must be whole milliseconds, found 0:00:00.001500",
            "Spark's watermark counts in milliseconds: round it",
        ),
        (
            {"timeout": None},
            "`gap` is missing",
            'write gap="30 minutes"',
        ),
        (
            {"timeout": 30},
            "`timeout` must be a timedelta or text, found 30 (int)",
            f"a number has no unit; {SPELLING}, or pass timedelta(minutes=30)",
        ),
        (
            {"late_events": "process"},
            "`late_events` is for a StatefulSpec: a session that is over takes no event",
            'write Lateness(allowed="1 hour") to keep sessions on',
        ),
        (
            {"inputs": {"nulls": "refuse"}},
            "`inputs` must be a Inputs, found {'nulls': 'refuse'}",
            "write inputs=Inputs(...)",
        ),
        (
            {"timeout": NoTimeout()},
            "`timeout` of a session must be an EventTimeGap, found NoTimeout()",
            'write timeout=EventTimeGap("30 minutes")',
        ),
        (
            {"merge": None},
            "`merge` is missing: an event may bridge two open sessions",
            'pass merge=..., or order="event_time", where no event can come between',
        ),
    ],
)
def test_a_spec_that_cannot_work_is_refused(changes: dict[str, Any], found: str, hint: str) -> None:
    """Each mistake is refused when the spec is made, with the one thing to change."""
    assert f"{found}\n\nHint: {hint}" == refusal(**changes)


def test_another_timeout_is_refused() -> None:
    """A session is over in event time, so a gap on the engine's clock is refused."""
    assert "`timeout` of a session must be an EventTimeGap" in refusal(
        timeout=ProcessingTimeGap("30m")
    )


@pytest.mark.parametrize("name", ["watermark_delay", "max_future_skew"])
@pytest.mark.parametrize("value", ["soon", "-1 minute", "1 month", 600])
def test_a_duration_is_refused_under_its_name(name: str, value: object) -> None:
    """Every duration of a spec is read strictly."""
    assert f"`{name}` " == refusal(**{name: value})[: len(name) + 3]


def test_a_missing_delay_is_refused() -> None:
    """There is no delay that fits every stream, so None is none."""
    assert "`watermark_delay` must be a timedelta or text" in refusal(watermark_delay=None)


@pytest.mark.parametrize("column", SESSION_COLUMNS)
def test_a_result_that_hides_a_column_of_the_session_is_refused(column: str) -> None:
    """The library adds columns to every result, which no field may have the name of."""
    row = attrs.make_class("Row", {column: attrs.field(type=str)})
    expected = f"the result would have two columns named `{column}`"
    assert f"{expected}\n\nHint: rename the column, or the field of Row" == refusal(
        result=row, finish=silent
    )


@pytest.mark.parametrize("column", SESSION_COLUMNS)
def test_a_key_that_hides_a_column_of_the_session_is_refused(column: str) -> None:
    """A key column named as one that the library adds would come twice."""
    assert f"two columns named `{column}`" in refusal(keys={column: str})


@pytest.mark.parametrize("role", ["event", "state", "result"])
def test_a_class_that_cannot_be_stored_is_refused(role: str) -> None:
    """All fields that cannot be stored are named, for each of the three classes."""
    with pytest.raises(FieldTypeError) as refused:
        visits(**SILENT, **{role: Unstorable})
    assert "\n  `Unstorable.tags`: set[str] can't be stored; " in str(refused.value)
    assert "\n  `Unstorable.raw`: object can't be stored; " in str(refused.value)


@pytest.mark.parametrize("role", ["event", "state", "result"])
@pytest.mark.parametrize("wrong", ["View", Visit(), dict])
def test_what_is_no_attrs_class_is_refused(role: str, wrong: object) -> None:
    """An object, a name or an undecorated class has no fields to read."""
    with pytest.raises(FieldTypeError):
        visits(**{role: wrong})


@pytest.mark.parametrize("name", ["keys", "passthrough"])
def test_a_column_of_an_unknown_type_is_refused(name: str) -> None:
    """The type of a column is refused under the name of the column."""
    assert f"`{name}.user`: object can't be stored; " in refusal(**{name: {"user": object}})


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
    text = refusal(**{role: lambda one: one})
    assert f"`{role}` must take {role}({arguments}), found {__name__}." in text
    assert text.endswith(f"\n\nHint: write `def {role}({arguments}): ...`")


@pytest.mark.parametrize("role", ["create", "update", "merge", "finish"])
def test_an_async_function_is_refused(role: str) -> None:
    """No function of a spec may be asynchronous."""

    async def later(one: Any, other: object) -> Any:
        return one

    del later.__annotations__["one"]
    assert f"`{role}` must be a plain function, found the async " in refusal(**{role: later})


@pytest.mark.parametrize(
    ("role", "wrong", "expected"),
    [
        ("create", update, "`create` is given"),
        ("update", merge, "`update` is given a View as its event"),
        ("merge", update, "`merge` is given a Visit as its right"),
        ("finish", merge, "`result` is VisitRow, and the annotations name another class: `finish`"),
    ],
)
def test_functions_that_are_mixed_up_are_refused(role: str, wrong: Any, expected: str) -> None:
    """Annotations show that a function stands in the place of another."""
    if role == "create":
        # The key may be annotated with anything: `update` could be meant.
        assert update is visits(create=wrong).functions.create
    else:
        assert expected in refusal(**{role: wrong})


def test_a_gap_function_takes_the_event() -> None:
    """A function that says the gap is tried against the event."""
    timeout = EventTimeGap(lambda: HALF_HOUR, max_gap="1h")  # type: ignore[misc,arg-type]
    assert "`gap` must take gap(event), found " in refusal(timeout=timeout)


def test_a_gap_that_is_a_function_is_declared_in_a_policy() -> None:
    """`SessionSpec` has no `max_gap`, so the hint is the policy that has one."""
    found, _, hint = refusal(gap=lambda event: HALF_HOUR, timeout=None).partition("\n\nHint: ")
    assert "so its longest result must be declared" in found
    assert "<lambda>)" in found
    assert hint == 'write timeout=EventTimeGap(function, max_gap="1 hour")'


def test_a_policy_is_a_timeout_and_no_gap() -> None:
    """What has a gap of its own is passed by another name."""
    text = refusal(gap=EventTimeGap("30m"), timeout=None)
    assert text.startswith("`gap` must be a duration, found EventTimeGap(gap=")
    assert text.endswith("Hint: write timeout=EventTimeGap(...)")


def test_settings_are_named() -> None:
    """A spec is not made by position."""
    with pytest.raises(SpecError, match=r"Hint: name the others, such as keys=\.\.\."):
        SessionSpec({"user_id": str}, "ts")  # type: ignore[call-arg,arg-type]


@pytest.mark.parametrize("keyword", ["class", "from", "None"])
def test_a_key_that_is_a_keyword_is_refused(keyword: str) -> None:
    """A key column that Python cannot name is refused here, not on an executor."""
    assert f"the key column `{keyword}` cannot be" in refusal(keys={keyword: str})


def test_an_optional_key_is_refused() -> None:
    """A null key is quarantined, so a key that may be null contradicts itself."""
    assert "the key column `user_id` cannot be a" in refusal(keys={"user_id": Optional[str]})  # noqa: UP045


def test_a_spec_with_names_that_differ_in_case_only_is_refused() -> None:
    """Spark does not tell `Pages` from `pages`, so the result would have one name twice."""
    assert "two columns named" in refusal(keys={"Pages": str})


# -- what is given in place of a spec ------------------------------------------------------------


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
    with pytest.raises(SpecError) as refused:
        check_kind(found, wanted, "other")

    expected = f"`spec` must be a {wanted.__name__}, found {shown}\n\nHint: {hint}"
    assert str(refused.value).startswith(expected)


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
