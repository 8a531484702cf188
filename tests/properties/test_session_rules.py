"""
Sessions under rules against a model that cuts one instant after another.

Precondition: each event is strictly ahead of the watermark in force when it arrives. Then order,
cuts into batches, storage, and functions or aggregates must not show.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sessionkit import SessionRules, SessionSpec
from sessionkit.testing import SessionRow
from tests.support.naive_rules import Click, naive_cuts
from tests.support.ruled_sessions import (
    GAP,
    Fussy,
    Shown,
    does_not_fit,
    gap_by_values,
    gaps,
    in_any_order,
    in_order,
    sequences,
    spec_of,
    timelines,
    told,
)
from tests.support.timelines import STORAGES, batches


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


def run(
    spec: SessionSpec[Any, Any, Any], cut: Sequence[Sequence[Click]], *, restart: bool
) -> list[tuple[object, ...]]:
    """Run a cut through the driver, then the end of all sessions; return what they say."""
    rows = closed(spec, cut, restart=restart)
    assert len(rows) == len({row.session_id for row in rows})
    assert all(row.closed_by == getattr(row.result, "ended_by", row.closed_by) for row in rows)
    return [
        (row.key.key, row.session_start, row.session_end, list(row.result.values), row.closed_by)
        for row in rows
    ]


def closed(
    spec: SessionSpec[Any, Any, Any], cut: Sequence[Sequence[Click]], *, restart: bool
) -> list[SessionRow[Any]]:
    """Run a cut as `told` does; return all rows, where only what can't be added fails."""
    rows, kinds = told(spec, cut, restart=restart)
    bad = sum(one.value < 0 for batch in cut for one in batch)
    if spec.rules is None or spec.rules.opens_with is None:
        assert kinds == ["failed"] * bad
    # What is outside any session can't fail.
    assert bad >= kinds.count("failed") == len(kinds) - kinds.count("outside")
    return rows


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


@given(case=cases(ordered=True, may_fail=False))
def test_whether_an_event_fails_may_depend_on_the_others(case: Case) -> None:
    """It fails in the session to which it belongs without those that failed before it."""
    assume(case.rules.in_order)
    spec = spec_of(case.rules, aggregated=False, state=Fussy, on_error="reject", **case.options)
    outside = list[Click]()
    cuts = naive_cuts(case.events, case.rules, does_not_fit, outside=outside)

    rows, kinds = told(spec, case.cut, restart=case.restart)

    found = [
        (r.key.key, r.session_start, r.session_end, r.result.values, r.closed_by) for r in rows
    ]
    assert len(rows) == len({row.session_id for row in rows})
    assert [one.seen for one in cuts] == found
    assert len(kinds) == len(case.events) - sum(len(one.values) for one in cuts)
    assert kinds.count("outside") == len(outside)


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
        (r.key.key, r.session_start, r.session_end, r.closed_by, r.result.number, r.result.value)
        for r in rows
    ]
    assert found == [
        (one.key, one.start, one.end, one.closed_by, number, value)
        for one in cuts
        for number, value in enumerate(one.values, start=1)
    ]
    at = {event.value: event.at for event in case.events}
    assert all(row.result.at == at[row.result.value] for row in rows)
    assert len({row.session_id for row in rows}) == len(cuts)


def _sorted_values(sessions: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return [(*before, sorted(values), reason) for *before, values, reason in sessions]  # type: ignore[call-overload]
