"""The order of the events of one micro-batch in one bucket: by key, time and content."""

from collections.abc import Sequence
from itertools import count, repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.rows.table import Mask, Numbers, prefixed_columns, whole

SORTABLE_BITS: Final = 63
"""The bits of an integer that sorts as a number without a sign."""
FEW: Final = 256
"""Up to so many keys, Python is done with them before Arrow has begun."""


def key_numbers(
    events: Sequence[pa.Array | pa.ChunkedArray], stored: Sequence[pa.ChunkedArray]
) -> tuple[Numbers, Numbers]:
    """
    Give the keys of events numbers from 0, and stored rows the numbers of theirs.

    The keys of events are numbered in the order in which they first appear; stored rows of which no
    event has the key get -1. Only the keys of events are looked at one by one, so much state and
    little input cost little.
    """
    numbers, found = _numbers(events[0], stored[0])
    for event_column, stored_column in zip(events[1:], stored[1:], strict=True):
        more, more_found = _numbers(event_column, stored_column)
        width = 1 + more.max(initial=0)
        both = np.where((found < 0) | (more_found < 0), -1, found * width + more_found)
        numbers, found = _numbers(pa.array(numbers * width + more), pa.array(both))
    return numbers, found


def _numbers(
    events: pa.Array | pa.ChunkedArray, stored: pa.Array | pa.ChunkedArray
) -> tuple[Numbers, Numbers]:
    if len(events) + len(stored) <= FEW:
        keys = events.to_pylist()
        places: dict[Any, int] = dict(zip(dict.fromkeys(keys), count()))
        numbers = list(map(places.__getitem__, keys))
        known = list(map(places.get, stored.to_pylist(), repeat(-1)))
        return np.array(numbers, np.int64), np.array(known, np.int64)
    values = whole(events).dictionary_encode()
    found = pc.index_in(whole(stored), value_set=values.dictionary).fill_null(-1)
    return values.indices.to_numpy().astype(np.int64), found.to_numpy().astype(np.int64)


def taken(column: pa.ChunkedArray, places: Numbers) -> pa.Array:
    """Return the values of a key column at some places."""
    if len(column) > FEW:
        return whole(column).take(pa.array(places))
    return pa.array(list(map(column.to_pylist().__getitem__, places.tolist())), column.type)


def in_total_order(keys: Numbers, starts: Numbers, events: pa.Table, first_event: int) -> Numbers:
    """
    Return the numbers of intervals by (key, start), and events that tie there by their content.

    Times alone leave equal ones in whatever order Spark delivered them, and a re-run may deliver
    them otherwise. The first intervals, up to that of the `first_event`, are open sessions; at one
    start they go before events.
    """
    if not len(keys):
        return np.zeros(0, np.int64)
    order, same = _by_key_and_start(keys, starts, first_event)
    if same.any():
        tied = np.append(same, False)
        tied[1:] |= same
        # Those of equal content keep the order in which they came.
        numbers = np.sort(order[tied])
        ranks = _ranks_by_content(events, numbers - first_event)
        order[tied] = numbers[np.lexsort((ranks, starts[numbers], keys[numbers]))]
    return order


def _by_key_and_start(keys: Numbers, starts: Numbers, first_event: int) -> tuple[Numbers, Mask]:
    """Return the order, and which places of it hold an event that ties with the next one."""
    packed = None if len(keys) <= FEW else _packed(keys, starts, first_event)
    if packed is not None:
        order: Numbers = np.argsort(packed)
        packed = packed[order]
        return order, (packed[1:] == packed[:-1]) & (packed[1:] & 1 == 1)
    order = np.lexsort((starts, keys))
    keys, starts = keys[order], starts[order]
    same = (keys[1:] == keys[:-1]) & (starts[1:] == starts[:-1])
    return order, same & (order[:-1] >= first_event)


def _packed(keys: Numbers, starts: Numbers, first_event: int) -> Numbers | None:
    """Return one integer each that sorts by key, start, and events last; None if none can."""
    spans = starts - starts.min()
    span_bits = int(spans.max()).bit_length()
    if int(keys.max()).bit_length() + span_bits + 1 > SORTABLE_BITS:
        return None
    packed: Numbers = ((keys << span_bits) | spans) << 1
    packed[first_event:] |= 1
    return packed


def _ranks_by_content(events: pa.Table, places: Numbers) -> Numbers:
    taken = pa.array(places)
    columns = [_sortable(column.take(taken)) for column in prefixed_columns(events, "event.")]
    ranks = np.zeros(len(places), np.int64)
    if not columns:
        return ranks
    names = [str(place) for place in range(len(columns))]
    content = pa.table(dict(zip(names, columns, strict=True)))
    order = pc.sort_indices(content, sort_keys=[(name, "ascending") for name in names])
    ranks[order.to_numpy()] = np.arange(len(places))
    return ranks


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_nested(column.type):
        return pa.array([repr(value) for value in column.to_pylist()], pa.string())
    return column
