"""
The engine against a sessioniser that sorts and scans.

Precondition of every property here but those on late events: each event is strictly ahead of the
watermark in force when it arrives. Then order, cuts into batches and buckets must not show.
"""

from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import EventTimeGap, Inputs, Lateness, Results, SessionSpec
from sessionkit.testing import SessionDriver
from tests.support.naive_sessions import Event, Found, naive_sessions
from tests.support.session_specs import Reading, collecting, in_order
from tests.support.timelines import GAP, MICRO, MILLI, NOON, STORAGES, batches, timelines

LONGEST = timedelta(seconds=25)

FIXED = EventTimeGap(GAP)
OWN = EventTimeGap(lambda event: event.gap, max_gap=LONGEST)
GAPS = st.sampled_from([MICRO, MILLI, GAP / 2, GAP, 2 * GAP, LONGEST])


def run(
    spec: SessionSpec[Any, Any, Any], cut: Sequence[Sequence[Event]], *, restart: bool = False
) -> tuple[list[Found], list[Found]]:
    """Run a cut through the driver; return the sessions that closed, and those still open."""
    driver = SessionDriver(spec)
    closed = []
    for batch in cut:
        for event in batch:
            driver.add(event.key, event.at, Reading(event.value, event.gap))
        driver.run_batch()
        closed += driver.take_rows()
        if restart:
            driver = SessionDriver.restore(spec, driver.snapshot())
    assert not driver.take_rejections()
    opened = driver.open_sessions()
    return (
        [Found(s.key.key, s.session_start, s.session_end, tuple(s.result.values)) for s in closed],
        [Found(s.key.key, s.session_start, s.session_end, tuple(s.state.values)) for s in opened],
    )


def in_value_order(found: Sequence[Found]) -> list[Found]:
    """Sort values: functions that keep the merge law do not show the order of equal times."""
    return sorted(session._replace(values=tuple(sorted(session.values))) for session in found)


@pytest.mark.parametrize(("timeout", "gaps"), [(FIXED, None), (OWN, GAPS)], ids=["fixed", "own"])
@pytest.mark.parametrize("judged_by", ["event", "session"])
@given(data=st.data())
def test_sessions_are_the_same_for_any_order_cut_and_bucket_count(
    judged_by: Any, timeout: EventTimeGap, gaps: Any, data: st.DataObject
) -> None:
    """Closed and open sessions together are those of the naive model, whatever the cut."""
    events = data.draw(timelines(gaps=gaps))
    delay = data.draw(st.sampled_from([timedelta(0), GAP, 6 * GAP]))
    cut = data.draw(batches(events, delay))
    spec = collecting(
        timeout,
        watermark_delay=delay,
        lateness=Lateness(judged_by=judged_by),
        **data.draw(STORAGES),
    )

    closed, opened = run(spec, cut, restart=data.draw(st.booleans()))

    assert in_value_order(naive_sessions(events)) == in_value_order([*closed, *opened])


def test_thousands_of_events_at_once_give_the_sessions_of_the_model() -> None:
    """Exact gaps and doubled instants are among them."""
    random = Random(11)
    events = [
        Event(f"k{random.randrange(100)}", NOON + random.randrange(2_000) * GAP / 10, value, GAP)
        for value in range(5_000)
    ]

    closed, opened = run(collecting(FIXED), [events])

    assert in_value_order(naive_sessions(events)) == in_value_order([*closed, *opened])


@given(data=st.data())
def test_functions_that_depend_on_order_see_time_order(data: st.DataObject) -> None:
    """Under `order="event_time"` even a fold that lists its events in order equals the model."""
    events = data.draw(timelines())
    delay = data.draw(st.sampled_from([timedelta(0), GAP, 6 * GAP]))
    cut = data.draw(batches(events, delay))
    spec = in_order(FIXED, watermark_delay=delay, **data.draw(STORAGES))

    closed, opened = run(spec, cut, restart=data.draw(st.booleans()))

    assert sorted(naive_sessions(events)) == sorted([*closed, *opened])


@given(data=st.data())
def test_ids_are_equal_for_every_cut(data: st.DataObject) -> None:
    """A session has the same id however its events came, and no two of a run share one."""
    events = data.draw(timelines())
    spec = collecting(FIXED, watermark_delay=6 * GAP)
    cut = data.draw(batches(events, 6 * GAP))

    one, other = ids_of(spec, [events]), ids_of(spec, cut)

    assert one == other
    assert len(one) == len(set(one))


def ids_of(spec: SessionSpec[Any, Any, Any], cut: Sequence[Sequence[Event]]) -> list[str]:
    """Return the ids of all sessions once the watermark has passed everything."""
    driver = SessionDriver(spec)
    for batch in cut:
        for event in batch:
            driver.add(event.key, event.at, Reading(event.value, event.gap))
        driver.run_batch()
    driver.advance_watermark_to(NOON + timedelta(days=1))
    driver.run_batch()
    assert driver.open_sessions() == []
    return sorted(session.session_id for session in driver.take_rows())


@given(data=st.data())
def test_late_events_are_exactly_those_whose_own_window_is_over(data: st.DataObject) -> None:
    """Late is event time + gap at or behind the watermark of the batch's start, and no other."""
    events = data.draw(timelines())
    order = data.draw(st.permutations(events))
    edge = data.draw(st.integers(0, len(order)))
    driver = SessionDriver(collecting(FIXED))
    for event in order[:edge]:
        driver.add(event.key, event.at, Reading(event.value, event.gap))
    driver.run_batch()
    watermark = driver.watermark
    for event in order[edge:]:
        driver.add(event.key, event.at, Reading(event.value, event.gap))
    driver.run_batch()

    late = [e.at for e in order[edge:] if watermark is not None and e.at + GAP <= watermark]

    rejected = [r.event_time for r in driver.take_rejections("late") if r.event_time]
    assert sorted(late) == sorted(rejected)
    assert driver.counts.is_balanced
    assert len(events) == driver.counts.events


@pytest.mark.parametrize("timeout", [FIXED, OWN], ids=["fixed", "own"])
@pytest.mark.parametrize(
    ("made", "options"),
    [
        (collecting, {}),
        (collecting, {"lateness": Lateness(judged_by="session")}),
        (collecting, {"inputs": Inputs(drop_duplicates_for=2 * GAP)}),
        (in_order, {}),
    ],
    ids=["by event", "by session", "no duplicates", "in order"],
)
@given(data=st.data())
def test_a_row_comes_with_the_first_watermark_that_reaches_its_end(
    made: Any, options: dict[str, Any], timeout: EventTimeGap, data: st.DataObject
) -> None:
    """
    However late events are: so no row is at or behind the watermark of the micro-batch before.

    Spark ends a query with such a row, and an operator that follows would drop it.
    """
    events = data.draw(st.permutations(data.draw(timelines(gaps=GAPS))))
    delay = data.draw(st.sampled_from([timedelta(0), GAP, 6 * GAP]))
    size = data.draw(st.integers(1, 5))
    spec = made(timeout, watermark_delay=delay, results=Results(carries_watermark=True), **options)
    driver, before = SessionDriver(spec), None

    for first in range(0, len(events) + 2 * size, size):
        for event in events[first : first + size]:
            driver.add(event.key, event.at, Reading(event.value, event.gap))
        now = driver.watermark
        driver.run_batch()
        for row in driver.take_rows():
            assert now is not None
            assert row.session_end <= now
            assert before is None or before < row.session_end
        before = now
