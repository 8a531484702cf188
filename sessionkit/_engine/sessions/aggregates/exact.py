"""
Exact sums of integers that may not fit.

A number of 64 or 128 bits is split into limbs of 32 bits, of which only the top one has a sign.
Sums of limbs fit 64 bits for up to two thousand million rows; then what each limb has beyond its
32 bits is carried into the next.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from sessionkit._engine.sessions.aggregates.rows import Segments
from sessionkit._engine.sessions.aggregates.values import Mask, Numbers

__all__ = ["decimal_sums", "integer_sums"]

BITS: Final = 32
LOW: Final = 2**BITS - 1
TOP: Final = 2 ** (BITS - 1)
FITS: Final = 2**63
MOST: Final = 10**38 - 1
"""The largest decimal of 38 digits, without its point."""


def integer_sums(segments: Segments, values: Numbers) -> tuple[Numbers, Mask | None]:
    """Return the sum for each session, and which of them do not fit; None if all do."""
    largest = max(int(values.max()), -int(values.min()))
    if largest * int(segments.sizes.max()) < FITS:
        return segments.reduced(np.add, values), None
    low, high = _carried(segments, [values & LOW, values >> BITS])
    sums: Numbers = (high << BITS) | low
    return sums, _beyond(high)


def decimal_sums(segments: Segments, values: pa.Array) -> tuple[pa.Array, Mask | None]:
    """
    Return the sum of decimals for each session, and which of them do not fit; None if all do.

    Args:
        segments: Which values make which session.
        values: Decimals of 38 digits, in order, without nulls.
    """
    words = np.frombuffer(values.buffers()[1], "<i8").reshape(-1, 2)[: len(values)]
    limbs = [part for word in words.T for part in (word & LOW, word >> BITS)]
    # The upper half of the lower word has no sign.
    limbs[1] &= LOW
    limbs = _carried(segments, limbs)
    low = (limbs[1] << BITS) | limbs[0]
    high = (limbs[3] << BITS) | limbs[2]
    over = _beyond(limbs[3]) | _outside(high, low)
    packed = np.ascontiguousarray(np.stack([low, high], axis=1).astype("<i8"))
    sums = pa.Array.from_buffers(values.type, len(low), [None, pa.py_buffer(packed)])
    return sums, over if over.any() else None


def _carried(segments: Segments, limbs: list[Numbers]) -> list[Numbers]:
    """Add up limbs, the lowest first, and carry."""
    sums = [segments.reduced(np.add, limb) for limb in limbs]
    for place in range(len(sums) - 1):
        sums[place + 1] += sums[place] >> BITS
        sums[place] &= LOW
    return sums


def _beyond(top: Numbers) -> Mask:
    """Mark what has more bits than there are; the top limb is signed."""
    beyond: Mask = (top < -TOP) | (top >= TOP)
    return beyond


def _outside(high: Numbers, low: Numbers) -> Mask:
    """Mark decimals of more than 38 digits, from their two words."""
    unsigned = low.view(np.uint64)
    most_high, most_low = divmod(MOST, 2**64)
    least_high, least_low = divmod(-MOST, 2**64)
    above = (high > most_high) | ((high == most_high) & (unsigned > np.uint64(most_low)))
    below = (high < least_high) | ((high == least_high) & (unsigned < np.uint64(least_low)))
    outside: Mask = above | below
    return outside
