"""The order of the events of one micro-batch in one bucket: by key, time and content."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.rows.table import event_columns

__all__ = ["in_total_order", "key_codes"]

Instants: TypeAlias = npt.NDArray[np.int64]


def key_codes(tables: Sequence[Sequence[pa.ChunkedArray]]) -> list[Instants]:
    """
    Give equal keys of several tables equal numbers, from 0 without holes.

    Args:
        tables: The key columns of each table, in the same order.
    """
    lengths = [len(columns[0]) for columns in tables]
    codes = np.zeros(sum(lengths), np.int64)
    for columns in zip(*tables, strict=True):
        chunks = [chunk for column in columns for chunk in column.chunks]
        whole = pa.chunked_array(chunks, type=columns[0].type).combine_chunks()
        values = whole.dictionary_encode()
        own = values.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = own if len(tables[0]) == 1 else _renumbered(codes * len(values.dictionary) + own)
    return np.split(codes, np.cumsum(lengths)[:-1])


def in_total_order(
    keys: Instants, starts: Instants, events: pa.Table, first_event: int
) -> Instants:
    """
    Return the numbers of intervals by (key, start), and events that tie there by their content.

    Times alone leave equal ones in whatever order Spark delivered them, and a re-run may deliver
    them otherwise.

    Args:
        keys: The number of the key of each interval.
        starts: The start of each.
        events: The rows of the events, whose intervals have the numbers from `first_event` on.
        first_event: How many intervals are open sessions; at one start they go first.
    """
    order = np.lexsort((starts, keys)).astype(np.int64)
    same = (np.diff(keys[order]) == 0) & (np.diff(starts[order]) == 0)
    same &= order[:-1] >= first_event
    if not same.any():
        return order
    tied = np.zeros(len(order), np.bool_)
    tied[1:] |= same
    tied[:-1] |= same
    numbers = order[tied]
    ranks = _ranks_by_content(events.take(pa.array(numbers - first_event)))
    order[tied] = numbers[np.lexsort((ranks, starts[numbers], keys[numbers]))]
    return order


def _ranks_by_content(rows: pa.Table) -> Instants:
    columns = [_sortable(column) for column in event_columns(rows)]
    ranks = np.zeros(rows.num_rows, np.int64)
    if not columns:
        return ranks
    names = [str(place) for place in range(len(columns))]
    content = pa.table(dict(zip(names, columns, strict=True)))
    order = pc.sort_indices(content, sort_keys=[(name, "ascending") for name in names])
    ranks[order.to_numpy()] = np.arange(rows.num_rows)
    return ranks


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_nested(column.type):
        return pa.array([repr(value) for value in column.to_pylist()], pa.string())
    return column


def _renumbered(codes: Instants) -> Instants:
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)
