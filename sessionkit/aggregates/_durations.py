"""How long sessions last, how many events there are per time, and how long they were engaged."""

from datetime import timedelta
from typing import Any, ClassVar, Final, Self

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import (
    Numbers,
    array_of,
    lists_of,
    micros,
    numbers_of,
    owners_of,
    running_maximum,
)
from sessionkit._instants import Duration, duration_text, span_us
from sessionkit._instants import duration as _span
from sessionkit.aggregates._aggregate import (
    Aggregate,
    BoundAggregate,
    Kind,
    field_of,
    stored_column,
)
from sessionkit.aggregates._conditions import Condition
from sessionkit.aggregates._numbers import counted
from sessionkit.aggregates._rows import EventRows
from sessionkit.arguments import explains
from sessionkit.errors import SpecError, with_hint
from sessionkit.state._collections import Field, ListType
from sessionkit.state._scalars import DatetimeType, TimedeltaType

MOST_CAPS: Final = 100_000


# -- durations ----------------------------------------------------------------------------------


class _OfWholeSession(Kind):
    """One that later events alone can't give."""

    __slots__ = ()

    def from_now(self) -> Self:
        found = f"`{self.kind}` is of a whole session, so it can't begin with later events"
        raise SpecError(with_hint(found, "add it in a query with a new checkpoint"))

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [field_of(bound.name, DatetimeType())]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        """Return when the last event was: with gaps that vary, the end doesn't say."""
        times = rows.joined(numbers_of(rows.stored(bound.name)), rows.times)
        return [array_of(rows.reduced(np.maximum, times), DatetimeType.arrow)]

    @staticmethod
    def lengths(bound: BoundAggregate, sessions: pa.Table) -> Numbers:
        """Return the microseconds from the first to the last event."""
        return micros(stored_column(sessions, bound.name)) - micros(sessions["start"])


@attrs.frozen(kw_only=True)
class DurationOfSession(_OfWholeSession):
    kind: ClassVar = "duration"

    def annotation(self, _: BoundAggregate) -> Any:
        return timedelta

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        return array_of(self.lengths(bound, sessions), TimedeltaType.arrow)


@explains
def duration() -> Aggregate:
    """Return the time from the first to the last event of a session, as a timedelta."""
    return DurationOfSession()


@attrs.frozen(kw_only=True)
class Rate(_OfWholeSession):
    """
    How many events there are per some time.

    Attributes:
        per: The time.
    """

    kind: ClassVar = "rate"
    per: timedelta

    @property
    def arguments(self) -> list[str]:
        return [repr(duration_text(self.per))]

    def annotation(self, _: BoundAggregate) -> Any:
        return float | None

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [*super().stored(bound), *counted(bound).stored]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        return [*super().fold(bound, rows), *counted(bound).fold(rows)]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        """Return the numbers of events by the lengths of sessions: null where that is zero."""
        lengths = self.lengths(bound, sessions)
        counts = numbers_of(counted(bound).result(sessions)).astype(np.float64)
        return pa.array(counts * span_us(self.per) / np.maximum(lengths, 1), mask=lengths == 0)


@explains
def rate(per: Duration, *, where: Condition | None = None) -> Aggregate:
    """
    Return how many events there are per some time of the session, as a float.

        agg.rate("1 minute", where=pc.field("kind") == "view")

    It's their number, divided by the time from the first to the last event of the session. It's
    None where that is zero: one instant has no rate.

    Args:
        per: The time. It may change while a checkpoint lives.
        where: Which events count. The length is that of the whole session.

    Raises:
        SpecError: `per` isn't a duration.
    """
    return Rate(where=where, per=_span(per, "per"))


# -- engaged time -------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class EngagedTime(Kind):
    """
    The times between events, each up to a cap.

    A session stores its stretches: the times from and to which no event is more than the cap after
    the one before.

    Attributes:
        cap: How much of the time after an event counts.
        within: How long it's counted after the first event.
    """

    kind: ClassVar = "engaged_time"
    cap: timedelta
    within: timedelta

    def check(self) -> None:
        if -(-self.within // self.cap) > MOST_CAPS:
            found = f"`within` may be at most {MOST_CAPS:,} times `cap`, found {self.within!s}"
            raise SpecError(with_hint(found, "what is stored grows with it; take a longer `cap`"))

    @property
    def arguments(self) -> list[str]:
        return [f"cap={duration_text(self.cap)!r}"]

    def annotation(self, _: BoundAggregate) -> Any:
        return timedelta

    def identity(self, _: BoundAggregate) -> str:
        return f"{duration_text(self.cap)}; {duration_text(self.within)}"

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [field_of(name, ListType(DatetimeType())) for name in (bound.name, _to(bound))]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        """
        Return the stretches of each session.

        Events within a stretch need not be known: a late one there changes nothing. All that is
        later than `within` after the first event becomes one event at that time, which says that
        there was more; an earlier first event moves it back.
        """
        stored = [rows.stored(name) for name in (bound.name, _to(bound))]
        chosen = self.chosen(rows)
        times = rows.times if chosen is None else rows.times[chosen]
        owners = rows.listed(stored[0], chosen)
        starts, ends = (np.concatenate([numbers_of(part.flatten()), times]) for part in stored)
        if len(owners):
            order = np.lexsort((starts, owners))
            owners, starts, ends = owners[order], starts[order], ends[order]
            sizes = np.bincount(owners, minlength=len(rows))
            until = starts[(np.cumsum(sizes) - sizes)[owners]] + span_us(self.within)
            starts, ends = np.minimum(starts, until), np.minimum(ends, until)
            owners, starts, ends = _united(owners, starts, ends, span_us(self.cap))
        sizes = np.bincount(owners, minlength=len(rows))
        return [lists_of(array_of(each, DatetimeType.arrow), sizes) for each in (starts, ends)]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        """Return how long the stretches are, and the cap for each time between two of them."""
        cap = span_us(self.cap)
        starts, ends = (stored_column(sessions, name) for name in (bound.name, _to(bound)))
        owners = owners_of(starts)
        lengths = numbers_of(ends.flatten()) - numbers_of(starts.flatten()) + cap
        totals = np.zeros(len(starts), np.int64)
        np.add.at(totals, owners, lengths)
        has_events = np.bincount(owners, minlength=len(starts)) > 0
        return array_of(totals - np.where(has_events, cap, 0), TimedeltaType.arrow)


def _to(bound: BoundAggregate) -> str:
    return f"{bound.name}.to"


def _united(
    owners: Numbers, starts: Numbers, ends: Numbers, cap: int
) -> tuple[Numbers, Numbers, Numbers]:
    """Join the stretches of each owner that are at most the cap apart; they come by their start."""
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
    session was open. It's zero for one event: nobody knows how long that was looked at.

    Args:
        cap: How much of the time from one event to the next counts: somewhat more than the time
            between two heartbeats.
        within: How much of a session counts: an event later than this after the first one counts
            as one at that time. It's at most 100,000 times the cap, and bounds what is stored.
        where: Which events count, the first one among them.

    Raises:
        SpecError: A duration can't be used.
    """
    return EngagedTime(where=where, cap=_span(cap, "cap"), within=_span(within, "within"))
