"""
Aggregates over the events of the last minutes: at most how many, since when, and at each event.

A session stores the times of the events, in order. Nothing is stored after the event with which the
count reaches its limit: a late event may make it reach the limit earlier, but never later.
"""

from datetime import datetime, timedelta
from typing import Any, ClassVar

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arguments import explains
from sessionkit._arrays import (
    Mask,
    Numbers,
    array_of,
    instants,
    lists_of,
    numbers_of,
    owners_of,
    total_order,
)
from sessionkit._instants import Duration, duration_of, duration_text, span_us
from sessionkit.aggregates._aggregate import Aggregate, BoundAggregate, Kind
from sessionkit.aggregates._events import Condition, EventRows
from sessionkit.errors import SpecError
from sessionkit.state._collections import Field, ListType
from sessionkit.state._scalars import DatetimeType
from sessionkit.state._types import FieldType


@attrs.frozen(kw_only=True, order=False, repr=False)
class _Within(Kind):
    """An aggregate that stores the times of events, in order."""

    needs_field: ClassVar = False
    merges: ClassVar = (FieldType,)
    within: timedelta

    @property
    def arguments(self) -> list[str]:
        return [repr(duration_text(self.within))]

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [bound.field(ListType(DatetimeType()))]

    def in_order(self, bound: BoundAggregate, rows: EventRows) -> tuple[Numbers, Numbers]:
        """Return the session and the time of each stored and each chosen event."""
        chosen, before = self.chosen(rows), bound.column(rows.opened)
        owners = rows.listed(before, chosen)
        times = numbers_of(rows.flat(before, instants(rows.times), chosen))
        order = total_order(owners, times, [])
        return owners[order], times[order]


@attrs.frozen(kw_only=True, order=False, repr=False)
class MostWithin(_Within):
    """The most events in any stretch of a length, up to a limit."""

    kind: ClassVar = "most_within"
    gives: ClassVar[Any] = int

    def identity(self, _: BoundAggregate) -> str:
        return duration_text(self.within)

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        """Return the times up to the event with which the count reaches its limit."""
        owners, times = self.in_order(bound, rows)
        reached = np.flatnonzero(_reached(owners, times, self.most, self.within))
        if len(reached):
            until = np.full(len(rows), len(owners))
            # Assigned in reverse, so that the first event stays.
            until[owners[reached[::-1]]] = reached[::-1]
            kept = np.arange(len(owners)) <= until[owners]
            owners, times = owners[kept], times[kept]
        return rows.kept(owners, [instants(times)])

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        lists = bound.column(sessions)
        most = np.zeros(len(lists), np.int64)
        owners, times = owners_of(lists), numbers_of(lists.flatten())
        np.maximum.at(most, owners, _counts(owners, times, self.within))
        return pa.array(most)


def _reached(owners: Numbers, times: Numbers, number: int, within: timedelta) -> Mask:
    """Mark the events with which there are so many within a time; they are in order."""
    reached = np.zeros(len(times), np.bool_)
    last = number - 1
    if last < len(times):
        before = slice(0, len(times) - last)
        is_soon = times[last:] - times[before] <= span_us(within)
        reached[last:] = is_soon & (owners[last:] == owners[before])
    return reached


def _counts(owners: Numbers, times: Numbers, within: timedelta) -> Numbers:
    """Return for each event the number of events up to it that are within a time."""
    number = len(times)
    if not number:
        return owners
    # Where the stretch of an event begins, among all events. At one time, a beginning comes first.
    both = np.concatenate([owners, owners])
    order = total_order(both, np.concatenate([times - span_us(within), times]), [])
    is_beginning = order < number
    events_before = np.cumsum(~is_beginning)[is_beginning]
    first = np.empty(number, np.int64)
    first[order[is_beginning]] = events_before
    counts: Numbers = 1 + np.arange(number) - first
    return counts


@explains
def most_within(
    within: Duration, *, at_most: int = 1_000, where: Condition | None = None
) -> Aggregate:
    """
    Return the most events that a session has within any stretch of time: an int.

        failed = pc.field("kind") == "failed login"
        agg.most_within("10 minutes", where=failed, at_most=5) >= 5

    An event exactly `within` after another counts with it, and so do all events of one instant. In
    SQL this is the maximum of `count(*) OVER (... RANGE BETWEEN INTERVAL 10 MINUTES PRECEDING AND
    CURRENT ROW)`. Without an event, it's 0. Only events of the session count, so take a gap of at
    least `within`; then no stretch lies in two sessions, unless a rule cuts them.

    Args:
        within: The length of the stretch, in event time.
        at_most: The result is never more than this. It bounds the state to 8 bytes for each event
            of a stretch, for fewer than `at_most` events.
        where: Selects the events to count.

    Raises:
        SpecError: `within` isn't positive, or `at_most` isn't a whole number from 1.
    """
    return MostWithin(where=where, at_most=at_most, within=duration_of(within, "within"))


@attrs.frozen(kw_only=True, order=False, repr=False)
class ReachedWithin(MostWithin):
    """The time of the event with which there are so many within a time."""

    kind: ClassVar = "reached_within"
    gives: ClassVar = datetime | None
    n: int

    def check(self) -> None:
        if type(self.n) is not int or self.n < 1:
            found = f"`n` must be a whole number from 1, found {self.n!r}"
            raise SpecError(found, 'write reached_within(5, "10 minutes")')

    @property
    def most(self) -> int:
        return self.n

    @property
    def arguments(self) -> list[str]:
        return [str(self.n), *super().arguments]

    def identity(self, bound: BoundAggregate) -> str:
        return f"{self.n}; {super().identity(bound)}"

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        """Return the time of the last event stored, where the number is reached with it."""
        lists = bound.column(sessions)
        owners, times = owners_of(lists), numbers_of(lists.flatten())
        reached = _reached(owners, times, self.n, self.within)
        found, missing = np.zeros(len(lists), np.int64), np.ones(len(lists), np.bool_)
        found[owners[reached]], missing[owners[reached]] = times[reached], False
        return array_of(found, DatetimeType.arrow, missing)


@explains
def reached_within(n: int, within: Duration, *, where: Condition | None = None) -> Aggregate:
    """
    Return when a session first had a number of events within a time: a datetime, or None.

        failed = pc.field("kind") == "failed login"
        agg.reached_within(5, "10 minutes", where=failed)

    This one gives the time of the fifth of five failed logins within ten minutes, and None if there
    never were five. Which events count is as for `most_within`.

    Args:
        n: The number of events, from 1. The state has 8 bytes for each of fewer than `n` events of
            a stretch, until the number is reached.
        within: How much later the last of them may be than the first, inclusive.
        where: Selects the events to count.

    Raises:
        SpecError: `n` isn't a whole number from 1, or `within` isn't positive.
    """
    return ReachedWithin(where=where, n=n, within=duration_of(within, "within"))


@attrs.frozen(kw_only=True, order=False, repr=False)
class CountsWithin(_Within):
    """The number of events within a time, at each of the earliest events."""

    kind: ClassVar = "counts_within"
    gives: ClassVar = list[int]

    def identity(self, _: BoundAggregate) -> str:
        """Return nothing: the times that are stored answer for any length."""
        return ""

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        owners, times = self.in_order(bound, rows)
        return rows.kept(owners, [instants(times)], self.most)

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        lists = bound.column(sessions)
        counts = _counts(owners_of(lists), numbers_of(lists.flatten()), self.within)
        return lists_of(pa.array(counts), lists.value_lengths().to_numpy().astype(np.int64))


@explains
def counts_within(
    within: Duration, *, at_most: int = 100, where: Condition | None = None
) -> Aggregate:
    """
    List for each event of a session how many events there were over the last minutes.

    The counts are in the order of time.

        agg.counts_within("10 minutes", where=pc.field("kind") == "failed login")  # [1, 2, 1, 2, 3]

    An event counts itself, and the events up to `within` before it, inclusive. Events of one
    instant count in a row: of two, the first counts itself, the second counts both. This is
    `rolling("10min", closed="both").count()` in pandas, over the events of the session. `collect`
    lists values in the same order.

    Args:
        within: How far back the count goes, in event time. It may change while a checkpoint lives.
        at_most: How many of the earliest events are listed, 8 bytes each.
        where: Selects the events to count.

    Raises:
        SpecError: `within` isn't positive, or `at_most` isn't a whole number from 1.
    """
    return CountsWithin(where=where, at_most=at_most, within=duration_of(within, "within"))
