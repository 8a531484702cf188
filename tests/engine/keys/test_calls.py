"""`KeyState`: what `get` gives, what `set` takes and refuses, and what is stored behind a call."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import attrs
import numpy as np
import pytest

from sessionkit import KeyState, KeyTimes, StatefulSpec, Storage
from sessionkit.testing import at, minutes
from tests.support.stateful_specs import (
    Added,
    Amount,
    Sum,
    adding,
    driver_of,
    failure,
    summing,
    unwatched,
)

LAYOUTS = ["buckets", "pages"]


def calling(act: Callable[..., Any], **changes: Any) -> StatefulSpec[Any, Any, Any]:
    """Make a spec whose `process` does this with the state."""
    return summing(lambda key, events, state, times: act(state), **changes)


def stored(spec: StatefulSpec[Any, Any, Any]) -> Any:
    """Return the state behind one event, None where there is none."""
    driver = driver_of(spec)
    adding(driver, "ann", at("09:00"))
    return next((key.state for key in driver.stored_keys()), None)


def refusal_of_set(value: object, cls: type[Any] = Sum) -> str:
    """Return the text with which `state.set` refuses a value."""
    driver = driver_of(calling(lambda state: state.set(value), state=cls))
    driver.add("ann", at("09:00"), Amount())
    text = failure(driver)
    assert [] == driver.stored_keys()
    return text.partition("\n\nRaised in ")[0]


def test_a_state_that_is_missing_is_an_error() -> None:
    """Without a default `get` says that there is no state, of which key, and what to do."""
    driver = driver_of(calling(lambda state: state.get()))
    driver.add("ann", at("09:00"), Amount())

    text = failure(driver)

    assert text.startswith(
        "`state.get()`: no state is stored for Key(key='ann')\n\n"
        "Hint: ask `state.exists` first, or pass what to start with: state.get(default)"
    )


@pytest.mark.parametrize(
    ("value", "found", "hint"),
    [
        (Amount(), "Amount", "build one"),
        # What a subclass adds would be lost.
        (type("SumAndMore", (Sum,), {})(1), "SumAndMore", "build one"),
        (None, "NoneType", "to drop the state call state.remove()"),
    ],
)
def test_a_state_is_of_its_own_class(value: Any, found: str, hint: str) -> None:
    """Another class is refused, with both names; None isn't how a state is dropped."""
    expected = f"`state.set(...)` must be given a Sum, found {found}\n\nHint: {hint}"
    assert expected == refusal_of_set(value)


@attrs.define
class Part:
    number: int = 0


@attrs.define
class Wide:
    """A state with fields that can be got wrong at several depths."""

    whole: int = 0
    real: float = 0.0
    flag: bool = False
    maybe: int | None = None
    many: list[int] = attrs.field(factory=list)
    named: dict[str, Part] = attrs.field(factory=dict)


@pytest.mark.parametrize(
    ("found", "change"),
    [
        ("`Wide.whole` must be an int, found NoneType", {"whole": None}),
        ("`Wide.maybe` must be an int, found str", {"maybe": ""}),
        ("`Wide.many[1]` must be an int, found str", {"many": [1, "2"]}),
        ("`Wide.named['a']` must be a Part, found int", {"named": {"a": 1}}),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(
    found: str, change: dict[str, Any]
) -> None:
    """No value of another type is stored, and none becomes a null: `set` refuses it by its path."""
    text = refusal_of_set(Wide(**change), Wide)

    assert text.startswith(found)
    assert "\n\nHint: " in text


@pytest.mark.parametrize("layout", LAYOUTS)
def test_scalars_of_numpy_are_stored_as_the_values_that_they_are(layout: Any) -> None:
    """What came out of an array may be set: it is read as the field's own type."""
    numbers = {"whole": np.int64(3), "maybe": np.int8(4)}
    values: dict[str, Any] = {**numbers, "real": np.float64(2.5), "flag": np.True_}

    found = stored(
        calling(lambda state: state.set(Wide(**values)), state=Wide, storage=Storage(layout=layout))
    )

    assert Wide(whole=3, real=2.5, flag=True, maybe=4) == found
    assert [int, int, float, bool] == [type(getattr(found, name)) for name in values]


@attrs.define
class Numbers:
    """A state with a list, which is easily changed in place."""

    numbers: list[int] = attrs.field(factory=list)


def keep(key: Any, events: list[Amount], state: KeyState[Numbers], times: KeyTimes) -> None:
    """Set the numbers, or, for 13, change them in place only."""
    held = state.get(Numbers())
    held.numbers += [event.number for event in events]
    if events[-1].number != 13:
        state.set(held)


def spoil(key: Any, name: str, state: KeyState[Numbers], times: KeyTimes) -> Added:
    """Report the numbers, then change them in place."""
    numbers = state.get().numbers
    found = Added(f"{name} {numbers}", len(numbers))
    numbers.append(99)
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batches", [[1, 13], [1]], ids=["stored before", "set just now"])
def test_a_timer_does_not_see_what_was_not_set(layout: Any, batches: list[int]) -> None:
    """Each is given the state as it was set, not the object that a call before it has changed."""

    def act(key: Any, events: list[Amount], state: KeyState[Numbers], times: KeyTimes) -> None:
        keep(key, events, state, times)
        if len(batches) == 1 or events[-1].number == 13:
            times.set_event_timer("one", at("08:00"))
            times.set_event_timer("two", at("08:30"))

    driver = unwatched(
        driver_of(summing(act, spoil, state=Numbers, storage=Storage(layout=layout)))
    )
    driver.advance_watermark_to(at("09:00"))
    for minute, number in enumerate(batches):
        rows = adding(driver, "ann", at("09:30") + minutes(minute), number)

    assert [Added("one [1]", 1), Added("two [1]", 1)] == rows
    assert [Numbers([1])] == [key.state for key in driver.stored_keys()]


def test_what_is_set_is_stored_as_it_is_when_the_call_returns() -> None:
    """A change behind `set`, within the same call, is stored."""

    def act(state: KeyState[Numbers]) -> None:
        held = Numbers([1])
        state.set(held)
        held.numbers.append(2)

    assert Numbers([1, 2]) == stored(calling(act, state=Numbers))


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("arrival", [("10:00", "10:05", "10:05"), ()]),
        ("event_time", [("10:00",), ("10:05", "10:05"), ()]),
    ],
)
def test_a_call_is_told_the_times_of_its_events(
    order: str, expected: list[tuple[str, ...]]
) -> None:
    """They stand in the order of the events; a timer has none."""
    told: list[tuple[datetime, ...]] = []

    def process(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        assert len(events) == len(times.event_times)
        told.append(times.event_times)
        times.set_event_timer("later", at("10:30"))

    def on_timer(key: Any, name: str, state: KeyState[Sum], times: KeyTimes) -> None:
        told.append(times.event_times)

    driver = driver_of(summing(process, on_timer, order=order))
    for time in ("10:05", "10:00", "10:05"):
        driver.add("a", at(time), Amount())
    driver.run_batch()
    driver.advance_watermark_to(at("11:00"))
    driver.run_batch()

    assert [tuple(map(at, times)) for times in expected] == told


def test_without_an_event_time_there_are_none() -> None:
    """Events then come in the order of their content."""
    told: list[tuple[datetime, ...]] = []

    def process(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        told.append(times.event_times)

    adding(driver_of(summing(process, event_time=None, watermark_delay=None)), "a", None)

    assert [()] == told
