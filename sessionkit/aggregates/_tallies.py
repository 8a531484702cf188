"""Aggregates of how often a session has each value: how many different ones, and the top ones."""

from types import GenericAlias
from typing import Any, ClassVar

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import (
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
from sessionkit.arguments import explains
from sessionkit.errors import SpecError, with_hint
from sessionkit.state._collections import Field, ListType, OptionalType
from sessionkit.state._scalars import IntType


class _Tally(Kind):
    """One that stores the different values of a session; null once there are too many."""

    __slots__ = ()

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [bound.field(OptionalType(ListType(bound.type)))]

    def tallied(
        self, bound: BoundAggregate, rows: EventRows, counts: Numbers | None = None
    ) -> tuple[pa.Array, Numbers]:
        """
        Return the different values of each session, a null if too many, and their counts.

        `counts` are those of the stored values; without them, none are returned.
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


@attrs.frozen(kw_only=True)
class CountDistinct(_Tally):
    kind: ClassVar = "count_distinct"
    gives: ClassVar = int | None

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        return [self.tallied(bound, rows)[0]]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        """Return how many different values there are: null where there are too many."""
        return pc.list_value_length(bound.column(sessions)).cast(pa.int64())


@explains
def count_distinct(
    field: str, *, at_most: int = 1_000, where: Condition | None = None
) -> Aggregate:
    """
    Count the different values of a field exactly, up to a limit; beyond it the count is None.

    The values are part of the state until there are more than the limit; then none is.

    Args:
        field: The field, of a plain type.
        at_most: The highest count.
        where: Whose values count.
    """
    return CountDistinct(of=field, where=where, at_most=at_most)


@attrs.frozen(kw_only=True)
class Top(_Tally):
    """
    The most frequent values.

    Attributes:
        n: How many of them are listed.
    """

    kind: ClassVar = "top"
    n: int

    def check(self) -> None:
        if not (type(self.n) is int and 1 <= self.n <= self.most):
            found = f"`n` must be a whole number from 1 to `at_most`, found {self.n!r}"
            raise SpecError(with_hint(found, 'write top("page", 3)'))

    @property
    def arguments(self) -> list[str]:
        return [*super().arguments, str(self.n)]

    def annotation(self, bound: BoundAggregate) -> Any:
        return GenericAlias(list, bound.python_type) | None

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [*super().stored(bound), bound.field(ListType(IntType()), ".counts")]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        """Return the different values and how often each is there."""
        before = numbers_of(bound.column(rows.opened, ".counts").flatten())
        values, counts = self.tallied(bound, rows, before)
        sizes = values.value_lengths().fill_null(0).to_numpy()
        return [values, lists_of(pa.array(counts), sizes)]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        """Return the first values, of those that are equally frequent the least."""
        lists = bound.column(sessions)
        counts = numbers_of(bound.column(sessions, ".counts").flatten())
        owners, values = owners_of(lists), lists.flatten()
        ranks, _ = ranked(values)
        order = np.lexsort((ranks, -counts, owners))
        sizes = np.bincount(owners, minlength=len(lists))
        kept = order[places_in(sizes, owners) < self.n]
        full = ~mask_of(lists.is_valid())
        return lists_of(values.take(pa.array(kept)), np.minimum(sizes, self.n), full)


@explains
def top(field: str, n: int, *, at_most: int = 1_000, where: Condition | None = None) -> Aggregate:
    """
    List the most frequent values of a field, the most frequent first; None beyond a limit.

    Of values that are equally frequent, the lesser one comes first. The values and their counts are
    part of the state until there are more than the limit; then none is.

    Args:
        field: The field, of a plain type.
        n: How many values are listed. It may change while a checkpoint lives.
        at_most: With more different values, the result is None.
        where: Whose values count.

    Raises:
        SpecError: `n` isn't a whole number from 1 to `at_most`.
    """
    return Top(of=field, where=where, at_most=at_most, n=n)
