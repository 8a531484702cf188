"""
Pack rows for the shuffle: many rows of a group become an Arrow record batch, as bytes.

Spark shuffles a single row of bytes instead of thousands of rows, and Python reads it without
converting values. Rows are validated before they're packed: each crosses as an event, or as a
quarantined row with a reason.

Spark compares the event time of a row with its watermark, and would drop a pack with all its
events. So packs carry no event time, and Spark keeps them. Marker rows move the watermark: they
carry only the latest event time, and end at `withWatermark`.

On a batch, Spark sorts the packs of a group by their first event time, on disk if necessary. So
once a pack begins at an instant, all earlier events have arrived. A group then runs in portions of
events that fit into memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise, repeat
from operator import itemgetter, methodcaller
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import INSTANT, Mask, Numbers, micros, split, whole_batch
from sessionkit._engine.rows.tables import SideOutput
from sessionkit._engine.wire.inbound import REASON, arrivals, rejected_schema
from sessionkit._instants import BEGINNING_US
from sessionkit.errors import SessionkitError
from sessionkit.spec.base import AnySpec

WATERMARK_COLUMN: Final = "_watermark"
EVENTS_COLUMN: Final = "_events"
REJECTED_COLUMN: Final = "_rejected"
FIRST_COLUMN: Final = "_first"
"""The first event time of a pack in microseconds, on a batch."""
SESSIONS_COLUMN: Final = "_sessions"
"""Packs of partial sessions, on a batch whose map tasks combine events."""

Pack: TypeAlias = bytes | pa.Buffer
PackedRow: TypeAlias = tuple[int | None, Pack | None, Pack | None, Pack | None]
"""The first time of a pack in microseconds, and a pack of events, rejected rows or sessions."""

BYTES_OF_A_PACK: Final = 2**16
"""Spark puts up to 10,000 rows into an Arrow batch, which must stay well under 2 GiB."""


# -- before the shuffle ---------------------------------------------------------------------------


@attrs.frozen
class Combined:
    """
    What a map task has made of its events.

    Attributes:
        sessions: Partial sessions, with their `start`.
        places: The place of an event of each partial session.
        goes_on: Which events are in no partial session, and go on as events.
    """

    sessions: pa.Table
    places: Numbers
    goes_on: Mask


Combine: TypeAlias = Callable[[pa.Table, Numbers], Combined | None]
"""A function of events and their buckets; None where combining more of them is in vain."""


@attrs.frozen
class Packer:
    """
    The function that packs the rows of a map task; Spark calls it before the shuffle.

    The columns in `group` have no nulls. `moves_watermark` adds marker rows. `in_time` puts the
    packs of a group in time order, and adds their first event times. `combine` makes partial
    sessions of events, which are packed as events are.
    """

    spec: AnySpec
    group: Sequence[str]
    moves_watermark: bool
    in_time: bool = False
    combine: Combine | None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], *, is_first: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """
        Pack record batches into packed rows and marker rows.

        Their columns are the group, `_watermark` if rows move it, `_first` if packs are in time
        order, `_events` and `_rejected`. If no row of a batch, or of the first micro-batch
        (`is_first`), can be an event, a log says why.
        """
        watermark = {WATERMARK_COLUMN: INSTANT} if self.moves_watermark else {}
        first = {FIRST_COLUMN: pa.int64()} if self.in_time else {}
        kinds = watermark | first | {EVENTS_COLUMN: pa.binary(), REJECTED_COLUMN: pa.binary()}
        kinds |= {} if self.combine is None else {SESSIONS_COLUMN: pa.binary()}
        combine = self.combine
        for arrived in arrivals(self.spec, self.group, batches, warns=is_first):
            groups, events = arrived.groups, arrived.events
            if arrived.rejected.num_rows:
                of_packs, packs, _ = packed_by_group(arrived.groups_of_rejected, arrived.rejected)
                yield packed_rows(of_packs, kinds, {REJECTED_COLUMN: packs})
            if not events.num_rows:
                continue
            combined = None if combine is None else combine(events, groups[0].to_numpy())
            if combined is None:
                # What saved little before will save little again.
                combine = None
            elif combined.sessions.num_rows:
                of_sessions = groups.take(pa.array(combined.places))
                of_packs, packs, first_us = packed_by_group(of_sessions, combined.sessions, "start")
                yield packed_rows(of_packs, kinds, {SESSIONS_COLUMN: packs, FIRST_COLUMN: first_us})
                goes_on = pa.array(combined.goes_on)
                groups, events = groups.filter(goes_on), events.filter(goes_on)
            in_time = "time" if self.in_time else None
            of_packs, packs, first_us = packed_by_group(groups, events, in_time)
            begins = {FIRST_COLUMN: first_us} if self.in_time else {}
            yield packed_rows(of_packs, kinds, {EVENTS_COLUMN: packs, **begins})
            if self.moves_watermark:
                # A marker row has no group: its group columns are null.
                no_group = pa.Table.from_pylist([{}], schema=groups.schema)
                latest = pa.array([pc.max(events["time"]).value], INSTANT)
                yield packed_rows(no_group, kinds, {WATERMARK_COLUMN: latest})


def packed_rows(
    groups: pa.Table, kinds: Mapping[str, pa.DataType], columns: Mapping[str, pa.Array]
) -> pa.RecordBatch:
    """Return groups with the columns of `kinds`: those in `columns`, and nulls for all others."""
    rows = groups
    for name, kind in kinds.items():
        column = columns[name] if name in columns else pa.nulls(groups.num_rows, kind)
        rows = rows.append_column(name, column)
    return whole_batch(rows)


def packed_by_group(
    groups: pa.Table, rows: pa.Table, in_time: str | None = None
) -> tuple[pa.Table, pa.Array, pa.Array | None]:
    """
    Return the group of each pack, the packs sorted by group, and their first event times.

    Times are in microseconds; `in_time` names their column, without which there are none.
    """
    # With rows of the groups 7, 3, 7, `lists` is [[0, 2], [1]]: the positions of each group's rows.
    numbered = groups.append_column("_place", pa.array(np.arange(groups.num_rows)))
    grouped = numbered.group_by(groups.column_names, use_threads=False)
    lists = grouped.aggregate([("_place", "list")])["_place_list"].combine_chunks()
    places, starts = lists.flatten(), lists.offsets.to_pylist()
    if in_time:
        places = _in_time(places, starts, rows, in_time)
    ordered = whole_batch(rows.take(places))
    firsts, packs = list[int](), list[bytes]()
    for start, end in pairwise(starts):
        for first, pack in packs_of(ordered.slice(start, end - start)):
            firsts.append(start + first)
            packs.append(pack)
    of_packs = groups.take(places.take(pa.array(firsts, pa.int64())))
    # The times 10, 30, 20, 40 in packs that start at positions 0 and 2 begin at 10 and 20.
    begins = pa.array(np.minimum.reduceat(micros(ordered[in_time]), firsts)) if in_time else None
    return of_packs, pa.array(packs, pa.binary()), begins


def _in_time(places: pa.Array, starts: Sequence[int], rows: pa.Table, time: str) -> pa.Array:
    """Return the positions of rows, in time order within each group that needs several packs."""
    ordered, times_us, limit = places.to_numpy().copy(), micros(rows[time]), _rows_of_a_pack(rows)
    for start, end in pairwise(starts):
        if end - start > limit:
            of_group = ordered[start:end]
            # `of_group` is a view, so this sorts `ordered`. The positions 0 2 4 of rows at the
            # times 30, 10, 20 become 2 4 0.
            of_group[:] = of_group[np.argsort(times_us[of_group], kind="stable")]
    return pa.array(ordered)


def packs_of(rows: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
    """Yield packs up to the size limit, each with the position of its first row."""
    limit = _rows_of_a_pack(rows)
    for first in range(0, rows.num_rows, limit):
        yield first, rows.slice(first, limit).serialize().to_pybytes()


def _rows_of_a_pack(rows: pa.RecordBatch | pa.Table) -> int:
    average = max(1, int(rows.nbytes) // max(1, rows.num_rows))
    limit: int = BYTES_OF_A_PACK // average
    return max(1, limit)


# -- after the shuffle ----------------------------------------------------------------------------


def packs_in(frames: Iterable[pd.DataFrame], *names: str) -> list[list[Pack]]:
    """Return the packs in each named column of frames, without nulls."""
    packs: list[list[Pack]] = [[] for _ in names]
    for frame in frames:
        # For a few rows, pandas finds a column by name more slowly than it copies the whole frame.
        values, columns = frame.to_numpy(object), list(frame.columns)
        for of_column, name in zip(packs, names, strict=True):
            for pack in values[:, columns.index(name)]:
                if isinstance(pack, bytes):
                    of_column.append(pack)
    return packs


def joined_packs(schema: pa.Schema, packs: Iterable[Pack]) -> pa.Table:
    """Return the rows of packs as a table of contiguous columns."""
    batches = list(map(pa.ipc.read_record_batch, map(pa.py_buffer, packs), repeat(schema)))
    rows = pa.Table.from_batches(batches, schema)
    return rows if len(batches) == 1 else rows.combine_chunks()


def unpacked(
    no_events: pa.Table, events: Sequence[Pack], rejected: Sequence[Pack]
) -> tuple[pa.Table, list[SideOutput]]:
    """Return the events of a group, and its quarantined rows."""
    arrived = joined_packs(no_events.schema, events) if events else no_events
    if not rejected:
        return arrived, []
    rows = joined_packs(rejected_schema(no_events.schema), rejected)
    return arrived, [quarantined(rows)]


def quarantined(rows: pa.Table) -> SideOutput:
    """Return rows that come with their reasons as rejected rows."""
    return SideOutput("quarantined", rows[REASON].to_pylist(), rows.drop_columns([REASON]))


# -- after the shuffle of a batch -----------------------------------------------------------------


@attrs.frozen
class Portion:
    """
    Some events and partial sessions of a group, and quarantined rows.

    All further events of the group are at or after `until_us`, in microseconds, and all further
    partial sessions start then or later; None for the last portion.
    """

    events: pa.Table
    sessions: pa.Table
    quarantined: list[SideOutput]
    until_us: int | None = None


def rows_of_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[Iterator[PackedRow]]:
    """
    Yield the rows of each group; rows are sorted by group, the first column, and by time.

    Raises:
        SessionkitError: A row is out of order: sessions would be cut apart.
    """
    seen = set[int]()
    for group, rows in groupby(_rows_of_batches(batches), key=itemgetter(0)):
        if group in seen:
            raise _out_of_order(group, "comes twice in a partition")
        seen.add(group)
        yield _in_time_order(group, rows)


def _in_time_order(group: int, rows: Iterable[Any]) -> Iterator[PackedRow]:
    """Yield the packs of a group, which are sorted by their first event times."""
    latest_us = BEGINNING_US
    for _, first_us, *packs in rows:
        if first_us is not None:  # a pack of rejected rows has no time
            if first_us < latest_us:
                raise _out_of_order(group, "has a pack before an earlier one")
            latest_us = first_us
        yield first_us, *packs


def _out_of_order(group: int, what: str) -> SessionkitError:
    found = f"the engine has dropped the sort by bucket and event time: bucket {group} {what}"
    hint = "turn off what replaces operators of Spark, such as an accelerator, for this batch"
    return SessionkitError(found, hint)


def _rows_of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    for batch in batches:
        first = batch.column(FIRST_COLUMN).to_pylist()
        names = [EVENTS_COLUMN, REJECTED_COLUMN, SESSIONS_COLUMN]
        if SESSIONS_COLUMN not in batch.schema.names:
            names.pop()
        packs = [map(methodcaller("as_buffer"), batch.column(name)) for name in names]
        sessions = () if SESSIONS_COLUMN in names else (repeat(None, batch.num_rows),)
        yield from zip(batch.column(0).to_pylist(), first, *packs, *sessions, strict=True)


def rows_of_frames(frames: Iterable[pd.DataFrame]) -> list[PackedRow]:
    """Return the packs in the frames of a group, without their first event times."""
    events, rejected = packs_in(frames, EVENTS_COLUMN, REJECTED_COLUMN)
    return [
        *((None, pack, None, None) for pack in events),
        *((None, None, pack, None) for pack in rejected),
    ]


def portions(
    no_events: pa.Table, no_sessions: pa.Table, rows: Iterable[PackedRow], at_once: int | None
) -> Iterator[Portion]:
    """
    Yield the rows of a group in portions of about `at_once` events, in time order; see `weight`.

    A portion is larger if more events than that overlap in time. None yields all rows at once. A
    partial session counts as an event at its start.
    """
    limit, number, rejected = at_once, 0, list[Pack]()
    events, sessions = list[pa.RecordBatch](), list[pa.RecordBatch]()
    for first_us, pack, rejected_pack, sessions_pack in rows:
        if rejected_pack is not None:
            rejected.append(rejected_pack)
            continue
        if limit is not None and first_us is not None and number >= limit:
            arrived, later = _split_at(first_us, events, no_events, "time")
            partial, later_partial = _split_at(first_us, sessions, no_sessions, "start")
            if arrived.num_rows or partial.num_rows:
                yield Portion(arrived, partial, unpacked(no_events, [], rejected)[1], first_us)
                rejected = []
            events, sessions = later.to_batches(), later_partial.to_batches()
            number = weight(later) + weight(later_partial)
            # Doubling the limit bounds how often an event is scanned, for any order of packs.
            limit = max(at_once or 0, 2 * number)
        if pack is not None:
            events.append(pa.ipc.read_record_batch(pack, no_events.schema))
            number += weight(events[-1])
        if sessions_pack is not None:
            sessions.append(pa.ipc.read_record_batch(sessions_pack, no_sessions.schema))
            number += weight(sessions[-1])
    arrived, partial = _table_of(events, no_events), _table_of(sessions, no_sessions)
    yield Portion(arrived, partial, unpacked(no_events, [], rejected)[1])


def weight(rows: pa.RecordBatch | pa.Table) -> int:
    """Return how many events rows count as: an event of more than 1 KB counts as several."""
    # So a million events are never more than 1 GB: Arrow joins at most 2 GB of text.
    number: int = max(rows.num_rows, rows.nbytes >> 10)
    return number


def _split_at(
    first_us: int, batches: Sequence[pa.RecordBatch], none: pa.Table, time: str
) -> tuple[pa.Table, pa.Table]:
    """Return the rows before an instant, and those at or after it."""
    table = _table_of(batches, none)
    before, after = split(table, micros(table[time]) < first_us)
    return before.combine_chunks(), after


def _table_of(batches: Sequence[pa.RecordBatch], none: pa.Table) -> pa.Table:
    return pa.Table.from_batches(batches, none.schema).combine_chunks() if batches else none
