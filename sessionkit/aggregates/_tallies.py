"""Aggregates that count values: distinct counts, the top values, counts by value."""

from types import GenericAlias
from typing import Any, ClassVar

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arguments import explains, flag
from sessionkit._arrays import (
    Mask,
    Numbers,
    coded,
    lists_of,
    mask_of,
    numbers_of,
    owners_of,
    places_in,
    ranked,
    tallied,
)
from sessionkit.aggregates._aggregate import Aggregate, BoundAggregate, Kind
from sessionkit.aggregates._events import Condition, EventRows
from sessionkit.errors import SpecError
from sessionkit.state._codec import encode_column
from sessionkit.state._collections import Field, ListType, OptionalType
from sessionkit.state._scalars import FloatType, IntType
from sessionkit.state._types import FieldType


class _Tally(Kind):
    """An aggregate that stores the different values of a session, null beyond the limit."""

    __slots__ = ()
    merges: ClassVar = (FieldType,)

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [bound.field(OptionalType(ListType(bound.type)))]

    def tallied(
        self, bound: BoundAggregate, rows: EventRows, counts: Numbers | None = None
    ) -> tuple[pa.Array, Numbers]:
        """
        Return the different values of each session, null beyond the limit, and their counts.

        `counts` are the counts of the stored values; without them, no counts are returned.
        """
        before, chosen = bound.column(rows.opened), self.chosen(rows)
        codes, different = coded(rows.flat(before, self.values(rows), chosen))
        if counts is not None:
            counts = np.concatenate([counts, np.ones(len(codes) - len(counts), np.int64)])
        owners, codes, counts = tallied(rows.listed(before, chosen), codes, counts)
        sizes = np.bincount(owners, minlength=len(rows))
        full = sizes > self.most
        full[rows.owners[: len(before)][~mask_of(before.is_valid())]] = True
        stays = ~full[owners]
        kept = lists_of(different.take(pa.array(codes[stays])), np.where(full, 0, sizes), full)
        return kept, counts[stays]


@attrs.frozen(kw_only=True, order=False, repr=False)
class CountDistinct(_Tally):
    kind: ClassVar = "count_distinct"
    gives: ClassVar = int | None

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        return [self.tallied(bound, rows)[0]]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        return pc.list_value_length(bound.column(sessions)).cast(pa.int64())


@explains
def count_distinct(
    field: str, *, at_most: int = 1_000, where: Condition | None = None
) -> Aggregate:
    """
    Count the different values of a field exactly: an int, or None if there are more than `at_most`.

    Nulls don't count, so a session without a value has 0.

    The field has any type but a list, a dict, a tuple or a class. Its values are part of the state
    until there are more than `at_most`; then none is. `where` selects the events to read.
    """
    return CountDistinct(of=field, where=where, at_most=at_most)


@attrs.frozen(kw_only=True, order=False, repr=False)
class Top(_Tally):
    kind: ClassVar = "top"
    n: int
    counts: bool = attrs.field(default=False, validator=flag)

    def check(self) -> None:
        if not (type(self.n) is int and 1 <= self.n <= self.most):
            found = f"`n` must be a whole number from 1 to `at_most`, found {self.n!r}"
            raise SpecError(found, "write n=3; a larger one needs a larger `at_most`")

    @property
    def arguments(self) -> list[str]:
        return [*super().arguments, str(self.n)]

    def check_type(self, kind: FieldType, found: str) -> None:
        super().check_type(kind, found)
        if self.counts:
            _check_key(kind, found, "leave `counts` out, or use")

    def annotation(self, bound: BoundAggregate) -> Any:
        cls = bound.python_type
        return (GenericAlias(dict, (cls, int)) if self.counts else GenericAlias(list, cls)) | None

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [*super().stored(bound), bound.field(ListType(IntType()), ".counts")]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        before = numbers_of(bound.column(rows.opened, ".counts").flatten())
        values, counts = self.tallied(bound, rows, before)
        sizes = values.value_lengths().fill_null(0).to_numpy()
        return [values, lists_of(pa.array(counts), sizes)]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        lists = bound.column(sessions)
        counts = numbers_of(bound.column(sessions, ".counts").flatten())
        owners, values = owners_of(lists), lists.flatten()
        ranks, _ = ranked(values)
        order = np.lexsort((ranks, -counts, owners))
        sizes = np.bincount(owners, minlength=len(lists))
        kept = order[places_in(sizes, owners) < self.n]
        sizes, full = np.minimum(sizes, self.n), ~mask_of(lists.is_valid())
        values = values.take(pa.array(kept))
        return (
            _maps_of(values, counts[kept], sizes, full)
            if self.counts
            else lists_of(values, sizes, full)
        )


def _check_key(kind: FieldType, found: str, or_: str) -> None:
    if isinstance(kind, FloatType):
        hint = f"{or_} a column of it that Spark casts to an int or a Decimal"
        raise SpecError(f"{found} is a float, which can't be the key of a dict", hint)


def _maps_of(
    keys: pa.Array, counts: Numbers, sizes: Numbers, missing: Mask | None = None
) -> pa.Array:
    """Return keys and counts as maps of these sizes, null where missing."""
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    mask = None if missing is None else np.append(missing, False)
    return pa.MapArray.from_arrays(pa.array(ends, mask=mask), keys, pa.array(counts))


@explains
def top(
    field: str,
    n: int,
    *,
    counts: bool = False,
    at_most: int = 1_000,
    where: Condition | None = None,
) -> Aggregate:
    """
    List the most frequent values of a field, the most frequent first.

    None if the session has more than `at_most` different values.

        agg.top("page", 3)  # ["/", "/shoes", "/cart"]
        agg.top("page", 3, counts=True)  # {"/": 9, "/shoes": 4, "/cart": 4}

    Nulls are left out; without a value, the list is empty. Equally frequent values are in ascending
    order. The values and their counts are part of the state, until there are more than `at_most`;
    then none is.

    Args:
        field: The field, of any type but a list, a dict, a tuple or a class; with `counts`, nor a
            float.
        n: How many values are listed. It may change while a checkpoint lives.
        counts: Whether the result is a dict of the values and their counts, in the same order: a
            map column.
        at_most: The most different values that are counted. If a session has more, the result is
            None.
        where: Selects the events to read.

    Raises:
        SpecError: `n` isn't a whole number from 1 to `at_most`.
    """
    return Top(of=field, where=where, at_most=at_most, n=n, counts=counts)


@attrs.frozen(kw_only=True, order=False, repr=False)
class CountBy(Kind):
    """The counts by value. The least values are kept: a value that drops out never returns."""

    kind: ClassVar = "count_by"
    merges: ClassVar = (FieldType,)
    rest: Any = None

    def check_type(self, kind: FieldType, found: str) -> None:
        super().check_type(kind, found)
        _check_key(kind, found, "use `top`, or")

    def bind(self, event: type[Any], name: str) -> BoundAggregate:
        bound = super().bind(event, name)
        self.check_values(event, bound, *([] if self.rest is None else [self.rest]))
        return bound

    def annotation(self, bound: BoundAggregate) -> Any:
        return GenericAlias(dict, (bound.python_type, int))

    def stored(self, bound: BoundAggregate) -> list[Field]:
        lists = [bound.field(ListType(bound.type)), bound.field(ListType(IntType()), ".counts")]
        return [*lists, bound.field(IntType(), ".rest")]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        """Return the least values in order, their counts, and the count of all other values."""
        before, chosen = bound.column(rows.opened), self.chosen(rows)
        ranks, different = ranked(rows.flat(before, self.values(rows), chosen))
        counts = numbers_of(bound.column(rows.opened, ".counts").flatten())
        counts = np.concatenate([counts, np.ones(len(ranks) - len(counts), np.int64)])
        owners, ranks, counts = tallied(rows.listed(before, chosen), ranks, counts)
        sizes = np.bincount(owners, minlength=len(rows))
        stays = places_in(sizes, owners) < self.most
        rest = np.zeros(len(rows), np.int64)
        np.add.at(rest, rows.owners[: len(before)], numbers_of(bound.column(rows.opened, ".rest")))
        np.add.at(rest, owners[~stays], counts[~stays])
        sizes = np.minimum(sizes, self.most)
        values = different.take(pa.array(ranks[stays]))
        return [lists_of(values, sizes), lists_of(pa.array(counts[stays]), sizes), pa.array(rest)]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        lists, rest = bound.column(sessions), numbers_of(bound.column(sessions, ".rest"))
        owners, values = owners_of(lists), lists.flatten()
        counts = numbers_of(bound.column(sessions, ".counts").flatten())
        if self.rest is not None:
            had_rest = np.flatnonzero(rest)
            added = encode_column(bound.type, [self.rest] * len(had_rest), bound.name)
            values = pa.concat_arrays([values, added])
            owners = np.concatenate([owners, had_rest])
            ranks, values = ranked(values)
            owners, ranks, counts = tallied(owners, ranks, np.concatenate([counts, rest[had_rest]]))
            values = values.take(pa.array(ranks))
        return _maps_of(values, counts, np.bincount(owners, minlength=len(lists)))


@explains
def count_by(
    field: str, *, at_most: int = 20, rest: Any = None, where: Condition | None = None
) -> Aggregate:
    """
    Count the events of a session by the values of a field: a dict, so a map column.

        agg.count_by("page", at_most=2, rest="(other)")  # {"(other)": 7, "/": 9, "/cart": 2}

    Nulls are left out; without a value, the dict is empty. All counts are exact.

    If a session has more than `at_most` different values, the dict keeps the first ones in
    ascending order, not the most frequent. So the result depends neither on the order of events nor
    on how they are cut into micro-batches. To keep the most frequent values, use `top`.

    Args:
        field: The field, of any type but a list, a dict, a tuple or a class; nor a float.
        at_most: How many different values are kept.
        rest: A value of the field's type. The dict counts the events of all other values under it,
            as one more entry. If events have this value themselves, they count there too, and it
            may be one of the kept values. You may change `rest` and keep the checkpoint. None
            leaves the other values out: to count their events, subtract the sum of the counts from
            `count(field)`.
        where: Selects the events to count.
    """
    return CountBy(of=field, where=where, at_most=at_most, rest=rest)
