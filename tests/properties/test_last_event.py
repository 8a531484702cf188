"""`last_event_time` and `session.last_event` are the time of the last event, under any options."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import attrs
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import Inputs, Lateness, Results, Session, SessionRules, SessionSpec
from sessionkit._engine.shell.worker import worker_of
from sessionkit._engine.wire.packing import rows_of
from sessionkit._instants import END_OF_TIME_US
from sessionkit.testing import SessionDriver
from sessionkit.testing.drivers.rows import event_row, input_frame
from tests.properties.test_session_rules import (
    END,
    GAP,
    Shown,
    Values,
    gap_by_values,
    gaps,
    in_any_order,
    in_order,
    sequences,
    timelines,
)
from tests.support.naive_rules import Click
from tests.support.timelines import STORAGES, batches


@attrs.define
class Told(Values):
    """What `finish` is told of the session, too."""

    last: datetime | None = None
    length: timedelta | None = None

    def update(self, event: Shown) -> None:
        """Add a value, unless it's one that can't be added."""
        if event.value % 5 == 4:
            raise ValueError(event.value)
        self.values.append(event.value)

    def finish(self, session: Session) -> "Told":
        return Told(self.values, session.closed_by, session.last_event, session.length)


@st.composite
def specs(draw: st.DrawFn, delay: timedelta) -> SessionSpec[Any, Any, Any]:
    """Draw any options that go together."""
    gap, ordered = draw(gaps), draw(st.booleans())
    more: dict[str, Any] = draw(in_order) if ordered else {}
    if ordered and not callable(gap["gap"]):
        more["state_gap"] = draw(st.sampled_from([None, gap_by_values]))
    rules = SessionRules(**gap, **draw(in_any_order), **more)
    options: dict[str, Any] = {"sequence": draw(sequences), **draw(STORAGES)}
    options["results"] = Results(emit=draw(st.sampled_from(["on_close", "on_update"])))
    if draw(st.booleans()):
        options["inputs"] = Inputs(drop_duplicates_for="1 hour", event_id=("key", "value"))
    if not rules.in_order:
        options["lateness"] = Lateness(allowed=draw(st.sampled_from([None, 2 * GAP])))
    return SessionSpec.of(
        Told,
        event=Shown,
        keys={"key": str},
        event_time="at",
        timeout=rules,
        order="event_time" if rules.in_order else "arrival",
        watermark_delay=delay,
        on_error="reject",
        **options,
    )


def on_stream(
    spec: SessionSpec[Any, Any, Any], cut: Sequence[Sequence[Click]], *, restart: bool
) -> list[Any]:
    driver, rows = SessionDriver(spec), []
    for batch in cut:
        for one in batch:
            driver.add(one.key, one.at, Shown(*one[2:]))
        rows += driver.run_batch().rows
        if restart:
            driver = SessionDriver.restore(spec, driver.snapshot())
    driver.advance_watermark_to(END)
    driver.run_until_idle()
    return rows + driver.take_rows()


def on_batch(spec: SessionSpec[Any, Any, Any], events: Sequence[Click]) -> pa.Table:
    rows = [event_row(spec, one.key, one.at, Shown(*one[2:]), {}) for one in events]
    outputs = worker_of(spec).until(rows_of([input_frame(spec, rows)]), 0, END_OF_TIME_US)
    return pa.concat_tables([output.rows for output, _ in outputs])


@given(data=st.data())
def test_it_is_the_time_of_the_last_event(data: st.DataObject) -> None:
    """Of final and early rows, on a stream with restarts, and on a batch."""
    events = data.draw(timelines(data.draw(sequences)))
    delay = data.draw(st.sampled_from([GAP, 6 * GAP]))
    cut = data.draw(batches(events, delay))
    spec = data.draw(specs(delay))
    at = {event.value: event.at for event in events}

    rows = on_stream(spec, cut, restart=data.draw(st.booleans()))
    batch = on_batch(spec, events).to_pylist()

    assert bool(rows) == bool(batch) == any(value % 5 != 4 for value in at)
    for row in rows:
        last = max(at[value] for value in row.result.values)
        assert last == row.last_event_time == row.result.last
        assert last - row.start == row.result.length
    assert all(max(at[v] for v in row["values"]) == row["last_event_time"] for row in batch)
