"""
Which events open sessions, by `opens_with`, against models.

Precondition: each event is strictly ahead of the watermark in force when it arrives. How rules that
need an order go with it is in `test_session_rules`.
"""

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import SessionRules
from tests.support.naive_rules import Click, naive_arrivals, naive_cuts
from tests.support.ruled_sessions import (
    GAP,
    gaps,
    in_any_order,
    opens,
    spec_of,
    timelines,
    told,
)
from tests.support.timelines import STORAGES, batches

Seen = list[tuple[object, ...]]
ways = st.sampled_from(["opens", opens])


@attrs.frozen
class Case:
    """Events, the rules that decide which of them open a session, and options of a spec."""

    events: list[Click]
    rules: SessionRules
    options: dict[str, Any]
    restart: bool


@st.composite
def cases(draw: st.DrawFn, order: str = "arrival") -> Case:
    events, gap = draw(timelines(None)), draw(gaps)
    if not callable(gap["gap"]):
        events = [event._replace(gap=GAP) for event in events]
    rules = SessionRules(**gap, **draw(in_any_order), opens_with=draw(ways))
    options = {"watermark_delay": 6 * GAP, "order": order, **draw(STORAGES)}
    return Case(events, rules, options, draw(st.booleans()))


def seen(case: Case, cut: Sequence[Sequence[Click]], *, aggregated: bool) -> tuple[Seen, int]:
    """Return what the sessions say, and how many events are outside any of them."""
    spec = spec_of(case.rules, aggregated=aggregated, **case.options)
    rows, kinds = told(spec, cut, restart=case.restart)
    assert kinds == ["outside"] * len(kinds)
    assert len(rows) == len({row.session_id for row in rows})
    found: Seen = [
        (r.key.key, r.session_start, r.session_end, sorted(r.result.values), r.closed_by)
        for r in rows
    ]
    return found, len(kinds)


@pytest.mark.parametrize("aggregated", [False, True])
@given(case=cases(), data=st.data())
def test_events_that_may_not_open_are_outside(
    aggregated: bool, case: Case, data: st.DataObject
) -> None:
    """As they arrive: in the order of time within a micro-batch, and after the sessions so far."""
    cut = data.draw(batches(case.events, 6 * GAP))
    cuts, outside = naive_arrivals(cut, case.rules)

    assert ([one.seen for one in cuts], len(outside)) == seen(case, cut, aggregated=aggregated)


@given(case=cases(), data=st.data())
def test_events_in_order_give_the_same_rows_for_any_cut(case: Case, data: st.DataObject) -> None:
    """In time order, with an instant in one micro-batch, a stream has the rows of a batch."""
    instants = [list(same) for _, same in groupby(case.events, key=lambda one: one.at)]
    edges = sorted(data.draw(st.sets(st.integers(0, len(instants)))) | {0, len(instants)})
    cut = [
        [one for instant in instants[start:end] for one in instant]
        for start, end in pairwise(edges)
    ]

    found = seen(case, cut, aggregated=False)

    assert seen(case, [case.events], aggregated=False) == found
    outside = list[Click]()
    cuts = naive_cuts(case.events, case.rules, outside=outside)
    expected = [(*one.seen[:3], sorted(one.values), one.closed_by) for one in cuts]
    assert (expected, len(outside)) == found


@pytest.mark.parametrize("aggregated", [False, True])
@given(case=cases("event_time"), data=st.data())
def test_event_time_order_gives_the_same_rows_for_any_arrival(
    aggregated: bool, case: Case, data: st.DataObject
) -> None:
    """Whatever the order in which events come, and the cut into micro-batches."""
    cut = data.draw(batches(case.events, 6 * GAP))
    outside = list[Click]()
    cuts = naive_cuts(case.events, case.rules, outside=outside)
    expected = [(*one.seen[:3], sorted(one.values), one.closed_by) for one in cuts]

    assert (expected, len(outside)) == seen(case, cut, aggregated=aggregated)
