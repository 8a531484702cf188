"""Aggregates that are values of events: the least, the first, the different ones, all in order."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.rows.order import in_total_order
from sessionkit._engine.rows.table import Mask, Numbers, lists_of, whole
from sessionkit._engine.sessions.aggregates.rows import (
    Kernel,
    Rows,
    array_of,
    coded,
    is_number,
    mask_of,
    numbers_of,
    own_column,
    owners_of,
    places_in,
    ranked,
)
from sessionkit._engine.sessions.intervals import Unions
from sessionkit._engine.sessions.plan import Plan
from sessionkit.spec.aggregates import BoundAggregate
from sessionkit.state._collections import Field, ListType, OptionalType
from sessionkit.state._scalars import IntType
from sessionkit.state._times import DatetimeType

LARGEST: Final = np.iinfo(np.int64).max
SMALLEST: Final = np.iinfo(np.int64).min


def _value_field(bound: BoundAggregate) -> Field:
    kind = OptionalType(bound.type) if bound.may_be_missing else bound.type
    return Field(bound.name, kind, bound.name)


def _without(unions: Unions, valid: Mask | None) -> Mask | None:
    """Mark the sessions without a value."""
    return None if valid is None else ~unions.reduced(np.logical_or, valid)


# -- the least and the greatest -----------------------------------------------------------------


def _extreme(bound: BoundAggregate, rows: Rows) -> list[pa.Array]:
    """Return the least or the greatest values; NaN is greater than all numbers."""
    before, events = rows.part(bound.name), rows.values(bound)
    valid = rows.all_valid(before, rows.chosen(bound)) if bound.may_be_missing else None
    missing, is_min = _without(rows.plan.unions, valid), bound.aggregate.kind == "min"
    if is_number(events.type):
        values = rows.joined(numbers_of(before), numbers_of(events))
        best = _best(rows.plan.unions, values, valid, is_min=is_min)
        return [array_of(best, events.type, missing)]
    ranks, values = ranked(pa.concat_arrays([before, events]))
    best = _best(rows.plan.unions, ranks[rows.plan.order], valid, is_min=is_min)
    return [values.take(pa.array(best, mask=missing))]


def _best(unions: Unions, values: Any, valid: Mask | None, *, is_min: bool) -> Any:
    is_float = values.dtype.kind == "f"
    if valid is not None:
        # What changes nothing: `fmin` passes over NaN.
        neutral = (np.nan if is_min else -np.inf) if is_float else SMALLEST
        neutral = LARGEST if is_min and not is_float else neutral
        values = np.where(valid, values, values.dtype.type(neutral))
    least = np.fmin if is_float else np.minimum
    return unions.reduced(least if is_min else np.maximum, values)


EXTREME: Final = Kernel(lambda bound: [_value_field(bound)], _extreme)


# -- the first and the last ---------------------------------------------------------------------


def _stores_time(bound: BoundAggregate) -> bool:
    """Return whether the time of the value is stored with it."""
    # The start of a session says when its first event was. Its end doesn't say when the last one
    # was: events may have had other gaps, and the rules may have been others.
    return bound.may_be_missing or bound.aggregate.kind == "last"


def _edge_stored(bound: BoundAggregate) -> list[Field]:
    name = f"{bound.name}.at"
    at = [Field(name, OptionalType(DatetimeType()), name)] if _stores_time(bound) else []
    return [_value_field(bound), *at]


def _edge(bound: BoundAggregate, rows: Rows) -> list[pa.Array]:
    """Return the value at the earliest or at the latest time; of several there, by value."""
    stores_time = _stores_time(bound)
    times_before = numbers_of(rows.part(f"{bound.name}.at")) if stores_time else rows.starts
    times = rows.joined(times_before, rows.times)
    found, at, missing = picked(bound, rows, times)
    return [found, *([array_of(times[at], DatetimeType.arrow, missing)] if stores_time else [])]


def picked(bound: BoundAggregate, rows: Rows, keys: Numbers) -> tuple[pa.Array, Numbers, Mask]:
    """
    Return the value of each session at its least or greatest key; of several there, by value.

    With it come the place of its row among the keys, which are in order, and which have none.
    """
    plan, unions, before = rows.plan, rows.plan.unions, rows.part(bound.name)
    sign = 1 if bound.aggregate.kind == "first" else -1
    values = pa.chunked_array([before, rows.values(bound)])
    valid = rows.all_valid(before, rows.chosen(bound))
    # Ascending for both: the last is the first from the other end.
    keys = np.where(valid, sign * keys, LARGEST)
    at = np.flatnonzero(valid & (keys == unions.spread(unions.reduced(np.minimum, keys))))
    at = at[_wins(plan, at, values, sign)]
    places = np.full(len(unions), -1)
    places[unions.numbers[at]] = at
    missing = places < 0
    return whole(values.take(pa.array(plan.order[places], mask=missing))), places, missing


def _wins(plan: Plan, at: Numbers, values: pa.ChunkedArray, sign: int) -> Mask:
    """Mark the row that provides the value of each session; all of them if they're equal."""
    sessions = plan.unions.numbers[at]
    if not (np.diff(sessions) == 0).any():
        return np.ones(len(at), np.bool_)
    ranks, _ = ranked(whole(values.take(pa.array(plan.order[at]))))
    best = np.full(len(plan.unions), LARGEST)
    np.minimum.at(best, sessions, sign * ranks)
    wins: Mask = sign * ranks == best[sessions]
    return wins


EDGE: Final = Kernel(_edge_stored, _edge)


# -- lists --------------------------------------------------------------------------------------


def _flat(bound: BoundAggregate, rows: Rows, before: pa.Array) -> tuple[pa.Array, Numbers]:
    """Return the stored values, then those of the chosen events, and the session of each."""
    chosen = rows.chosen(bound)
    events, by_row = rows.values(bound), rows.plan.owners
    stored_of, event_of = by_row[: len(before)], by_row[len(before) :]
    if chosen is not None:
        events, event_of = events.filter(pa.array(chosen)), event_of[chosen]
    parents = pc.list_parent_indices(before).to_numpy()
    values = pa.concat_arrays([before.flatten(), events])
    return values, np.concatenate([stored_of[parents], event_of])


def _tallies(
    bound: BoundAggregate, rows: Rows, counts: Numbers | None = None
) -> tuple[pa.Array, Numbers]:
    """
    Return the different values of each session, a null once there are too many, and their counts.

    `counts` are those of the stored values; without them, none are returned.
    """
    before, number = rows.part(bound.name), len(rows.plan.unions)
    values, sessions = _flat(bound, rows, before)
    codes, different = coded(values)
    found = sessions * (len(different) + 1) + codes
    order = None if counts is None else np.argsort(found, kind="stable")
    found = np.sort(found) if order is None else found[order]
    first = np.flatnonzero(np.diff(found, prepend=-1) != 0)
    owners, codes = np.divmod(found[first], len(different) + 1)
    sizes = np.bincount(owners, minlength=number)
    full = sizes > (bound.aggregate.at_most or 0)
    full[rows.plan.owners[: len(before)][~mask_of(before.is_valid())]] = True
    stays = ~full[owners]
    kept = lists_of(different.take(pa.array(codes[stays])), np.where(full, 0, sizes), full)
    if counts is None or not len(first):
        return kept, first
    ones = np.ones(len(values) - len(counts), np.int64)
    return kept, np.add.reduceat(np.concatenate([counts, ones])[order], first)[stays]


def _distinct(bound: BoundAggregate, rows: Rows) -> list[pa.Array]:
    """Return the different values; their list is null once there are too many."""
    return [_tallies(bound, rows)[0]]


def _distinct_result(bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
    """Return how many different values there are: null where there are too many."""
    return pc.list_value_length(own_column(bound, sessions)).cast(pa.int64())


DISTINCT: Final = Kernel(
    lambda bound: [Field(bound.name, OptionalType(ListType(bound.type)), bound.name)],
    _distinct,
    _distinct_result,
)


def _top_stored(bound: BoundAggregate) -> list[Field]:
    name = f"{bound.name}.counts"
    return [*DISTINCT.stored(bound), Field(name, ListType(IntType()), name)]


def _top(bound: BoundAggregate, rows: Rows) -> list[pa.Array]:
    """Return the different values and how often each is there."""
    before = numbers_of(rows.part(f"{bound.name}.counts").flatten())
    values, counts = _tallies(bound, rows, before)
    sizes = values.value_lengths().fill_null(0).to_numpy()
    return [values, lists_of(pa.array(counts), sizes)]


def _top_result(bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
    """Return the first values, of those that are equally frequent the least."""
    lists, most = own_column(bound, sessions), bound.aggregate.n or 0
    counts = numbers_of(whole(sessions[f"state.{bound.name}.counts"]).flatten())
    owners, values = owners_of(lists), lists.flatten()
    ranks, _ = ranked(values)
    order = np.lexsort((ranks, -counts, owners))
    sizes = np.bincount(owners, minlength=len(lists))
    kept = order[places_in(sizes, owners) < most]
    full = ~mask_of(lists.is_valid())
    return lists_of(values.take(pa.array(kept)), np.minimum(sizes, most), full)


TOP: Final = Kernel(_top_stored, _top, _top_result)


def _collect_stored(bound: BoundAggregate) -> list[Field]:
    name = f"{bound.name}.at"
    at = Field(name, ListType(DatetimeType()), name)
    return [Field(bound.name, ListType(bound.type), bound.name), at]


def collected(bound: BoundAggregate, rows: Rows, *turns: pa.Array) -> list[pa.Array]:
    """
    Return the earliest values in the order of time, those at one time by value.

    Turns, if given, go before the value. There is one for each stored value and each chosen event;
    what is left of them is returned too.
    """
    times_before = rows.part(f"{bound.name}.at").flatten()
    values, sessions = _flat(bound, rows, rows.part(bound.name))
    chosen = rows.chosen(bound)
    times = rows.times if chosen is None else rows.times[chosen]
    times = np.concatenate([numbers_of(times_before), times])
    content = (*turns, values)
    table = pa.table(content, [f"event.{place}" for place in range(len(content))])
    order = in_total_order(sessions, times, table, 0)
    sizes = np.bincount(sessions, minlength=len(rows.plan.unions))
    most = bound.aggregate.at_most or 0
    if sizes.max() > most:
        first = np.cumsum(sizes) - sizes
        order = order[np.arange(len(order)) - first[sessions[order]] < most]
        sizes = np.minimum(sizes, most)
    instants, places = pa.array(times[order]).view(DatetimeType.arrow), pa.array(order)
    others = [lists_of(one.take(places), sizes) for one in turns]
    return [lists_of(values.take(places), sizes), lists_of(instants, sizes), *others]


COLLECT: Final = Kernel(_collect_stored, collected)
