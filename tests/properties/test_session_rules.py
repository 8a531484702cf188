"""
Sessions under rules against a model that cuts one instant after another.

Precondition: each event is strictly ahead of the watermark in force when it arrives. Then order,
cuts into batches, storage, and functions or aggregates must not show.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sessionkit import Session, SessionRules, SessionSpec
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver, SessionRow
from tests.support.naive_rules import Click, naive_cuts
from tests.support.timelines import STORAGES, batches

GAP = timedelta(seconds=10)
MICRO = timedelta(microseconds=1)
ZONE = "America/New_York"
# Half a minute before midnight there, on the day that has 23 hours.
START = datetime(2026, 3, 8, 4, 59, 30, tzinfo=UTC)
END = START + timedelta(days=3)

STEPS = [timedelta(0), MICRO, GAP / 2, GAP - MICRO, GAP, GAP + MICRO, 3 * GAP]
sequences = st.sampled_from([None, "seq"])


@attrs.frozen
class Shown:
    value: int
    gap: timedelta
    ends: bool
    begins: bool
    keeps: bool
    campaign: str | None
    seq: int


@attrs.define
class Values:
    """The values of a session, as they were folded, and what `finish` is told."""

    values: list[int] = attrs.field(factory=list)
    ended_by: str = ""
    last: datetime | None = None
    length: timedelta | None = None

    def update(self, event: Shown) -> None:
        """Add a value, unless it's one that can't be added."""
        if event.value < 0:
            raise ValueError(event.value)
        self.values.append(event.value)

    def merge(self, other: "Values") -> None:
        self.values += other.values

    def finish(self, session: Session) -> "Values":
        return Values(self.values, session.closed_by, session.last_event, session.length)


@st.composite
def timelines(draw: st.DrawFn, sequence: str | None) -> list[Click]:
    """Draw the events of two keys, by time; with a sequence, many are at one instant."""
    events, at = [], dict.fromkeys("ab", START)
    steps = st.sampled_from(STEPS if sequence is None else [timedelta(0)] * 7 + STEPS)
    turns = st.just(0) if sequence is None else st.integers(-3, 3)
    for value in range(draw(st.integers(1, 14))):
        key = draw(st.sampled_from("ab"))
        at[key] += draw(steps)
        some = st.integers(0, 3).map(lambda n: n == 0)
        campaign = draw(st.sampled_from([None, None, "x", "y"]))
        gap = draw(st.sampled_from([GAP, GAP, GAP / 2]))
        flags = draw(some), draw(some), not draw(some)
        events.append(Click(key, at[key], value, gap, *flags, campaign, draw(turns)))
    return sorted(events, key=lambda event: event.at)


def either(name: str, function: Any) -> st.SearchStrategy[Any]:
    """Leave a rule out, or say it as the name of a field, an expression, or a function."""
    return st.sampled_from([None, None, name, pc.field(name), function])


def ends(event: Shown) -> bool:
    return event.ends


def begins(event: Shown) -> bool:
    return event.begins


def keeps(event: Shown) -> bool:
    return event.keeps


def gap_by_values(state: Any) -> timedelta:
    """Read the gap from the values so far, of a state or of the model."""
    return GAP / (1 + len(state.values) % 3)


gaps: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"gap": GAP}, {"gap": lambda event: event.gap, "max_gap": GAP}]
)
in_any_order = st.fixed_dictionaries(
    {
        "gap_inclusive": st.booleans(),
        "midnight": st.sampled_from([None, ZONE]),
        "extends": either("keeps", keeps),
    }
)
in_order = st.fixed_dictionaries(
    {
        "max_duration": st.sampled_from([None, GAP / 2, 2 * GAP]),
        "max_events": st.sampled_from([None, None, 1, 2, 3]),
        "until": either("ends", ends),
        "starts_with": either("begins", begins),
        "changes_of": st.sampled_from([(), ("campaign",)]),
    }
)


@attrs.frozen
class Case:
    """Events, in micro-batches, and rules by which to cut them, with other options of a spec."""

    events: list[Click]
    cut: list[list[Click]]
    rules: SessionRules
    options: dict[str, Any]
    restart: bool

    @property
    def spec(self) -> SessionSpec[Any, Any, Any]:
        return spec_of(self.rules, aggregated=False, **self.options)


@st.composite
def cases(draw: st.DrawFn, *, ordered: bool, by_state: bool = True, may_fail: bool = True) -> Case:
    """Draw a case under one gap; with `may_fail`, of values that can't be added too."""
    sequence = draw(sequences)
    events = [event._replace(gap=GAP) for event in draw(timelines(sequence))]
    if may_fail:
        bad = draw(st.sets(st.sampled_from([event.value for event in events])))
        events = [one._replace(value=-1 - one.value) if one.value in bad else one for one in events]
    more: dict[str, Any] = draw(in_order) if ordered else {}
    if ordered and by_state:
        more |= {"state_gap": draw(st.sampled_from([None, gap_by_values]))}
    rules = SessionRules(GAP, **draw(in_any_order), **more)
    options = {"sequence": sequence, "watermark_delay": 6 * GAP, **draw(STORAGES)}
    cut = draw(batches(events, 6 * GAP))
    return Case(events, cut, rules, options, draw(st.booleans()))


def spec_of(
    rules: SessionRules, *, aggregated: bool, state: Any = Values, **options: Any
) -> SessionSpec[Any, Any, Any]:
    """Return a spec that lists the values of a session."""
    settings: dict[str, Any] = {
        "keys": {"key": str},
        "event_time": "at",
        "timeout": rules,
        "order": "event_time" if rules.in_order else "arrival",
        **options,
    }
    if aggregated:
        values = {"values": agg.collect("value", at_most=100)}
        return SessionSpec.aggregate(Shown, values, **settings)
    return SessionSpec.of(state, event=Shown, **settings)


def run(
    spec: SessionSpec[Any, Any, Any], cut: Sequence[Sequence[Click]], *, restart: bool
) -> list[tuple[object, ...]]:
    """Run a cut through the driver, then the end of all sessions; return what they say."""
    rows = closed(spec, cut, restart=restart)
    assert len(rows) == len({row.id for row in rows})
    assert all(row.closed_by == getattr(row.result, "ended_by", row.closed_by) for row in rows)
    return [
        (row.key.key, row.start, row.end, list(row.result.values), row.closed_by) for row in rows
    ]


def closed(
    spec: SessionSpec[Any, Any, Any], cut: Sequence[Sequence[Click]], *, restart: bool
) -> list[SessionRow[Any]]:
    """Run a cut as `told` does; return all rows, where only what can't be added fails."""
    rows, kinds = told(spec, cut, restart=restart)
    assert kinds == ["failed" for batch in cut for one in batch if one.value < 0]
    return rows


def told(
    spec: SessionSpec[Any, Any, Any], cut: Sequence[Sequence[Click]], *, restart: bool
) -> tuple[list[SessionRow[Any]], list[str]]:
    """
    Run a cut through the driver, then the end of all sessions; return rows and rejections.

    Each row says when the last event of its session was, and `finish` is told the same.
    """
    driver, rows, kinds = SessionDriver(spec), [], []
    for batch in cut:
        for one in batch:
            driver.add(one.key, one.at, Shown(*one[2:]))
        driver.run_batch()
        rows += driver.take_rows()
        kinds += [one.kind for one in driver.take_rejections()]
        if restart:
            driver = SessionDriver.restore(spec, driver.snapshot())
    driver.advance_watermark_to(END)
    driver.run_until_idle()
    rows += driver.take_rows()
    kinds += [one.kind for one in driver.take_rejections()]
    assert driver.counts.is_balanced
    assert not driver.open_sessions()
    at = {one.value: one.at for batch in cut for one in batch}
    for row in rows:
        if (values := getattr(row.result, "values", None)) is not None:
            assert max(at[value] for value in values) == row.last_event_time
        if (last := getattr(row.result, "last", None)) is not None:
            assert (row.last_event_time, last - row.start) == (last, row.result.length)
    return sorted(rows, key=lambda row: (row.key, row.start)), kinds


@pytest.mark.parametrize("aggregated", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
@given(data=st.data())
def test_rules_cut_as_the_model_does(ordered: bool, aggregated: bool, data: st.DataObject) -> None:
    """Bounds, values and reasons are those of the model, whatever the cut."""
    sequence = data.draw(sequences)
    events = data.draw(timelines(sequence))
    gap = data.draw(gaps)
    if not callable(gap["gap"]):
        events = [event._replace(gap=GAP) for event in events]
    more: dict[str, Any] = data.draw(in_order) if ordered else {}
    if ordered and not aggregated and not callable(gap["gap"]):
        more |= {"state_gap": data.draw(st.sampled_from([None, gap_by_values]))}
    rules = SessionRules(**gap, **data.draw(in_any_order), **more)
    delay = data.draw(st.sampled_from([timedelta(0), GAP, 6 * GAP]))
    cut = data.draw(batches(events, delay))
    options = {"watermark_delay": delay, "sequence": sequence, **data.draw(STORAGES)}
    spec = spec_of(rules, aggregated=aggregated, **options)

    found = run(spec, cut, restart=data.draw(st.booleans()))

    expected = [one.seen for one in naive_cuts(events, rules)]
    if not (rules.in_order or aggregated):
        found, expected = _sorted_values(found), _sorted_values(expected)
    assert found == expected


@pytest.mark.parametrize("ordered", [False, True])
@given(data=st.data())
def test_failed_events_leave_no_trace(ordered: bool, data: st.DataObject) -> None:
    """Sessions are those without the events that fail, whichever rules these would have fired."""
    case = data.draw(cases(ordered=ordered))

    found = run(attrs.evolve(case.spec, on_error="reject"), case.cut, restart=case.restart)

    good = [event for event in case.events if event.value >= 0]
    expected = [one.seen for one in naive_cuts(good, case.rules)]
    assert _sorted_values(found) == _sorted_values(expected)


def does_not_fit(values: Sequence[int], value: int) -> bool:
    """Tell whether a value fails after others: that depends on where the session began."""
    return (len(values) + value) % 3 == 2


@attrs.define
class Fussy(Values):
    """Values that don't take every other one."""

    def update(self, event: Shown) -> None:
        if does_not_fit(self.values, event.value):
            raise ValueError(event.value)
        self.values.append(event.value)

    def finish(self, session: Session) -> "Fussy":
        return Fussy(self.values, session.closed_by, session.last_event, session.length)


@given(case=cases(ordered=True, may_fail=False))
def test_whether_an_event_fails_may_depend_on_the_others(case: Case) -> None:
    """It fails in the session to which it belongs without those that failed before it."""
    assume(case.rules.in_order)
    spec = spec_of(case.rules, aggregated=False, state=Fussy, on_error="reject", **case.options)
    cuts = naive_cuts(case.events, case.rules, does_not_fit)

    rows, kinds = told(spec, case.cut, restart=case.restart)

    found = [(r.key.key, r.start, r.end, r.result.values, r.closed_by) for r in rows]
    assert len(rows) == len({row.id for row in rows})
    assert [one.seen for one in cuts] == found
    assert kinds == ["failed"] * (len(case.events) - sum(len(one.values) for one in cuts))


@pytest.mark.parametrize("ordered", [False, True])
@given(data=st.data())
def test_every_event_has_its_session_and_number(ordered: bool, data: st.DataObject) -> None:
    """With a row for each event they are the events of the sessions, in the order of time."""
    case = data.draw(cases(ordered=ordered, by_state=False, may_fail=False))
    spec = SessionSpec.per_event(
        Shown,
        keys={"key": str},
        event_time="at",
        timeout=case.rules,
        order="event_time" if case.rules.in_order else "arrival",
        **case.options,
    )
    cuts = naive_cuts(case.events, case.rules)

    rows = closed(spec, case.cut, restart=case.restart)

    found = [
        (r.key.key, r.start, r.end, r.closed_by, r.result.number, r.result.value) for r in rows
    ]
    assert found == [
        (one.key, one.start, one.end, one.closed_by, number, value)
        for one in cuts
        for number, value in enumerate(one.values, start=1)
    ]
    at = {event.value: event.at for event in case.events}
    assert all(row.result.at == at[row.result.value] for row in rows)
    assert len({row.id for row in rows}) == len(cuts)


def _sorted_values(sessions: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return [(*before, sorted(values), reason) for *before, values, reason in sessions]  # type: ignore[call-overload]
