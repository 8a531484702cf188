"""
State per key under `order="event_time"`: no call depends on how events and watermark were cut.

Under `order="arrival"`, that holds for the watermark alone. The model of `order="event_time"` is
the naive one of `order="arrival"`, which is given one instant after the other, its
watermark moved to every timer and end between them. Preconditions: no event is late, and functions
don't look at the clocks. Instants are even microseconds, so that an odd watermark lies between two.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import EventTimeGap, StatefulSpec, Storage, TimeToLive
from sessionkit.testing import StatefulDriver
from sessionkit.timeouts._policies import deadlines_of
from tests.support.naive_keys import Arrival, NaiveKeys
from tests.support.orders import (
    EVENT_POLICIES,
    MICRO,
    MILLI,
    NAMES,
    NOON,
    SECOND,
    OnTimer,
    Told,
    spec_of,
)
from tests.support.stateful_specs import unwatched

END = NOON + timedelta(days=1)
SINCE_CREATED = TimeToLive("5 seconds", clock="event_time")
SINCE_UPDATE = TimeToLive("5 seconds", since="last_update", clock="event_time")

names = st.sampled_from(NAMES)
distances = st.integers(-4, 20).map(lambda n: str(n * 500_000)) | st.sampled_from(["-2", "2"])
spans = st.sampled_from(
    [timedelta(0), 2 * MICRO, MILLI - 2 * MICRO, SECOND, 2 * SECOND, 3 * SECOND]
)


def orders(settable: str = NAMES) -> Any:
    """Make a program of a few orders that set only these timers, and look at no clock."""
    parts = [st.sampled_from(["remove", "fail", "touch"]), st.just("add"), st.just("add")]
    parts.append(names.map(lambda name: f"delete {name}"))
    if settable:
        named = st.sampled_from(settable)
        parts.append(st.tuples(st.just("event"), named, st.just("noon"), distances).map(" ".join))
    return st.lists(st.one_of(parts), max_size=3)


@st.composite
def on_timers(draw: st.DrawFn) -> OnTimer:
    """Draw what each timer does when it fires; only those of later names it sets."""
    later = {name: NAMES[place + 1 :] for place, name in enumerate(NAMES)}
    return OnTimer({name: draw(orders(later[name])) for name in NAMES})


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    """Draw events of a few keys, in time order, many at one instant or exactly a gap apart."""
    found, at = [], NOON
    for number in range(draw(st.integers(1, 8))):
        at += draw(spans)
        found.append(Arrival(draw(st.sampled_from("ab")), at, Told(number, draw(orders()))))
    return found


def ordered(timeout: Any, on_timer: OnTimer, **changes: Any) -> StatefulSpec[Any, Any, Any]:
    """Make a spec that takes events in time order, and whose delay makes none late."""
    settings: dict[str, Any] = {"processing_timers": False, "order": "event_time", **changes}
    return attrs.evolve(spec_of(timeout, on_timer, **settings), watermark_delay="2 hours")


def run(
    spec: StatefulSpec[Any, Any, Any], events: Sequence[Arrival], cuts: Sequence[tuple[int, bool]]
) -> Any:
    """Run events in batches of these sizes, each with a restart or none before it; then the end."""
    driver, rest, rows = unwatched(StatefulDriver(spec)), list(events), []
    for size, restarts in cuts:
        batch, rest = rest[:size], rest[size:]
        for arrival in reversed(batch):
            driver.add(*arrival)
        driver.run_batch()
        rows += driver.take_rows()
        if restarts and rest:
            driver = unwatched(StatefulDriver.restore(spec, driver.snapshot()))
        if rest and _before(rest[0].at) > (driver.watermark or NOON - SECOND):
            driver.advance_watermark_to(_before(rest[0].at))
    for arrival in rest:
        driver.add(*arrival)
    driver.run_batch()
    driver.advance_watermark_to(END)
    driver.run_batch()
    in_order = sorted([*rows, *driver.take_rows()], key=lambda row: row.key)
    calls = [(row.key.key, shown(row.result)) for row in in_order]
    assert driver.counts.is_balanced
    assert (0, 0) == (driver.counts.buffered, driver.counts.late)
    stored = {key.key.key: (key.state, dict(key.timers)) for key in driver.stored_keys()}
    return calls, stored, (driver.counts.failed, driver.counts.timers)


def _before(instant: datetime) -> datetime:
    """Return the last whole millisecond before an instant."""
    return instant - MICRO - timedelta(microseconds=(instant - MICRO).microsecond % 1000)


def shown(result: Any) -> tuple[str, list[int], list[str]]:
    """Leave out the clocks, which depend on the cut."""
    return result.what, result.numbers, result.timers


def run_naively(spec: StatefulSpec[Any, Any, Any], events: Sequence[Arrival]) -> Any:
    """Give the model one instant after the other, and let time pass between them."""
    model, rows, failed, timers = NaiveKeys(attrs.evolve(spec, order="arrival")), [], 0, 0
    in_order = sorted(events, key=lambda event: (event.at, event.event.number))
    for at, same in groupby(in_order, key=lambda event: event.at):
        for batch in (*_passing(model, at - MICRO), model.batch([*same], at - MICRO, NOON)):
            rows += batch.rows
            failed, timers = failed + batch.failed, timers + batch.timers
    for batch in _passing(model, END):
        rows += batch.rows
        timers += batch.timers
    calls = sorted(((key, shown(row)) for key, row in rows), key=lambda call: call[0])
    stored = {key: (held.value, held.timers) for key, held in model.keys.items()}
    return calls, stored, (failed, timers)


def _passing(model: NaiveKeys, until: datetime) -> Iterator[Any]:
    """Move the watermark of the model to everything that is due until then, one by one."""
    while due := [at for at in _due(model) if at <= until]:
        yield model.batch([], min(due), NOON)
    yield model.batch([], until, NOON)


def _due(model: NaiveKeys) -> Iterator[datetime]:
    for held in model.keys.values():
        yield from (timer.at + MICRO for timer in held.timers.values())
        for deadline in deadlines_of(model.spec.timeout):
            if deadline.since in held.since:
                yield held.since[deadline.since] + deadline.span


cuts = st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=8)


@pytest.mark.parametrize("layout", ["buckets", "pages"])
@given(data=st.data())
def test_calls_are_those_of_the_model_whatever_the_cut(layout: Any, data: st.DataObject) -> None:
    """Calls, stored keys and counts are those of time passing instant by instant."""
    events, on_timer = data.draw(arrivals()), data.draw(on_timers())
    timeout = data.draw(st.sampled_from(EVENT_POLICIES))
    buckets = data.draw(st.sampled_from([1, 64]))
    spec = ordered(timeout, on_timer, storage=Storage(layout=layout, bucket_count=buckets))

    found = run(spec, events, data.draw(cuts))

    assert run_naively(spec, events) == found


AGES = [SINCE_CREATED, SINCE_UPDATE, SINCE_CREATED | EventTimeGap("9 seconds")]
due = st.sampled_from(range(1, 23)).map(lambda n: f"noon {n * 500_000}")
alarms = st.fixed_dictionaries(dict.fromkeys(NAMES, due)).map(
    lambda armed: [f"event {name} {at}" for name, at in armed.items()]
)
"""Orders that set every timer, from half a second to twice a policy's span later."""


HALF_SECONDS = [
    NOON + n * SECOND / 2 + off for n in range(-8, 30) for off in (-MILLI, timedelta(0), MILLI)
]
"""Instants so close to each other that at most one thing happens between two."""


@pytest.mark.parametrize("layout", ["buckets", "pages"])
@given(data=st.data())
def test_a_jump_of_the_watermark_is_as_many_small_steps(layout: Any, data: st.DataObject) -> None:
    """Timers that fire, ends of keys, and what is stored, also where a timer moves an end."""
    told = [*data.draw(st.sampled_from([[], [], ["add"]])), *data.draw(alarms)]
    does = st.sampled_from([["remove", "add"], ["add"]])
    on_timer = data.draw(st.fixed_dictionaries(dict.fromkeys(NAMES, does)).map(OnTimer))
    timeout = data.draw(st.sampled_from(AGES))
    spec = ordered(timeout, on_timer, order="arrival", storage=Storage(layout=layout))
    found = []
    for instants in ([], HALF_SECONDS):
        driver = unwatched(StatefulDriver(spec))
        driver.add("a", NOON, Told(0, told))
        driver.run_batch()
        for instant in [*instants, END]:
            driver.advance_watermark_to(instant)
            driver.run_batch()
        in_order = sorted(driver.take_rows(), key=lambda row: row.key)
        stored = {key.key.key: (key.state, dict(key.timers)) for key in driver.stored_keys()}
        found.append(([(row.key.key, shown(row.result)) for row in in_order], stored))
    in_a_jump, in_steps = found
    assert in_steps == in_a_jump
