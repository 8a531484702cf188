"""
Early results and allowed lateness against a model that starts from all events each time.

Precondition: each event is strictly ahead of the watermark in force when it arrives, less what
`allowed` is. Then every row, and the table that rows are upserted into, are those of
the model.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import Aggregates, EventTimeGap, Lateness, Results, SessionRules, SessionSpec
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver
from tests.support.naive_revisions import NaiveRows, Row, Table, Trigger, row_of
from tests.support.naive_sessions import Event, Found, naive_sessions
from tests.support.session_specs import Listed, Reading, collecting, in_order
from tests.support.timelines import GAP, NOON, STORAGES, batches, timelines

LONG = timedelta(days=1)
CLOCK, LAST = "clock", 99

gaps = st.sampled_from([GAP / 2, GAP, 2 * GAP])
delays = st.sampled_from([timedelta(0), GAP, 3 * GAP])
TRIGGERS = {
    "on_close": None,
    "on_update": Trigger(events=1),
    "every 3 events": Trigger(events=3),
    "every 15 seconds": Trigger(duration=1.5 * GAP),
    "every 15 seconds of processing time": Trigger(duration=1.5 * GAP, by_start=False),
}


def by_aggregates(**options: Any) -> SessionSpec[Any, Any, Any]:
    """Return a spec of aggregates whose rows look alike."""
    aggregates = {"values": agg.collect("value", at_most=100), "events": agg.count()}
    logic = Aggregates(Reading, aggregates, result=Listed)
    return attrs.evolve(collecting(**options), logic=logic)


@attrs.define
class Run:
    """A driver and the model beside it, over the same micro-batches."""

    driver: SessionDriver[Any, Any, Any]
    model: NaiveRows
    table: Table = attrs.field(factory=Table)
    arrived: list[Event] = attrs.field(factory=list)
    now: datetime = NOON

    @property
    def spec(self) -> SessionSpec[Any, Any, Any]:
        return self.driver.spec

    def batch(self, events: Sequence[Event], pause: timedelta) -> None:
        """Run a micro-batch, and compare its rows."""
        self.now += pause
        self.driver.advance_processing_time(pause)
        for event in events:
            self.driver.add(event.key, event.at, Reading(event.value, event.gap))
        result = self.driver.run_batch()
        if result.batch_id is None:
            return
        assert result.counts.is_balanced
        assert sum(row.revision > 1 for row in result.rows) == result.counts.revised
        before, after = self._seen(result.watermark), self._seen(result.watermark, events)
        early = self.spec.early
        by_watermark = early is None or early.clock == "event_time"
        now = result.watermark if by_watermark else self.now
        expected = self.model(before, result.watermark, now, only_final=True)
        expected += self.model(after, result.watermark, now)
        assert sorted(map(repr, expected)) == sorted(map(repr, map(row_of, result.rows)))
        self._check_what_is_replaced(result.rows)
        at = {event.value: event.at for event in self.arrived}
        assert all(
            max(at[value] for value in r.result.values) == r.last_event_time for r in result.rows
        )
        self.table.upsert(result.rows)

    def _check_what_is_replaced(self, rows: Sequence[Any]) -> None:
        """Look that it begins within the rows of the micro-batch: a `MERGE` reads no more."""
        replaced = {name for row in rows for name in (row.session_id, *row.supersedes)}
        for name in replaced & self.table.rows.keys():
            start = self.table.rows[name].session_start
            assert min(row.session_start for row in rows) <= start
            assert start < max(row.session_end for row in rows)

    def _seen(self, watermark: datetime | None, came: Sequence[Event] = ()) -> list[Event]:
        self.arrived += came
        if self.spec.order == "arrival":
            return [*self.arrived]
        return [one for one in self.arrived if watermark is not None and one.at <= watermark]

    def restart(self) -> None:
        self.driver = SessionDriver.restore(self.spec, self.driver.snapshot())


@pytest.mark.parametrize("make", [collecting, by_aggregates])
@given(data=st.data(), emit=st.sampled_from([*TRIGGERS]))
def test_rows_and_table_are_those_of_the_model(emit: str, make: Any, data: st.DataObject) -> None:
    """Each micro-batch gives the rows of the model; on each update the table is up to date."""
    events, delay = data.draw(timelines("ab", gaps)), data.draw(delays)
    lateness = data.draw(st.sampled_from([None, GAP, 6 * GAP]))
    cut = data.draw(batches(events, delay + (lateness or timedelta(0))))
    inclusive = data.draw(st.booleans())
    spec = make(
        timeout=EventTimeGap(lambda event: event.gap, max_gap=2 * GAP, gap_inclusive=inclusive),
        watermark_delay=delay,
        lateness=Lateness(
            judged_by=data.draw(st.sampled_from(["event", "session"])),
            allowed=lateness,
            reopen_within=None if lateness else data.draw(st.sampled_from([None, GAP])),
        ),
        results=Results(emit=emit),
        **data.draw(STORAGES),
    )
    sessions = partial(naive_sessions, gap_inclusive=inclusive)
    run = Run(SessionDriver(spec, processing_time=NOON), NaiveRows(TRIGGERS[emit], sessions))
    follow(run, cut, data, is_up_to_date=emit == "on_update")


@given(data=st.data(), emit=st.sampled_from([*TRIGGERS][1:]))
def test_in_event_time_order_rows_show_what_the_watermark_has_passed(
    emit: str, data: st.DataObject
) -> None:
    """Events that wait for their turn are in no row, and every other one is."""
    events, delay = data.draw(timelines("ab", gaps)), data.draw(delays)
    cut = data.draw(batches(events, delay))
    rules: EventTimeGap | SessionRules = EventTimeGap(GAP)
    if data.draw(st.booleans()):
        rules = SessionRules(GAP, max_duration=LONG)
    spec = in_order(rules, watermark_delay=delay, results=Results(emit=emit), **data.draw(STORAGES))
    model = NaiveRows(TRIGGERS[emit], all_with_the_same_gap)
    run = Run(SessionDriver(spec, processing_time=NOON), model)
    follow(run, cut, data, is_up_to_date=False)


def follow(
    run: Run, cut: Sequence[Sequence[Event]], data: st.DataObject, *, is_up_to_date: bool
) -> None:
    """Run micro-batches, some after a pause or a restart, and then the end of every session."""
    for batch in cut:
        run.batch(batch, data.draw(st.sampled_from([timedelta(0), GAP])))
        if is_up_to_date:
            assert naive_sessions_of(run) == sessions_in(run.table)
        if data.draw(st.booleans()):
            run.restart()
    events = [*run.arrived]
    # The event that closes all is too far ahead of the others to matter.
    run.batch([Event(CLOCK, NOON + LONG, LAST, GAP)], GAP)
    run.batch([], GAP)

    finals = {row.session_id: row_of(row) for row in run.table.rows.values() if row.key[0] != CLOCK}
    assert finals == in_a_batch(run.spec, events)


def all_with_the_same_gap(events: Sequence[Event]) -> list[Found]:
    """Return the sessions of events, whatever gap they bring."""
    return naive_sessions([event._replace(gap=GAP) for event in events])


def in_a_batch(spec: SessionSpec[Any, Any, Any], events: Sequence[Event]) -> dict[str, Row]:
    """Return the rows of a batch over all events, each the first and last one of its session."""
    history = [{"key": one.key, "at": one.at, "value": one.value, "gap": one.gap} for one in events]
    driver = SessionDriver.backfill(spec, history, until=NOON + LONG, processing_time=NOON)
    rows = driver.take_rows()
    assert {(1, True, ())} == {(row.revision, row.is_final, row.supersedes) for row in rows}
    at = {event.value: event.at for event in events}
    assert all(max(at[value] for value in r.result.values) == r.last_event_time for r in rows)
    return {row.session_id: row_of(row) for row in rows}


def naive_sessions_of(run: Run) -> set[Any]:
    """Return the sessions of all events so far."""
    return {(*s[:3], tuple(sorted(s.values))) for s in run.model.sessions(run.arrived)}


def sessions_in(table: Table) -> set[Any]:
    return {
        (row.key[0], row.session_start, row.session_end, tuple(sorted(row.result.values)))
        for row in table.rows.values()
    }
