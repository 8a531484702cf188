"""
Sessions from aggregates against the same sessions from functions.

The functions keep all events of a session, and compute its row in plain Python when it's over.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import EventTimeGap, Lateness, SessionSpec, Storage
from sessionkit.testing import SessionDriver
from tests.support.naive_aggregates import Act, by_aggregates, by_functions, naive_row
from tests.support.strategies import acts

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
GAP = timedelta(seconds=10)
Arrival = tuple[str, datetime, Act]

times = st.integers(0, 12).map(lambda steps: NOON + steps * GAP / 2)
any_act = acts(
    at=st.none() | times,
    day=times.map(datetime.date),
    spent=st.integers(-3, 3).map(lambda n: timedelta(microseconds=n)),
    raw=st.none() | st.binary(max_size=2),
    gap=st.sampled_from([GAP / 4, GAP]),
)
arrivals = st.tuples(st.sampled_from("ab"), times, any_act)
sequences = st.sampled_from([None, "number"])
timeouts = st.sampled_from(
    [
        EventTimeGap(GAP),
        EventTimeGap(GAP, gap_inclusive=False),
        EventTimeGap(lambda event: event.gap, max_gap=GAP),
    ]
)


def run(spec: SessionSpec[Any, Any, Any], batches: Sequence[Sequence[Arrival]]) -> dict[str, Any]:
    """Run batches and then the end of all sessions; return all that there is to see."""
    driver = SessionDriver(spec)
    for batch in batches:
        for key, at, act in batch:
            driver.add(key, at, act)
        driver.run_batch()
        driver = SessionDriver.restore(spec, driver.snapshot())
        still_open = driver.open_sessions()
    driver.advance_watermark_to(NOON + timedelta(days=1))
    results = driver.run_batch()
    return {
        "rows": driver.take_rows() + results.rows,
        "rejections": driver.take_rejections(),
        "counts": driver.counts,
        "open": [
            (o.key, o.session_id, o.session_start, o.session_end, o.events) for o in still_open
        ],
    }


def shown(value: Any) -> Any:
    """Return a value as text where it's a float: NaN and both zeros are equal, sums round."""
    if isinstance(value, dict):
        return {name: shown(item) for name, item in value.items()}
    if isinstance(value, float):
        return f"{value + 0.0:.9g}"
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    if attrs.has(type(value)):
        return shown(attrs.asdict(value, recurse=False))
    return value


@given(data=st.data())
def test_aggregates_and_functions_give_equal_rows(data: st.DataObject) -> None:
    """Rows, ids, counts, rejected and open sessions are the same, whatever comes."""
    arrived = data.draw(st.lists(arrivals, min_size=1, max_size=12))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(arrived)), max_size=4)))
    batches = [arrived[start:stop] for start, stop in pairwise([0, *cuts, len(arrived)])]
    options: dict[str, Any] = {
        "timeout": data.draw(timeouts),
        "sequence": data.draw(sequences),
        "watermark_delay": data.draw(st.sampled_from([timedelta(0), GAP, 9 * GAP])),
        "lateness": Lateness(judged_by=data.draw(st.sampled_from(["event", "session"]))),
        "storage": Storage(bucket_count=data.draw(st.sampled_from([1, 64]))),
    }

    expected = run(by_functions(**options), batches)

    assert shown(expected) == shown(run(by_aggregates(**options), batches))


@given(data=st.data())
def test_open_sessions_are_the_same_for_any_order_and_cut(data: st.DataObject) -> None:
    """Open sessions have the row of all their events, whatever the order and the cut."""
    arrived = data.draw(st.lists(arrivals, min_size=1, max_size=12))
    moved = data.draw(st.permutations(arrived))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(moved)), max_size=4)))
    options: dict[str, Any] = {"watermark_delay": "1 hour", "sequence": data.draw(sequences)}
    driver = SessionDriver(by_aggregates(EventTimeGap(2 * GAP), **options))
    for start, stop in pairwise([0, *cuts, len(moved)]):
        for key, at, act in moved[start:stop]:
            driver.add(key, at, act)
        driver.run_batch()

    found = driver.open_sessions()
    events = [
        [
            (at, act)
            for key, at, act in arrived
            if key == one.key.key and one.session_start <= at < one.session_end
        ]
        for one in found
    ]
    rows = [naive_row(those, options["sequence"]) for those in events]
    assert [shown(row) for row in rows] == [shown(one.state) for one in found]
