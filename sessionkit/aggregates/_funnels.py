"""
Funnels: how far sessions got through some steps, and when.

A session stores its instants that have an event of a step, with their times and, as bits, the steps
there: 0b101 for the first and the third. So neither the order in which events come nor their cut
into micro-batches matters: one that comes late finds its place.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import (
    Array,
    Mask,
    Numbers,
    array_of,
    lists_of,
    mask_of,
    numbers_of,
    owners_of,
    places_in,
)
from sessionkit._instants import Duration, duration_of, span_us
from sessionkit.aggregates._aggregate import Aggregate, BoundAggregate, Kind
from sessionkit.aggregates._events import Condition, EventRows
from sessionkit.arguments import explains
from sessionkit.errors import SpecError, with_hint
from sessionkit.state._collections import Field, ListType
from sessionkit.state._scalars import DatetimeType, IntType

MOST_STEPS: Final = 32
"""As in ClickHouse."""

Chain: TypeAlias = tuple[Numbers, Numbers]


@attrs.frozen(kw_only=True)
class Funnel(Kind):
    """
    How many steps a session has reached.

    Attributes:
        steps: The conditions, by the names of the steps.
        within: How long after its first step a funnel goes on; None for as long as the session.
        strict: Whether no other event may come between two steps.
    """

    kind: ClassVar = "funnel"
    gives: ClassVar[Any] = int | None
    is_ordered: ClassVar = True
    steps: tuple[tuple[str, Condition], ...] = attrs.field(eq=repr)
    within: timedelta | None = None
    strict: bool = False

    def check(self) -> None:
        steps: tuple[tuple[object, object], ...] = self.steps
        hint = 'write funnel({"viewed": pc.field("kind") == "view", "bought": "is_sale"})'
        if not 1 <= len(self.steps) <= MOST_STEPS:
            found = f"`{self.kind}` takes 1 to {MOST_STEPS} steps, found {len(self.steps)}"
            raise SpecError(with_hint(found, hint))
        for name, condition in steps:
            if not (isinstance(name, str) and isinstance(condition, Condition)):
                found = f"`{self.kind}`: step {name!r} must be a condition, found {condition!r}"
                raise SpecError(with_hint(found, hint))
        if type(self.strict) is not bool:
            found = f"`strict` must be True or False, found {self.strict!r}"
            raise SpecError(with_hint(found, "leave it out for events in between"))

    @property
    def arguments(self) -> list[str]:
        return [name for name, _ in self.steps]

    @property
    def conditions(self) -> Mapping[str, Condition]:
        steps = {f"step `{name}`": condition for name, condition in self.steps}
        return {**super().conditions, **steps}

    def identity(self, _: BoundAggregate) -> str:
        return ", ".join(self.arguments) + ("; strict" if self.strict else "")

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [bound.field(ListType(IntType())), *bound.moment_fields]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        """
        Return the steps at each instant, and at each of its turns where there is a `sequence`.

        One instant more than the limit says that there were more.
        """
        before, chosen = bound.column(rows.opened), self.chosen(rows)
        bits = np.zeros(len(rows.times), np.int64)
        for place, (_, condition) in enumerate(self.steps):
            bits |= mask_of(rows.met(condition)).astype(np.int64) << place
        kept = np.ones(len(bits), np.bool_) if self.strict else bits != 0
        kept = kept if chosen is None else kept & chosen
        owners = rows.listed(before, kept)
        steps = np.concatenate([numbers_of(before.flatten()), bits[kept]])
        places = bound.moments(rows, kept)
        order = np.lexsort((*reversed(places), owners))
        owners, steps, places = owners[order], steps[order], [one[order] for one in places]
        new = np.ones(len(owners), np.bool_)
        new[1:] = np.logical_or.reduce([np.diff(one) != 0 for one in (owners, *places)])
        if not new.all():
            steps = np.bitwise_or.reduceat(steps, np.flatnonzero(new))
            owners, places = owners[new], [one[new] for one in places]
        sizes = np.bincount(owners, minlength=len(rows))
        if sizes.max() > 1 + self.most:
            stays = places_in(sizes, owners) < 1 + self.most
            steps, sizes = steps[stays], np.minimum(sizes, 1 + self.most)
            places = [one[stays] for one in places]
        times, *turns = places
        columns = [pa.array(steps), array_of(times, DatetimeType.arrow), *map(pa.array, turns)]
        return [lists_of(column, sizes) for column in columns]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        of = self.instants(bound, sessions)
        reached, unknown = self.reached(of, self.chains(of))
        return pa.array(reached, mask=unknown)

    def instants(self, bound: BoundAggregate, sessions: pa.Table) -> "Instants":
        """Return what is stored of sessions, up to the limit."""
        steps = bound.column(sessions)
        owners = owners_of(steps)
        times = numbers_of(bound.column(sessions, ".at").flatten())
        sizes = np.bincount(owners, minlength=len(steps))
        kept = places_in(sizes, owners) < self.most
        stored, cut = numbers_of(steps.flatten()), np.minimum(sizes, self.most)
        first = np.cumsum(cut) - cut
        return Instants(stored[kept], times[kept], owners[kept], first, sizes > self.most)

    def chains(self, of: "Instants") -> Iterator[Chain]:
        """
        Yield, for each step, where a chain that reaches it at an instant began; -1 for none.

        It's the latest such place, which leaves the most time. With it comes the place of the step
        before, the last one. Both are places of one session, since a chain is.
        """
        places = np.arange(len(of.steps))
        begun = np.where(of.steps & 1, places, -1)
        yield begun, begun
        for step in range(1, len(self.steps)):
            last = np.maximum.accumulate(np.where(begun >= 0, places, -1))
            fits = (of.steps >> step & 1 == 1) & (last >= of.first[of.owners])
            if self.strict:
                # Only instants of the step before may be between it and this one.
                other = np.maximum.accumulate(np.where(of.steps >> (step - 1) & 1, -1, places))
                fits[1:] &= last[1:] > other[:-1]
            if self.within is not None:
                fits &= of.times - of.times[begun[last]] <= span_us(self.within)
            begun = np.where(fits, begun[last], -1)
            yield begun, last

    def reached(self, of: "Instants", chains: Iterable[Chain]) -> tuple[Numbers, Mask]:
        """Return how many steps each session has reached, and where that isn't known."""
        reached = np.zeros(len(of.first), np.int64)
        for begun, _ in chains:
            has_step = np.zeros(len(reached), np.int64)
            has_step[of.owners[begun >= 0]] = 1
            reached += has_step
        return reached, of.is_cut & (reached < len(self.steps))


@attrs.frozen
class Instants:
    """
    What sessions have stored of a funnel, in the order of sessions and time.

    Attributes:
        steps: The steps at each instant, as bits.
        times: When it was, in microseconds.
        owners: The number of its session.
        first: For each session, the place where its instants begin.
        is_cut: For each session, whether it had more instants.
    """

    steps: Numbers
    times: Numbers
    owners: Numbers
    first: Numbers
    is_cut: Mask


@explains
def funnel(
    steps: Mapping[str, Condition] | Sequence[Condition],
    *,
    within: Duration | None = None,
    strict: bool = False,
    at_most: int = 1_000,
    where: Condition | None = None,
) -> Aggregate:
    """
    Return how many steps of a funnel a session has reached, in the order of time: an int.

        agg.funnel({"viewed": is_view, "carted": is_cart, "bought": is_sale}, within="1 hour")

    It's the most steps of any chain: an event of the first step, one of the second at the same time
    or later, and so on, the last at most `within` after the first. Events of other steps, or of
    none, may come in between. ClickHouse's `windowFunnel` gives the same. Events at one instant
    have no order: together they may be several steps, and so may one event.

    Args:
        steps: The condition of each step, by its name. Without names, they are numbered.
        within: How much later the last step may be than the first, inclusive; None for any time.
            It may change while a checkpoint lives.
        strict: Whether another event ends a chain. Between two steps there may then be events of
            the earlier step alone, so use `where` to leave out what doesn't matter.
        at_most: How many instants with an event of a step are kept, or, if `strict`, with any
            event: the earliest. Where there are more, the result is None unless these alone reach
            the last step.
        where: Which events count.

    Raises:
        SpecError: There are no steps or more than 32, or another argument can't be used.
    """
    if isinstance(steps, str) or not isinstance(steps, Mapping | Sequence):
        found = f"`funnel` takes steps, found {steps!r}"
        raise SpecError(with_hint(found, 'write funnel(["is_view", "is_sale"])'))
    named = steps if isinstance(steps, Mapping) else {str(n): s for n, s in enumerate(steps, 1)}
    return Funnel(
        where=where,
        at_most=at_most,
        steps=tuple(named.items()),
        within=None if within is None else duration_of(within, "within"),
        strict=strict,
    )


@attrs.frozen(kw_only=True)
class FunnelTimes(Funnel):
    """When a session reached the steps."""

    kind: ClassVar = "funnel_times"
    gives: ClassVar[Any] = list[datetime] | None

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        """Return the times of the steps of the earliest chain, found from its last step on."""
        of = self.instants(bound, sessions)
        chains = list(self.chains(of))
        reached, unknown = self.reached(of, chains)
        reached[unknown] = 0
        places = np.zeros(len(reached), np.int64)
        times = np.zeros((len(reached), len(chains)), np.int64)
        for step in reversed(range(len(chains))):
            # Written from the last to the first: the first stays.
            ends = np.flatnonzero(chains[step][0] >= 0)[::-1]
            earliest = np.zeros(len(reached), np.int64)
            earliest[of.owners[ends]] = ends
            is_last, has = reached == step + 1, reached > step
            places[is_last] = earliest[is_last]
            times[has, step] = of.times[places[has]]
            places[has] = chains[step][1][places[has]]
        found: Array = times[np.arange(len(chains)) < reached[:, np.newaxis]]
        return lists_of(array_of(found, DatetimeType.arrow), reached, unknown)


@explains
def funnel_times(funnel: Aggregate) -> Aggregate:
    """
    List when a session reached each step of a funnel: as many times as the funnel counts steps.

        far = agg.funnel({"viewed": is_view, "bought": is_sale})
        {"far": far, "reached_at": agg.funnel_times(far)}

    Of several chains that come equally far, it's the one whose last step is earliest; each of its
    other steps is the last one that leads to the next.

    Args:
        funnel: The funnel. What it stores is stored for its times too.

    Raises:
        SpecError: It isn't a funnel.
    """
    if type(funnel) is not Funnel:
        found = f"`funnel_times` takes a funnel, found {funnel!r}"
        raise SpecError(with_hint(found, 'write funnel_times(funnel(["is_view", "is_sale"]))'))
    return FunnelTimes(**attrs.asdict(funnel, recurse=False))
