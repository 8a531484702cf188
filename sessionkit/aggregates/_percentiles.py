"""
Percentiles, from a sketch of value counts by bin.

Negative numbers have the same bins as positive ones. Zero, NaN and each infinity have their own
bins. A bin is stored as an int; bins are in the order of their numbers.
"""

from datetime import timedelta
from typing import Any, ClassVar, Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arguments import explains
from sessionkit._arrays import (
    Array,
    LogBins,
    Numbers,
    array_of,
    lists_of,
    numbers_of,
    places_in,
    ranks,
    tallied,
)
from sessionkit.aggregates._aggregate import Aggregate, BoundAggregate, Kind
from sessionkit.aggregates._events import Condition, EventRows
from sessionkit.errors import SpecError
from sessionkit.state._collections import Field, ListType
from sessionkit.state._scalars import FloatType, IntType, TimedeltaType
from sessionkit.state._types import FieldType

RELATIVE_ERRORS: Final = (0.0001, 0.5)
ORIGIN: Final = 2**40
"""The bin of 1.0. Zero has the bin 0, and numbers below 1.0 the bins in between."""
INFINITE: Final = 2**62
NAN: Final = INFINITE + 1
"""The last bin, since NaN is greater than all numbers."""
LARGEST: Final = float(np.finfo(np.float64).max)
SMALLEST: Final = float(np.finfo(np.float64).tiny)
"""Smaller numbers are too imprecise for a relative error, and count as zero."""
LONGEST: Final = 2.0**63 - 2**10
"""The greatest float that fits a timedelta, in microseconds."""


@attrs.frozen(kw_only=True, order=False, repr=False)
class Percentile(Kind):
    kind: ClassVar = "percentile"
    merges: ClassVar = (FieldType,)
    share: float
    relative_error: float

    def check(self) -> None:
        least, most = RELATIVE_ERRORS
        for name, value, low, high, hint in (
            ("share", self.share, 0, 1, 'write percentile("seconds", 0.95)'),
            ("relative_error", self.relative_error, least, most, "leave it out for the default"),
        ):
            if type(value) not in {int, float} or not low <= value <= high:
                found = f"`{name}` must be a number from {low} to {high}, found {value!r}"
                raise SpecError(found, hint)

    @property
    def arguments(self) -> list[str]:
        return [*super().arguments, str(self.share)]

    def check_type(self, kind: FieldType, found: str) -> None:
        if not isinstance(kind, IntType | FloatType | TimedeltaType):
            hint = "use a field that is a number, such as a column that Spark computes from it"
            raise SpecError(f"{found} is none of int, float, timedelta", hint)

    def annotation(self, bound: BoundAggregate) -> Any:
        return (timedelta if isinstance(bound.type, TimedeltaType) else float) | None

    def identity(self, _: BoundAggregate) -> str:
        return f"{self.of}; {self.relative_error!r}"

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [bound.field(ListType(IntType()), part) for part in ("", ".counts")]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        """
        Return the bins of each session and their counts.

        Beyond the limit, all lower bins become one, which tells that there were more. A bin that
        drops out of the highest never returns, so the counts don't depend on the order of events.
        """
        before, chosen = bound.column(rows.opened), self.chosen(rows)
        values = numbers_of(self.values(rows))
        values = values if chosen is None else values[chosen]
        counts = numbers_of(bound.column(rows.opened, ".counts").flatten())
        counts = np.concatenate([counts, np.ones(len(values), np.int64)])
        bins = np.concatenate([numbers_of(before.flatten()), self._bins(values)])
        bins, codes = np.unique(bins, return_inverse=True)
        owners, codes, counts = tallied(rows.listed(before, chosen), codes, counts)
        bins, sizes = bins[codes], np.bincount(owners, minlength=len(rows))
        most = 1 + self.most
        if sizes.max(initial=0) > most:
            places, spare = places_in(sizes, owners), np.maximum(sizes - most, 0)
            begins = (places == 0) | (places > spare[owners])
            counts = np.add.reduceat(counts, np.flatnonzero(begins))
            bins, sizes = bins[places >= spare[owners]], np.minimum(sizes, most)
        return [lists_of(pa.array(values), sizes) for values in (bins, counts)]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        """Return the middle of the bin at the rank of the share; null if the bin isn't kept."""
        lists = bound.column(sessions)
        counts = numbers_of(bound.column(sessions, ".counts").flatten())
        sizes = lists.value_lengths().to_numpy().astype(np.int64)
        first = np.cumsum(sizes) - sizes
        up_to = np.concatenate([[0], np.cumsum(counts)])
        below = up_to[first]
        at = np.searchsorted(up_to[1:], below + ranks(self.share, up_to[first + sizes] - below))
        unknown = (sizes == 0) | ((sizes > self.most) & (at == first))
        values = self._middles(numbers_of(lists.flatten().take(pa.array(at, mask=unknown))))
        if not isinstance(bound.type, TimedeltaType):
            return array_of(values, FloatType.arrow, unknown)
        micros = np.rint(np.clip(values, -LONGEST, LONGEST)).astype(np.int64)
        return array_of(micros, TimedeltaType.arrow, unknown)

    def _bins(self, values: Array) -> Numbers:
        sizes = np.abs(values.astype(np.float64))
        is_finite = (sizes >= SMALLEST) & (sizes <= LARGEST)
        powers = LogBins(self.relative_error).powers(np.where(is_finite, sizes, 1.0))
        special = np.where(sizes < SMALLEST, 0, INFINITE)
        bins = np.where(is_finite, ORIGIN + powers, special)
        return np.where(np.isnan(sizes), NAN, np.where(values < 0, -bins, bins))

    def _middles(self, bins: Numbers) -> Array:
        places = np.abs(bins)
        powers = np.where((places > 0) & (places < INFINITE), places - ORIGIN, 0)
        middles = LogBins(self.relative_error).middles(powers)
        middles = np.where(places >= INFINITE, np.inf, np.minimum(middles, LARGEST))
        middles = np.where(bins == NAN, np.nan, middles)
        return np.sign(bins) * middles


@explains
def percentile(
    field: str,
    share: float,
    *,
    relative_error: float = 0.01,
    at_most: int = 1_000,
    where: Condition | None = None,
) -> Aggregate:
    """
    Return a percentile of a field that is an int, a float or a timedelta, within a relative error.

        agg.percentile("seconds", 0.95)

    It's SQL's `percentile_disc`: the least value such that at least this share of all values are
    less or equal; None without a value. The result is within the relative error of that value. Of
    an int or a float it's a float, of a timedelta a timedelta in whole microseconds. NaN is greater
    than all numbers. NaN, zero and the infinities are exact.

    Values are counted in bins that are twice the relative error wide, after DDSketch by Masson, Rim
    and Lee (VLDB 2019). A float closer to zero than 2.3e-308 counts as zero.

    Args:
        field: The field.
        share: From 0, the least value, to 1, the greatest; 0.5 is the median. It may change while a
            checkpoint lives.
        relative_error: How far the result may be from the value, as a part of the value: 0.01 is
            one percent.
        at_most: How many of the highest bins are kept. If the percentile is in a lower bin, the
            result is None. With an error of 0.01, 1,000 bins in a row cover 1 to 480 million.
        where: Selects the events to read.

    Raises:
        SpecError: `share` isn't a number from 0 to 1, or `relative_error` one from 0.0001 to 0.5.
    """
    return Percentile(
        of=field, where=where, at_most=at_most, share=share, relative_error=relative_error
    )
