"""What is stored can be read back, or is refused where it is made; other rules are told apart."""

from enum import Enum
from typing import Any

import attrs
import pyarrow as pa
import pytest

from examples.visits import visits
from sessionkit import (
    BatchTimes,
    BucketResult,
    KeyState,
    KeyTimes,
    SpecError,
    StateMismatchError,
    Storage,
    TimerError,
    by_bucket,
    by_processing_time,
)
from sessionkit.testing import SessionDriver, StatefulDriver, at
from tests.support.stateful_specs import (
    Amount,
    Sum,
    adding,
    driver_of,
    failure,
    report,
    summing,
    texts,
)


class Mood(Enum):
    """A state that is one of two."""

    GOOD = "good"
    BAD = "bad"


@attrs.define
class Moody:
    """A state with a field that not every text fits."""

    mood: Mood


def fold(events: pa.Table, states: pa.Table, times: BatchTimes) -> BucketResult:
    keys = events["key"].unique()
    return BucketResult(pa.table({"key": keys, "total": [1] * len(keys)}))


def test_a_fold_must_not_return_what_is_no_member_of_an_enum() -> None:
    """Stored, it would stop the query forever where it is read."""

    def sulk(events: pa.Table, states: pa.Table, times: BatchTimes) -> BucketResult:
        return BucketResult(pa.table({"key": ["ann"], "mood": ["sulky"]}))

    driver = driver_of(summing(by_bucket(sulk), state=Moody))
    driver.add("ann", at("09:00"), Amount())

    text = failure(driver)

    assert "`states` has a value in `mood` that cannot be read back" in text
    assert text.endswith("an Enum takes the values of its members, a time the years 1 to 9999")


def test_stored_timers_are_not_left_to_a_fold_that_knows_none() -> None:
    """From events to `by_bucket` is a change of what must not change."""

    def wait(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        times.set_event_timer("due", at("12:00"))

    driver = driver_of(summing(wait, report))
    adding(driver, "ann", at("09:00"))
    again = StatefulDriver.restore(summing(by_bucket(fold)), driver.snapshot())
    again.add("ann", at("09:10"), Amount())

    with pytest.raises(StateMismatchError, match="`by_bucket` is True in the spec, False in"):
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

    with pytest.raises(StateMismatchError) as refused:
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


def test_a_timer_without_end_takes_down_its_own_key_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under `on_error="reject"` its timers are deleted, and the reason is handed out."""
    monkeypatch.setattr("sessionkit._engine.keys.timers.MOST_TIMERS", 5)

    def arm(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        times.set_event_timer("due", at("08:00"))

    def again(key: Any, name: str, state: KeyState[Sum], times: KeyTimes) -> Any:
        if key.key == "ann":
            times.set_event_timer(name, at("08:00"))
        return report(key, name, state, times)

    driver = driver_of(summing(arm, again, on_error="reject", storage=Storage(bucket_count=1)))
    driver.add("ann", at("09:00"), Amount())
    driver.add("bob", at("09:00"), Amount())
    driver.run_batch()
    driver.advance_watermark_to(at("09:10"))
    driver.run_batch()

    assert ["due"] * 6 == texts(driver.take_results())
    (rejection,) = driver.take_rejections("failed_output")
    assert rejection.reason.startswith("5 timers of Key(key='ann') have gone off in one micro")
    assert [] == driver.stored_keys()


def test_a_fold_of_buckets_has_no_processing_timers() -> None:
    """It can set none, and the query would never rest for them."""
    found = "by_processing_time(...) is for timers, and by_bucket(...) cannot set one"

    with pytest.raises(SpecError) as refused:
        summing(by_bucket(fold), by_processing_time(report))

    hint = "leave `on_timer` without it, or pass a function over the events of one key"
    assert f"{found}\n\nHint: {hint}" == str(refused.value)


def test_a_driver_takes_its_own_kind_of_spec() -> None:
    """The other driver is named."""
    other: Any = visits
    with pytest.raises(SpecError, match="`spec` must be a StatefulSpec, found SessionSpec\n\nHint"):
        StatefulDriver(other)
    stateful: Any = summing()

    with pytest.raises(SpecError, match="`spec` must be a SessionSpec, found StatefulSpec\n\nHint"):
        SessionDriver(stateful)
