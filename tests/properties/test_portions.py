"""
A batch that takes the events of a group in portions gives what it gives of all at once.

So does a batch whose rows are gathered in memory, in any order. Precondition of the other: packs
come in the order of their first events, as Spark sorts them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import chain, pairwise
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import SessionRules, SessionSpec
from sessionkit._engine.shell import worker
from sessionkit._engine.shell.storage import logic_of
from sessionkit._engine.wire import gathering, inbound, packing
from sessionkit._engine.wire.gathering import HASH_COLUMN, portions_in_time
from sessionkit._engine.wire.inbound import FUTURE_COLUMN, TIME_COLUMN
from sessionkit._engine.wire.packing import Packer, portions
from sessionkit._instants import micros_of
from tests.support.naive_rules import Click
from tests.support.ruled_sessions import (
    Shown,
    gaps,
    in_any_order,
    in_order,
    sequences,
    spec_of,
    timelines,
)

Kind = Literal["functions", "aggregates", "events"]
NO_SESSIONS = pa.schema({"start": pa.timestamp("us", "UTC")}).empty_table()


def spec_of_kind(kind: Kind, rules: SessionRules, **options: Any) -> SessionSpec[Any, Any, Any]:
    if kind != "events":
        return spec_of(rules, aggregated=kind == "aggregates", **options)
    options["order"] = "event_time" if rules.in_order else "arrival"
    return SessionSpec.per_event(
        Shown, keys={"key": str}, event_time="at", timeout=rules, **options
    )


def sent(spec: SessionSpec[Any, Any, Any], clicks: Sequence[Click]) -> pa.Table:
    """Return clicks as Spark sends them to the packer, all in one bucket."""
    rows = [{"key": one.key, "at": one.at, **one._asdict()} for one in clicks]
    columns: dict[str, Any] = {"bucket": pa.array([0] * len(rows), pa.int32())}
    for column in spec.wire_columns:
        values = [column.kind.dump(row[column.field.name]) for row in rows]
        columns[column.name] = pa.array(values, column.kind.arrow)
    times = [micros_of(one.at) for one in clicks]
    columns[TIME_COLUMN] = pa.array(times, pa.timestamp("us", "UTC"))
    # What can't be an event is quarantined, in whichever portion it comes.
    columns[FUTURE_COLUMN] = pa.array([one.value == 0 for one in clicks])
    return pa.table(columns)


def came_out(
    spec: SessionSpec[Any, Any, Any], tasks: Sequence[Sequence[Click]], at_once: int
) -> tuple[list[str], Any]:
    """Return the rows and counts of what some map tasks packed, sorted as Spark does."""
    packer = Packer(spec, ("bucket",), moves_watermark=False, in_time=True)
    packed = [batch for task in tasks for batch in packer(sent(spec, task).to_batches())]
    logic = logic_of(spec)
    table = pa.Table.from_batches(packed).sort_by(
        [("bucket", "ascending"), ("_first", "ascending")]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "EVENTS_AT_ONCE", at_once)
        partition = worker.Worker(logic, with_rejected=True).packed_partition(
            table.to_batches(3), 0
        )
        *rows, counts = pa.Table.from_batches(partition).to_pylist()
    return sorted(map(repr, rows)), counts["_counts"]


def came_out_unpacked(
    spec: SessionSpec[Any, Any, Any], came: Sequence[Click], hashes: Mapping[str, int], at_once: int
) -> tuple[list[str], Any]:
    """Return the rows and counts of clicks that come unpacked, in any order, one to a batch."""
    hashed = pa.array([hashes[one.key] for one in came], pa.int64())
    rows = sent(spec, came).drop_columns(["bucket"]).append_column(HASH_COLUMN, hashed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "EVENTS_AT_ONCE", at_once)
        run = worker.Worker(logic_of(spec), with_rejected=True).unpacked_partition
        *found, counts = pa.Table.from_batches(run(rows.to_batches(1), 0)).to_pylist()
    return sorted(map(repr, found)), counts["_counts"]


@pytest.mark.parametrize("kind", ["functions", "aggregates", "events"])
@pytest.mark.parametrize("ordered", [False, True])
@given(data=st.data())
def test_rows_are_the_same_for_portions_of_any_size(
    kind: Kind, ordered: bool, data: st.DataObject
) -> None:
    """Whatever the rules, the sizes of packs and portions, and the order in which events came."""
    sequence = data.draw(sequences)
    events = data.draw(timelines(sequence))
    bad = data.draw(st.sampled_from([(), (3, 5)])) if kind == "functions" else ()
    events = [one._replace(value=-one.value) if one.value in bad else one for one in events]
    more: dict[str, Any] = data.draw(in_order) if ordered else {}
    rules = SessionRules(**data.draw(gaps), **data.draw(in_any_order), **more)
    reject = {"on_error": "reject"} if kind == "functions" else {}
    spec = spec_of_kind(kind, rules, watermark_delay=timedelta(0), sequence=sequence, **reject)
    came = data.draw(st.permutations(events))
    cut = data.draw(st.integers(0, len(came)))
    tasks = [task for task in (came[:cut], came[cut:]) if task]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "BYTES_OF_A_PACK", data.draw(st.sampled_from([1, 200, 2**16])))

        whole = came_out(spec, tasks, at_once=2**20)

        assert came_out(spec, tasks, at_once=data.draw(st.integers(1, 4))) == whole

        patch.setattr(gathering, "ROWS_OF_A_GROUP", data.draw(st.sampled_from([1, 3, 2**17])))
        patch.setattr(inbound, "ROWS_AT_ONCE", data.draw(st.sampled_from([1, 4, 2**18])))
        numbers = st.integers(-(2**63), 2**63 - 1)
        hashes = {key: data.draw(numbers) for key in sorted({one.key for one in came})}
        unpacked = came_out_unpacked(spec, came, hashes, at_once=data.draw(st.integers(1, 20)))
        assert unpacked == whole


@given(
    minutes=st.lists(st.lists(st.integers(0, 30), min_size=1), min_size=1),
    at_once=st.integers(1, 20),
)
def test_a_portion_has_all_events_before_its_end(minutes: list[list[int]], at_once: int) -> None:
    """Each event is in one portion; it's as small as the times of packs let it be."""
    schema = pa.schema({"time": pa.timestamp("us", "UTC")})
    packs = sorted(minutes, key=min)
    rows = [
        (
            min(one),
            pa.record_batch([pa.array(one, schema.types[0])], schema).serialize(),
            None,
            None,
        )
        for one in packs
    ]

    found = [*portions(schema.empty_table(), NO_SESSIONS, rows, at_once)]

    times = [portion.events["time"].cast(pa.int64()).to_pylist() for portion in found]
    assert sorted(time for one in minutes for time in one) == sorted(
        t for part in times for t in part
    )
    ends = [-1, *(portion.until_us for portion in found[:-1]), 31]
    for part, start, end in zip(times, ends, ends[1:], strict=False):
        assert all(start <= time < end for time in part)
    assert found[-1].until_us is None


@given(
    parts=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=4),
    at_once=st.one_of(st.none(), st.integers(1, 5)),
)
def test_a_gathered_group_comes_in_portions_in_time(
    parts: list[list[int]], at_once: int | None
) -> None:
    """Each event is in one portion, and events of one instant are in the same."""
    minutes = [*chain(*parts)]
    tables = [pa.table({"time": pa.array(part, pa.timestamp("us", "UTC"))}) for part in parts]

    found = [*portions_in_time(tables, NO_SESSIONS, at_once)]

    times = [portion.events["time"].cast(pa.int64()).to_pylist() for portion in found]
    assert sorted(minutes) == sorted(chain(*times))
    if at_once is None:
        assert 1 == len(found)
    else:
        assert all(len(part) <= at_once or max(Counter(part).values()) > 1 for part in times)
    ends = [-1, *(portion.until_us for portion in found[:-1]), 10]
    for part, (start, end) in zip(times, pairwise(ends), strict=True):
        assert all(start <= time < end for time in part)
    assert found[-1].until_us is None


def test_a_sorted_group_comes_in_portions_of_the_size_asked_for() -> None:
    """So memory doesn't grow with the group."""
    schema = pa.schema({"time": pa.timestamp("us", "UTC")})
    rows = []
    for first in range(0, 10_000, 10):
        times = pa.array(range(first, first + 10), schema.types[0])
        rows.append((first, pa.record_batch([times], schema).serialize(), None, None))

    sizes = [
        part.events.num_rows for part in portions(schema.empty_table(), NO_SESSIONS, rows, 1_000)
    ]

    assert [1_000] * 10 == sizes


@pytest.mark.parametrize("way", ["packed", "gathered"])
def test_large_events_come_in_smaller_portions(way: str) -> None:
    """Those of 8 KB count as eight, so that no portion has more text than Arrow can join."""
    count, instant = 100, pa.timestamp("us", "UTC")
    columns = {"time": pa.array(range(count), instant), "text": pa.array(["x" * 2**13] * count)}
    events = pa.table(columns)
    if way == "packed":
        parts = [events.slice(place, 1).to_batches()[0] for place in range(count)]
        rows = [(place, part.serialize(), None, None) for place, part in enumerate(parts)]
        found = [*portions(events.schema.empty_table(), NO_SESSIONS, rows, 80)]
    else:
        found = [*portions_in_time([events], NO_SESSIONS, 80)]

    sizes = [portion.events.num_rows for portion in found]
    assert count == sum(sizes)
    assert max(sizes) <= 10
