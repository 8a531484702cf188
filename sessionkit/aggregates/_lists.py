"""Aggregates over values in the order of time: lists, paths and steps of a path."""

from types import GenericAlias
from typing import Any, ClassVar

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arguments import explains
from sessionkit._arrays import coded, lists_of, owners_of
from sessionkit.aggregates._aggregate import Aggregate, BoundAggregate, Kind
from sessionkit.aggregates._events import Condition, EventRows
from sessionkit.errors import SpecError
from sessionkit.state._codec import encode_column
from sessionkit.state._collections import Field, ListType
from sessionkit.state._types import FieldType


@attrs.frozen(kw_only=True, order=False, repr=False)
class Collect(Kind):
    """The earliest values of a session, stored with their times and places in a `sequence`."""

    kind: ClassVar = "collect"
    is_ordered: ClassVar = True
    merges: ClassVar = (FieldType,)

    @property
    def kept(self) -> int:
        """The number of values to store of a session."""
        return self.most

    def annotation(self, bound: BoundAggregate) -> Any:
        return self.gives or GenericAlias(list, bound.python_type)

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [bound.field(ListType(bound.type)), *bound.moments()]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        sessions, values, moments = bound.in_order(rows, self.values(rows), self.chosen(rows))
        return rows.kept(sessions, [values, *moments], self.kept)


@explains
def collect(field: str, *, at_most: int = 100, where: Condition | None = None) -> Aggregate:
    """
    List the values of a field in the order of event time, values of one instant in ascending order.

    The field has any type but a list, a dict, a tuple or a class. Nulls are left out; without a
    value, the list is empty. The earliest `at_most` values are kept; `count(field)` counts all.
    `where` selects the events to read.
    """
    return Collect(of=field, where=where, at_most=at_most)


@attrs.frozen(kw_only=True, order=False, repr=False)
class Path(Collect):
    """The values without repeats. Repeats are stored, since a late value may part them."""

    kind: ClassVar = "path"

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        lists = bound.column(sessions)
        owners, values = owners_of(lists), lists.flatten()
        codes, _ = coded(values)
        new = (np.diff(owners, prepend=-1) != 0) | (np.diff(codes, prepend=-1) != 0)
        sizes = np.bincount(owners[new], minlength=len(lists))
        return lists_of(values.filter(pa.array(new)), sizes)


@explains
def path(field: str, *, at_most: int = 100, where: Condition | None = None) -> Aggregate:
    """
    List the values of a field as `collect` does, without repeats of the previous value.

    From `a a b a` it gives `["a", "b", "a"]`. The repeats count towards `at_most`, since a late
    value may come between them.
    """
    return Path(of=field, where=where, at_most=at_most)


@attrs.frozen(kw_only=True, order=False, repr=False)
class Steps(Collect):
    """The number of times that one value came right after another."""

    kind: ClassVar = "steps"
    gives: ClassVar = int | None
    between: tuple[Any, Any]

    def check(self) -> None:
        before, after = self.between
        for value in self.between:
            if isinstance(value, pc.Expression):
                found = f"`steps` takes values of the field, found the expression {value}"
                raise SpecError(found, 'write steps("page", "/cart", "/thanks")')
        if before == after or (before != before and after != after):  # noqa: PLR0124 (NaN)
            found = f"`steps` takes two different values, found {self.between[0]!r} twice"
            raise SpecError(found, "a value that repeats is one of the path")

    @property
    def arguments(self) -> list[str]:
        return [*super().arguments, *map(repr, self.between)]

    @property
    def kept(self) -> int:
        """One more than the limit, to tell that there were more."""
        return 1 + self.most

    def bind(self, event: type[Any], name: str) -> BoundAggregate:
        bound = super().bind(event, name)
        self.check_values(event, bound, *self.between)
        return bound

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        lists = bound.column(sessions)
        between = encode_column(bound.type, list(self.between), bound.name)
        codes, _ = coded(pa.concat_arrays([lists.flatten(), between]))
        codes, (before, after) = codes[:-2], codes[-2:]
        owners = owners_of(lists)
        # The two values differ, so repeats can't come between them.
        is_step = (codes[:-1] == before) & (codes[1:] == after) & (np.diff(owners) == 0)
        counts = np.bincount(owners[1:][is_step], minlength=len(lists))
        sizes = np.bincount(owners, minlength=len(lists))
        return pa.array(counts, mask=sizes > self.most)


@explains
def steps(
    field: str, before: Any, after: Any, *, at_most: int = 100, where: Condition | None = None
) -> Aggregate:
    """
    Count how often one value of a field came right after another: an int, None beyond a limit.

        agg.steps("page", before="/cart", after="/checkout")

    It's a step of the `path`: repeats count once, and events that `where` leaves out don't come in
    between. `before` and `after` may change while a checkpoint lives.

    Args:
        field: The field, of any type but a list, a dict, a tuple or a class. Values of one instant
            are in ascending order.
        before: The value that the step leaves.
        after: The value that the step leads to, different from `before`.
        at_most: How many values are kept, repeats included. If a session has more, the result is
            None.
        where: Selects the events to read.

    Raises:
        SpecError: `before` and `after` are the same, or `at_most` isn't a whole number from 1.
    """
    return Steps(of=field, where=where, at_most=at_most, between=(before, after))
