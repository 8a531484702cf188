"""
A query that begins with a seed: under other rules, or where a batch left off.

What is under test is that nothing is lost or taken twice at the seam: not what the rules say.
"""

from datetime import datetime, timedelta
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import EventTimeGap, KeyState, KeyTimes, SessionSpec, StatefulSpec, Storage
from sessionkit.aggregates import collect, count
from sessionkit.testing import SessionDriver, StatefulDriver
from tests.support.naive_sessions import Event
from tests.support.session_specs import Reading, collecting, in_order, remembering
from tests.support.timelines import DISTANCES, GAP, MICRO, MILLI, NOON, STORAGES, timelines

DELAY = timedelta(minutes=10)
END = NOON + timedelta(days=1)


@attrs.frozen
class Counted:
    n: int
    values: list[int]


def counting(timeout: EventTimeGap, **options: Any) -> SessionSpec[Any, Any, Any]:
    aggregates = {"n": count(), "values": collect("value")}
    return SessionSpec.aggregate(
        Reading,
        aggregates,
        result=Counted,
        keys={"key": str},
        event_time="at",
        timeout=timeout,
        **{"watermark_delay": MILLI, **options},
    )


MAKERS: Any = st.sampled_from([collecting, in_order, counting, remembering])


@st.composite
def storages(draw: st.DrawFn) -> dict[str, Any]:
    """Draw how a spec stores, and its delay."""
    return {**draw(STORAGES), "watermark_delay": draw(st.sampled_from([MILLI, GAP, DELAY]))}


def rows_of(events: list[Event]) -> list[dict[str, Any]]:
    return [{"key": e.key, "at": e.at, "value": e.value, "gap": e.gap} for e in events]


def finished(driver: Any, events: list[Event]) -> list[Any]:
    """Run events, a batch for each, until everything has closed; return the rows."""
    for row in rows_of(events):
        driver.add_row(row)
        driver.run_batch()
    driver.run_batch()
    driver.advance_watermark_to(END)
    driver.run_until_idle()
    assert not driver.take_rejections()
    assert driver.counts.is_balanced
    rows: list[Any] = driver.take_rows()
    return rows


@st.composite
def cuts(draw: st.DrawFn) -> tuple[list[Event], datetime]:
    """Draw events and an instant: one of theirs, or near to it."""
    events = draw(timelines())
    return events, draw(st.sampled_from(events)).at + draw(st.sampled_from(DISTANCES))


@given(MAKERS, cuts(), storages(), st.booleans())
def test_a_batch_and_then_a_stream_give_the_rows_of_one_batch(
    make: Any, cut: tuple[list[Event], datetime], storage: Any, inclusive: bool
) -> None:
    """Cut at any instant, whatever is at the cut or a gap from it, row for row."""
    spec, (events, until) = make(EventTimeGap(GAP, gap_inclusive=inclusive), **storage), cut
    later = [event for event in events if event.at >= until]

    driver = SessionDriver.backfill(spec, rows_of(events), until=until)

    once = SessionDriver.backfill(spec, rows_of(events), until=END)
    assert once.take_rows() == finished(driver, later)


@given(MAKERS, cuts(), storages(), st.booleans())
def test_a_stream_that_reads_history_again_counts_it_once(
    make: Any, cut: tuple[list[Event], datetime], storage: Any, moves_on: bool
) -> None:
    """Events of before the cut are late, also after the state has been carried over once more."""
    spec, (events, until) = make(EventTimeGap(GAP), **storage), cut
    driver = SessionDriver.backfill(spec, rows_of(events), until=until)
    closed = driver.take_rows()
    if moves_on:
        driver.run_batch()
        driver = driver.migrate(attrs.evolve(spec, storage=Storage(bucket_count=3)))

    for row in rows_of(events):
        driver.add_row(row)
    driver.run_batch()
    late = driver.take_rejections("late")
    found = [*closed, *finished(driver, [])]

    once = SessionDriver.backfill(spec, rows_of(events), until=END)
    assert once.take_rows() == sorted(found, key=lambda row: (row.key, row.session_start))
    assert len([event for event in events if event.at < until]) == len(late)


@given(MAKERS, timelines(), st.integers(0, 14), storages(), storages())
def test_rows_are_the_same_for_any_layout_and_bucket_count(
    make: Any, events: list[Event], place: int, before: Any, after: Any
) -> None:
    """Bucket count and layout change between any two micro-batches, and no row does."""
    after = {**after, "watermark_delay": before["watermark_delay"]}
    old, new = (make(EventTimeGap(GAP), **storage) for storage in (before, after))
    whole, first = SessionDriver(old), SessionDriver(old)
    for row in rows_of(events[:place]):
        first.add_row(row)
        first.run_batch()
    closed = first.take_rows()

    driver = first.migrate(new)
    rows = sorted(
        [*closed, *finished(driver, events[place:])], key=lambda r: (r.key, r.session_start)
    )

    assert finished(whole, events) == rows


@given(timelines(), st.integers(0, 14), st.sampled_from([GAP / 2, GAP + MICRO, 3 * GAP]))
def test_each_event_keeps_the_gap_under_which_it_came(
    events: list[Event], place: int, gap: timedelta
) -> None:
    """Carried over to another gap, sessions are those of a spec in which events have own gaps."""
    delay = timedelta(hours=1)
    own = collecting(EventTimeGap(lambda event: event.gap, max_gap="5 minutes"))
    before, after = collecting(EventTimeGap(GAP)), collecting(EventTimeGap(gap))
    own, before, after = (attrs.evolve(one, watermark_delay=delay) for one in (own, before, after))
    first = SessionDriver(before)
    for row in rows_of(events[:place]):
        first.add_row(row)
        first.run_batch()

    found = finished(first.migrate(after), events[place:])

    mixed = [*events[:place], *(event._replace(gap=gap) for event in events[place:])]
    expected = finished(SessionDriver(own), mixed)
    assert [*map(without_last_event, expected)] == [*map(without_last_event, found)]
    by_event = attrs.evolve(own, timeout=EventTimeGap(lambda event: gap, max_gap="5 minutes"))
    assert expected == finished(first.migrate(by_event), events[place:])


def without_last_event(row: Any) -> Any:
    """Leave out what isn't known of a session that was carried over under another gap."""
    return attrs.evolve(row, last_event_time=row.session_start)


@attrs.frozen
class Number:
    value: int


@attrs.define
class Values:
    values: list[int]


def process(key: Any, events: list[Number], state: KeyState[Values], times: KeyTimes) -> None:
    before = state.get(Values([])).values
    state.set(Values([*before, *(event.value for event in events)]))
    times.set_event_timer("report", times.event_times[-1] + GAP)


def on_timer(key: Any, name: str, state: KeyState[Values], times: KeyTimes) -> Values:
    found = state.get(Values([]))
    state.remove()
    return found


def reporting(**options: Any) -> StatefulSpec[Any, Any, Any]:
    """Return a spec whose keys report once they have been quiet for a gap."""
    settings: dict[str, Any] = {"watermark_delay": MILLI, **options}
    return StatefulSpec(
        keys={"key": str},
        event_time="at",
        process=process,
        on_timer=on_timer,
        timeout=EventTimeGap(3 * GAP),
        order="event_time",
        **settings,
    )


def finished_keys(driver: Any, events: list[Event]) -> list[Any]:
    """Run events, a batch for each, until every timer has fired; return the rows."""
    for event in events:
        driver.add_row({"key": event.key, "at": event.at, "value": event.value})
        driver.run_batch()
    driver.run_batch()
    driver.advance_watermark_to(END)
    driver.run_until_idle()
    assert not driver.take_rejections()
    return sorted(driver.take_rows(), key=repr)


@given(cuts(), STORAGES, STORAGES)
def test_keys_and_their_timers_go_on_after_a_batch_and_elsewhere(
    cut: tuple[list[Event], datetime], before: Any, after: Any
) -> None:
    """In time order, a cut at any instant doesn't show, nor does another layout."""
    events, until = cut
    later = [event for event in events if event.at >= until]
    history = [{"key": e.key, "at": e.at, "value": e.value} for e in events]

    driver = StatefulDriver.backfill(reporting(**before), history, until=until)
    closed = driver.take_rows()
    driver.run_batch()
    moved = driver.migrate(reporting(**after))

    once = StatefulDriver.backfill(reporting(), history, until=END)
    assert sorted(once.take_rows(), key=repr) == sorted(
        [*closed, *driver.take_rows(), *finished_keys(moved, later)], key=repr
    )


@pytest.mark.parametrize("layout", ["buckets", "pages"])
def test_events_that_waited_are_taken_once_they_need_not(layout: Any) -> None:
    """From time order to arrival order: what was held is folded in the first micro-batch."""
    old = in_order(
        EventTimeGap(GAP), watermark_delay=DELAY, storage=Storage(layout=layout), merge=None
    )
    new = collecting(EventTimeGap(GAP), watermark_delay=DELAY, storage=Storage(layout=layout))
    driver = SessionDriver(old)
    driver.add("a", NOON, Reading(1, GAP))
    driver.add("a", NOON + GAP / 2, Reading(2, GAP))
    driver.run_batch()

    moved = driver.migrate(new)
    result = moved.run_batch()

    assert (0, 2, -2) == (result.counts.events, result.counts.processed, result.counts.buffered)
    assert result.counts.is_balanced
    assert [[1, 2]] == [found.state.values for found in moved.open_sessions()]
