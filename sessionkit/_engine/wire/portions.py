"""
The rows of a group on a batch, a portion at a time: as many as memory should hold at once.

Packs come in the order of their first events, and Spark sorts them, on disk where they're many. So
once a pack begins at some instant, all events before that have come.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, repeat
from operator import itemgetter, methodcaller
from typing import Any, TypeAlias

import attrs
import pyarrow as pa

from sessionkit._arrays import micros
from sessionkit._engine.rows.table import Rejected, split
from sessionkit._engine.wire.packing import (
    EVENTS_COLUMN,
    FIRST_COLUMN,
    REJECTED_COLUMN,
    Pack,
    Packs,
    read_packs,
    unpacked,
)

PackedRow: TypeAlias = tuple[int | None, Pack | None, Pack | None]
"""When the first event of a pack is, in microseconds; the pack; or one of rejected rows."""


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
    for _, rows in groupby(_packed_rows(batches), key=itemgetter(0)):
        yield (row[1:] for row in rows)


def _packed_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    for batch in batches:
        first = batch.column(FIRST_COLUMN).to_pylist()
        packs = [
            map(methodcaller("as_buffer"), batch.column(name))
            for name in (EVENTS_COLUMN, REJECTED_COLUMN)
        ]
        yield from zip(batch.column(0).to_pylist(), first, *packs, strict=True)


def rows_of(packs: Packs) -> list[PackedRow]:
    """Return packs of which nobody knows when they begin."""
    return [*zip(repeat(None), packs.events, repeat(None))] + [
        (None, None, pack) for pack in packs.rejected
    ]


def portions(
    no_events: pa.Table, rows: Iterable[PackedRow], at_once: int | None
) -> Iterator[Portion]:
    """
    Yield the rows of a group in portions of about so many events, in the order of time.

    A portion is larger where more packs than that have events of one span of time. None asks for
    all rows at once.
    """
    schema, wanted = no_events.schema, at_once
    held, events, rejected = list[pa.RecordBatch](), 0, list[Pack]()
    for first_us, pack, bad in rows:
        if bad is not None:
            rejected.append(bad)
        if pack is None:
            continue
        if wanted is not None and first_us is not None and events >= wanted:
            table = pa.Table.from_batches(held, schema)
            done, rest = split(table, micros(table["time"]) < first_us)
            if done.num_rows:
                yield Portion(done.combine_chunks(), _quarantined(no_events, rejected), first_us)
                rejected = []
            held, events = rest.to_batches(), rest.num_rows
            # Whatever the order of the packs, each event is looked at a few times at most.
            wanted = max(at_once or 0, 2 * events)
        held += read_packs(schema, [pack])
        events += held[-1].num_rows
    table = pa.Table.from_batches(held, schema).combine_chunks() if held else no_events
    yield Portion(table, _quarantined(no_events, rejected))


def _quarantined(no_events: pa.Table, rejected: Sequence[Pack]) -> list[Rejected]:
    return unpacked(no_events, Packs([], rejected))[1]
