"""
Rows packed for the shuffle: many rows of a group become one Arrow record batch, as bytes.

Spark moves a row of bytes for what would be thousands of rows, and Python reads it without
converting a value. Rows are judged before they're packed, so each travels either as an event or
with the reason for which it's quarantined.

Spark would compare a packed row with its watermark as a whole, and drop every event in it. So rows
with events carry no event time: Spark keeps those. Its watermark moves by marker rows, which carry
nothing but the latest time of an event, and which go no further than `withWatermark`.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.rows.table import INSTANT, Rejected, whole, whole_batch
from sessionkit._engine.wire.columns import EVENTS_COLUMN, REJECTED_COLUMN, WATERMARK_COLUMN
from sessionkit._engine.wire.inbound import REASON, judged, rejected_schema
from sessionkit._engine.wire.packs import Pack, joined_packs, packs_in, packs_of
from sessionkit.spec.shared import AnySpec

__all__ = ["Packer", "Packs", "packed_by_group", "packs_of_groups", "unpacked"]

ROWS_AT_ONCE: Final = 2**18
BYTES_AT_ONCE: Final = 2**26


@attrs.frozen
class Packer:
    """
    Packs the rows of one map task; Spark calls it before the shuffle.

    Attributes:
        spec: The spec whose columns cross.
        group: The names of the columns to group by. They're never null.
        moves_watermark: Whether marker rows are needed.
    """

    spec: AnySpec
    group: Sequence[str]
    moves_watermark: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """
        Pack record batches.

        Returns:
            Record batches of packed rows and marker rows: the columns of the group, `_watermark`
            where rows move it, `_events` and `_rejected`.
        """
        for rows in _portions(batches):
            yield from self._packed(rows)

    def _packed(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        good, everything = judged(self.spec, rows)
        groups = rows.select(self.group)
        events = everything.drop_columns([REASON])
        if not good.all():
            bad = pa.array(~good)
            yield self._batch(groups.filter(bad), everything.filter(bad), REJECTED_COLUMN)
            groups, events = groups.filter(pa.array(good)), events.filter(pa.array(good))
        if events.num_rows:
            yield self._batch(groups, events, EVENTS_COLUMN)
            if self.moves_watermark:
                yield self._marker(groups.schema, pc.max(events["time"]))

    def _batch(self, groups: pa.Table, rows: pa.Table, name: str) -> pa.RecordBatch:
        """Return the rows of every group, packed into one of the two columns."""
        of_packs, packs = packed_by_group(groups, rows)
        return self._row(of_packs, name, packs)

    def _marker(self, groups: pa.Schema, latest: pa.Scalar) -> pa.RecordBatch:
        nothing = pa.Table.from_arrays([pa.nulls(1, kind) for kind in groups.types], schema=groups)
        return self._row(nothing, WATERMARK_COLUMN, pa.array([latest.value], INSTANT))

    def _row(self, groups: pa.Table, name: str, values: pa.Array) -> pa.RecordBatch:
        watermark = {WATERMARK_COLUMN: INSTANT} if self.moves_watermark else {}
        types = {**watermark, EVENTS_COLUMN: pa.binary(), REJECTED_COLUMN: pa.binary()}
        columns = {
            **{group: whole(groups[group]) for group in self.group},
            **{other: pa.nulls(len(values), kind) for other, kind in types.items()},
            name: values,
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join small record batches, as many as memory should hold at once."""
    portion: list[pa.RecordBatch] = []
    for batch in batches:
        if _size([*portion, batch]) > BYTES_AT_ONCE:
            yield from _table(portion)
            portion = []
        portion.append(batch)
        if sum(held.num_rows for held in portion) >= ROWS_AT_ONCE:
            yield from _table(portion)
            portion = []
    yield from _table(portion)


def _size(portion: Sequence[pa.RecordBatch]) -> int:
    # `nbytes` follows the offsets of lists. Where all lists of a batch are empty, the JVM sends
    # none for the lists in them, so it would read beyond a buffer of no bytes.
    return sum(batch.get_total_buffer_size() for batch in portion)


def _table(portion: Sequence[pa.RecordBatch]) -> Iterator[pa.Table]:
    if any(batch.num_rows for batch in portion):
        yield pa.Table.from_batches(portion)


def packed_by_group(groups: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Array]:
    """Return packs of rows, group after group, and beside them the group of each pack."""
    order, starts = _order_by_group(groups)
    ordered = whole_batch(rows.take(order))
    ends = [*starts[1:], rows.num_rows]
    found = [
        (start, pack)
        for start, end in zip(starts, ends, strict=True)
        for pack in packs_of(ordered.slice(start, end - start))
    ]
    firsts = groups.take(order.take(pa.array([start for start, _ in found], pa.int64())))
    return firsts, pa.array([pack for _, pack in found], pa.binary())


def _order_by_group(groups: pa.Table) -> tuple[pa.Array, list[int]]:
    """Return the places of the rows, group after group, and where each group starts."""
    numbered = groups.append_column("_place", pa.array(np.arange(groups.num_rows)))
    found = numbered.group_by(groups.column_names, use_threads=False)
    lists = found.aggregate([("_place", "list")])["_place_list"].combine_chunks()
    return lists.flatten(), lists.offsets.to_pylist()[:-1]


@attrs.frozen
class Packs:
    """
    The rows of one group as they arrive.

    Attributes:
        events: Packs of events.
        rejected: Packs of rows that can't be events.
    """

    events: Sequence[Pack]
    rejected: Sequence[Pack]

    @classmethod
    def of_frames(cls, frames: Sequence[pd.DataFrame]) -> "Packs":
        """Return what is in frames, which have a null for each pack of the other kind."""
        return cls(packs_in(frames, EVENTS_COLUMN), packs_in(frames, REJECTED_COLUMN))


def packs_of_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[Packs]:
    """Yield the packs of each group, which is the first column; its rows follow each other."""
    for _, rows in groupby(_packed_rows(batches), key=itemgetter(0)):
        _, events, rejected = zip(*rows, strict=True)
        yield Packs(_given(events), _given(rejected))


def _packed_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        packs = [map(_buffer, batch.column(name)) for name in (EVENTS_COLUMN, REJECTED_COLUMN)]
        yield from zip(batch.column(0).to_pylist(), *packs, strict=True)


def _buffer(pack: pa.BinaryScalar) -> pa.Buffer | None:
    return pack.as_buffer()


def _given(packs: Iterable[Pack | None]) -> list[Pack]:
    return [pack for pack in packs if pack is not None]


def unpacked(no_events: pa.Table, packs: Packs) -> tuple[pa.Table, list[Rejected]]:
    """Return the events of a group, and the rows that can't be events."""
    events = joined_packs(no_events.schema, packs.events) if packs.events else no_events
    if not packs.rejected:
        return events, []
    rows = joined_packs(rejected_schema(no_events.schema), packs.rejected)
    reasons = rows[REASON].to_pylist()
    return events, [Rejected("quarantined", reasons, rows.drop_columns([REASON]))]
