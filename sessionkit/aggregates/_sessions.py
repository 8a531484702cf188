"""Aggregates of whole sessions: length, engaged time, and the least of several aggregates."""

from datetime import timedelta
from typing import Any, ClassVar, Final, Self

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arguments import explains
from sessionkit._arrays import (
    Array,
    Numbers,
    array_of,
    instants,
    mask_of,
    micros,
    numbers_of,
    owners_of,
    running_maximum,
)
from sessionkit._instants import Duration, duration_of, duration_text, span_us
from sessionkit.aggregates._aggregate import Aggregate, BoundAggregate, Kind, expression
from sessionkit.aggregates._events import Condition, EventRows
from sessionkit.aggregates._expressions import Plain
from sessionkit.errors import SpecError
from sessionkit.state._collections import Field, ListType, OptionalType
from sessionkit.state._scalars import DatetimeType, TimedeltaType
from sessionkit.state._types import INT64, FieldType

MOST_CAPS: Final = 100_000


@attrs.frozen(kw_only=True, order=False, repr=False)
class DurationOfSession(Kind):
    """The time from the first to the last event; the first is stored where `where` chooses it."""

    kind: ClassVar = "duration"
    needs_field: ClassVar = False
    merges: ClassVar = (FieldType,)

    def annotation(self, bound: BoundAggregate) -> Any:
        return timedelta | None if bound.may_be_missing else timedelta

    def from_now(self) -> Self:
        if self.where is not None:
            return super().from_now()
        found = f"`{self.kind}` is of a whole session, so it can't begin with later events"
        raise SpecError(found, "add it in a query with a new checkpoint")

    def stored(self, bound: BoundAggregate) -> list[Field]:
        if self.where is None:
            return [bound.field(DatetimeType())]
        return [bound.field(OptionalType(DatetimeType()), part) for part in ("", ".first")]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        """Return the time of the last event; the end doesn't tell it where gaps vary."""
        last = bound.column(rows.opened)
        if self.where is None:
            times = rows.joined(numbers_of(last), rows.times)
            return [array_of(rows.reduced(np.maximum, times), DatetimeType.arrow)]
        valid = rows.all_valid(last, self.chosen(rows))
        missing = ~rows.reduced(np.logical_or, valid)

        def picked(picks: np.ufunc, before: pa.Array, neutral: int) -> pa.Array:
            times: Array = np.where(valid, rows.joined(numbers_of(before), rows.times), neutral)
            return array_of(rows.reduced(picks, times), DatetimeType.arrow, missing)

        first = bound.column(rows.opened, ".first")
        return [picked(np.maximum, last, INT64[0]), picked(np.minimum, first, INT64[1])]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        last = bound.column(sessions)
        if self.where is None:
            return array_of(micros(last) - micros(sessions["start"]), TimedeltaType.arrow)
        lengths = numbers_of(last) - numbers_of(bound.column(sessions, ".first"))
        return array_of(lengths, TimedeltaType.arrow, ~mask_of(last.is_valid()))


@explains
def duration(*, where: Condition | None = None) -> Aggregate:
    """
    Return the time from the first to the last event of a session, as a timedelta.

    `where` selects the events between which to measure; without any, the result is None.

        agg.duration(where=pc.field("kind") == "view")
        agg.count() / (agg.duration() / timedelta(minutes=1))  # events a minute
    """
    return DurationOfSession(where=where)


@attrs.frozen(kw_only=True, order=False, repr=False)
class EngagedTime(Kind):
    """
    The sum of the times between events, each up to a cap.

    A session stores the start and end of its stretches. In a stretch, each event is at most the cap
    after the previous event.
    """

    kind: ClassVar = "engaged_time"
    needs_field: ClassVar = False
    merges: ClassVar = (FieldType,)
    gives: ClassVar = timedelta
    cap: timedelta
    within: timedelta

    def check(self) -> None:
        if -(-self.within // self.cap) > MOST_CAPS:
            found = f"`within` may be at most {MOST_CAPS:,} times `cap`, found {self.within!s}"
            raise SpecError(found, "what is stored grows with it; take a longer `cap`")

    @property
    def arguments(self) -> list[str]:
        return [f"cap={duration_text(self.cap)!r}"]

    def identity(self, _: BoundAggregate) -> str:
        return f"{duration_text(self.cap)}; {duration_text(self.within)}"

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [bound.field(ListType(DatetimeType()), part) for part in ("", ".to")]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        """
        Return the stretches of each session.

        A late event inside a stretch changes nothing. All later than `within` after the first event
        becomes one event at that time, which tells that there was more; an earlier first event
        moves it back.
        """
        chosen = self.chosen(rows)
        stored = [bound.column(rows.opened, part) for part in ("", ".to")]
        owners = rows.listed(stored[0], chosen)
        at = instants(rows.times)
        starts, ends = (numbers_of(rows.flat(times, at, chosen)) for times in stored)
        if len(owners):
            order = np.lexsort((starts, owners))
            owners, starts, ends = owners[order], starts[order], ends[order]
            sizes = np.bincount(owners, minlength=len(rows))
            until = starts[(np.cumsum(sizes) - sizes)[owners]] + span_us(self.within)
            starts, ends = np.minimum(starts, until), np.minimum(ends, until)
            owners, starts, ends = _united(owners, starts, ends, span_us(self.cap))
        return rows.kept(owners, [array_of(at, DatetimeType.arrow) for at in (starts, ends)])

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        """Return the length of all stretches, plus the cap for each time between two of them."""
        cap = span_us(self.cap)
        starts, ends = (bound.column(sessions, part) for part in ("", ".to"))
        owners = owners_of(starts)
        lengths = numbers_of(ends.flatten()) - numbers_of(starts.flatten()) + cap
        totals = np.zeros(len(starts), np.int64)
        np.add.at(totals, owners, lengths)
        has_events = np.bincount(owners, minlength=len(starts)) > 0
        return array_of(totals - np.where(has_events, cap, 0), TimedeltaType.arrow)


def _united(
    owners: Numbers, starts: Numbers, ends: Numbers, cap: int
) -> tuple[Numbers, Numbers, Numbers]:
    """Join the stretches of each owner that are at most the cap apart, sorted by start."""
    begins = np.ones(len(owners), np.bool_)
    begins[1:] = owners[1:] != owners[:-1]
    furthest = running_maximum(owners, ends, begins[1:])
    begins[1:] |= starts[1:] - furthest[:-1] > cap
    first = np.flatnonzero(begins)
    return owners[first], starts[first], np.maximum.reduceat(ends, first)


@explains
def engaged_time(
    *, cap: Duration, within: Duration = "1 day", where: Condition | None = None
) -> Aggregate:
    """
    Add up the times between the events of a session, each up to a cap: a timedelta.

        agg.engaged_time(cap="30 seconds", where=pc.field("kind") == "ping")

    With heartbeats or page pings, it's how long somebody was there, rather than how long the
    session was open. For a single event it's zero, since its own time is unknown; and for none.

    Args:
        cap: How much of the time from one event to the next counts: somewhat more than the time
            between two heartbeats.
        within: How much of a session counts, in event time: an event later than this after the
            first event counts as one at exactly this distance. It's at most 100,000 times the cap,
            and bounds the state.
        where: Selects the events to count, also as the first event.

    Raises:
        SpecError: A duration isn't positive, or `within` is longer than 100,000 times `cap`.
    """
    return EngagedTime(
        where=where, cap=duration_of(cap, "cap"), within=duration_of(within, "within")
    )


@explains
def least(*values: Aggregate | Plain) -> Aggregate:
    """
    Return the least of several aggregates and constants, as Spark's `least`.

        agg.least(agg.sum("seconds"), 3600.0)

    None is passed over: the result is None only if all are None. NaN is greater than all numbers.

    Raises:
        SpecError: There are fewer than two values, or none of them is an aggregate.
    """
    return _of_several("least", values)


@explains
def greatest(*values: Aggregate | Plain) -> Aggregate:
    """
    Return the greatest of several aggregates and constants, as Spark's `greatest`.

        agg.greatest(agg.max("seconds"), 1.0)

    None is passed over: the result is None only if all are None. NaN is greater than all numbers.

    Raises:
        SpecError: There are fewer than two values, or none of them is an aggregate.
    """
    return _of_several("greatest", values)


def _of_several(sign: str, values: tuple[object, ...]) -> Aggregate:
    if len(values) > 1 and any(isinstance(value, Aggregate) for value in values):
        return expression(sign, *values)
    found = f"`{sign}` takes several values, at least one of them an aggregate, found {values!r}"
    raise SpecError(found, f'write {sign}(agg.sum("seconds"), 3600.0)')
