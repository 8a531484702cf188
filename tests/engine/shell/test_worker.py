"""The callable that Spark calls, with a group state and frames in hand."""

import gc
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any
from weakref import ref

import attrs
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from examples.visits import View, visits
from sessionkit import SessionSpec, Storage
from sessionkit._engine.counts import COUNTED
from sessionkit._engine.shell.storage import logic_of
from sessionkit._engine.shell.worker import Worker
from sessionkit.errors import SessionkitError, StateCorruptedError, StateError
from sessionkit.testing import FakeGroupState, SessionDriver
from sessionkit.testing.drivers.results import read_output
from sessionkit.testing.drivers.rows import input_frame

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
MINUTE_MS = 60_000


def frame_of(*minutes: int, user: str = "ann", spec: SessionSpec[Any, Any, Any] = visits) -> Any:
    """Return a frame of page views, so many minutes after noon."""
    rows = [
        {"user_id": user, "ts": NOON + timedelta(minutes=minute), "url": "/", "seconds": 1.0}
        for minute in minutes
    ]
    return input_frame(spec, rows)


def fresh(watermark_ms: int = 0) -> FakeGroupState:
    """Return the state of a bucket that has stored nothing."""
    return FakeGroupState(timeout="EventTimeTimeout", watermark_ms=watermark_ms)


def call(
    state: FakeGroupState, *frames: pd.DataFrame, spec: SessionSpec[Any, Any, Any] = visits
) -> Sequence[Any]:
    """Run one micro-batch; return sessions, rejections and counts."""
    worker = Worker(logic_of(spec), with_rejected=True)
    return read_output(spec, worker((1,), frames, state))[:3]


def stored() -> FakeGroupState:
    """Return the state behind a batch with one page view at noon."""
    state = fresh()
    call(state, frame_of(0))
    return state


def test_a_session_arms_the_timer_for_its_end() -> None:
    """Spark's timer is the end, less one millisecond."""
    assert NOON_MS + 30 * MINUTE_MS - 1 == stored().timeout_timestamp_ms


def test_a_timeout_closes_and_leaves_nothing() -> None:
    """An empty bucket has no state row and no timer, however its frame looks."""
    state = stored().next_call(watermark_ms=NOON_MS + 30 * MINUTE_MS, has_timed_out=True)
    nothing = pd.DataFrame(columns=list(frame_of(0).columns), dtype=object)

    sessions, rejections, counts = call(state, nothing)

    assert 1 == len(sessions)
    assert [] == rejections
    assert (0, 1, 1) == (counts.events, counts.sessions, counts.rows)
    assert state.is_removed
    assert state.stored_after() is None


def test_every_call_writes_or_removes() -> None:
    """A call that touched nothing would leave a timer that fires forever."""
    for watermark_ms in (1, NOON_MS - 60 * MINUTE_MS, NOON_MS + 1):
        state = stored().next_call(watermark_ms=max(watermark_ms, 1))
        call(state, frame_of(-600))
        assert state.is_updated or state.is_removed


def test_chunks_of_any_size_give_the_same() -> None:
    """Spark cuts a group into frames as it likes."""
    whole, cut = fresh(), fresh()

    call(whole, frame_of(0, 5, 90, 95))
    call(cut, frame_of(0), frame_of(5, 90), frame_of(95))

    assert whole.stored_after() == cut.stored_after()


def test_order_within_a_batch_does_not_reach_the_stored_bytes() -> None:
    """A re-run that gets its rows shuffled stores the same state."""
    one, other = fresh(), fresh()

    call(one, frame_of(0, 5, 5, 90))
    call(other, frame_of(90, 5, 0, 5))

    assert one.stored_after() == other.stored_after()


ROW = ("format", "buckets", "written", "kept", "buffered", "event_due", "processing_due", "payload")


def damaged(change: dict[str, Any]) -> FakeGroupState:
    """Return a stored state with its values changed."""
    row = stored().stored_after()
    assert row is not None
    assert row.value is not None
    values = dict(zip(ROW, row.value, strict=True)) | change
    return FakeGroupState(value=tuple(values.values()), timeout="EventTimeTimeout", watermark_ms=1)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"format": 4}, "wasn't written with the other columns of its row"),
        ({"buckets": 32}, "wasn't written with the other columns of its row"),
        ({"written": 7}, "wasn't written with the other columns of its row"),
        ({"event_due": None}, "wasn't written with the other columns of its row"),
        ({"payload": b"something else entirely"}, "was not written by sessionkit"),
        ({"payload": b"SKB1"}, "truncated"),
    ],
)
def test_state_of_another_kind_stops_the_query(change: dict[str, Any], text: str) -> None:
    """The worker is the net under the check on the driver."""
    with pytest.raises((StateCorruptedError, StateError), match=text):
        call(damaged(change), frame_of(1))


def partition_of(minutes: Mapping[int, Sequence[int]], rows_at_once: int) -> Any:
    """Return what a partition receives: the packs of buckets, each event in a pack of its own."""
    rows = packed_rows(minutes)
    return table_of(rows).to_batches(rows_at_once)


def packed_rows(minutes: Mapping[int, Sequence[int]]) -> list[dict[str, Any]]:
    return [
        {"bucket": bucket, "_first": (NOON_MS + minute * MINUTE_MS) * 1000, **row}
        for bucket, arrived in minutes.items()
        for minute in arrived
        for row in frame_of(minute).drop(columns=["_group", "_watermark"]).to_dict("records")
        if row["_events"]
    ]


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    kinds = {
        "bucket": pa.int32(),
        "_first": pa.int64(),
        "_events": pa.binary(),
        "_rejected": pa.binary(),
    }
    return pa.Table.from_pylist(rows, pa.schema(kinds))


@pytest.mark.parametrize("rows_at_once", [1, 2, 100])
def test_a_partition_runs_each_group_as_a_whole(rows_at_once: int) -> None:
    """Its rows may come in any number of record batches; its last row has the counts alone."""
    batches = partition_of({3: [0, 5, 90], 7: [1], 9: [2, 200]}, rows_at_once)

    found = pa.Table.from_batches(Worker(logic_of(visits)).packed_partition(batches, 0)).to_pylist()

    *rows, last = found
    assert [2, 1, 1, 1, 1] == [row["pages"] for row in rows]
    assert {None} == {row["_counts"] for row in rows}
    assert [6, 6, 5] == [
        last["_counts"][COUNTED.index(name)] for name in ("events", "processed", "sessions")
    ]
    assert {None} == {value for name, value in last.items() if name != "_counts"}


PACKS = [(3, 0), (3, 5), (3, 90), (7, 1), (9, 2), (9, 200)]


@given(shuffled=st.permutations(PACKS))
@example(shuffled=PACKS)
@example(shuffled=[*PACKS[1:], PACKS[0]])
@example(shuffled=[PACKS[1], PACKS[0], *PACKS[2:]])
def test_rows_of_a_partition_in_another_order_are_refused(shuffled: list[tuple[int, int]]) -> None:
    """A bucket that comes twice, or a pack before an earlier one, would cut sessions apart."""
    rows = [row for bucket, minute in shuffled for row in packed_rows({bucket: [minute]})]
    runs = [[minute for _, minute in run] for _, run in groupby(shuffled, key=itemgetter(0))]
    is_in_order = len(runs) == 3 and all(run == sorted(run) for run in runs)
    out = Worker(logic_of(visits)).packed_partition(table_of(rows).to_batches(), 0)

    if is_in_order:
        assert 6 == pa.Table.from_batches(out).num_rows
        return
    with pytest.raises(SessionkitError, match="twice in a partition|before an earlier one") as said:
        _ = [*out]
    assert "dropped the sort by bucket and event time" in str(said.value)


@pytest.mark.parametrize("layout", ["buckets", "pages"])
def test_a_spec_is_forgotten_with_its_worker(layout: Any) -> None:
    """A Python worker process runs many micro-batches, and unpickles a worker for each of them."""
    spec = attrs.evolve(visits, storage=Storage(layout=layout))
    driver = SessionDriver(spec)
    for minute in (0, 1):
        driver.add("ann", NOON + timedelta(minutes=minute), View(url="/", seconds=1.0))
        driver.run_batch()
    gone = ref(spec)
    del spec, driver
    gc.collect()

    assert gone() is None
