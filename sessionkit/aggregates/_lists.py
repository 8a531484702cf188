"""Aggregates that list values in the order of time: all of them, the path, the steps of it."""

from typing import Any, ClassVar

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import array_of, coded, lists_of, numbers_of, owners_of, places_in
from sessionkit._order import total_order
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
from sessionkit.errors import SpecError, StateValueError, with_hint
from sessionkit.state._codec import encode_column
from sessionkit.state._collections import Field, ListType
from sessionkit.state._scalars import DatetimeType, IntType
from sessionkit.state._types import FieldType


@attrs.frozen(kw_only=True)
class Collect(Kind):
    """The earliest values of a session; with each, its time, and its place in a `sequence`."""

    kind: ClassVar = "collect"
    is_ordered: ClassVar = True

    @property
    def kept(self) -> int:
        """How many values are stored of a session."""
        return self.most

    def annotation(self, bound: BoundAggregate) -> Any:
        return list[annotation_of(bound.type)]  # type: ignore[misc]  # known when it runs

    def stored(self, bound: BoundAggregate) -> list[Field]:
        at = field_of(f"{bound.name}.at", ListType(DatetimeType()))
        turn = field_of(f"{bound.name}.sequence", ListType(IntType()))
        value = field_of(bound.name, ListType(bound.type))
        return [value, at] if bound.sequence is None else [value, at, turn]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        """Return the values by time, those at one time by their turn, and then by value."""
        before, chosen = rows.stored(bound.name), self.chosen(rows)

        def flat(stored: pa.Array, events: pa.Array) -> pa.Array:
            events = events if chosen is None else events.filter(pa.array(chosen))
            return pa.concat_arrays([stored.flatten(), events])

        values, turns = flat(before, self.values(rows)), []
        if bound.sequence is not None:
            turns = [flat(rows.stored(f"{bound.name}.sequence"), rows.field(bound.sequence))]
        times_before = numbers_of(rows.stored(f"{bound.name}.at").flatten())
        times = rows.times if chosen is None else rows.times[chosen]
        times, sessions = np.concatenate([times_before, times]), rows.listed(before, chosen)
        content = [pa.chunked_array([column]) for column in (*turns, values)]
        order = total_order(sessions, times, content)
        sizes = np.bincount(sessions, minlength=len(rows))
        if sizes.max() > self.kept:
            order = order[places_in(sizes, sessions[order]) < self.kept]
            sizes = np.minimum(sizes, self.kept)
        instants, places = array_of(times[order], DatetimeType.arrow), pa.array(order)
        columns = [values.take(places), instants, *(one.take(places) for one in turns)]
        return [lists_of(column, sizes) for column in columns]


@explains
def collect(field: str, *, at_most: int = 100, where: Condition | None = None) -> Aggregate:
    """
    List the values of a field in the order of event time, those at one instant by value.

    Args:
        field: The field, of a plain type.
        at_most: How many values are kept: the earliest. `count(field)` says how many there were.
        where: Whose values count.
    """
    return Collect(of=field, where=where, at_most=at_most)


@attrs.frozen(kw_only=True)
class Path(Collect):
    """The values, repeats as one. A late value may part two, so repeats are stored."""

    kind: ClassVar = "path"

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        """Return the stored values without those that are equal to the one before."""
        lists = stored_column(sessions, bound.name)
        owners, values = owners_of(lists), lists.flatten()
        codes, _ = coded(values)
        new = (np.diff(owners, prepend=-1) != 0) | (np.diff(codes, prepend=-1) != 0)
        sizes = np.bincount(owners[new], minlength=len(lists))
        return lists_of(values.filter(pa.array(new)), sizes)


@explains
def path(field: str, *, at_most: int = 100, where: Condition | None = None) -> Aggregate:
    """
    List the values of a field in the order of event time, those in a row that are equal as one.

    Args:
        field: The field, of a plain type. At one instant, values are in ascending order.
        at_most: How many values are kept: the earliest, repeats included, since a value that comes
            late may part them. `count(field)` says how many there were.
        where: Whose values count.
    """
    return Path(of=field, where=where, at_most=at_most)


@attrs.frozen(kw_only=True)
class Steps(Collect):
    """
    How often one value came right after another.

    Attributes:
        between: The value that a step leaves, and the one that it leads to.
    """

    kind: ClassVar = "steps"
    between: tuple[Any, Any]

    def check(self) -> None:
        if self.between[0] == self.between[1]:
            found = f"`steps` takes two different values, found {self.between[0]!r} twice"
            raise SpecError(with_hint(found, "a value that repeats is one of the path"))

    @property
    def arguments(self) -> list[str]:
        return [*super().arguments, *map(repr, self.between)]

    @property
    def kept(self) -> int:
        """One more than are allowed, which says that there were too many."""
        return 1 + self.most

    def bind(self, event: type[Any], name: str) -> BoundAggregate:
        bound = super().bind(event, name)
        for value in self.between:
            _check_value(f"`{event.__name__}.{self.of}`", name, bound.type, value)
        return bound

    def annotation(self, _: BoundAggregate) -> Any:
        return int | None

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        """Return how often the one value comes right after the other; null where too many."""
        lists = stored_column(sessions, bound.name)
        wanted = encode_column(bound.type, list(self.between), bound.name)
        codes, _ = coded(pa.concat_arrays([lists.flatten(), wanted]))
        codes, (before, after) = codes[:-2], codes[-2:]
        owners = owners_of(lists)
        # The two differ, so neither repeats between them.
        found = (codes[:-1] == before) & (codes[1:] == after) & (np.diff(owners) == 0)
        counts = np.bincount(owners[1:][found], minlength=len(lists))
        sizes = np.bincount(owners, minlength=len(lists))
        return pa.array(counts, mask=sizes > self.most)


def _check_value(field: str, name: str, kind: FieldType, value: object) -> None:
    """Check that a field may have a value."""
    try:
        encode_column(kind, [value], field)
    except StateValueError as error:
        found = f"`{name}`: `steps` is of {field}, which is never {value!r}"
        raise SpecError(with_hint(found, "write values of its type")) from error


@explains
def steps(
    field: str, before: Any, after: Any, *, at_most: int = 100, where: Condition | None = None
) -> Aggregate:
    """
    Count how often one value of a field came right after another: an int, None beyond a limit.

        agg.steps("page", before="/cart", after="/checkout")

    It's a step of the `path`: equal values in a row are one, and those of events that aren't chosen
    don't come in between. It may ask for other values while a checkpoint lives.

    Args:
        field: The field, of a plain type. At one instant, values are in ascending order.
        before: The value that the step leaves.
        after: The value that it leads to, another one.
        at_most: How many values are kept, repeats included; with more, the result is None.
        where: Whose values count.

    Raises:
        SpecError: Both values are the same, or another argument can't be used.
    """
    return Steps(of=field, where=where, at_most=at_most, between=(before, after))
