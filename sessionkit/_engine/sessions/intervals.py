"""
Which events and open sessions make one session: a union of intervals.

An event is an interval: from its time to its time + gap. An open session is an interval too: from
its start to its end. Sort the intervals of a key by their start; one that begins no later than the
furthest end so far belongs to the same session (`starts_new_session` holds the operator). So a
session is a connected union of intervals, and can't depend on the order in which its parts came.
One rule covers what a step per event would have to tell apart:

    no open session in the union      a new session:        create, then update
    one                               it goes on, its start may move back:  update
    several                           events bridge them:   merge from the left, then update
"""

from typing import Final, TypeAlias, TypeVar

import attrs
import numpy as np
import numpy.typing as npt

from sessionkit._engine.boundaries import starts_new_session
from sessionkit._engine.sessions.closings import CODES

Instants: TypeAlias = npt.NDArray[np.int64]

Scalar = TypeVar("Scalar", bound=np.generic)

LARGEST: Final = 2**63 - 1
BY_GAP: Final = CODES["gap"]


@attrs.frozen
class Unions:
    """
    Sessions as unions of intervals, in the order of their keys and starts.

    Attributes:
        first: For each session, the place of its first interval in the sorted input.
        sizes: For each session, how many intervals it has.
        start: For each session, its start in microseconds.
        end: For each session, its end in microseconds, exclusive.
        closes: For each session, when it's over; its end, unless a rule cuts it before.
        closed_by: For each session, the code of the rule that ends it.
    """

    first: npt.NDArray[np.intp]
    sizes: npt.NDArray[np.intp]
    start: Instants
    end: Instants
    closes: Instants
    closed_by: npt.NDArray[np.int8]

    def sums(self, weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return, for each session, the sum of what its intervals weigh."""
        summed: npt.NDArray[np.int64] = np.add.reduceat(weights, self.first)
        return summed

    def only(self, chosen: npt.NDArray[np.bool_]) -> "Unions":
        """Return the chosen sessions, as unions of their intervals alone."""
        sizes = self.sizes[chosen]
        return Unions(
            np.cumsum(sizes) - sizes,
            sizes,
            self.start[chosen],
            self.end[chosen],
            self.closes[chosen],
            self.closed_by[chosen],
        )

    def spread(self, values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """Return, for each interval, the value of its session."""
        return np.repeat(values, self.sizes)


def unite(keys: Instants, starts: Instants, ends: Instants, *, gap_inclusive: bool) -> Unions:
    """Join intervals, sorted by (key, start), at least one, into sessions; keys count from 0."""
    new = np.ones(len(keys), np.bool_)
    new_key = keys[1:] != keys[:-1]
    furthest = _furthest_end(keys, ends, new_key)
    apart = starts_new_session(starts[1:], furthest[:-1], gap_inclusive=gap_inclusive)
    new[1:] = new_key | apart
    first = np.flatnonzero(new)
    sizes = np.diff(first, append=len(keys))
    end = np.maximum.reduceat(ends, first)
    return Unions(first, sizes, starts[first], end, end, np.full(len(first), BY_GAP, np.int8))


def _furthest_end(keys: Instants, ends: Instants, new_key: npt.NDArray[np.bool_]) -> Instants:
    """Return the running maximum of the ends within each key."""
    if bool(np.all((ends[1:] >= ends[:-1]) | new_key)):
        return ends
    # One running maximum serves all keys when each key is lifted above the one before.
    lowest = ends.min()
    lift = int(ends.max() - lowest) + 1
    if (int(keys[-1]) + 1) * lift <= LARGEST:
        lifted = keys * lift
        running: Instants = np.maximum.accumulate(lifted + (ends - lowest)) - lifted + lowest
        return running
    # Ranks keep the sum within 64 bits where instants don't.
    ascending = np.argsort(ends, kind="stable")
    rank = np.empty(len(ends), np.int64)
    rank[ascending] = np.arange(len(ends))
    lifted = keys * len(ends)
    return ends[ascending[np.maximum.accumulate(lifted + rank) - lifted]]
