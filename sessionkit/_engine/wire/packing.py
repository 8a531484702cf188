"""
Rows packed for the shuffle: many rows of a group become one Arrow record batch, as bytes.

Spark moves a row of bytes for what would be thousands of rows, and Python reads it without
converting a value. Rows are validated before they're packed, so each travels either as an event or
with the reason for which it's quarantined.

Spark would compare a packed row with its watermark as a whole, and drop every event in it. So rows
with events carry no event time: Spark keeps those. Its watermark moves by marker rows, which carry
nothing but the latest time of an event, and which go no further than `withWatermark`.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import Final, TypeAlias

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import Numbers, micros, whole
from sessionkit._engine.rows.table import INSTANT, Rejected, whole_batch
from sessionkit._engine.wire.inbound import REASON, rejected_schema, validated
from sessionkit.spec.shared import AnySpec

WATERMARK_COLUMN: Final = "_watermark"
EVENTS_COLUMN: Final = "_events"
REJECTED_COLUMN: Final = "_rejected"
FIRST_COLUMN: Final = "_first"
"""When the first event of a pack is, in microseconds; on a batch alone."""

Pack: TypeAlias = bytes | pa.Buffer

BYTES_OF_A_PACK: Final = 2**16
"""Spark puts up to 10,000 rows into one Arrow batch, which must stay well under 2 GiB."""
ROWS_AT_ONCE: Final = 2**18
BYTES_AT_ONCE: Final = 2**26


def packs_of(rows: pa.RecordBatch) -> Iterator[bytes]:
    """Yield the packs of some rows, each of about as many bytes as one may have."""
    limit = _rows_of_a_pack(rows)
    for start in range(0, rows.num_rows, limit):
        yield rows.slice(start, limit).serialize().to_pybytes()


def _rows_of_a_pack(rows: pa.RecordBatch | pa.Table) -> int:
    average = max(1, int(rows.nbytes) // max(1, rows.num_rows))
    limit: int = BYTES_OF_A_PACK // average
    return max(1, limit)


def read_packs(schema: pa.Schema, packs: Iterable[Pack]) -> list[pa.RecordBatch]:
    """Return the record batches in packs, all of one schema."""
    return list(map(pa.ipc.read_record_batch, map(pa.py_buffer, packs), repeat(schema)))


def packs_in(frames: Sequence[pd.DataFrame], *names: str) -> list[list[Pack]]:
    """Return the packs in each of some columns of frames; a row without one has a null there."""
    packs: list[list[Pack]] = [[] for _ in names]
    for frame in frames:
        # pandas takes longer to find a column by its name than to return a few rows as they are.
        values, columns = frame.to_numpy(object), list(frame.columns)
        for found, name in zip(packs, names, strict=True):
            column = values[:, columns.index(name)]
            found += [pack for pack in column if isinstance(pack, bytes)]
    return packs


def joined_packs(schema: pa.Schema, packs: Iterable[Pack]) -> pa.Table:
    """Return the rows in packs as one table, in one piece."""
    batches = read_packs(schema, packs)
    rows = pa.Table.from_batches(batches, schema)
    return rows if len(batches) == 1 else rows.combine_chunks()


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
        for rows in _portions(batches):
            yield from self._packed(rows)

    def _packed(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        good, everything = validated(self.spec, rows)
        groups = rows.select(self.group)
        events = everything.drop_columns([REASON])
        if not good.all():
            bad = pa.array(~good)
            packed = packed_by_group(groups.filter(bad), everything.filter(bad))
            yield self._row(*packed, REJECTED_COLUMN)
            groups, events = groups.filter(pa.array(good)), events.filter(pa.array(good))
        if events.num_rows and self.in_time:
            of_packs, packs, first_us = packed_in_time(groups, events)
            yield self._row(of_packs, packs, EVENTS_COLUMN, first_us)
        elif events.num_rows:
            yield self._row(*packed_by_group(groups, events), EVENTS_COLUMN)
            if self.moves_watermark:
                nothing = pa.Table.from_pylist([{}], schema=groups.schema)
                latest = pa.array([pc.max(events["time"]).value], INSTANT)
                yield self._row(nothing, latest, WATERMARK_COLUMN)

    def _row(
        self, groups: pa.Table, values: pa.Array, name: str, first_us: pa.Array | None = None
    ) -> pa.RecordBatch:
        """Return rows with values in one of the columns, and nulls in the others."""
        columns = dict(zip(groups.column_names, map(whole, groups.columns), strict=True))
        if self.moves_watermark:
            columns[WATERMARK_COLUMN] = pa.nulls(len(values), INSTANT)
        if self.in_time:
            nothing = pa.nulls(len(values), pa.int64())
            columns[FIRST_COLUMN] = nothing if first_us is None else first_us
        for other in (EVENTS_COLUMN, REJECTED_COLUMN):
            columns[other] = pa.nulls(len(values), pa.binary())
        columns[name] = values
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join small record batches, as many as memory should hold at once."""
    portion, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        # Not `nbytes`, which follows the offsets of lists. Where all lists of a batch are empty,
        # the JVM sends none for the lists in them, so it would read beyond a buffer of no bytes.
        own = batch.get_total_buffer_size()
        if rows and size + own > BYTES_AT_ONCE:
            yield pa.Table.from_batches(portion)
            portion, rows, size = [], 0, 0
        portion.append(batch)
        rows, size = rows + batch.num_rows, size + own
        if rows >= ROWS_AT_ONCE:
            yield pa.Table.from_batches(portion)
            portion, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(portion)


def packed_by_group(groups: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Array]:
    """Return the group of each pack of rows, and the packs, group after group."""
    places, starts = _by_group(groups)
    firsts, packs = _packed(rows, places, starts)
    return groups.take(places.take(pa.array(firsts))), packs


def packed_in_time(groups: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Array, pa.Array]:
    """
    Return packs of events by group, as `packed_by_group`, and when each begins, in microseconds.

    Where a group has several, they follow each other in time.
    """
    found, starts = _by_group(groups)
    places, times, limit = found.to_numpy().copy(), micros(events["time"]), _rows_of_a_pack(events)
    for start, end in pairwise(starts):
        if end - start > limit:
            own = places[start:end]
            own[:] = own[np.argsort(times[own], kind="stable")]
    firsts, packs = _packed(events, pa.array(places), starts)
    begun = np.minimum.reduceat(times[places], firsts)
    return groups.take(pa.array(places[firsts])), packs, pa.array(begun)


def _by_group(groups: pa.Table) -> tuple[pa.Array, list[int]]:
    """Return the places of rows, group after group, and where each group starts and ends."""
    numbered = groups.append_column("_place", pa.array(np.arange(groups.num_rows)))
    found = numbered.group_by(groups.column_names, use_threads=False)
    places = found.aggregate([("_place", "list")])["_place_list"].combine_chunks()
    return places.flatten(), places.offsets.to_pylist()


def _packed(rows: pa.Table, places: pa.Array, starts: Sequence[int]) -> tuple[Numbers, pa.Array]:
    """Return the packs of rows in the order of their places, and where each starts."""
    ordered = whole_batch(rows.take(places))
    firsts, packs = list[int](), list[bytes]()
    for start, end in pairwise(starts):
        group = ordered.slice(start, end - start)
        limit = _rows_of_a_pack(group)
        firsts += range(start, end, limit)
        packs += packs_of(group)
    return np.array(firsts, np.int64), pa.array(packs, pa.binary())


@attrs.frozen
class Packs:
    """The rows of one group as they arrive: packs of events, and of rows that can't be events."""

    events: Sequence[Pack]
    rejected: Sequence[Pack]

    @classmethod
    def of_frames(cls, frames: Sequence[pd.DataFrame]) -> "Packs":
        """Return what is in frames, which have a null for each pack of the other kind."""
        return cls(*packs_in(frames, EVENTS_COLUMN, REJECTED_COLUMN))


def unpacked(no_events: pa.Table, packs: Packs) -> tuple[pa.Table, list[Rejected]]:
    """Return the events of a group, and the rows that can't be events."""
    events = joined_packs(no_events.schema, packs.events) if packs.events else no_events
    if not packs.rejected:
        return events, []
    rows = joined_packs(rejected_schema(no_events.schema), packs.rejected)
    reasons = rows[REASON].to_pylist()
    return events, [Rejected("quarantined", reasons, rows.drop_columns([REASON]))]
