"""
Counts in bins that grow with the numbers in them: DDSketch, by Masson, Rim and Lee (VLDB 2019).

The bins are between powers of `(1 + a) / (1 - a)`, where `a` is the relative error: the middle of a
bin is at most that far from each of its numbers. Only counts are added, so any order of the numbers
gives the same.
"""

import math
from datetime import timedelta
from fractions import Fraction
from itertools import zip_longest
from typing import Any, Final

import attrs
import numpy as np

from sessionkit._arrays import Array, Numbers


@attrs.frozen
class LogBins:
    """Bins of positive numbers, each counted by the power of its upper bound."""

    relative_error: float

    @property
    def _log_base(self) -> float:
        return 2 * math.atanh(self.relative_error)

    def powers(self, sizes: Array) -> Numbers:
        """Return the bin of each number."""
        result: Numbers = np.ceil(np.log(sizes) / self._log_base).astype(np.int64)
        return result

    def middles(self, powers: Numbers) -> Array:
        """Return the number that a bin stands for."""
        with np.errstate(over="ignore"):  # the middle of the last bin may be more than any float
            result: Array = np.exp(powers * self._log_base + math.log1p(-self.relative_error))
        return result


def ranks(share: float, totals: Numbers) -> Numbers:
    """Return which of so many values in ascending order are at a share of them, from 1."""
    # As floats, 0.07 of 100 would be more than 7.
    part = Fraction(str(share))
    exact: Any = totals.astype(object)
    places: Numbers = (-(-exact * part.numerator // part.denominator)).astype(np.int64)
    return np.maximum(places, 1)


BINS: Final = LogBins(relative_error=0.05)
"""Of milliseconds, as a watermark is."""
SHARES: Final = (0.5, 0.99, 0.999, 1)
MILLISECOND: Final = timedelta(milliseconds=1)


@attrs.frozen
class Percentiles:
    """
    The longest of some durations, and how long most of them are at the most.

    Attributes:
        p50: The median.
        p99: The 99th percentile.
        p999: The 99.9th percentile.
        maximum: The longest.
    """

    p50: timedelta
    p99: timedelta
    p999: timedelta
    maximum: timedelta


@attrs.frozen
class DurationSketch:
    """
    How many of some durations are in each bin: a sketch of them, after DDSketch.

    Two of them add up with `+`.

    Attributes:
        bins: How many are in each bin: first the negative ones, then those of up to a millisecond;
            each further bin reaches 10.5 % further than the one before.
    """

    bins: tuple[int, ...] = ()

    @classmethod
    def of(cls, durations_us: Numbers) -> "DurationSketch":
        """Return the sketch of durations in microseconds."""
        durations = durations_us[durations_us >= 0]
        powers = BINS.powers(np.maximum(durations / 1_000, 1.0))
        # Of the durations -5 s, 1 ms, 1 ms and 1.1 ms, the bins are [1, 2, 1].
        bins = np.bincount(1 + powers, minlength=1).tolist()
        bins[0] = len(durations_us) - len(durations)
        return cls(tuple(bins))

    @property
    def count(self) -> int:
        """How many durations it has."""
        return sum(self.bins)

    @property
    def percentiles(self) -> Percentiles | None:
        """Their percentiles, within 5 %, and zero for negative ones; None where there is none."""
        if not self.count:
            return None
        wanted = np.concatenate([ranks(share, np.array([self.count])) for share in SHARES])
        at = np.searchsorted(np.cumsum(self.bins), wanted)
        middles = np.where(at > 0, np.rint(BINS.middles(at - 1)), 0)
        return Percentiles(*(number * MILLISECOND for number in middles.tolist()))

    def at_least(self, duration: timedelta) -> int:
        """Return how many are as long or longer; those in the bin of this duration all count."""
        power = BINS.powers(np.array([max(duration / MILLISECOND, 1.0)]))[0]
        return sum(self.bins[1 + power :])

    def __add__(self, other: "DurationSketch") -> "DurationSketch":
        """Return the sketch of the durations of both."""
        return DurationSketch(tuple(map(sum, zip_longest(self.bins, other.bins, fillvalue=0))))
