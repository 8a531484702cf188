"""
Events and open sessions as intervals, and sessions as unions of them.

An event is an interval: from its time to its time + gap. An open session is an interval too: from
its start to its end. Sort the intervals of a key by their start; one that begins no later than the
furthest end so far belongs to the same session (`starts_new_session` holds the operator). So a
session is a connected union of intervals, and can't depend on the order in which its parts came.
One rule covers what a step per event would have to tell apart:

    no open session in the union      a new session:        create, then update
    one                               it goes on, its start may move back:  update
    several                           events bridge them:   merge from the left, then update
"""

from collections.abc import Collection
from functools import cached_property
from typing import Any, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._arrays import Mask, Numbers, running_maximum
from sessionkit._engine.boundaries import starts_new_session
from sessionkit.spec.functions import Failure
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts import SessionRules
from sessionkit.timeouts._rules.times import GapPassed

Scalar = TypeVar("Scalar", bound=np.generic)


@attrs.frozen
class WindowedEvents:
    """
    The events of a micro-batch with their windows, all in microseconds.

    They're rows here: what belongs together depends on times alone.
    """

    table: pa.Table
    starts: Numbers
    ends: Numbers

    def only(self, chosen: Mask) -> "WindowedEvents":
        if chosen.all():
            return self
        table = self.table.filter(pa.array(chosen))
        return WindowedEvents(table, self.starts[chosen], self.ends[chosen])

    def at(self, places: Numbers) -> "WindowedEvents":
        table = self.table.take(pa.array(places))
        return WindowedEvents(table, self.starts[places], self.ends[places])

    def without(self, places: Collection[int]) -> "WindowedEvents":
        left = np.ones(len(self.starts), np.bool_)
        left[list(places)] = False
        return self.only(left)

    def keep_open(self, *, gap_inclusive: bool) -> Mask:
        """Mark the events that keep a session open: the windows of others have no length."""
        return self.ends > self.starts + (0 if gap_inclusive else 1)

    def joined(self, others: "WindowedEvents | None") -> "WindowedEvents":
        if others is None or not len(others.starts):
            return self
        return WindowedEvents(
            pa.concat_tables([self.table, others.table]),
            np.concatenate([self.starts, others.starts]),
            np.concatenate([self.ends, others.ends]),
        )


@attrs.frozen
class Members:
    """
    The events of a micro-batch, at least one, and the open sessions of their keys, as intervals.

    They're numbered: first the open sessions, then the events. `order` has these numbers by (key,
    start, content); the number of its key, the start and the end of each interval are by these
    numbers. Instants are in microseconds. The open sessions are at these `places` of the rows of
    all `sessions`, in ascending order.
    """

    spec: AnySessionSpec
    events: WindowedEvents
    sessions: pa.Table
    places: Numbers
    order: Numbers
    keys: Numbers
    starts: Numbers
    ends: Numbers

    @cached_property
    def touched(self) -> pa.Table:
        """The rows of the open sessions."""
        if len(self.places) == self.sessions.num_rows:
            return self.sessions
        return self.sessions.take(pa.array(self.places))


@attrs.frozen
class Unions:
    """
    Sessions as unions of intervals, in the order of their keys and starts.

    Attributes:
        first: For each session, the place of its first interval in the sorted input.
        sizes: For each session, how many intervals it has, at least one.
        start: For each session, its start in microseconds.
        end: For each session, its end in microseconds, exclusive.
        closes: For each session, when it's over; its end, unless a rule cuts it before.
        closed_by: For each session, the code of the rule that ends it.
        nth: For each session, how many of its key begin at its instant before it; None where none
            do, as without a `sequence`.
    """

    first: npt.NDArray[np.intp]
    sizes: npt.NDArray[np.intp]
    start: Numbers
    end: Numbers
    closes: Numbers
    closed_by: npt.NDArray[np.int8]
    nth: Numbers | None = None

    def __len__(self) -> int:
        return len(self.first)

    def reduced(self, ufunc: np.ufunc, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Fold the values of the intervals of each session into one; they are given in order."""
        # The sum of [1, 2 | 4], with sessions that begin at [0, 2]: [3, 4].
        folded: npt.NDArray[Any] = ufunc.reduceat(values, self.first)
        return folded

    def spread(self, values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """Return, for each interval in order, the value of its session."""
        # Sessions of sizes [2, 1] with values [a, b]: [a, a, b].
        return np.repeat(values, self.sizes)

    @cached_property
    def numbers(self) -> Numbers:
        """The number of the session of each interval, in order."""
        return self.spread(np.arange(len(self)))


def unite(keys: Numbers, starts: Numbers, ends: Numbers, *, gap_inclusive: bool) -> Unions:
    """Join intervals, sorted by (key, start), at least one, into sessions; keys count from 0."""
    # Of one key, with a gap of 30: intervals 0-30, 10-40, 50-80. The furthest ends so far are
    # [30, 40, 80], so the third begins a session: `first` is [0, 2], and `sizes` is [2, 1].
    new_key = keys[1:] != keys[:-1]
    furthest = running_maximum(keys, ends, new_key)
    apart = starts_new_session(starts[1:], furthest[:-1], gap_inclusive=gap_inclusive)
    is_edge = np.ones(len(keys) + 1, np.bool_)
    is_edge[1:-1] = new_key | apart
    edges = np.flatnonzero(is_edge)
    first = edges[:-1]
    end = np.maximum.reduceat(ends, first)
    return Unions(
        first,
        edges[1:] - first,
        starts[first],
        end,
        end,
        np.full(len(first), GapPassed.code, np.int8),
    )


@attrs.frozen
class GapAlone:
    """Sessions that their gap alone ends."""

    rules: SessionRules
    column: str = "end"

    def over_at(self, events: WindowedEvents) -> Numbers:
        return events.ends

    def united(self, members: Members) -> tuple[Unions, dict[int, Failure]]:
        order, inclusive = members.order, self.rules.gap_inclusive
        keys, starts, ends = members.keys[order], members.starts[order], members.ends[order]
        return unite(keys, starts, ends, gap_inclusive=inclusive), {}

    def reasons(self, sessions: pa.Table) -> pa.Array:
        return pa.repeat(pa.scalar("gap"), sessions.num_rows)
