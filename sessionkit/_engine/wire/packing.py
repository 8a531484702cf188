"""
Rows packed for the shuffle: many rows of a group become one Arrow record batch, as bytes.

Spark moves a row of bytes for what would be thousands of rows, and Python reads it without
converting a value. Rows are validated before they're packed, so each travels either as an event or
with the reason for which it's quarantined.

Spark would compare a packed row with its watermark as a whole, and drop every event in it. So rows
with events carry no event time: Spark keeps those. Its watermark moves by marker rows, which carry
nothing but the latest time of an event, and which go no further than `withWatermark`.

On a batch, packs come in the order of their first events: Spark sorts them, on disk where they're
many. So once a pack begins at some instant, all events before that have come. A group runs in
portions of its events, of as many as memory should hold at once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise, repeat
from operator import itemgetter, methodcaller
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import INSTANT, micros, split
from sessionkit._engine.rows.tables import Rejected
from sessionkit._engine.wire.inbound import REASON, rejected_schema, validated
from sessionkit.spec.base import AnySpec

WATERMARK_COLUMN: Final = "_watermark"
EVENTS_COLUMN: Final = "_events"
REJECTED_COLUMN: Final = "_rejected"
FIRST_COLUMN: Final = "_first"
"""When the first event of a pack is, in microseconds; on a batch alone."""

Pack: TypeAlias = bytes | pa.Buffer
PackedRow: TypeAlias = tuple[int | None, Pack | None, Pack | None]
"""When the first event of a pack is, in microseconds; the pack; or one of rejected rows."""

BYTES_OF_A_PACK: Final = 2**16
"""Spark puts up to 10,000 rows into one Arrow batch, which must stay well under 2 GiB."""
ROWS_AT_ONCE: Final = 2**18
BYTES_AT_ONCE: Final = 2**26


# -- before the shuffle ---------------------------------------------------------------------------


@attrs.frozen
class Packer:
    """
    Packs the rows of one map task; Spark calls it before the shuffle.

    The names of the columns to group by are never null; `moves_watermark` asks for marker rows,
    `in_time` for packs that follow each other in time, and say when they begin.
    """

    spec: AnySpec
    group: Sequence[str]
    moves_watermark: bool
    in_time: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """
        Pack record batches into packed rows and marker rows.

        Their columns are those of the group, `_watermark` where rows move it, `_first` where packs
        say when they begin, `_events` and `_rejected`.
        """
        watermark = {WATERMARK_COLUMN: INSTANT} if self.moves_watermark else {}
        first = {FIRST_COLUMN: pa.int64()} if self.in_time else {}
        kinds = watermark | first | {EVENTS_COLUMN: pa.binary(), REJECTED_COLUMN: pa.binary()}
        for rows in _joined(batches):
            good, events, reasons = validated(self.spec, rows)
            groups = pa.table(rows.select(self.group))
            if not good.all():
                bad = pa.array(~good)
                rejected = events.append_column(REASON, reasons).filter(bad)
                of_packs, packs, _ = packed_by_group(groups.filter(bad), rejected)
                yield packed_rows(of_packs, kinds, {REJECTED_COLUMN: packs})
                groups, events = groups.filter(pa.array(good)), events.filter(pa.array(good))
            if not events.num_rows:
                continue
            of_packs, packs, first_us = packed_by_group(groups, events, in_time=self.in_time)
            begins = {FIRST_COLUMN: first_us} if self.in_time else {}
            yield packed_rows(of_packs, kinds, {EVENTS_COLUMN: packs, **begins})
            if self.moves_watermark:
                # One row of nulls: a marker row has no group.
                no_group = pa.Table.from_pylist([{}], schema=groups.schema)
                latest = pa.array([pc.max(events["time"]).value], INSTANT)
                yield packed_rows(no_group, kinds, {WATERMARK_COLUMN: latest})


def packed_rows(
    groups: pa.Table, kinds: Mapping[str, pa.DataType], columns: Mapping[str, pa.Array]
) -> pa.RecordBatch:
    """Return rows of groups with columns of some of these kinds, and nulls in the others."""
    rows = groups
    for name, kind in kinds.items():
        column = columns[name] if name in columns else pa.nulls(groups.num_rows, kind)
        rows = rows.append_column(name, column)
    return whole_batch(rows)


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small record batches, as many as memory should hold at once."""
    joined, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        # Not `nbytes`, which follows the offsets of lists. Where all lists of a batch are empty,
        # the JVM sends none for the lists in them, so it would read beyond a buffer of no bytes.
        own = batch.get_total_buffer_size()
        if rows and size + own > BYTES_AT_ONCE:
            yield whole_batch(pa.Table.from_batches(joined))
            joined, rows, size = [], 0, 0
        joined.append(batch)
        rows, size = rows + batch.num_rows, size + own
        if rows >= ROWS_AT_ONCE:
            yield whole_batch(pa.Table.from_batches(joined))
            joined, rows, size = [], 0, 0
    if rows:
        yield whole_batch(pa.Table.from_batches(joined))


def whole_batch(rows: pa.Table) -> pa.RecordBatch:
    """Return rows, at most some hundred megabytes, as one record batch."""
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)


def packed_by_group(
    groups: pa.Table, rows: pa.Table, *, in_time: bool = False
) -> tuple[pa.Table, pa.Array, pa.Array | None]:
    """
    Return the group of each pack of rows, the packs, group after group, and when each begins.

    That is in microseconds, and None unless the packs of a group are to follow each other in time.
    """
    # Of rows of the groups 7, 3, 7, `lists` is [[0, 2], [1]]: their places, group after group.
    numbered = groups.append_column("_place", pa.array(np.arange(groups.num_rows)))
    grouped = numbered.group_by(groups.column_names, use_threads=False)
    lists = grouped.aggregate([("_place", "list")])["_place_list"].combine_chunks()
    places, starts = lists.flatten(), lists.offsets.to_pylist()
    if in_time:
        places = _in_time(places, starts, rows)
    ordered = whole_batch(rows.take(places))
    firsts, packs = list[int](), list[bytes]()
    for start, end in pairwise(starts):
        for first, pack in packs_of(ordered.slice(start, end - start)):
            firsts.append(start + first)
            packs.append(pack)
    of_packs = groups.take(places.take(pa.array(firsts, pa.int64())))
    # The times 10, 30, 20, 40 in packs that start at 0 and 2 begin at 10 and 20.
    begins = pa.array(np.minimum.reduceat(micros(ordered["time"]), firsts)) if in_time else None
    return of_packs, pa.array(packs, pa.binary()), begins


def _in_time(places: pa.Array, starts: Sequence[int], rows: pa.Table) -> pa.Array:
    """Return the places of rows with those of each group that needs several packs in time order."""
    ordered, times_us, limit = places.to_numpy().copy(), micros(rows["time"]), _rows_of_a_pack(rows)
    for start, end in pairwise(starts):
        if end - start > limit:
            own = ordered[start:end]
            # `own` is a view, so this sorts `ordered` itself. The places 0 2 4 of rows at the times
            # 30, 10, 20 become 2 4 0.
            own[:] = own[np.argsort(times_us[own], kind="stable")]
    return pa.array(ordered)


def packs_of(rows: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
    """Yield packs of about as many bytes as one may have, each after the place of its first row."""
    limit = _rows_of_a_pack(rows)
    for first in range(0, rows.num_rows, limit):
        yield first, rows.slice(first, limit).serialize().to_pybytes()


def _rows_of_a_pack(rows: pa.RecordBatch | pa.Table) -> int:
    average = max(1, int(rows.nbytes) // max(1, rows.num_rows))
    limit: int = BYTES_OF_A_PACK // average
    return max(1, limit)


# -- after the shuffle ----------------------------------------------------------------------------


def packs_in(frames: Iterable[pd.DataFrame], *names: str) -> list[list[Pack]]:
    """Return the packs in each of some columns of frames; a row without one has a null there."""
    packs: list[list[Pack]] = [[] for _ in names]
    for frame in frames:
        # pandas takes longer to find a column by its name than to return a few rows as they are.
        values, columns = frame.to_numpy(object), list(frame.columns)
        for of_column, name in zip(packs, names, strict=True):
            for pack in values[:, columns.index(name)]:
                if isinstance(pack, bytes):
                    of_column.append(pack)
    return packs


def joined_packs(schema: pa.Schema, packs: Iterable[Pack]) -> pa.Table:
    """Return the rows in packs as one table, in one piece."""
    batches = list(map(pa.ipc.read_record_batch, map(pa.py_buffer, packs), repeat(schema)))
    rows = pa.Table.from_batches(batches, schema)
    return rows if len(batches) == 1 else rows.combine_chunks()


def unpacked(
    no_events: pa.Table, events: Sequence[Pack], rejected: Sequence[Pack]
) -> tuple[pa.Table, list[Rejected]]:
    """Return the events of a group, and the rows that can't be events."""
    arrived = joined_packs(no_events.schema, events) if events else no_events
    if not rejected:
        return arrived, []
    rows = joined_packs(rejected_schema(no_events.schema), rejected)
    reasons = rows[REASON].to_pylist()
    return arrived, [Rejected("quarantined", reasons, rows.drop_columns([REASON]))]


# -- after the shuffle of a batch -----------------------------------------------------------------


@attrs.frozen
class Portion:
    """
    Some events of a group, and rows that can't be events.

    All other events of the group are at `until_us`, in microseconds, or later; None where there is
    no other.
    """

    events: pa.Table
    quarantined: list[Rejected]
    until_us: int | None = None


def rows_of_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[Iterator[PackedRow]]:
    """Yield the rows of each group, which is the first column; its rows follow each other."""
    for _, rows in groupby(_rows_of_batches(batches), key=itemgetter(0)):
        yield (row[1:] for row in rows)


def _rows_of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    for batch in batches:
        first = batch.column(FIRST_COLUMN).to_pylist()
        packs = [
            map(methodcaller("as_buffer"), batch.column(name))
            for name in (EVENTS_COLUMN, REJECTED_COLUMN)
        ]
        yield from zip(batch.column(0).to_pylist(), first, *packs, strict=True)


def rows_of(frames: Iterable[pd.DataFrame]) -> list[PackedRow]:
    """Return the packs in the frames of a group, of which nobody knows when they begin."""
    events, rejected = packs_in(frames, EVENTS_COLUMN, REJECTED_COLUMN)
    return [*((None, pack, None) for pack in events), *((None, None, pack) for pack in rejected)]


def portions(
    no_events: pa.Table, rows: Iterable[PackedRow], at_once: int | None
) -> Iterator[Portion]:
    """
    Yield the rows of a group in portions of about so many events, in the order of time.

    A portion is larger where more packs than that have events of one span of time. None asks for
    all rows at once.
    """
    schema, wanted = no_events.schema, at_once
    batches, number, rejected = list[pa.RecordBatch](), 0, list[Pack]()
    for first_us, pack, bad in rows:
        if bad is not None:
            rejected.append(bad)
        if pack is None:
            continue
        if wanted is not None and first_us is not None and number >= wanted:
            table = pa.Table.from_batches(batches, schema)
            done, rest = split(table, micros(table["time"]) < first_us)
            if done.num_rows:
                _, quarantined = unpacked(no_events, [], rejected)
                yield Portion(done.combine_chunks(), quarantined, first_us)
                rejected = []
            batches, number = rest.to_batches(), rest.num_rows
            # Whatever the order of the packs, each event is looked at a few times at most.
            wanted = max(at_once or 0, 2 * number)
        batches.append(pa.ipc.read_record_batch(pack, schema))
        number += batches[-1].num_rows
    table = pa.Table.from_batches(batches, schema).combine_chunks() if batches else no_events
    yield Portion(table, unpacked(no_events, [], rejected)[1])
