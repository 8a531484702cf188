"""`last_event_time` is the time of the last event, in rows and in sessions, under any options."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import Every, Inputs, Lateness, Memory, Results, Session, SessionRules, SessionSpec
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver
from sessionkit.testing.drivers.rows import event_row
from tests.support.naive_rules import Click
from tests.support.ruled_sessions import (
    END,
    GAP,
    START,
    Shown,
    Values,
    gap_by_values,
    gaps,
    in_any_order,
    in_order,
    sequences,
    timelines,
)
from tests.support.timelines import STORAGES, batches

EMITS = st.sampled_from(
    [
        "on_close",
        "on_update",
        Every(events=3),
        Every(1.5 * GAP),
        Every(1.5 * GAP, clock="processing_time"),
    ]
)
LATENESS = st.sampled_from(
    [
        Lateness(),
        Lateness(judged_by="session"),
        Lateness(allowed=2 * GAP),
        Lateness(reopen_within=2 * GAP),
    ]
)


@attrs.frozen
class Past:
    """What `remember` was told of the last event of a session, and its values."""

    values: list[int]
    last: datetime


@attrs.define
class Told(Values):
    """What `finish` is told of the session before, too."""

    past: list[int] | None = None
    past_last: datetime | None = None

    def update(self, event: Shown) -> None:
        """Add a value, unless it's one that can't be added."""
        if event.value % 5 == 4:
            raise ValueError(event.value)
        self.values.append(event.value)

    def finish(self, session: Session[Any, Past]) -> "Told":
        told = Told(self.values, session.closed_by, session.last_event_time, session.length)
        if session.memory:
            told.past, told.past_last = session.memory.values, session.memory.last
        return told


def remember(session: Session[Any, Past], state: Told) -> Past:
    return Past(state.values, session.last_event_time)


MAKERS = {
    "functions": partial(SessionSpec.of, Told, event=Shown, on_error="reject"),
    "aggregates": partial(
        SessionSpec.aggregate, Shown, {"values": agg.collect("value", at_most=100)}
    ),
    "events": partial(SessionSpec.per_event, Shown),
}


@st.composite
def specs(draw: st.DrawFn, make: str, delay: timedelta) -> SessionSpec[Any, Any, Any]:
    """Draw any options that go together."""
    gap, ordered = draw(gaps), draw(st.booleans())
    more: dict[str, Any] = draw(in_order) if ordered else {}
    if ordered and make == "functions" and not callable(gap["gap"]):
        more["state_gap"] = draw(st.sampled_from([None, gap_by_values]))
    rules = SessionRules(**gap, **draw(in_any_order), **more)
    options: dict[str, Any] = {"sequence": draw(sequences), **draw(STORAGES)}
    once: dict[str, Any] = {"drop_duplicates_for": "1 hour", "event_id": ("key", "value")}
    options["inputs"] = Inputs(max_future_skew=None, **draw(st.sampled_from([{}, once])))
    with_events = make != "events" and draw(st.booleans())
    if make != "events":
        emit = "on_close" if with_events else draw(EMITS)
        options["results"] = Results(emit=emit, with_events=with_events)
        memories = [
            None,
            Memory(time_to_live="1 hour", remember=remember if make == "functions" else None),
        ]
        options["memory"] = draw(st.sampled_from(memories))
    if not (rules.in_order or with_events or make == "events"):
        options["lateness"] = draw(LATENESS)
    return MAKERS[make](
        keys={"key": str},
        event_time="at",
        timeout=rules,
        order="event_time" if rules.in_order else "arrival",
        watermark_delay=delay,
        **options,
    )


@attrs.define
class Stream:
    """A query that goes on after each micro-batch, in one way or another; and what it gave."""

    driver: SessionDriver[Any, Any, Any]
    at: dict[int, datetime]
    rows: list[Any] = attrs.field(factory=list)
    events: list[Any] = attrs.field(factory=list)
    processed: int = 0

    def take(self) -> None:
        self.rows += self.driver.take_rows()
        self.events += self.driver.take_events()

    def run(self, batch: Sequence[Click], pause: timedelta) -> None:
        for one in batch:
            self.driver.add(one.key, one.at, Shown(*one[2:10]))
        self.driver.advance_processing_time(pause)
        self.processed += self.driver.run_batch().counts.processed
        self.take()
        for session in self.driver.open_sessions():
            if values := getattr(session.state, "values", None):
                assert max(self.at[value] for value in values) == session.last_event_time

    def go_on(self, way: str, storage: Any) -> None:
        spec = self.driver.spec
        match way:
            case "restart":
                self.driver = SessionDriver.restore(spec, self.driver.snapshot())
            case "migrate":
                self.driver = self.driver.migrate(attrs.evolve(spec, **storage))

    def end(self) -> None:
        self.driver.advance_watermark_to(END)
        self.driver.run_until_idle()
        self.processed += self.driver.counts.processed
        self.take()


@pytest.mark.parametrize("make", MAKERS)
@given(data=st.data())
def test_a_row_has_the_time_of_the_last_event_of_its_session(
    make: str, data: st.DataObject
) -> None:
    """Of final and early rows, on a stream with restarts and migrations, and on a batch."""
    clicks = data.draw(timelines(data.draw(sequences)))
    delay = data.draw(st.sampled_from([GAP, 6 * GAP]))
    # Under a shorter delay than that of the cut, some events are late; and some come twice.
    cut = data.draw(batches(clicks, 6 * GAP))
    cut += data.draw(st.lists(st.sampled_from(cut), max_size=1))
    spec = data.draw(specs(make, delay))
    at = {click.value: click.at for click in clicks}
    history = [event_row(spec, one.key, one.at, Shown(*one[2:10]), {}) for one in clicks]
    until = data.draw(st.sampled_from([None, *at.values()]))

    driver = SessionDriver(spec, processing_time=START)
    if until:
        driver = SessionDriver.backfill(spec, history, until=until, processing_time=START)
    stream = Stream(driver, at)
    stream.take()
    for batch in cut:
        stream.run(batch, data.draw(st.sampled_from([timedelta(0), GAP])))
        stream.go_on(data.draw(st.sampled_from(["", "restart", "migrate"])), data.draw(STORAGES))
    stream.end()
    check(stream.rows, stream.events, at)
    assert not stream.processed or stream.rows

    once = SessionDriver.backfill(spec, history, until=END, processing_time=START)
    rows = once.take_rows()
    check(rows, once.take_events(), at)
    # Under `opens_with`, all may be outside of any session.
    if getattr(spec.timeout, "opens_with", None) is None:
        assert bool(rows) == any(make != "functions" or value % 5 != 4 for value in at)


def check(rows: Sequence[Any], events: Sequence[Any], at: dict[int, datetime]) -> None:
    """Compare result rows, and events of sessions, with the times of the values in them."""
    together: dict[str, set[datetime]] = {}
    for event in events:
        together.setdefault(event.session_id, set()).add(event.event_time)
    for event in events:
        assert max(together[event.session_id]) == event.last_event_time
    of_session: dict[str, set[datetime]] = {}
    for row in rows:
        if hasattr(row.result, "values"):
            values = row.result.values
        else:
            values = [one.result.value for one in rows if one.session_id == row.session_id]
        last = max(at[value] for value in values)
        assert last == row.last_event_time
        of_session.setdefault(row.session_id, set()).add(last)
        if isinstance(row.result, Told):
            assert (last, last - row.session_start) == (row.result.last, row.result.length)
            if row.result.past is not None:
                assert max(at[value] for value in row.result.past) == row.result.past_last
    assert all(max(times) in of_session[name] for name, times in together.items())
