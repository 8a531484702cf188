"""Aggregates of how often a session has each value: how many different ones, and the top ones."""

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
)
from sessionkit.aggregates._aggregate import (
    Aggregate,
    BoundAggregate,
    Kind,
    annotation_of,
    field_of,
    stored_column,
)
from sessionkit.aggregates._conditions import Condition
from sessionkit.aggregates._rows import EventRows
from sessionkit.arguments import explains
from sessionkit.errors import SpecError, with_hint
from sessionkit.state._collections import Field, ListType, OptionalType
from sessionkit.state._scalars import IntType


class _Tally(Kind):
    """One that stores the different values of a session; null once there are too many."""

    __slots__ = ()

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [field_of(bound.name, OptionalType(ListType(bound.type)))]

    def tallied(
        self, bound: BoundAggregate, rows: EventRows, counts: Numbers | None = None
    ) -> tuple[pa.Array, Numbers]:
        """
        Return the different values of each session, a null if too many, and their counts.

        `counts` are those of the stored values; without them, none are returned.
        """
        before, chosen = rows.stored(bound.name), self.chosen(rows)
        events = self.values(rows)
        events = events if chosen is None else events.filter(pa.array(chosen))
        values, sessions = pa.concat_arrays([before.flatten(), events]), rows.listed(before, chosen)
        codes, different = coded(values)
        # One number for each session and value: those that are equal follow each other.
        found = sessions * (len(different) + 1) + codes
        order = None if counts is None else np.argsort(found, kind="stable")
        found = np.sort(found) if order is None else found[order]
        first = np.flatnonzero(np.diff(found, prepend=-1) != 0)
        owners, codes = np.divmod(found[first], len(different) + 1)
        sizes = np.bincount(owners, minlength=len(rows))
        full = sizes > self.most
        full[rows.owners[: len(before)][~mask_of(before.is_valid())]] = True
        stays = ~full[owners]
        kept = lists_of(different.take(pa.array(codes[stays])), np.where(full, 0, sizes), full)
        if counts is None or not len(first):
            return kept, first
        ones = np.ones(len(values) - len(counts), np.int64)
        return kept, np.add.reduceat(np.concatenate([counts, ones])[order], first)[stays]


@attrs.frozen(kw_only=True)
class CountDistinct(_Tally):
    kind: ClassVar = "count_distinct"

    def annotation(self, _: BoundAggregate) -> Any:
        return int | None

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        return [self.tallied(bound, rows)[0]]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        """Return how many different values there are: null where there are too many."""
        return pc.list_value_length(stored_column(sessions, bound.name)).cast(pa.int64())


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
        return list[annotation_of(bound.type)] | None  # type: ignore[misc]  # known when it runs

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [*super().stored(bound), field_of(f"{bound.name}.counts", ListType(IntType()))]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        """Return the different values and how often each is there."""
        before = numbers_of(rows.stored(f"{bound.name}.counts").flatten())
        values, counts = self.tallied(bound, rows, before)
        sizes = values.value_lengths().fill_null(0).to_numpy()
        return [values, lists_of(pa.array(counts), sizes)]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        """Return the first values, of those that are equally frequent the least."""
        lists = stored_column(sessions, bound.name)
        counts = numbers_of(stored_column(sessions, f"{bound.name}.counts").flatten())
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
