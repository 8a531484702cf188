"""
Percentiles, from how many values are in each bin: DDSketch, by Masson, Rim and Lee (VLDB 2019).

The bins of positive numbers are between powers of `(1 + a) / (1 - a)`, where `a` is the relative
error: the middle of a bin is at most that far from each of its numbers. Negative numbers have the
same bins. Zero, NaN and the infinities have a bin each. A bin is stored as an int, in the order of
the numbers in it. Only counts are added, so any order of the events gives the same.
"""

import math
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sessionkit._engine.rows.table import Mask, Numbers, lists_of, whole
from sessionkit._engine.sessions.aggregates.rows import (
    Array,
    Kernel,
    Rows,
    array_of,
    numbers_of,
    own_column,
    owners_of,
    places_in,
)
from sessionkit.spec.aggregates import BoundAggregate
from sessionkit.state._collections import Field, ListType
from sessionkit.state._scalars import FloatType, IntType
from sessionkit.state._times import TimedeltaType

ORIGIN: Final = 2**40
"""The bin of 1.0: those of smaller numbers are below it, and above 0, which is that of zero."""
INFINITE: Final = 2**62
NAN: Final = INFINITE + 1
"""The last bin: NaN is greater than all numbers."""
LARGEST: Final = float(np.finfo(np.float64).max)
SMALLEST: Final = float(np.finfo(np.float64).tiny)
"""Smaller numbers have fewer digits than a relative error needs, so they count as zero."""
LONGEST: Final = 2.0**63 - 2**10
"""The greatest float that is a timedelta, in microseconds."""


def _log_base(bound: BoundAggregate) -> float:
    return 2 * math.atanh(_error(bound))


def _error(bound: BoundAggregate) -> float:
    return bound.aggregate.relative_error or 0.0


def _bins(bound: BoundAggregate, values: Array) -> Numbers:
    """Return the bin of each value."""
    sizes = np.abs(values.astype(np.float64))
    is_finite = (sizes >= SMALLEST) & (sizes <= LARGEST)
    powers = np.ceil(np.log(np.where(is_finite, sizes, 1.0)) / _log_base(bound))
    special = np.where(sizes < SMALLEST, 0, INFINITE)
    bins = np.where(is_finite, ORIGIN + powers.astype(np.int64), special)
    return np.where(np.isnan(sizes), NAN, np.where(values < 0, -bins, bins))


def _middles(bound: BoundAggregate, bins: Numbers) -> Array:
    """Return the number that a bin stands for."""
    places, error = np.abs(bins), _error(bound)
    powers = np.where((places > 0) & (places < INFINITE), places - ORIGIN, 0)
    with np.errstate(over="ignore"):  # the middle of the last bin may be greater than any float
        found = np.exp(powers * _log_base(bound) + math.log1p(-error))
    found = np.where(places >= INFINITE, np.inf, np.minimum(found, LARGEST))
    found = np.where(bins == NAN, np.nan, found)
    return np.sign(bins) * found


def _counts_name(bound: BoundAggregate) -> str:
    return f"{bound.name}.counts"


def _stored(bound: BoundAggregate) -> list[Field]:
    return [Field(name, ListType(IntType()), name) for name in (bound.name, _counts_name(bound))]


def _counted(bound: BoundAggregate, rows: Rows) -> list[pa.Array]:
    """
    Return the bins of each session and their counts.

    Of more than the limit, all that are lower count as one more, which says that there were more.
    A bin that isn't among the highest never will be, so what counts there doesn't depend on when.
    """
    before, chosen = rows.part(bound.name), rows.chosen(bound)
    stored_of, event_of = np.split(rows.plan.owners, [len(before)])
    values = numbers_of(rows.values(bound))
    if chosen is not None:
        values, event_of = values[chosen], event_of[chosen]
    owners = np.concatenate([stored_of[owners_of(before)], event_of])
    bins = np.concatenate([numbers_of(before.flatten()), _bins(bound, values)])
    counts = numbers_of(rows.part(_counts_name(bound)).flatten())
    counts = np.concatenate([counts, np.ones(len(values), np.int64)])
    order = np.lexsort((bins, owners))
    owners, bins, counts = owners[order], bins[order], counts[order]
    new = (np.diff(owners, prepend=-1) != 0) | (np.diff(bins, prepend=-NAN) != 0)
    owners, bins, counts = owners[new], bins[new], _added(counts, new)
    sizes = np.bincount(owners, minlength=len(rows.plan.unions))
    most = 1 + (bound.aggregate.at_most or 0)
    if sizes.max(initial=0) > most:
        places, spare = places_in(sizes, owners), np.maximum(sizes - most, 0)
        counts = _added(counts, (places == 0) | (places > spare[owners]))
        bins, sizes = bins[places >= spare[owners]], np.minimum(sizes, most)
    return [lists_of(pa.array(each), sizes) for each in (bins, counts)]


def _added(counts: Numbers, begins: Mask) -> Numbers:
    """Add up counts from each mark to the next."""
    found: Numbers = np.add.reduceat(counts, np.flatnonzero(begins)) if len(counts) else counts
    return found


def _percentile(bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
    """Return the number of the bin that has the value at the rank; null if it isn't kept."""
    lists = own_column(bound, sessions)
    counts = numbers_of(whole(sessions[f"state.{_counts_name(bound)}"]).flatten())
    sizes = lists.value_lengths().to_numpy().astype(np.int64)
    first = np.cumsum(sizes) - sizes
    up_to = np.concatenate([[0], np.cumsum(counts)])
    below = up_to[first]
    wanted = _ranks(bound, up_to[first + sizes] - below)
    at = np.searchsorted(up_to[1:], below + wanted)
    unknown = (sizes == 0) | ((sizes > (bound.aggregate.at_most or 0)) & (at == first))
    found = _middles(bound, numbers_of(lists.flatten().take(pa.array(at, mask=unknown))))
    if not isinstance(bound.type, TimedeltaType):
        return array_of(found, FloatType.arrow, unknown)
    micros = np.rint(np.clip(found, -LONGEST, LONGEST)).astype(np.int64)
    return array_of(micros, TimedeltaType.arrow, unknown)


def _ranks(bound: BoundAggregate, totals: Numbers) -> Numbers:
    """Return which of so many values in ascending order are wanted, from 1."""
    # As floats, 0.07 of 100 would be more than 7.
    share = Fraction(str(bound.aggregate.share))
    exact: Any = totals.astype(object)
    ranks: Numbers = (-(-exact * share.numerator // share.denominator)).astype(np.int64)
    return np.maximum(ranks, 1)


PERCENTILE: Final = Kernel(_stored, _counted, _percentile)
