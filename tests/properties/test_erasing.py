"""
A key that is erased is a key that never was, whatever is stored of keys.

The reference is a query in which the events of before the erasure belong to another key.
"""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import (
    Functions,
    Inputs,
    KeyState,
    KeyTimes,
    Lateness,
    Memory,
    Results,
    SessionRules,
    SessionSpec,
    StatefulSpec,
    Storage,
)
from sessionkit.testing import SessionDriver, StatefulDriver

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ERASED, BEFORE = "erased-key", "another-key"
SHARED: dict[str, Any] = {"keys": {"key": str}, "event_time": "at", "watermark_delay": SECOND}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"order": "event_time"},
    {"inputs": Inputs(drop_duplicates_for="20 seconds", event_id=["value"])},
    {"lateness": Lateness(allowed="20 seconds")},
    {"results": Results(emit="on_update"), "lateness": Lateness(reopen_within="20 seconds")},
    {"memory": Memory(time_to_live="1 day")},
    {
        "results": Results(with_events=True),
        "order": "event_time",
        "timeout": SessionRules("4 seconds", max_events=3),
    },
]
LAYOUTS: list[dict[str, Any]] = [
    {"storage": Storage(layout="buckets", bucket_count=2)},
    {"storage": Storage(layout="pages")},
]


@attrs.frozen
class Number:
    value: int


@attrs.define
class Numbers:
    values: list[int] = attrs.field(factory=list)


def update(state: Numbers, event: Number) -> Numbers:
    if event.value % 7 == 3:
        raise ValueError
    return Numbers([*state.values, event.value])


def merge(left: Numbers, right: Numbers) -> Numbers:
    return Numbers(left.values + right.values)


def process(
    key: Any, events: list[Number], state: KeyState[Numbers], times: KeyTimes
) -> list[Numbers]:
    found = Numbers([*state.get(Numbers([])).values, *(event.value for event in events)])
    state.set(found)
    times.set_event_timer("tell", times.event_times[-1] + 4 * SECOND)
    return [found]


def on_timer(key: Any, name: str, state: KeyState[Numbers], times: KeyTimes) -> Numbers:
    return state.get(Numbers([]))


def sessions(options: dict[str, Any]) -> SessionDriver[Any, Any, Any]:
    words: dict[str, Any] = {"timeout": SessionRules("4 seconds"), "on_error": "reject", **options}
    logic: Any = Functions(update=update, merge=merge)
    return SessionDriver(SessionSpec(logic=logic, **SHARED, **words))


def keys(options: dict[str, Any]) -> StatefulDriver[Any, Any, Any]:
    words = {**SHARED, "timeout": "9 seconds", **options}
    spec = StatefulSpec(process=process, on_timer=on_timer, **words)
    return StatefulDriver(spec)


MAKERS: list[Any] = [
    partial(make, {**layout, **options})
    for make, all_options, layouts in ((sessions, OPTIONS, LAYOUTS), (keys, OPTIONS[:2], LAYOUTS))
    for options in all_options
    for layout in layouts
]


@st.composite
def batches(draw: st.DrawFn) -> list[list[tuple[str, int, int]]]:
    """Draw micro-batches of events: key, second and number. Some events come late."""
    names, steps = st.sampled_from([ERASED, ERASED, "b"]), st.integers(-6, 5)
    found, at = list[list[tuple[str, int, int]]](), 10
    for _ in range(draw(st.integers(2, 5))):
        found.append([])
        for _ in range(draw(st.integers(0, 4))):
            at = max(at + draw(steps), 0)
            found[-1].append((draw(names), at, draw(st.integers(0, 9))))
    return found


def run(driver: Any, cut: Any, place: int, renamed: dict[str, str]) -> list[Any]:
    """Run micro-batches, with an erasure before one if none is renamed; return what came then."""
    for number, batch in enumerate(cut):
        if number == place:
            driver.take_rows(), driver.take_rejections()
            if not renamed:
                driver.erase(ERASED)
            renamed = {}
        for key, second, value in batch:
            row = {"key": renamed.get(key, key), "at": NOON + second * SECOND, "value": value}
            driver.add_row(row)
        driver.run_batch()
    driver.add_row({"key": "z", "at": NOON + timedelta(hours=1), "value": 0})
    driver.run_batch()
    driver.run_until_idle()
    assert driver.counts.is_balanced
    rest = [one for one in driver.take_rejections() if one.kind != "erased"]
    found = [*driver.take_rows(), *sorted(rest, key=repr)]
    return [one for one in found if one.key.key != BEFORE]


@pytest.mark.filterwarnings("ignore:late in the first micro-batch")
@given(st.sampled_from(MAKERS), batches(), st.data())
def test_an_erased_key_begins_anew_and_no_other_changes(
    make: Any, cut: Any, data: st.DataObject
) -> None:
    """Row for row, in both kinds of spec, with everything that is stored next to open sessions."""
    place = data.draw(st.integers(0, len(cut) - 1))

    found = run(make(), cut, place, {})

    assert run(make(), cut, place, {ERASED: BEFORE}) == found


@given(st.sampled_from(MAKERS), batches())
def test_no_byte_of_an_erased_key_is_stored(make: Any, cut: Any) -> None:
    """It was there before, unless it had no event that is remembered."""
    driver = make()
    for batch in cut:
        for key, second, value in batch:
            driver.add_row({"key": key, "at": NOON + second * SECOND, "value": value})
        driver.run_batch()
    before = ERASED in repr(driver.snapshot().groups)
    counts = driver.counts

    driver.erase(ERASED)
    driver.run_batch()

    after = driver.counts
    dropped = after.erased_states + after.erased_events
    assert before == (dropped > 0)
    assert (counts.erasures + 1, counts.events) == (after.erasures, after.events)
    assert ERASED not in repr(driver.snapshot().groups)
