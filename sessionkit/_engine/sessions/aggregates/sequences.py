"""
Aggregates of what came after what: how far sessions got, their paths, and engaged time.

A session stores the events that matter with their times, up to a limit. So neither the order in
which events come nor their cut into micro-batches matters: one that comes late finds its place.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.table import Mask, Numbers, lists_of, whole
from sessionkit._engine.sessions.aggregates.picks import COLLECT
from sessionkit._engine.sessions.aggregates.rows import (
    Kernel,
    Rows,
    array_of,
    coded,
    mask_of,
    numbers_of,
    own_column,
    owners_of,
    places_in,
)
from sessionkit._engine.sessions.intervals import unite
from sessionkit._instants import span_us
from sessionkit.spec.aggregates import BoundAggregate
from sessionkit.state._codec import encode_column
from sessionkit.state._collections import Field, ListType
from sessionkit.state._scalars import IntType
from sessionkit.state._times import DatetimeType, TimedeltaType

Matrix: TypeAlias = npt.NDArray[Any]
Chain: TypeAlias = tuple[Numbers, Numbers]


# -- paths --------------------------------------------------------------------------------------


def _path(bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
    """Return the collected values without those that are equal to the one before."""
    lists = own_column(bound, sessions)
    owners, values = owners_of(lists), lists.flatten()
    codes, _ = coded(values)
    new = (np.diff(owners, prepend=-1) != 0) | (np.diff(codes, prepend=-1) != 0)
    sizes = np.bincount(owners[new], minlength=len(lists))
    return lists_of(values.filter(pa.array(new)), sizes)


# A late value may part two that are equal, so repeats are stored.
PATH: Final = Kernel(COLLECT.stored, COLLECT.fold, _path)


def longer(bound: BoundAggregate) -> BoundAggregate:
    """Return the values with one more, which says that there were too many."""
    most = 1 + (bound.aggregate.at_most or 0)
    return attrs.evolve(bound, aggregate=attrs.evolve(bound.aggregate, at_most=most))


def _steps(bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
    """Return how often the one value comes right after the other; null where there were more."""
    lists, between = own_column(bound, sessions), bound.aggregate.between or ()
    wanted = encode_column(bound.type, list(between), bound.name)
    codes, _ = coded(pa.concat_arrays([lists.flatten(), wanted]))
    codes, (before, after) = codes[:-2], codes[-2:]
    owners = owners_of(lists)
    # The two differ, so neither repeats between them.
    found = (codes[:-1] == before) & (codes[1:] == after) & (np.diff(owners) == 0)
    counts = np.bincount(owners[1:][found], minlength=len(lists))
    sizes = np.bincount(owners, minlength=len(lists))
    return pa.array(counts, mask=sizes > (bound.aggregate.at_most or 0))


STEPS: Final = Kernel(
    lambda bound: COLLECT.stored(longer(bound)),
    lambda bound, rows: COLLECT.fold(longer(bound), rows),
    _steps,
)


# -- engaged time -------------------------------------------------------------------------------


def _spans(bound: BoundAggregate) -> tuple[int, int]:
    """Return `cap` and `within` in microseconds."""
    aggregate, none = bound.aggregate, timedelta(0)
    return span_us(aggregate.cap or none), span_us(aggregate.within or none)


def _stretch_names(bound: BoundAggregate) -> tuple[str, str]:
    return bound.name, f"{bound.name}.to"


def _stretches(bound: BoundAggregate, rows: Rows) -> list[pa.Array]:
    """
    Return the stretches in which no event is more than the cap after the one before.

    Events within a stretch need not be known: a late one there changes nothing. All that is later
    than `within` after the first event becomes one event at that time, which says that there was
    more; an earlier first event moves it back.
    """
    cap, within = _spans(bound)
    stored = [rows.part(name) for name in _stretch_names(bound)]
    stored_of, event_of = np.split(rows.plan.owners, [len(stored[0])])
    chosen = rows.chosen(bound)
    times = rows.times
    if chosen is not None:
        times, event_of = times[chosen], event_of[chosen]
    owners = np.concatenate([stored_of[owners_of(stored[0])], event_of])
    starts, ends = (np.concatenate([numbers_of(part.flatten()), times]) for part in stored)
    number = len(rows.plan.unions)
    if len(owners):
        order = np.lexsort((starts, owners))
        owners, starts, ends = owners[order], starts[order], ends[order]
        sizes = np.bincount(owners, minlength=number)
        until = starts[(np.cumsum(sizes) - sizes)[owners]] + within
        starts, ends = np.minimum(starts, until), np.minimum(ends, until)
        found = unite(owners, starts, ends + cap, gap_inclusive=True)
        owners, starts, ends = owners[found.first], found.start, found.end - cap
    sizes = np.bincount(owners, minlength=number)
    return [lists_of(array_of(each, DatetimeType.arrow), sizes) for each in (starts, ends)]


def _engaged(bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
    """Return how long the stretches are, and the cap for each time between two of them."""
    cap, _ = _spans(bound)
    starts, ends = (whole(sessions[f"state.{name}"]) for name in _stretch_names(bound))
    owners = owners_of(starts)
    lengths = numbers_of(ends.flatten()) - numbers_of(starts.flatten()) + cap
    totals = np.zeros(len(starts), np.int64)
    np.add.at(totals, owners, lengths)
    has_events = np.bincount(owners, minlength=len(starts)) > 0
    return array_of(totals - np.where(has_events, cap, 0), TimedeltaType.arrow)


ENGAGED: Final = Kernel(
    lambda bound: [Field(name, ListType(DatetimeType()), name) for name in _stretch_names(bound)],
    _stretches,
    _engaged,
)


# -- what is stored of a funnel -----------------------------------------------------------------


def _funnel_stored(bound: BoundAggregate) -> list[Field]:
    at = f"{bound.name}.at"
    return [
        Field(bound.name, ListType(IntType()), bound.name),
        Field(at, ListType(DatetimeType()), at),
    ]


def kept_steps(
    bound: BoundAggregate, rows: Rows, *turns: tuple[Numbers, Numbers]
) -> list[pa.Array]:
    """
    Return the steps at each instant; one more than the limit says that there were more.

    Turns, if given, part an instant: those of what is stored, and those of all events. What is left
    of them is returned too.
    """
    before, kept, bits = rows.part(bound.name), *_steps_of(bound, rows)
    stored_of, event_of = np.split(rows.plan.owners, [len(before)])
    owners = np.concatenate([stored_of[owners_of(before)], event_of[kept]])
    steps = np.concatenate([numbers_of(before.flatten()), bits[kept]])
    stored_times = numbers_of(rows.part(f"{bound.name}.at").flatten())
    own = [np.concatenate([stored, came[kept]]) for stored, came in turns]
    own.append(np.concatenate([stored_times, rows.times[kept]]))
    order = np.lexsort((*own, owners))
    owners, steps, own = owners[order], steps[order], [one[order] for one in own]
    new = np.ones(len(owners), np.bool_)
    new[1:] = np.logical_or.reduce([np.diff(one) != 0 for one in (owners, *own)])
    if not new.all():
        steps = np.bitwise_or.reduceat(steps, np.flatnonzero(new))
        owners, own = owners[new], [one[new] for one in own]
    most = 1 + (bound.aggregate.at_most or 0)
    sizes = np.bincount(owners, minlength=len(rows.plan.unions))
    if sizes.max() > most:
        stays = places_in(sizes, owners) < most
        steps, sizes, own = steps[stays], np.minimum(sizes, most), [one[stays] for one in own]
    *others, times = own
    return [
        lists_of(pa.array(steps), sizes),
        lists_of(array_of(times, DatetimeType.arrow), sizes),
        *(lists_of(pa.array(one), sizes) for one in others),
    ]


def _steps_of(bound: BoundAggregate, rows: Rows) -> tuple[Mask, Numbers]:
    """Return which events are kept, and the steps of each event as bits."""
    bits = np.zeros(len(rows.times), np.int64)
    for place, (_, condition) in enumerate(bound.aggregate.steps):
        bits |= mask_of(rows.conditions[repr(condition)]).astype(np.int64) << place
    chosen = rows.chosen(bound)
    kept = np.ones(len(bits), np.bool_) if bound.aggregate.strict else bits != 0
    return kept if chosen is None else kept & chosen, bits


# -- how far sessions got -----------------------------------------------------------------------


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


def _instants(bound: BoundAggregate, sessions: pa.Table) -> Instants:
    steps, most = own_column(bound, sessions), bound.aggregate.at_most or 0
    owners, times = (
        owners_of(steps),
        numbers_of(whole(sessions[f"state.{bound.name}.at"]).flatten()),
    )
    sizes = np.bincount(owners, minlength=len(steps))
    kept = places_in(sizes, owners) < most
    stored, cut = numbers_of(steps.flatten()), np.minimum(sizes, most)
    first = np.cumsum(cut) - cut
    return Instants(stored[kept], times[kept], owners[kept], first, sizes > most)


def _chains(bound: BoundAggregate, of: Instants) -> Iterator[Chain]:
    """
    Yield, for each step, the place where a chain that reaches it at an instant began; -1 for none.

    It's the latest such place, which leaves the most time. With it comes the place of the step
    before, the last one. Both are places of one session, since a chain is.
    """
    aggregate, places = bound.aggregate, np.arange(len(of.steps))
    begun = np.where(of.steps & 1, places, -1)
    yield begun, begun
    for step in range(1, len(aggregate.steps)):
        last = np.maximum.accumulate(np.where(begun >= 0, places, -1))
        fits = (of.steps >> step & 1 == 1) & (last >= of.first[of.owners])
        if aggregate.strict:
            # Only instants of the step before may be between it and this one.
            other = np.maximum.accumulate(np.where(of.steps >> (step - 1) & 1, -1, places))
            fits[1:] &= last[1:] > other[:-1]
        if aggregate.within is not None:
            fits &= of.times - of.times[begun[last]] <= span_us(aggregate.within)
        begun = np.where(fits, begun[last], -1)
        yield begun, last


def _reached(bound: BoundAggregate, of: Instants, chains: Iterable[Chain]) -> tuple[Numbers, Mask]:
    """Return how many steps each session has reached, and where that isn't known."""
    reached = np.zeros(len(of.first), np.int64)
    for begun, _ in chains:
        has_step = np.zeros(len(reached), np.int64)
        has_step[of.owners[begun >= 0]] = 1
        reached += has_step
    return reached, of.is_cut & (reached < len(bound.aggregate.steps))


def _funnel_result(bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
    of = _instants(bound, sessions)
    reached, unknown = _reached(bound, of, _chains(bound, of))
    return pa.array(reached, mask=unknown)


FUNNEL: Final = Kernel(_funnel_stored, kept_steps, _funnel_result)


def _funnel_times(bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
    """Return the times of the steps of the earliest chain, found from its last step on."""
    of = _instants(bound, sessions)
    chains = list(_chains(bound, of))
    reached, unknown = _reached(bound, of, chains)
    reached[unknown] = 0
    places, times = (
        np.zeros(len(reached), np.int64),
        np.zeros((len(reached), len(chains)), np.int64),
    )
    for step in reversed(range(len(chains))):
        # Written from the last to the first: the first stays.
        ends = np.flatnonzero(chains[step][0] >= 0)[::-1]
        earliest = np.zeros(len(reached), np.int64)
        earliest[of.owners[ends]] = ends
        is_last, has = reached == step + 1, reached > step
        places[is_last] = earliest[is_last]
        times[has, step] = of.times[places[has]]
        places[has] = chains[step][1][places[has]]
    found: Matrix = times[np.arange(len(chains)) < reached[:, np.newaxis]]
    return lists_of(array_of(found, DatetimeType.arrow), reached, unknown)


FUNNEL_TIMES: Final = Kernel(_funnel_stored, kept_steps, _funnel_times)
