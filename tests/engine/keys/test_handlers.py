"""The two ways to take events, what they may return, and the layouts."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum
from typing import Any

import attrs
import pandas as pd
import pyarrow as pa
import pytest

from sessionkit import (
    EventTimeGap,
    KeyState,
    KeyTimes,
    NoTimeout,
    StatefulSpec,
    Storage,
    TimeToLive,
)
from sessionkit.errors import StateError, TimerError
from sessionkit.spec import BatchTimes, BucketResult, by_bucket
from sessionkit.state._codec import codec_of
from sessionkit.testing import StatefulDriver, at, minutes
from tests.support.refusals import says
from tests.support.stateful_specs import (
    Added,
    Amount,
    Driver,
    Sum,
    add,
    adding,
    driver_of,
    failure,
    report,
    summing,
    texts,
)

LAYOUTS: list[Any] = ["buckets", "pages"]


@pytest.mark.parametrize(
    ("expected", "returned"),
    [
        ([], None),
        ([], []),
        ([], iter(())),
        ([Added("a", 1)], Added("a", 1)),
        ([Added("a", 1), Added("b", 2)], [Added("a", 1), Added("b", 2)]),
        ([Added("a", 1), Added("b", 2)], (Added("a", 1), Added("b", 2))),
    ],
)
def test_a_function_returns_a_row_several_or_none(expected: list[Added], returned: Any) -> None:
    """Rows come out in the order in which they were returned."""
    driver = driver_of(summing(lambda key, events, state, times: returned))

    assert expected == adding(driver, "ann", at("09:00"))
    assert (len(expected), 1) == (driver.counts.rows, driver.counts.processed)


@pytest.mark.parametrize("role", ["process", "on_timer"])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        *(
            (wrong, "must return Added, found ")
            for wrong in (5, "row", "", b"", {}, Sum(1), {"what": "a"}, [Added("a", 1), None])
        ),
        (
            Added("a", "1"),  # type: ignore[arg-type]
            "returned a row that does not fit: `Added.total` must be",
        ),
    ],
)
def test_what_is_no_row_is_refused(role: str, wrong: Any, said: str) -> None:
    """The function, the key and what was found are named, whichever function returned it."""

    def process(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> Any:
        times.set_event_timer("due", at("08:00"))
        return wrong if role == "process" else None

    driver = driver_of(summing(process, lambda key, name, state, times: wrong))
    driver.advance_watermark_to(at("08:30"))
    driver.add("ann", at("09:00"), Amount())

    text = failure(driver)

    assert text.startswith(f"`{role}` (")
    assert f"for Key(key='ann'), {said}" in text
    assert "\n\nHint: " in text


def yields_and_returns(key: Any, given: Any, state: Any, times: Any) -> Any:
    """Return a row on one path, and yield it on the other."""
    if key.key == "ann":
        return [Added("a", 1)]
    yield Added("a", 1)
    return None


def test_a_row_that_a_generator_returns_is_not_lost() -> None:
    """Python gives it to nobody, so it's refused; a `return` without a value ends it."""
    driver = driver_of(summing(yields_and_returns))
    assert [Added("a", 1)] == adding(driver, "bob", at("09:00"))
    driver.add("ann", at("09:00"), Amount())

    text = failure(driver)

    assert "`process` is a generator, and returns a list at its end\n\nHint: yield it" in text
    assert "Key(key='ann')" in text


def forgetful(key: Any, given: Any, state: KeyState[Sum], times: KeyTimes) -> Added:
    """Return a row for one key, and forget the others."""
    return Added("a", 1) if key.key == "ann" else None  # type: ignore[return-value]


@pytest.mark.parametrize("role", ["process", "on_timer"])
def test_a_function_that_promises_a_row_and_gives_none_is_told_so(role: str) -> None:
    """A path without `return` would lose rows; with `| None` in the annotation it may."""

    def process(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        times.set_event_timer("due", at("08:00"))

    functions = (forgetful, None) if role == "process" else (process, forgetful)
    driver = driver_of(summing(*functions))
    driver.advance_watermark_to(at("08:30"))
    driver.add("bob", at("09:00"), Amount())

    text = failure(driver)

    assert text.startswith(f"`{role}` (")
    assert "for Key(key='bob'), must return Added, found NoneType\n\nHint: " in text
    assert "`-> Added | None`" in text


@attrs.define
class Checked:
    """An event whose class looks at it."""

    number: int = attrs.field(validator=attrs.validators.ge(0))


def test_an_event_that_its_class_refuses_is_quarantined() -> None:
    """A validator of the event's class is a rule: rows that break it are set aside."""
    driver = driver_of(summing(event=Checked))
    driver.add_row({"key": "ann", "at": at("09:00"), "number": -1})
    driver.add_row({"key": "ann", "at": at("09:00"), "number": 2})
    driver.run_batch()

    (rejected,) = driver.take_rejections("quarantined")
    assert rejected.reason.startswith("Checked refused it: ValueError: ")
    assert [Added("process", 2)] == driver.take_results()
    assert driver.counts.is_balanced


def add_bucket(events: pa.Table, states: pa.Table, times: BatchTimes) -> BucketResult:
    """Add the numbers of every key at once."""
    both = pa.concat_tables(
        [
            events.select(["key", "number"]).rename_columns(["key", "total"]),
            states.select(["key", "total"]),
        ]
    )
    sums = both.group_by("key").aggregate([("total", "sum")]).rename_columns(["key", "total"])
    what = pa.array(["process"] * sums.num_rows)
    return BucketResult(sums, sums.append_column("what", what))


def bucketed(function: Any = add_bucket, **changes: Any) -> StatefulSpec[Any, Any, Any]:
    return summing(by_bucket(function), **changes)


@pytest.mark.parametrize("bucket_count", [1, 2, 64])
@pytest.mark.parametrize("timeout", [NoTimeout(), EventTimeGap("30m"), TimeToLive("1h")])
def test_buckets_fold_as_keys_do(bucket_count: int, timeout: Any) -> None:
    """A function over buckets has the same states, ends and results as one over events."""
    plain, folded = (
        driver_of(
            summing(process, report, timeout=timeout, storage=Storage(bucket_count=bucket_count)),
            at("12:00"),
        )
        for process in (add, by_bucket(add_bucket))
    )
    for driver in (plain, folded):
        for key, minute, number in (("a", 0, 1), ("b", 5, 2), ("a", 9, 3), ("c", 1, 9)):
            driver.add(key, at("09:00") + minutes(minute), Amount(number))
        driver.run_batch()
        driver.advance_processing_time(minutes(40))
        driver.add("b", at("09:20"), Amount(5))
        driver.run_batch()
        # An older event brings no end nearer.
        driver.add("b", at("09:12"), Amount(1))
        driver.run_batch()
        driver.advance_watermark_to(at("09:45"))
        driver.advance_processing_time(minutes(30))
        driver.run_batch()

    assert plain.take_rows() == folded.take_rows()
    assert plain.stored_keys() == folded.stored_keys()
    assert plain.counts == folded.counts


def test_a_bucket_is_given_its_events_in_order_and_the_states_of_their_keys() -> None:
    """Key columns come first; the state of a key without events in this batch is not there."""
    seen: list[tuple[pa.Table, pa.Table, BatchTimes]] = []

    def look(events: pa.Table, states: pa.Table, times: BatchTimes) -> BucketResult:
        seen.append((events, states, times))
        return add_bucket(events, states, times)

    driver = driver_of(bucketed(look, storage=Storage(bucket_count=1)), at("12:00"))
    driver.add("a", at("09:00"), Amount(1))
    driver.add("b", at("09:00"), Amount(2))
    driver.run_batch()
    driver.add("b", at("09:02"), Amount(5))
    driver.add("c", at("09:01"), Amount(4))
    driver.add("b", at("09:01"), Amount(3))
    driver.run_batch()

    events, states, times = seen[1]
    assert ["key", "at", "number"] == events.column_names
    assert [("b", at("09:01"), 3), ("b", at("09:02"), 5), ("c", at("09:01"), 4)] == sorted(
        zip(*(events[name].to_pylist() for name in events.column_names), strict=True)
    )
    by_key = [events["number"].to_pylist()[place] for place in range(3)]
    assert by_key in ([3, 5, 4], [4, 3, 5])
    assert [{"key": "b", "total": 2}] == states.to_pylist()
    assert BatchTimes(at("08:50"), at("12:00")) == times


def test_a_key_that_is_not_returned_is_forgotten() -> None:
    """A key that was handed in and has no row in `states` has no state from now on."""

    def drop(events: pa.Table, states: pa.Table, times: BatchTimes) -> BucketResult:
        if states.num_rows:
            return BucketResult(states.slice(0, 0))
        return add_bucket(events, states, times)

    driver = driver_of(bucketed(drop, storage=Storage(bucket_count=1)))
    adding(driver, "a", at("09:00"), 1)
    adding(driver, "b", at("09:00"), 2)

    assert [] == adding(driver, "a", at("09:01"), 3)
    assert ["b"] == [key.key.key for key in driver.stored_keys()]


def test_columns_of_other_types_are_cast_where_nothing_is_lost() -> None:
    """Numbers of 32 bits, or columns in another order, fit all the same."""

    def narrow(events: pa.Table, states: pa.Table, times: BatchTimes) -> BucketResult:
        found = add_bucket(events, states, times).states
        column = found["total"].cast(pa.int32())
        return BucketResult(pa.table({"total": column, "key": found["key"]}))

    driver = driver_of(bucketed(narrow))
    adding(driver, "a", at("09:00"), 3)

    assert [Sum(3)] == [key.state for key in driver.stored_keys()]


class Level(IntEnum):
    HIGH = 2


@attrs.frozen
class Item:
    sku: str
    size: int | None = None


@attrs.frozen
class Nested:
    """A result with parts inside of others."""

    by_name: dict[str, Item]
    pair: tuple[int, Item]
    rows: list[list[int | None]]
    level: list[Level]
    maybe: Item | None


GOOD: dict[str, Any] = {
    "by_name": [("a", {"sku": "a", "size": 1})],
    "pair": {"_0": 1, "_1": {"sku": "a", "size": 1}},
    "rows": [[1, None], []],
    "level": [2],
    "maybe": None,
}


def nested(row: dict[str, Any]) -> Driver:
    """Return a driver whose function returns a good row, and another one."""
    schema = codec_of(Nested).schema
    rows = pa.Table.from_pylist([GOOD, GOOD, row], schema=schema).slice(1)
    results = rows.add_column(0, "key", pa.array(["a"] * 2))
    fold = lambda events, states, times: BucketResult(None, results)  # noqa: E731
    return driver_of(summing(by_bucket(fold), result=Nested))


def test_what_a_bucket_returns_may_be_nested() -> None:
    """Nulls are good where the type says so."""
    row = {**GOOD, "maybe": {"sku": "b", "size": None}}
    found: list[Any] = adding(nested(row), "a", at("09:00"), 1)

    item = Item("a", 1)
    first = Nested({"a": item}, (1, item), [[1, None], []], [Level.HIGH], None)
    assert [first, attrs.evolve(first, maybe=Item("b"))] == found


@pytest.mark.parametrize(
    ("found", "change"),
    [
        ("has a null in `by_name[].sku`", {"by_name": [("a", {"sku": None, "size": 1})]}),
        ("has a null in `pair[1]`", {"pair": {"_0": 1, "_1": None}}),
        ("has a null in `rows[]`", {"rows": [None]}),
        ("has a value in `level[]` that", {"level": [7]}),
        ("has a null in `maybe.sku`", {"maybe": {"sku": None, "size": 1}}),
    ],
)
def test_a_null_inside_of_what_a_bucket_returns_is_refused(
    found: str, change: dict[str, Any]
) -> None:
    """Its class could never be built with one; the path is named."""
    driver = nested({**GOOD, **change})
    driver.add("a", at("09:00"), Amount())

    text = failure(driver)

    assert f"`results` {found}" in text
    assert "\n\nHint: " in text


def result_of(states: dict[str, Any], results: Any = None) -> Any:
    return lambda events, given, times: BucketResult(
        pa.table(states), None if results is None else pa.table(results)
    )


ONE: dict[str, Any] = {"key": ["a"], "total": [1]}
NO_TOTAL = pa.array([None], pa.int64())
NO_TEXT = pa.array([None], pa.string())


@pytest.mark.parametrize(
    ("fold", "facts"),
    [
        (lambda events, states, times: states, ["must return a BucketResult", "found Table"]),
        (result_of({"key": ["a"]}), ["`states`", "found ['key']", "key, total"]),
        (lambda *given: BucketResult(pd.DataFrame(ONE)), ["`states`", "found DataFrame"]),
        (result_of(ONE, {"what": ["a"], "total": [1]}), ["`results`", "found ['what', 'total']"]),
        (result_of({"key": ["a"], "total": ["much"]}), ["`states`", "does not fit", "int64"]),
        (result_of({"key": ["a"], "total": [1.5]}), ["`states`", "does not fit", "int64"]),
        (result_of({"key": ["a"], "total": NO_TOTAL}), ["`states` has a null in `total`"]),
        (result_of({"key": NO_TEXT, "total": [1]}), ["`states` has a null in `key`"]),
        (
            result_of(ONE, {"key": ["a"], "what": NO_TEXT, "total": [1]}),
            ["`results` has a null in `what`"],
        ),
        (result_of({"key": ["a", "z"], "total": [1, 2]}), ["`states`", "Key(key='z')"]),
        (result_of({"key": ["a", "a"], "total": [1, 2]}), ["`states`", "two rows", "Key(key='a')"]),
    ],
)
@pytest.mark.parametrize("on_error", ["raise", "reject"])
def test_what_a_fold_must_not_return_is_refused(on_error: str, fold: Any, facts: list[str]) -> None:
    """The part, the column or key, and the one thing to change are named; nothing is stored."""
    driver = driver_of(bucketed(fold, on_error=on_error))
    driver.add("a", at("09:00"), Amount())

    if on_error == "raise":
        text = failure(driver)
    else:
        driver.run_batch()
        (rejected,) = driver.take_rejections("failed")
        text = rejected.reason

    assert text.startswith("`process` (")
    assert says(text, "\n\nHint: ", *facts)
    assert [] == driver.stored_keys()


def test_a_fold_that_raises_fails_the_events_of_its_bucket() -> None:
    """Under `on_error="reject"` states stay as they were, and every event of it is counted."""

    def fold(events: pa.Table, states: pa.Table, times: BatchTimes) -> BucketResult:
        if 13 in events["number"].to_pylist():
            raise ValueError
        return add_bucket(events, states, times)

    driver = driver_of(bucketed(fold, on_error="reject", storage=Storage(bucket_count=1)))
    adding(driver, "a", at("09:00"), 1)
    driver.add("a", at("09:01"), Amount(13))
    driver.add("b", at("09:01"), Amount(2))
    driver.run_batch()

    rejected = driver.take_rejections("failed")
    assert ["a", "b"] == sorted(found.key.key for found in rejected)
    assert all("the 1 stored keys and 2 events of a bucket" in found.reason for found in rejected)
    assert [("a", Sum(1))] == [(key.key.key, key.state) for key in driver.stored_keys()]
    assert (2, 1) == (driver.counts.failed, driver.counts.processed)
    assert driver.counts.is_balanced


KEYS: dict[str, tuple[Any, Sequence[Any]]] = {
    "str": (str, ["", "a", "ä\u0000", "🙂"]),
    "int": (int, [0, -(2**63), 2**63 - 1]),
    "bool": (bool, [False, True]),
    "bytes": (bytes, [b"", b"\x00\xff"]),
    "date": (date, [date.min, date(1969, 12, 31), date.max]),
    "datetime": (datetime, [datetime(1, 1, 1, tzinfo=UTC), at("09:00:00.000001")]),
    "decimal": (Decimal, [Decimal(0), Decimal("-1.5"), Decimal("99999999999999999999.5")]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", KEYS)
def test_every_kind_of_key_finds_its_state_again(layout: Any, name: str) -> None:
    """A key comes back equal, in its own type, from every layout."""
    kind, values = KEYS[name]
    spec = summing(keys={"key": kind}, storage=Storage(layout=layout))
    driver = driver_of(spec)
    for _ in range(2):
        for place, value in enumerate(values):
            driver.add(value, at("09:00"), Amount(place + 1))
        driver.run_batch()
        driver = StatefulDriver.restore(spec, driver.snapshot())

    found = driver.stored_keys()
    totals = {value: Sum(2 * (place + 1)) for place, value in enumerate(values)}
    expected = [(value, totals[value]) for value in sorted(totals)]
    assert expected == [(key.key.key, key.state) for key in found]
    assert {kind} == {type(key.key.key) for key in found}


def fold(events: pa.Table, states: pa.Table, times: BatchTimes) -> BucketResult:
    keys = events["key"].unique()
    return BucketResult(pa.table({"key": keys, "total": [1] * len(keys)}))


def test_stored_timers_are_not_left_to_a_fold_that_knows_none() -> None:
    """From events to `by_bucket` is a change of what must not change."""

    def wait(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        times.set_event_timer("due", at("12:00"))

    driver = driver_of(summing(wait, report))
    adding(driver, "ann", at("09:00"))
    again = StatefulDriver.restore(summing(by_bucket(fold)), driver.snapshot())
    again.add("ann", at("09:10"), Amount())

    with pytest.raises(StateError, match="`by_bucket` is True in the spec, False in"):
        again.run_batch()


def test_a_class_that_refuses_what_is_stored_is_named() -> None:
    """A validator that was added later meets states from before."""

    def not_negative(instance: Any, attribute: Any, value: int) -> None:
        if value < 0:
            message = f"{attribute.name} must not be negative"
            raise ValueError(message)

    @attrs.define
    class Sum:  # the same fields, so the same state
        total: int = attrs.field(default=0, validator=not_negative)

    driver = driver_of(summing())
    adding(driver, "ann", at("09:00"), -1)
    again = StatefulDriver.restore(summing(state=Sum), driver.snapshot())
    again.add("ann", at("09:01"), Amount())

    with pytest.raises(StateError) as refused:
        again.run_batch()

    assert (
        "a stored state cannot be read as Sum: ValueError: total must not be negative\n\n"
        "Hint: let the class take what it has taken before, or raise `version`"
    ) == str(refused.value)


def test_a_timer_has_a_name_that_can_be_stored() -> None:
    """A lone surrogate has no bytes in UTF-8."""

    def odd(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        with pytest.raises(TimerError, match="UTF-8 cannot encode it"):
            times.set_event_timer("\ud800", at("12:00"))

    assert [] == adding(driver_of(summing(odd, report)), "ann", at("09:00"))


def test_a_timer_without_end_takes_down_its_own_key_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `on_error="reject"`, where its timers are deleted; else it stops the query."""
    monkeypatch.setattr("sessionkit._engine.keys.timers.MOST_TIMERS", 5)

    def arm(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        times.set_event_timer("due", at("08:00"))

    def again(key: Any, name: str, state: KeyState[Sum], times: KeyTimes) -> Any:
        if key.key == "ann":
            times.set_event_timer(name, at("08:00"))
        return report(key, name, state, times)

    spec = summing(arm, again, storage=Storage(bucket_count=1))
    refusing, driver = driver_of(spec), driver_of(attrs.evolve(spec, on_error="reject"))
    for one in (refusing, driver):
        one.add("ann", at("09:00"), Amount())
        one.add("bob", at("09:00"), Amount())
        one.run_batch()
        one.advance_watermark_to(at("09:10"))
    driver.run_batch()

    assert says(failure(refusing), "5 timers of Key(key='ann')", "\n\nHint: set the next one after")
    assert ["due"] * 6 == texts(driver.take_results())
    (rejection,) = driver.take_rejections("failed_output")
    assert rejection.reason.startswith("5 timers of Key(key='ann') have fired in one micro")
    assert [] == driver.stored_keys()
