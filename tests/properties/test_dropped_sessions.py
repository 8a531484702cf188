"""
Sessions that are dropped whole where a function fails, under `on_error="drop_session"`.

Precondition: each event is strictly ahead of the watermark in force when it arrives.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sessionkit import SessionRules, SessionSpec
from sessionkit import aggregates as agg
from sessionkit.testing import Rejection, SessionDriver
from tests.support.cut_timelines import batches, is_ahead
from tests.support.naive_rules import Click, Cut, naive_cuts
from tests.support.options import grouped

# Half a minute before midnight in New York.
START = datetime(2026, 3, 8, 4, 59, 30, tzinfo=UTC)
END = START + timedelta(days=2)
GAP = timedelta(seconds=10)
DELAY = 6 * GAP
LARGEST = 2**63 - 1

steps = st.sampled_from([timedelta(0), timedelta(0), GAP / 2, GAP, 2 * GAP])
sequences = st.sampled_from([None, "seq"])
storages = st.fixed_dictionaries(
    {
        "bucket_count": st.sampled_from([1, 64]),
        "layout": st.sampled_from(["buckets", "pages"]),
    }
)
in_any_order: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"midnight": st.sampled_from([None, "America/New_York"])}
)
in_order: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "max_events": st.sampled_from([None, 2, 3]),
        "until": st.sampled_from([None, "ends"]),
        "starts_with": st.sampled_from([None, "begins"]),
    }
)


@attrs.frozen
class Step:
    value: int
    ends: bool
    begins: bool
    seq: int


@attrs.define
class Listing:
    """The values of a session, none of them negative."""

    values: list[int] = attrs.field(factory=list)

    def update(self, event: Step) -> None:
        """Add a value, then fail over it if it's negative."""
        self.values = sorted([*self.values, event.value])
        if event.value < 0:
            raise ValueError(event.value)

    def merge(self, other: "Listing") -> None:
        self.values = sorted([*self.values, *other.values])


@attrs.define
class Total:
    total: int = 0

    def update(self, event: Step) -> None:
        self.add(event.value)

    def merge(self, other: "Total") -> None:
        self.add(other.total)

    def add(self, value: int) -> None:
        if self.total + value > LARGEST:
            raise OverflowError(value)
        self.total += value


@st.composite
def timelines(draw: st.DrawFn, sequence: str | None, *, bad_factor: int = -1) -> list[Click]:
    """Draw the events of two keys, by time; some values are multiplied, so that they're bad."""
    events, at = [], dict.fromkeys("ab", START)
    some = st.integers(0, 3).map(lambda number: number == 0)
    for number in range(1, draw(st.integers(2, 14))):
        key = draw(st.sampled_from("ab"))
        at[key] += draw(steps)
        value = bad_factor * number if draw(some) else number
        seq = 0 if sequence is None else draw(st.integers(0, 2))
        events.append(Click(key, at[key], value, GAP, draw(some), draw(some), seq=seq))
    return sorted(events, key=lambda event: event.at)


def spec_of(rules: SessionRules, state: Any = Listing, **options: Any) -> Any:
    settings: dict[str, Any] = {
        "keys": {"key": str},
        "event_time": "at",
        "timeout": rules,
        "watermark_delay": DELAY,
        "order": "event_time" if rules.in_order else "arrival",
        "on_error": "drop_session",
        **options,
    }
    if isinstance(state, dict):
        return SessionSpec.aggregate(Step, state, **grouped(**settings))
    return SessionSpec.of(state, **grouped(event=Step, **settings))


def run(spec: Any, cut: Sequence[Sequence[Click]]) -> tuple[list[Any], list[Rejection]]:
    """Run a cut through the driver, then the end of all sessions; return rows and rejections."""
    driver: SessionDriver[Any, Any, Any] = SessionDriver(spec)
    rows, rejections = [], []
    for batch in cut:
        for one in batch:
            driver.add(one.key, one.at, Step(one.value, one.ends, one.begins, one.seq))
        result = driver.run_batch()
        assert result.counts.is_balanced
        rows += driver.take_rows()
        rejections += driver.take_rejections()
    driver.advance_watermark_to(END)
    driver.run_until_idle()
    assert driver.counts.is_balanced
    assert not driver.open_sessions()
    rows += driver.take_rows()
    rejections += driver.take_rejections()
    return sorted(rows, key=lambda row: (row.key, row.start)), rejections


def seen(rows: Sequence[Any]) -> list[tuple[object, ...]]:
    """Return what the model says of sessions, their values sorted."""
    return [
        (row.key.key, row.start, row.end, sorted(row.result.values), row.closed_by) for row in rows
    ]


def expected(cuts: Sequence[Cut]) -> list[tuple[object, ...]]:
    return [(one.key, one.start, one.end, sorted(one.values), one.closed_by) for one in cuts]


def is_good(cut: Cut) -> bool:
    """Tell whether no event of a session fails."""
    return min(cut.values) > 0


def lies_in(cut: Cut, dropped: Rejection) -> bool:
    """Tell whether a session that was dropped is a part of one of the model."""
    start, end = dropped.session_start, dropped.session_end
    assert start is not None
    assert end is not None
    return cut.key == dropped.key.key and cut.start <= start < end <= cut.end


def told(rejections: Sequence[Rejection]) -> list[tuple[object, ...]]:
    """Return rejections in an order of their own."""
    return sorted((attrs.astuple(one) for one in rejections), key=repr)


@pytest.mark.parametrize("ordered", [False, True])
@given(data=st.data())
def test_all_at_once_the_sessions_that_fail_are_gone_and_no_others(
    ordered: bool, data: st.DataObject
) -> None:
    """Each is one failed output, and each of its events a failed one; the order doesn't show."""
    sequence = data.draw(sequences)
    events = data.draw(timelines(sequence))
    more = data.draw(in_order) if ordered else {}
    rules = SessionRules(GAP, **data.draw(in_any_order), **more)
    spec = spec_of(rules, sequence=sequence, **data.draw(storages))

    rows, rejections = run(spec, [events])

    cuts = naive_cuts(events, rules)
    bad = [one for one in cuts if not is_good(one)]
    outputs = [one for one in rejections if one.kind == "failed_output"]
    failed = [one for one in rejections if one.kind == "failed"]
    assert expected([one for one in cuts if is_good(one)]) == seen(rows)
    assert sorted((one.key, one.start, one.end) for one in bad) == sorted(
        (one.key.key, one.session_start, one.session_end) for one in outputs
    )
    assert sorted(v for one in bad for v in one.values) == sorted(e.event["value"] for e in failed)
    assert len(rejections) == len(outputs) + len(failed)
    again, others = run(spec, [data.draw(st.permutations(events))])
    assert (rows, told(rejections)) == (again, told(others))
    assert len(rows) + len(outputs) == len(
        {one.id for one in rows} | {o.session_id for o in outputs}
    )


@pytest.mark.parametrize("ordered", [False, True])
@given(data=st.data())
def test_in_any_cut_only_sessions_that_fail_lose_events(ordered: bool, data: st.DataObject) -> None:
    """What the gap keeps apart from every failure is as in the model, and each event is told."""
    sequence = data.draw(sequences)
    events = data.draw(timelines(sequence))
    more = data.draw(in_order) if ordered else {}
    rules = SessionRules(GAP, **data.draw(in_any_order), **more)
    cut = data.draw(batches(events, DELAY))
    assume(is_ahead(cut, DELAY))

    rows, rejections = run(spec_of(rules, sequence=sequence, **data.draw(storages)), cut)

    # By the gap and the day alone: a rule that depends on order counts from a dropped session on.
    by_times = naive_cuts(events, SessionRules(GAP, midnight=rules.midnight))
    safe = [one for one in by_times if is_good(one)]
    good = [event for event in events if any(event.value in one.values for one in safe)]
    ids = {event.value for event in good}
    whole = [row for row in rows if ids.intersection(row.result.values)]
    assert expected(naive_cuts(good, rules)) == seen(whole)
    outputs = [one for one in rejections if one.kind == "failed_output"]
    assert all(any(lies_in(bad, one) for bad in by_times if not is_good(bad)) for one in outputs)
    lost = sum(int(one.reason.removeprefix("dropped with ").split()[0]) for one in outputs)
    assert len(events) == lost + sum(len(row.result.values) for row in rows)


@pytest.mark.parametrize("ordered", [False, True])
@given(data=st.data())
def test_aggregates_drop_what_functions_drop(ordered: bool, data: st.DataObject) -> None:
    """A sum that doesn't fit drops the session in which a function over the same would fail."""
    sequence = data.draw(sequences)
    events = data.draw(timelines(sequence, bad_factor=LARGEST // 13))
    more = data.draw(in_order) if ordered else {}
    rules = SessionRules(GAP, **data.draw(in_any_order), **more)
    cut = data.draw(batches(events, DELAY))
    assume(is_ahead(cut, DELAY))
    options = {"sequence": sequence, **data.draw(storages)}

    rows, rejections = run(spec_of(rules, Total, **options), cut)
    others, told_there = run(spec_of(rules, {"total": agg.sum("value")}, **options), cut)

    assert [one.result.total for one in rows] == [one.result.total for one in others]
    assert [(one.id, one.closed_by) for one in rows] == [(one.id, one.closed_by) for one in others]
    assert without_reasons(rejections) == without_reasons(told_there)


def without_reasons(rejections: Sequence[Rejection]) -> list[tuple[object, ...]]:
    return told([attrs.evolve(one, reason="", traceback=None) for one in rejections])
