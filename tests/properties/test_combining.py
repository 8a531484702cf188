"""
A batch whose map tasks combine events gives the rows and the counts of one whose tasks don't.

Precondition: packs come in the order of their first events, as Spark sorts them.
"""

from collections.abc import Sequence
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import EventTimeGap, Inputs, Lateness, Memory, Results, SessionRules, SessionSpec
from sessionkit import aggregates as agg
from sessionkit._engine.sessions.combining import Combiner
from sessionkit._engine.shell import worker
from sessionkit._engine.shell.storage import logic_of
from sessionkit._engine.wire import packing
from sessionkit._engine.wire.inbound import FUTURE_COLUMN, TIME_COLUMN
from sessionkit._engine.wire.packing import Packer
from sessionkit._instants import micros_of
from tests.properties.test_aggregates import GAP, NOON, Arrival, any_act, sequences
from tests.support.naive_aggregates import AGGREGATES, Act

BUCKETS = 2
OPTIONS: dict[str, Any] = {"keys": {"key": str}, "event_time": "ts", "watermark_delay": "0 seconds"}
EVERY = SessionSpec.aggregate(Act, AGGREGATES, gap="1m", **OPTIONS)
MERGING = [bound.name for bound in EVERY.bound if bound.merges]

arrivals = st.tuples(
    st.sampled_from(["a", "b", "c"]), st.integers(0, 40).map(lambda n: NOON + n * GAP / 4), any_act
)


def sent(spec: SessionSpec[Any, Any, Any], arrived: Sequence[Arrival]) -> pa.Table:
    """Return events as Spark sends them to the packer; the key tells the bucket."""
    columns: dict[str, Any] = {
        "bucket": pa.array([int(key == "a") for key, _, _ in arrived], pa.int32())
    }
    rows = [{"key": key, **attrs.asdict(act, recurse=False)} for key, _, act in arrived]
    for column in spec.wire_columns:
        values = [row[column.field.name] for row in rows]
        dumped = [None if value is None else column.kind.dump(value) for value in values]
        columns[column.name] = pa.array(dumped, column.kind.arrow)
    times = [micros_of(at) for _, at, _ in arrived]
    columns[TIME_COLUMN] = pa.array(times, pa.timestamp("us", "UTC"))
    # What can't be an event is quarantined before anything is combined.
    columns[FUTURE_COLUMN] = pa.array([act.number == 1 for _, _, act in arrived])
    return pa.table(columns)


def came_out(
    spec: SessionSpec[Any, Any, Any],
    tasks: Sequence[Sequence[Arrival]],
    combiner: Combiner | None,
    at_once: int,
) -> tuple[list[str], Any, int]:
    """Return rows, counts, and how many packs of partial sessions there were."""
    packed = list[pa.RecordBatch]()
    for task in tasks:
        packer = Packer(spec, ("bucket",), False, in_time=True, combine=combiner)  # noqa: FBT003
        packed += packer(sent(spec, task).to_batches())
    table = pa.Table.from_batches(packed)
    table = table.sort_by([("bucket", "ascending"), ("_first", "ascending")])
    partial = 0 if combiner is None else len(table["_sessions"].drop_null())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "EVENTS_AT_ONCE", at_once)
        partition = worker.Worker(logic_of(spec), with_rejected=True).packed_partition(
            table.to_batches(3), 0
        )
        *rows, counts = pa.Table.from_batches(partition).to_pylist()
    return sorted(map(repr, rows)), counts["_counts"], partial


@given(data=st.data())
def test_rows_are_the_same_with_and_without_combining(data: st.DataObject) -> None:
    """Whatever the events, the map tasks that read them, and the sizes of packs and portions."""
    names = data.draw(st.lists(st.sampled_from(MERGING), min_size=1, max_size=6, unique=True))
    timeout = EventTimeGap(GAP, gap_inclusive=data.draw(st.booleans()))
    spec = SessionSpec.aggregate(
        Act,
        {name: AGGREGATES[name] for name in names},
        timeout=timeout,
        sequence=data.draw(sequences),
        **OPTIONS,
    )
    tasks = data.draw(st.lists(st.lists(arrivals, min_size=1, max_size=10), min_size=1, max_size=3))
    combiner = Combiner(spec, BUCKETS, least=1, hot=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "BYTES_OF_A_PACK", data.draw(st.sampled_from([1, 2**16])))
        *expected, _ = came_out(spec, tasks, None, at_once=2**20)

        *found, _ = came_out(spec, tasks, combiner, at_once=data.draw(st.sampled_from([1, 4, 99])))

    assert expected == found


@attrs.frozen
class Hit:
    number: int


def test_a_portion_has_a_partial_session_with_the_event_that_joins_it() -> None:
    """In the smallest portions, a session that is open already takes in a partial one."""
    spec: SessionSpec[Any, Any, Any]
    spec = SessionSpec.aggregate(Hit, {"hits": agg.count()}, gap=GAP, **OPTIONS)
    quarters = [[0, 0, 0, 6], [0, 9, 0, 11]]
    tasks: Any = [[("a", NOON + n * GAP / 4, Hit(n)) for n in task] for task in quarters]
    combiner = Combiner(spec, BUCKETS, least=1, hot=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "BYTES_OF_A_PACK", 1)
        *expected, _ = came_out(spec, tasks, None, at_once=2**20)
        *found, packs = came_out(spec, tasks, combiner, at_once=1)

    assert expected == found
    assert 3 == packs


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": EventTimeGap(lambda act: act.gap, max_gap=GAP)},
        {"timeout": SessionRules(gap=GAP, max_duration=10 * GAP), "order": "event_time"},
        {"timeout": SessionRules(gap=GAP, midnight="UTC")},
        {"inputs": Inputs(drop_duplicates_for="1 hour", event_id="kind")},
        {"lateness": Lateness(reopen_within="1 hour")},
        {"memory": Memory(time_to_live="90 days")},
        {"on_error": "reject"},
        {"results": Results(with_events=True)},
        {"results": Results(emit="on_update")},
    ],
    ids=str,
)
def test_specs_whose_sessions_are_more_than_unions_of_intervals_stay_as_they_are(
    options: dict[str, Any],
) -> None:
    """Their partial sessions might give another row."""
    counted = {"events": agg.count()}
    plain = SessionSpec.aggregate(Act, counted, gap=GAP, **OPTIONS)
    timeout = {"timeout": EventTimeGap(GAP)} | options

    assert Combiner(plain, BUCKETS).merges
    assert not Combiner(SessionSpec.aggregate(Act, counted, **OPTIONS, **timeout), BUCKETS).merges


@pytest.mark.parametrize("inexact", [agg.sum("weight"), agg.mean("number"), agg.stddev("number")])
def test_aggregates_whose_parts_round_stay_as_they_are(inexact: Any) -> None:
    """One of them is enough."""
    spec = SessionSpec.aggregate(Act, {"n": agg.count(), "x": inexact}, gap=GAP, **OPTIONS)

    assert not Combiner(spec, BUCKETS).merges
