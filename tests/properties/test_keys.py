"""
State per key against a dict and a loop: random programs, clocks, cuts and restarts.

Precondition: `on_timer` sets no timer in the past that could set the first one in the past again,
since such a chain has no end.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import Lateness, ProcessingTimeGap, StatefulSpec, Storage, TimeToLive
from sessionkit.testing import StatefulDriver
from tests.support.naive_keys import Arrival, NaiveBatch, NaiveKeys
from tests.support.orders import (
    EVENT_POLICIES,
    GAP,
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


@attrs.frozen
class Step:
    """One micro-batch: what arrives, and by how much the clocks move before it."""

    arrivals: list[Arrival]
    watermark: timedelta
    processing_time: timedelta
    restart: bool = False


spans = st.sampled_from(
    [timedelta(0), MICRO, MILLI - MICRO, MILLI, SECOND - MICRO, SECOND, 3 * SECOND, 10 * SECOND]
)
steps_back = st.sampled_from([timedelta(0), timedelta(0), SECOND])
steps_of_clocks = st.sampled_from([timedelta(0), MILLI, SECOND - MILLI, SECOND, 4 * SECOND])
micros = st.integers(-5, 12).map(lambda n: str(n * 500_000)) | st.sampled_from(["-1", "1", "999"])
ahead = st.integers(0, 12).map(lambda n: str(n * 500_000)) | st.sampled_from(["1", "999", "1000"])
names = st.sampled_from(NAMES)
bases = st.sampled_from(["clock", "noon"])


@cache
def orders(*, at_once: str = NAMES, timers: bool = True) -> Any:
    """
    Make a program of a few orders.

    Args:
        at_once: The names of the timers that may be set in the past.
        timers: Whether there are timers at all.
    """
    parts = [st.sampled_from(["remove", "fail", "touch"]), st.just("add"), st.just("add")]
    if timers:
        parts.append(names.map(lambda name: f"delete {name}"))
        parts += [setting(names, st.just("clock"), ahead)]
        parts += [setting(st.sampled_from(at_once), bases, micros)] if at_once else []
    return st.lists(st.one_of(parts), max_size=3)


def setting(named: Any, base: Any, distance: Any) -> Any:
    """Make an order to set a timer so far from an instant."""
    verbs = st.sampled_from(["event", "processing"])
    return st.tuples(verbs, named, base, distance).map(" ".join)


@st.composite
def scripts(draw: st.DrawFn, *, timers: bool = True) -> list[Step]:
    """Draw micro-batches: a few events each, clocks that move or stand, restarts."""
    found, at, number = [], NOON, 0
    for _ in range(draw(st.integers(1, 7))):
        arrivals = []
        for _ in range(draw(st.integers(0, 4))):
            at += draw(spans) - draw(steps_back)
            number += 1
            told = Told(number, draw(orders(timers=timers)))
            arrivals.append(Arrival(draw(st.sampled_from("abc")), at, told))
        clocks = draw(steps_of_clocks), draw(steps_of_clocks)
        found.append(Step(arrivals, *clocks, draw(st.booleans())))
    return found


@st.composite
def on_timers(draw: st.DrawFn) -> OnTimer:
    """Draw what each timer does when it fires; only those of later names it sets in the past."""
    later = {name: NAMES[place + 1 :] for place, name in enumerate(NAMES)}
    return OnTimer({name: draw(orders(at_once=later[name])) for name in NAMES})


POLICIES = [
    *EVENT_POLICIES,
    TimeToLive("4 seconds"),
    TimeToLive("4 seconds", since="last_update"),
    ProcessingTimeGap("2 seconds"),
    GAP | ProcessingTimeGap("2 seconds"),
    TimeToLive("4 seconds") | GAP | ProcessingTimeGap("2 seconds"),
]


def run(
    spec: StatefulSpec[Any, Any, Any], script: Sequence[Step], *, shuffled: bool = False
) -> Any:
    """Run a script through the driver; return what each batch did, and what is stored."""
    driver, done = unwatched(StatefulDriver(spec, processing_time=NOON)), []
    for step in script:
        for arrival in reversed(step.arrivals) if shuffled else step.arrivals:
            driver.add(*arrival)
        if step.restart:
            driver = unwatched(StatefulDriver.restore(spec, driver.snapshot()))
        move(driver, step)
        result = driver.run_batch()
        rows = sorted(driver.take_rows(), key=lambda row: row.key)
        counts = result.counts
        numbers = (counts.late, counts.failed, counts.timers, counts.failed_output)
        done.append((result.batch_id, [(row.key.key, row.result) for row in rows], numbers))
        assert counts.is_balanced
    stored = {key.key.key: (key.state, dict(key.timers)) for key in driver.stored_keys()}
    return done, stored


def move(driver: StatefulDriver[Any, Any, Any], step: Step) -> None:
    if driver.watermark is not None:
        driver.advance_watermark_to(driver.watermark + step.watermark)
    driver.advance_processing_time(step.processing_time)


def run_naively(
    spec: StatefulSpec[Any, Any, Any], script: Sequence[Step], ran: Sequence[bool]
) -> Any:
    """
    Run a script through the model, under the watermarks that Spark would have.

    Spark runs a batch without data only where it has a reason: `ran` tells which it ran.
    """
    model, done = NaiveKeys(spec), []
    now, watermark = NOON, None
    for step, has_run in zip(script, ran, strict=True):
        now += step.processing_time
        if watermark is not None:
            watermark += step.watermark
        assert has_run or not step.arrivals
        batch = model.batch(step.arrivals, watermark, now) if has_run else NaiveBatch()
        rows = sorted(batch.rows, key=lambda row: row[0])
        done.append((rows, (batch.late, batch.failed, batch.timers, batch.failed_output)))
        latest = max([arrival.at for arrival in step.arrivals], default=None)
        if latest is not None:
            reached = latest - timedelta(microseconds=latest.microsecond % 1000) - SECOND
            watermark = max(reached, watermark or reached)
    stored = {key: (held.value, held.timers) for key, held in model.keys.items()}
    return done, stored


@st.composite
def cases(draw: st.DrawFn, *, timers: bool = True) -> tuple[Any, OnTimer, Any]:
    """Draw policy and functions, and what becomes of late events."""
    timeout = draw(st.sampled_from(POLICIES))
    late = draw(st.sampled_from(["reject", "process"]))
    programs = on_timers() if timers else st.just(OnTimer({}))
    return timeout, draw(programs), late


bucket_counts = st.sampled_from([1, 2, 64])


@pytest.mark.parametrize("layout", ["buckets", "pages"])
@pytest.mark.parametrize("by_watermark", [False, True])
@given(data=st.data())
def test_every_batch_is_that_of_the_model(
    by_watermark: bool, layout: Any, data: st.DataObject
) -> None:
    """Rows, counts and stored keys; also where Spark wakes groups by the watermark only."""
    timeout, on_timer, late = data.draw(cases())
    options: dict[str, Any] = {"lateness": Lateness(late_events=late)}
    if by_watermark:
        # Spark drops the rows behind it.
        timeout, options = data.draw(st.sampled_from(EVENT_POLICIES)), {"processing_timers": False}
    storage = Storage(layout=layout, bucket_count=data.draw(bucket_counts))
    spec = spec_of(timeout, on_timer, storage=storage, **options)
    script = data.draw(scripts())

    done, stored = run(spec, script, shuffled=data.draw(st.booleans()))

    expected, expected_stored = run_naively(
        spec, script, [batch_id is not None for batch_id, *_ in done]
    )
    assert expected == [(rows, numbers) for _, rows, numbers in done]
    assert expected_stored == stored


@given(data=st.data())
def test_rows_are_the_same_with_and_without_batches_that_have_no_data(data: st.DataObject) -> None:
    """Without named timers the rows of a key are the same whether one slipped in or not."""
    timeout, on_timer, late = data.draw(cases(timers=False))
    script = data.draw(scripts(timers=False))
    layout: Any = data.draw(st.sampled_from(["buckets", "pages"]))
    spec = spec_of(
        timeout, on_timer, lateness=Lateness(late_events=late), storage=Storage(layout=layout)
    )
    slipped = [part for step in script for part in with_batch_before(step)]

    done, stored = run(spec, script)

    slipped_done, slipped_stored = run(spec, slipped)
    assert without_clocks(done) == without_clocks(slipped_done)
    assert stored == slipped_stored


def with_batch_before(step: Step) -> list[Step]:
    """Run the clocks of a step forward in a batch of their own."""
    still = timedelta(0)
    return [
        attrs.evolve(step, arrivals=[]),
        attrs.evolve(step, watermark=still, processing_time=still),
    ]


def without_clocks(done: Sequence[tuple[Any, ...]]) -> dict[str, list[tuple[str, list[int]]]]:
    heard: dict[str, list[tuple[str, list[int]]]] = {}
    for _, rows, _ in done:
        for key, row in rows:
            heard.setdefault(key, []).append((row.what, row.numbers))
    return heard
