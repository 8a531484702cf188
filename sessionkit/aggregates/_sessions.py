"""Aggregates of whole sessions: length, rate, engaged time, and conditions on a session."""

from datetime import timedelta
from typing import Any, ClassVar, Final, Self

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arguments import explains
from sessionkit._arrays import Numbers, array_of, micros, numbers_of, owners_of, running_maximum
from sessionkit._instants import Duration, duration_of, duration_text, span_us
from sessionkit.aggregates._aggregate import Aggregate, BoundAggregate, Kind, class_of_results
from sessionkit.aggregates._events import Condition, EventRows, check_condition, evaluated
from sessionkit.aggregates._numbers import Count, count, counted
from sessionkit.errors import SpecError
from sessionkit.state._collections import Field, ListType
from sessionkit.state._scalars import BoolType, DatetimeType, TimedeltaType

MOST_CAPS: Final = 100_000


# -- durations ----------------------------------------------------------------------------------


class _OfWholeSession(Kind):
    """An aggregate that later events alone can't give."""

    __slots__ = ()

    def from_now(self) -> Self:
        found = f"`{self.kind}` is of a whole session, so it can't begin with later events"
        raise SpecError(found, "add it in a query with a new checkpoint")

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [bound.field(DatetimeType())]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        """Return the time of the last event; the end doesn't tell it where gaps vary."""
        times = rows.joined(numbers_of(bound.column(rows.opened)), rows.times)
        return [array_of(rows.reduced(np.maximum, times), DatetimeType.arrow)]

    @staticmethod
    def lengths(bound: BoundAggregate, sessions: pa.Table) -> Numbers:
        """Return the time from the first to the last event, in microseconds."""
        return micros(bound.column(sessions)) - micros(sessions["start"])


@attrs.frozen(kw_only=True, repr=False)
class DurationOfSession(_OfWholeSession):
    kind: ClassVar = "duration"
    gives: ClassVar = timedelta

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        return array_of(self.lengths(bound, sessions), TimedeltaType.arrow)


@explains
def duration() -> Aggregate:
    """Return the time from the first to the last event of a session, as a timedelta."""
    return DurationOfSession()


@attrs.frozen(kw_only=True, repr=False)
class Rate(_OfWholeSession):
    kind: ClassVar = "rate"
    gives: ClassVar = float | None
    per: timedelta

    @property
    def arguments(self) -> list[str]:
        return [repr(duration_text(self.per))]

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [*super().stored(bound), *counted(bound).stored]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        return [*super().fold(bound, rows), *counted(bound).fold(rows)]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        lengths = self.lengths(bound, sessions)
        counts = numbers_of(counted(bound).result(sessions)).astype(np.float64)
        return pa.array(counts * span_us(self.per) / np.maximum(lengths, 1), mask=lengths == 0)


@explains
def rate(per: Duration, *, where: Condition | None = None) -> Aggregate:
    """
    Return the number of events per unit of time of the session, as a float.

        agg.rate("1 minute", where=pc.field("kind") == "view")

    It's the number of events that `where` selects, divided by the time from the first to the last
    event of any kind; None where that is zero. `per` may change while a checkpoint lives.

    Raises:
        SpecError: `per` isn't a duration.
    """
    return Rate(where=where, per=duration_of(per, "per"))


# -- engaged time -------------------------------------------------------------------------------


@attrs.frozen(kw_only=True, repr=False)
class EngagedTime(Kind):
    """
    The sum of the times between events, each up to a cap.

    A session stores the start and end of its stretches. In a stretch, each event is at most the cap
    after the previous event.
    """

    kind: ClassVar = "engaged_time"
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
        starts, ends = (numbers_of(rows.flat(times, rows.instants, chosen)) for times in stored)
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
    session was open. For a single event it's zero, since its own time is unknown.

    Args:
        cap: How much of the time from one event to the next counts: somewhat more than the time
            between two heartbeats.
        within: How much of a session counts: an event later than this after the first event counts
            as one at that time. It's at most 100,000 times the cap, and bounds the state.
        where: Selects the events to count, also as the first event.

    Raises:
        SpecError: A duration can't be used.
    """
    return EngagedTime(
        where=where, cap=duration_of(cap, "cap"), within=duration_of(within, "within")
    )


# -- conditions on a session --------------------------------------------------------------------


@attrs.frozen(kw_only=True, repr=False)
class Holds(Kind):
    """Whether a condition over other aggregates is true; only the aggregates are stored."""

    kind: ClassVar = "holds"
    gives: ClassVar = bool
    stored_as: ClassVar = "engaged"
    takes_condition: ClassVar = True
    parts: tuple[tuple[str, Kind], ...]

    def check(self) -> None:
        parts: tuple[tuple[str, object], ...] = self.parts
        for name, part in parts:
            if not isinstance(part, Kind) or isinstance(part, Holds):
                found = f"`holds`: `{name}` must be an aggregate of events, found {part!r}"
                raise SpecError(found, f"write {name}=agg.count()")
        if not self.parts:
            found = "`holds` takes the aggregates that its condition is over, found none"
            raise SpecError(found, 'write holds(pc.field("n") > 1, n=agg.count())')

    @property
    def arguments(self) -> list[str]:
        return [*super().arguments, *(f"{name}={part}" for name, part in self.parts)]

    def from_now(self) -> Self:
        parts = tuple((name, part.from_now()) for name, part in self.parts)
        return attrs.evolve(self, parts=parts, is_from_now=True)

    def read_by(self) -> list[Condition]:
        return [condition for _, part in self.parts for condition in part.read_by()]

    def bind(self, event: type[Any], name: str) -> BoundAggregate:
        parts = tuple(part.bind(event, f"{name}.{label}") for label, part in self.parts)
        labels = (label for label, _ in self.parts)
        shown = class_of_results(*zip(labels, (part.annotation for part in parts), strict=True))
        check_condition(shown, f"`{name}`: `holds`", self.of)
        return BoundAggregate(name, self, BoolType(), may_be_missing=False, parts=parts)

    def identity(self, bound: BoundAggregate) -> str:
        # The stored column of a count of events or a duration tells which it is by its type.
        return ", ".join(
            part.name
            if isinstance(part.aggregate, Count | DurationOfSession) and part.aggregate.of is None
            else f"{part.name}: {part.text}"
            for part in bound.parts
        )

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [field for part in bound.parts for field in part.stored]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        return [column for part in bound.parts for column in part.fold(rows)]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        """Return whether the condition is true; false for null."""
        columns = [part.result(sessions) for part in bound.parts]
        table = pa.table(columns, [name for name, _ in self.parts])
        condition: Any = self.of
        (holds,) = evaluated(table, [condition])
        return holds.fill_null(fill_value=False)


@explains
def holds(condition: Condition, **parts: Aggregate) -> Aggregate:
    """
    Return whether a condition over other aggregates of the session is true.

    A session is engaged, for instance, if it lasts long enough or has two views:

        long, views = pc.field("lasted") > timedelta(seconds=10), pc.field("views") >= 2
        agg.holds(long | views, lasted=agg.duration(), views=agg.count(where="is_view"))

    It's evaluated when a row is made; an open session stores only the parts. So the condition may
    change while a checkpoint lives, and the parts may not. Where it is null, it doesn't hold.

    Args:
        condition: An expression over the names of the parts, or the name of a bool part.
        parts: The aggregates that the condition uses, by the names there. They aren't fields of the
            result, and none of them can be a `holds`.
    """
    items: Any = tuple(parts.items())
    return Holds(of=condition, parts=items)


@explains
def is_bounce(
    *, fewer_than: int = 2, shorter_than: Duration | None = None, where: Condition | None = None
) -> Aggregate:
    """
    Return whether a session is a bounce: it has too few events and, with a limit, is too short.

        agg.is_bounce(where=pc.field("kind") == "view", shorter_than="10 seconds")

    It's a `holds` over `count` and `duration`; write one yourself for another rule.

    Args:
        fewer_than: A bounce has fewer events than this.
        shorter_than: A bounce takes less than this from its first to its last event, of any kind;
            None if its length doesn't matter.
        where: Selects the events to count.

    Raises:
        SpecError: `fewer_than` isn't a whole number from 1, or `shorter_than` isn't a duration.
    """
    if type(fewer_than) is not int or fewer_than < 1:
        found = f"`fewer_than` must be a whole number from 1, found {fewer_than!r}"
        raise SpecError(found, "leave it out for the default, 2")
    few = pc.field("events") < fewer_than
    if shorter_than is None:
        return holds(few, events=count(where=where))
    is_short = pc.field("lasted") < duration_of(shorter_than, "shorter_than")
    return holds(few & is_short, events=count(where=where), lasted=duration())
