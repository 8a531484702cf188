"""The order of rows by two numbers, and of those that tie there by their content."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import Mask, Numbers, whole

SORTABLE_BITS: Final = 63
"""The bits of an integer that sorts as a number without a sign."""
FEW: Final = 256
"""Up to so many rows, a plain sort is done before their numbers are packed."""
AT_ONCE: Final = 2**18
"""Of so many rows at a time, those that tie are put in order: that takes some 100 bytes each."""


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
