"""
Gather the rows of a partition of a batch into groups, in memory.

An engine that runs Python in its own process, as Sail does, shuffles columns as they are, and hands
over all rows of some keys, in any order. Each row has the hash of its key. Chunks of rows are
sorted by hash as they arrive. After the last one, all chunks are cut at the same hashes, into
groups of a size that the fold likes best.

    chunk 1   h=3 k=a | h=9 k=b         the cut at 8 gives two groups: all rows of a and c,
    chunk 2   h=1 k=c | h=9 k=b         and all rows of b

A group with many more rows than that has a hot key, and comes in portions.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._arrays import Numbers, concat, micros, whole_batch
from sessionkit._engine.rows.tables import SideOutput
from sessionkit._engine.wire.inbound import arrivals
from sessionkit._engine.wire.packing import Portion, quarantined, weight
from sessionkit.spec.base import AnySpec

HASH_COLUMN: Final = "_hash"
"""The 64-bit hash of the key of a row."""
SHORT: Final = 2**16
"""Rows are grouped by numbers below this one, which NumPy sorts in linear time."""
ROWS_OF_A_GROUP: Final = 2**18
"""A fold of fewer rows costs more calls; the columns of more rows don't fit into the caches."""


def gathered(
    spec: AnySpec, no_sessions: pa.Table, batches: Iterable[pa.RecordBatch], at_once: int | None
) -> Iterator[Iterator[Portion]]:
    """
    Yield the portions of each group of a partition; see `portions_in_time` for `at_once`.

    All rows of a key are in one group. Rows that can't be events come last, in a group of their
    own.
    """
    chunks, rejected = list[Chunk](), list[SideOutput]()
    for arrived in arrivals(spec, [HASH_COLUMN], batches, warns=True):
        if arrived.rejected.num_rows:
            rejected.append(quarantined(arrived.rejected))
        if arrived.events.num_rows:
            hashes = arrived.groups[HASH_COLUMN].to_numpy() % SHORT
            chunks.append(Chunk.of(hashes, arrived.events))
    number = min(-(-sum(weight(chunk.events) for chunk in chunks) // ROWS_OF_A_GROUP), SHORT)
    for parts in _cut(chunks, np.arange(number + 1) * SHORT // max(number, 1)):
        if parts:
            yield portions_in_time(parts, no_sessions, at_once)
    if rejected:
        yield iter([Portion(spec.events_schema.empty_table(), no_sessions, rejected)])


@attrs.frozen
class Chunk:
    """Some events in the order of their numbers, which stand for groups or portions."""

    numbers: npt.NDArray[np.uint16]
    events: pa.Table

    @classmethod
    def of(cls, numbers: Numbers, events: pa.Table) -> "Chunk":
        """Sort events by their numbers."""
        short = numbers.astype(np.uint16)
        order = np.argsort(short, kind="stable")
        return cls(short[order], pa.Table.from_batches([whole_batch(events.take(pa.array(order)))]))


def _cut(chunks: Sequence[Chunk], cuts: Numbers) -> Iterator[list[pa.Table]]:
    """Cut all chunks at the same numbers; yield the events between two cuts, as parts of chunks."""
    # The numbers 1 3 9, cut at 0 5 16, have the places 0 2 3.
    places = [np.searchsorted(chunk.numbers, cuts).tolist() for chunk in chunks]
    for start, end in pairwise(range(len(cuts))):
        parts = [
            chunk.events.slice(at[start], at[end] - at[start])
            for chunk, at in zip(chunks, places, strict=True)
        ]
        yield [part for part in parts if part.num_rows]


def portions_in_time(
    parts: Sequence[pa.Table], no_sessions: pa.Table, at_once: int | None
) -> Iterator[Portion]:
    """
    Yield the events of a group in portions of about `at_once`, in time order; None yields all.

    Events of one instant stay together, so a portion may be larger. For large events see `weight`.
    """
    number = 1 if at_once is None else -(-sum(map(weight, parts)) // at_once)
    if number == 1:
        yield Portion(concat(parts).combine_chunks(), no_sessions, [])
        return
    times_us = [micros(part["time"]) for part in parts]
    all_us = np.concatenate(times_us)
    # Of the times 5 1 2 2 9 in portions of two, the cuts are at 2 and 5: the portions 2 0 1 1 2.
    ranks = np.arange(1, number) * len(all_us) // number
    cuts_us = np.unique(np.partition(all_us, ranks)[ranks])
    chunks = [
        Chunk.of(np.searchsorted(cuts_us, of_part, side="right"), part)
        for of_part, part in zip(times_us, parts, strict=True)
    ]
    bounds_us = [*cuts_us.tolist(), None]
    for some, until_us in zip(_cut(chunks, np.arange(len(bounds_us) + 1)), bounds_us, strict=True):
        if some:
            yield Portion(concat(some).combine_chunks(), no_sessions, [], until_us)
