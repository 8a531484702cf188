"""
Funnels: the number of steps that sessions reached, and their times.

A session stores the instants with an event of a step: their times, and their steps as bits, 0b101
for the first and the third. Strict modes store single events instead. So neither the arrival order
of events nor their cut into micro-batches matters. The rules follow ClickHouse's `windowFunnel`,
mode by mode.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arguments import explains
from sessionkit._arrays import (
    Array,
    Mask,
    Numbers,
    array_of,
    begins,
    lists_of,
    mask_of,
    numbers_of,
    owners_of,
    places_in,
)
from sessionkit._instants import Duration, duration_of, span_us
from sessionkit.aggregates._aggregate import Aggregate, BoundAggregate, Kind
from sessionkit.aggregates._events import Condition, EventRows
from sessionkit.errors import SpecError
from sessionkit.state._collections import Field, ListType
from sessionkit.state._scalars import DatetimeType, IntType, TimedeltaType

Strict: TypeAlias = Literal["order", "deduplication", "increase"]
MOST_STEPS: Final = 32  # as in ClickHouse
NONE: Final = -1
"""The step of an event of no step."""


@attrs.frozen(kw_only=True, order=False, repr=False)
class Funnel(Kind):
    """The number of steps that a session reached."""

    kind: ClassVar = "funnel"
    needs_field: ClassVar = False
    gives: ClassVar[Any] = int | None
    is_ordered: ClassVar = True
    steps: tuple[tuple[str, Condition], ...] = attrs.field(eq=repr)
    within: timedelta | None = None
    strict: frozenset[Strict] = frozenset()
    allow_reentry: bool = False
    not_between: Condition | None = attrs.field(default=None, eq=repr)

    def check(self) -> None:
        steps: tuple[tuple[object, object], ...] = self.steps
        hint = 'write funnel({"viewed": pc.field("kind") == "view", "bought": "is_sale"})'
        if not 1 <= len(self.steps) <= MOST_STEPS:
            found = f"`{self.kind}` takes 1 to {MOST_STEPS} steps, found {len(self.steps)}"
            raise SpecError(found, hint)
        for name, condition in steps:
            if not (isinstance(name, str) and isinstance(condition, Condition)):
                found = f"`{self.kind}`: step {name!r} must be a condition, found {condition!r}"
                raise SpecError(found, hint)
        if not isinstance(self.not_between, Condition | None):
            found = f"`not_between` must be a condition, found {self.not_between!r}"
            raise SpecError(found, 'write not_between=pc.field("kind") == "error"')
        if not isinstance(self.allow_reentry, bool):
            found = f"`allow_reentry` must be True or False, found {self.allow_reentry!r}"
            raise SpecError(found, "leave it out for False")
        if self.allow_reentry and "order" not in self.strict:
            found = "`allow_reentry` has no effect, since the order isn't strict"
            raise SpecError(found, 'write strict="order", or leave it out')

    @property
    def arguments(self) -> list[str]:
        return [name for name, _ in self.steps]

    @property
    def conditions(self) -> Mapping[str, Condition]:
        steps = {f"step `{name}`": condition for name, condition in self.steps}
        ends = {} if self.not_between is None else {"`not_between`": self.not_between}
        return {**super().conditions, **steps, **ends}

    @property
    def _keeps_events(self) -> bool:
        """Whether single events are stored, instead of the steps of an instant together."""
        return not self.strict <= {"increase"}

    def identity(self, _: BoundAggregate) -> str:
        what = "; each event" if self._keeps_events else ""
        what = "; strict" if "order" in self.strict else what
        ends = "" if self.not_between is None else "; not between"
        return ", ".join(self.arguments) + what + ends

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [bound.field(ListType(IntType())), *bound.moments()]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        """
        Return the steps at each instant, or at each place in a `sequence`.

        One more than the limit is kept, to tell that there were more.
        """
        chosen = self.chosen(rows)
        conditions = [condition for _, condition in self.steps]
        bits = rows.bits([*conditions, *([] if self.not_between is None else [self.not_between])])
        kept = np.ones(len(bits), np.bool_) if "order" in self.strict else bits != 0
        kept = kept if chosen is None else kept & chosen
        in_order = bound.in_order if self._keeps_events else bound.by_instant
        owners, steps, moments = in_order(rows, pa.array(bits), kept)
        return rows.kept(owners, [steps, *moments], 1 + self.most)

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        reached, unknown, *_ = self.reached(bound, sessions)
        return pa.array(reached, mask=unknown)

    def reached(
        self, bound: BoundAggregate, sessions: pa.Table
    ) -> tuple[Numbers, Mask, list[Array]]:
        """Return the steps that sessions reached, a mask where they're unknown, and the moments."""
        steps = bound.column(sessions)
        owners, sizes = owners_of(steps), steps.value_lengths().to_numpy().astype(np.int64)
        kept = places_in(sizes, owners) < self.most
        parts = ["", ".at"] if bound.sequence is None else ["", ".at", ".sequence"]
        lists = (numbers_of(bound.column(sessions, part).flatten())[kept] for part in parts)
        hits = _hits(len(self.steps), owners[kept], *lists)
        reached, moments = _walked(self, hits, len(sizes))
        return reached, (sizes > self.most) & (reached < len(self.steps)), moments


# -- the walk -----------------------------------------------------------------------------------


@attrs.frozen
class Hits:
    """
    The hits of steps by events, sorted by session, instant and step.

    An event or an instant with the steps 0b101 has two hits: of step 0, and of step 2.

    Attributes:
        owners: The number of the session.
        instants: The number of the instant. Hits of one instant are ordered by step alone.
        moments: The event time, in microseconds, and the place in the `sequence`, if there is one.
        steps: The step, from 0; `NONE` for an event of no step, and the number of steps for an
            event of `not_between`.
    """

    owners: Numbers
    instants: Numbers
    moments: Sequence[Numbers]
    steps: Numbers


def _hits(number: int, owners: Numbers, bits: Numbers, *moments: Numbers) -> Hits:
    instants = np.cumsum(begins(owners, *moments), dtype=np.int64)
    of_step = [bits == 0, *(bits >> step & 1 == 1 for step in range(number + 1))]
    # A stable sort by instant keeps the steps of an instant ascending.
    steps, events = np.nonzero(of_step)
    order = np.argsort(instants[events], kind="stable")
    events, steps = events[order], steps[order] + NONE
    return Hits(owners[events], instants[events], [moment[events] for moment in moments], steps)


def _walked(funnel: Funnel, hits: Hits, sessions: int) -> tuple[Numbers, list[Array]]:
    """
    Return the number of steps that sessions reached, and their moments, a row for each session.

    Step by step, each hit continues the latest chain that reached the previous step: that chain
    began last, so it has the most time left.
    """
    number, is_order = len(funnel.steps), "order" in funnel.strict
    places, owners, steps = np.arange(len(hits.steps)), hits.owners, hits.steps
    sizes = np.bincount(owners, minlength=sessions)
    first = (np.cumsum(sizes) - sizes)[owners]
    # A chain isn't open if an event of `not_between` follows its last hit.
    ended = _latest(steps == number)
    since = np.where(ended >= first, hits.instants[ended], -1) if len(ended) else ended

    def is_open(hit: Numbers, at: Numbers) -> Mask:
        open_: Mask = (hit >= first[at]) & (hits.instants[hit] >= since[at])
        return open_

    fits, before, begun = steps == 0, places.copy(), places.copy()
    last = _latest(fits)
    has_begun = is_open(last, places)
    # The hits that end the counting, unless a chain is complete before.
    stops = (steps == NONE) & has_begun
    for step in range(1, number):
        at = np.flatnonzero(steps == step)
        hit = last[at]
        goes_on = is_open(hit, at)
        if is_order and not funnel.allow_reentry:
            stops[at] |= ~goes_on & has_begun[at]
        if "increase" in funnel.strict:
            goes_on &= hits.instants[hit] < hits.instants[at]
        if funnel.within is not None:
            goes_on &= hits.moments[0][at] - hits.moments[0][begun[hit]] <= span_us(funnel.within)
        at, hit, all_of_step = at[goes_on], hit[goes_on], at
        fits[at], before[at], begun[at] = True, hit, begun[hit]
        last = _latest(fits & (steps == step))
        if "deduplication" in funnel.strict:
            earlier = np.where(all_of_step > 0, last[all_of_step - 1], -1)
            stops[all_of_step] |= is_open(earlier, all_of_step)
    ends = np.full(sessions, len(places))
    np.minimum.at(ends, owners[stops], places[stops])
    fits &= places < ends[owners]
    reached = np.zeros(sessions, np.int64)
    np.maximum.at(reached, owners[fits], steps[fits] + 1)
    # Assigned in reverse, so that the first hit of the last step stays.
    of_last = np.flatnonzero(fits & (steps + 1 == reached[owners]))[::-1]
    ends[owners[of_last]] = of_last
    moments: list[Array] = [np.zeros((sessions, number), np.int64) for _ in hits.moments]
    for step in reversed(range(number)):
        has = reached > step
        for of_sessions, of_hits in zip(moments, hits.moments, strict=True):
            of_sessions[has, step] = of_hits[ends[has]]
        ends[has] = before[ends[has]]
    return reached, moments


def _latest(marks: Mask) -> Numbers:
    """Return the position of the last mark up to each position, -1 if there is none."""
    latest: Numbers = np.maximum.accumulate(np.where(marks, np.arange(len(marks)), -1))
    return latest


@explains
def funnel(
    steps: Mapping[str, Condition] | Sequence[Condition],
    *,
    within: Duration | None = None,
    strict: bool | Strict | Collection[Strict] = False,
    allow_reentry: bool = False,
    not_between: Condition | None = None,
    at_most: int = 1_000,
    where: Condition | None = None,
) -> Aggregate:
    """
    Count the steps of a funnel that a session reached, in the order of time: an int.

        steps = {"viewed": "is_view", "carted": "is_cart", "bought": "is_sale"}  # bool fields
        agg.funnel(steps, within="1 hour")

    A chain is an event of the first step, then one of the second at the same time or later, and so
    on, the last at most `within` after the first. The longest chain counts. By default, other
    events may come in between. Events at one instant have no order: together they may be several
    steps, and so may a single event that meets several conditions. ClickHouse's `windowFunnel`
    gives the same, also in its modes, except `strict_once`.

    Args:
        steps: The condition of each step, by its name. Without names, steps are numbered.
        within: How much later the last step may be than the first, inclusive; None for any time.
            It may change while a checkpoint lives.
        strict: One or several modes. `"order"`, or True: counting ends at an event that is no step,
            and at a step whose previous step isn't reached yet. Repeats, and steps before the one
            reached, may come in between. To let other events come in between, leave them out by
            `where`. `"deduplication"`: counting ends at a repeated step, unless it's the first
            step. `"increase"`: each step must be strictly later than the last event of the step
            before it.
        allow_reentry: Under a strict order, whether a step that comes too early is passed over,
            instead of ending the count.
        not_between: Events that must not come between two steps: chains that began before such an
            event end there. Steps that they reached stay reached.
        at_most: How many of the earliest instants with an event of a step or of `not_between` are
            kept. Under "deduplication" it's a number of events, and under "order" of events of any
            kind. If a session has more, the result is None, unless the kept ones reach the last
            step.
        where: Selects the events to count.

    Raises:
        SpecError: There are no steps or more than 32, `within` isn't positive, or `strict` isn't
            True, False or of these modes.
    """
    if isinstance(steps, str) or not isinstance(steps, Mapping | Sequence):
        found = f"`funnel` takes steps, found {steps!r}"
        raise SpecError(found, 'write funnel(["is_view", "is_sale"])')
    by_name = steps if isinstance(steps, Mapping) else {str(n): s for n, s in enumerate(steps, 1)}
    return Funnel(
        where=where,
        at_most=at_most,
        steps=tuple(by_name.items()),
        within=None if within is None else duration_of(within, "within"),
        strict=_strict_of(strict),
        allow_reentry=allow_reentry,
        not_between=not_between,
    )


def _strict_of(value: Any) -> frozenset[Any]:
    """Read the strict modes; True is short for "order"."""
    if isinstance(value, bool):
        return frozenset({"order"} if value else ())
    is_single = isinstance(value, str) or not isinstance(value, Collection)
    modes, choices = (value,) if is_single else tuple(value), get_args(Strict)
    if not all(isinstance(mode, str) and mode in choices for mode in modes):
        found = f"`strict` must be True or False, or of {', '.join(map(repr, choices))}"
        raise SpecError(f"{found}, found {value!r}", "leave it out for events in between")
    return frozenset(modes)


@attrs.frozen(kw_only=True, order=False, repr=False)
class FunnelTimes(Funnel):
    """The times when a session reached the steps, or the time between two of them."""

    kind: ClassVar = "funnel_times"
    between: tuple[str, str] | None = None

    def check(self) -> None:
        super().check()
        pair: Any = self.between
        names = self.arguments
        if pair is None:
            return
        pairs = [(name, later) for place, name in enumerate(names) for later in names[place + 1 :]]
        are_names = isinstance(pair, tuple) and all(isinstance(name, str) for name in pair)
        if not are_names or pair not in pairs:
            found = f"`between` takes two of the steps {', '.join(names)}, the earlier one first"
            hint = f"write between=({names[0]!r}, {names[-1]!r})"
            hint = hint if pairs else "leave it out: the funnel has a single step"
            raise SpecError(f"{found}; found {pair!r}", hint)

    def annotation(self, _: BoundAggregate) -> Any:
        return (list[datetime] if self.between is None else timedelta) | None

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        """Return the step times of the first chain with the most steps."""
        reached, unknown, (times, *_) = self.reached(bound, sessions)
        if self.between is not None:
            first, last = map(self.arguments.index, self.between)
            lengths = times[:, last] - times[:, first]
            return array_of(lengths, TimedeltaType.arrow, unknown | (reached <= last))
        reached[unknown] = 0
        of_chains = times[np.arange(len(self.steps)) < reached[:, np.newaxis]]
        return lists_of(array_of(of_chains, DatetimeType.arrow), reached, unknown)


@explains
def funnel_times(funnel: Aggregate, *, between: tuple[str, str] | None = None) -> Aggregate:
    """
    List the event times at which a session reached the steps of a funnel.

        far = agg.funnel({"viewed": "is_view", "bought": "is_sale"})
        {"far": far, "reached_at": agg.funnel_times(far)}
        agg.funnel_times(far, between=("viewed", "bought"))  # a timedelta

    The list has one time, in UTC, for each step that the session reached; it's empty if the session
    reached none. The result is None where the funnel is None.

    The times are from the longest chain. If several chains have the same number of steps, the one
    whose last step is earliest counts. Each earlier step then takes the latest event that fits: for
    views at 10:00 and 10:05, and a sale at 10:10, the times are 10:05 and 10:10.

    Args:
        funnel: The funnel. This aggregate stores a copy of the funnel's state.
        between: The names of two steps, the earlier one first. The result is then the time between
            them, a timedelta, or None if the session didn't reach the later one. Steps without
            names are "1", "2", and so on. You may change `between` and keep the checkpoint.

    Raises:
        SpecError: `funnel` isn't a funnel, or has no such steps in this order.
    """
    if type(funnel) is not Funnel:
        found = f"`funnel_times` takes a funnel, found {funnel!r}"
        raise SpecError(found, 'write funnel_times(funnel(["is_view", "is_sale"]))')
    pair: Any = between
    pair = tuple(pair) if isinstance(pair, list) else pair
    return FunnelTimes(**attrs.asdict(funnel, recurse=False), between=pair)


@attrs.frozen(kw_only=True, order=False, repr=False)
class FunnelNext(Funnel):
    """
    The value of a field that came next after the last step that a session reached.

    A session also stores the least value at each instant, since a late event may change the steps.
    """

    kind: ClassVar = "funnel_next"
    then: Condition | None = attrs.field(default=None, eq=repr)

    def check(self) -> None:
        super().check()
        if self.of is None:
            found = "`funnel_next` takes the name of a field, as text, found None"
            raise SpecError(found, 'write funnel_next(funnel, "page")')
        if not isinstance(self.then, Condition | None):
            found = f"`where` takes an expression or the name of a bool field, found {self.then!r}"
            raise SpecError(found, 'write where=pc.field("kind") == "view"')

    @property
    def arguments(self) -> list[str]:
        return [*super().arguments, repr(self.of)]

    @property
    def conditions(self) -> Mapping[str, Condition]:
        then = {} if self.then is None else {"`where` of what comes next": self.then}
        return {**super().conditions, **then}

    def annotation(self, bound: BoundAggregate) -> Any:
        return bound.python_type | None

    def chosen(self, rows: EventRows) -> Mask | None:
        """Mark the events of the funnel, with and without a value."""
        return None if self.where is None else mask_of(rows.met(self.where))

    def stored(self, bound: BoundAggregate) -> list[Field]:
        after = _after(bound)
        return [*super().stored(bound), after.field(ListType(bound.type)), *after.moments()]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        values = self.values(rows)
        masks = [mask_of(values.is_valid())]
        masks += [
            mask_of(rows.met(condition))
            for condition in (self.where, self.then)
            if condition is not None
        ]
        owners, values, moments = _after(bound).in_order(rows, values, np.logical_and.reduce(masks))
        new = begins(owners, *map(numbers_of, moments))
        least = [column.filter(pa.array(new)) for column in (values, *moments)]
        return [*super().fold(bound, rows), *rows.kept(owners[new], least, self.most)]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        reached, unknown, moments = self.reached(bound, sessions)
        lists = _after(bound).column(sessions)
        owners, number = owners_of(lists), len(lists)
        is_later = np.zeros(len(owners), np.bool_)
        parts = (".at", ".sequence")[: len(moments)]
        for part, steps in reversed([*zip(parts, moments, strict=True)]):
            of_step = steps[np.arange(number), reached - 1][owners]
            at = numbers_of(_after(bound).column(sessions, part).flatten())
            is_later = (at > of_step) | ((at == of_step) & is_later)
        later = np.flatnonzero(is_later & ((reached > 0) & ~unknown)[owners])
        first = later[begins(owners[later])]
        places, missing = np.zeros(number, np.int64), np.ones(number, np.bool_)
        places[owners[first]], missing[owners[first]] = first, False
        return lists.flatten().take(pa.array(places, mask=missing))


def _after(bound: BoundAggregate) -> BoundAggregate:
    """Return the aggregate under the name of the stored values that may come next."""
    return attrs.evolve(bound, name=f"{bound.name}.next")


@explains
def funnel_next(funnel: Aggregate, field: str, *, where: Condition | None = None) -> Aggregate:
    """
    Return a field's value in the next event after the last step that a session reached.

        far = agg.funnel({"viewed": "is_view", "carted": "is_cart", "bought": "is_sale"})
        {"far": far, "instead": agg.funnel_next(far, "page")}

    In this example, a session that reached fewer than 3 steps shows what the user did instead. The
    chain of events is the same as in `funnel_times`.

    The next event is the first one with a value that is strictly later than the last step. It may
    be a step itself. If several events share that instant, the least value counts. The result is
    None if the session reached no step, if no such event came, or if the funnel is None.

    Args:
        funnel: The funnel. Its own `where` applies to the next event too. This aggregate stores a
            copy of the funnel's state, and the values at its earliest `at_most` instants. If a
            session has more instants, and the next event isn't among them, the result is None.
        field: The field, of any type but a list, a dict, a tuple or a class.
        where: A further condition that the next event must meet. None adds no condition.

    Raises:
        SpecError: `funnel` isn't a funnel, `field` isn't text, or `where` isn't a condition.
    """
    if type(funnel) is not Funnel:
        found = f"`funnel_next` takes a funnel, found {funnel!r}"
        raise SpecError(found, 'write funnel_next(funnel(["is_view", "is_sale"]), "page")')
    of_funnel = attrs.asdict(funnel, recurse=False)
    return FunnelNext(**{**of_funnel, "of": field}, then=where)
