"""The numbers of keys, and the order of rows: by key and start, and by content where these tie."""

from collections.abc import Sequence
from itertools import count, pairwise, repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import Mask, Numbers, whole

SORTABLE_BITS: Final = 63
"""The bits of an integer that sorts as a number without a sign."""
FEW: Final = 256
"""Up to so many rows, Python and a plain sort are done before Arrow and packing have begun."""
AT_ONCE: Final = 2**18
"""Of so many rows at a time, those that tie are put in order: that takes some 100 bytes each."""


def key_numbers(
    events: Sequence[pa.Array | pa.ChunkedArray], stored: Sequence[pa.ChunkedArray]
) -> tuple[Numbers, Numbers]:
    """
    Give the keys of events numbers from 0, and stored rows the numbers of theirs.

    The keys of events are numbered in the order in which they first appear; stored rows of which no
    event has the key get -1. Only the keys of events are looked at one by one, so much state and
    little input cost little.
    """
    # Of one key column: events of "b", "a", "b" are 0, 1, 0; stored rows of "a", "c" are 1, -1.
    numbers, found = _numbers(events[0], stored[0])
    for event_column, stored_column in zip(events[1:], stored[1:], strict=True):
        more, more_found = _numbers(event_column, stored_column)
        # A pair of numbers is one number, as digits are: (2, 3) of a width of 10 is 23.
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


def in_total_order(
    keys: Numbers,
    starts: Numbers,
    events: pa.Table,
    first_event: int,
    sequence: str | None = None,
) -> Numbers:
    """
    Return the numbers of intervals by (key, start), and events that tie there by their content.

    A field that is their `sequence` goes before the rest of it.

    Times alone leave equal ones in whatever order Spark delivered them, and a re-run may deliver
    them otherwise. The first intervals, up to that of the `first_event`, are open sessions; at one
    start they go before events. Those of equal content keep the order in which they came.
    """
    names = events.schema.names
    content = [events.column(at) for at, name in enumerate(names) if name.startswith("event.")]
    if sequence is not None:
        content.insert(0, events.column(f"event.{sequence}"))
    return total_order(keys, starts, content, first_event)


def total_order(
    groups: Numbers, starts: Numbers, content: Sequence[pa.ChunkedArray], first: int = 0
) -> Numbers:
    """
    Return the numbers of rows by (group, start), and those that tie there by their content.

    The `content` is that of the rows from the `first` on. Those before it have none, and go before
    the others at one start. Rows of equal content keep the order in which they came.
    """
    if not len(groups):
        return np.zeros(0, np.int64)
    order, same = _by_group_and_start(groups, starts, first)
    if content and same.any():
        for start, end in pairwise(_cuts(same)):
            _order_ties(order[start:end], same[start : end - 1], content, first)
    return order


def _cuts(same: Mask) -> list[int]:
    """Return where to cut an order into pieces of about `AT_ONCE`, none of which parts a tie."""
    cuts, rows = [0], len(same) + 1
    while cuts[-1] + AT_ONCE < rows:
        first = cuts[-1] + AT_ONCE
        after = same[first - 1 :]
        cuts.append(rows if after.all() else first + int(after.argmin()))
    return cuts if cuts[-1] == rows else [*cuts, rows]


def _order_ties(order: Numbers, same: Mask, columns: Sequence[pa.ChunkedArray], first: int) -> None:
    """Put the rows that tie in the order of their content, one column after the other."""
    for column in columns:
        if not same.any():
            return
        is_tied = np.append(same, False)
        is_tied[1:] |= same
        tied = np.flatnonzero(is_tied)
        runs, numbers = np.cumsum(np.append(True, ~same))[tied], order[tied]
        codes = _codes(column.take(pa.array(numbers - first)))
        values = runs * (1 + codes.max()) + codes
        within = _stable_order(values)
        order[tied] = numbers[within]
        values = values[within]
        same[tied[:-1]] = values[1:] == values[:-1]


def _by_group_and_start(groups: Numbers, starts: Numbers, first: int) -> tuple[Numbers, Mask]:
    """Return the order, and which places of it hold a row whose content decides about the next."""
    packed = None if len(groups) <= FEW else _packed(groups, starts, first)
    if packed is not None:
        order = _stable_order(packed)
        packed = packed[order]
        return order, (packed[1:] == packed[:-1]) & (packed[1:] & 1 == 1)
    order = np.lexsort((starts, groups))
    groups, starts = groups[order], starts[order]
    same = (groups[1:] == groups[:-1]) & (starts[1:] == starts[:-1])
    return order, same & (order[:-1] >= first)


def _packed(groups: Numbers, starts: Numbers, first: int) -> Numbers | None:
    """Return one integer each that sorts by group, start, and content last; None if none can."""
    spans = starts - starts.min()
    span_bits = int(spans.max()).bit_length()
    if int(groups.max()).bit_length() + span_bits + 1 > SORTABLE_BITS:
        return None
    packed: Numbers = ((groups << span_bits) | spans) << 1
    packed[first:] |= 1
    return packed


def _stable_order(values: Numbers) -> Numbers:
    """
    Return the places of numbers that aren't negative in their order, equal ones as they came.

    NumPy sorts numbers several times as fast as it finds such an order. So where the place of each
    fits behind it, both are sorted as one.
    """
    place_bits = (len(values) - 1).bit_length()
    if int(values.max()).bit_length() + place_bits <= SORTABLE_BITS:
        both = (values << place_bits) | np.arange(len(values))
        both.sort()
        both &= (1 << place_bits) - 1
        return both
    order: Numbers = np.argsort(values)
    ordered = values[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        is_tied = np.append(same, False)
        is_tied[1:] |= same
        runs = np.cumsum(np.append(True, ~same))[is_tied]
        order[is_tied] = order[is_tied][np.lexsort((order[is_tied], runs))]
    return order


def _codes(column: pa.ChunkedArray) -> Numbers:
    """Return values as numbers from 0 in the same order: NaN after all others, then null."""
    values = whole(column)
    if pa.types.is_nested(values.type):
        values = pa.array([repr(value) for value in values.to_pylist()], pa.string())
    if values.null_count or not _is_number(values.type):
        if pa.types.is_floating(values.type):
            values = pc.add(values, 0.0)  # one zero: Arrow tells -0.0 from 0.0
        encoded = values.dictionary_encode()
        different = encoded.dictionary
        ranks = np.full(1 + len(different), len(different))
        ranks[pc.sort_indices(different).to_numpy()] = np.arange(len(different))
        codes: Numbers = ranks[encoded.indices.fill_null(len(different)).to_numpy()]
        return codes
    _, codes = np.unique(values.to_numpy(zero_copy_only=False), return_inverse=True)
    return codes


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
