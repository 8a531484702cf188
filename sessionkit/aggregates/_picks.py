"""Aggregates that are one value of a session: the least, the greatest, the first, the last."""

from typing import ClassVar, Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Array, Mask, Numbers, array_of, is_number, numbers_of, ranked, whole
from sessionkit.aggregates._aggregate import Aggregate, BoundAggregate, Kind, field_of
from sessionkit.aggregates._conditions import Condition
from sessionkit.aggregates._rows import EventRows
from sessionkit.arguments import explains
from sessionkit.state._collections import Field, OptionalType
from sessionkit.state._scalars import DatetimeType, IntType

LARGEST: Final = np.iinfo(np.int64).max
SMALLEST: Final = np.iinfo(np.int64).min


def _value_field(bound: BoundAggregate) -> Field:
    kind = OptionalType(bound.type) if bound.may_be_missing else bound.type
    return field_of(bound.name, kind)


# -- the least and the greatest -----------------------------------------------------------------


class _Extreme(Kind):
    """NaN is greater than all numbers."""

    __slots__ = ()
    is_least: ClassVar[bool]

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [_value_field(bound)]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        before, events = rows.stored(bound.name), self.values(rows)
        valid = missing = None
        if bound.may_be_missing:
            valid = rows.all_valid(before, self.chosen(rows))
            missing = ~rows.reduced(np.logical_or, valid)
        if is_number(events.type):
            values = rows.joined(numbers_of(before), numbers_of(events))
            return [array_of(self._best(rows, values, valid), events.type, missing)]
        ranks, values = ranked(pa.concat_arrays([before, events]))
        best = self._best(rows, ranks[rows.order], valid)
        return [values.take(pa.array(best, mask=missing))]

    def _best(self, rows: EventRows, values: Array, valid: Mask | None) -> Array:
        is_float = values.dtype.kind == "f"
        if valid is not None:
            # What changes nothing: `fmin` passes over NaN.
            neutral = (np.nan if self.is_least else -np.inf) if is_float else SMALLEST
            neutral = LARGEST if self.is_least and not is_float else neutral
            values = np.where(valid, values, values.dtype.type(neutral))
        least = np.fmin if is_float else np.minimum
        return rows.reduced(least if self.is_least else np.maximum, values)


@attrs.frozen(kw_only=True)
class Least(_Extreme):
    kind: ClassVar = "min"
    is_least: ClassVar = True


@attrs.frozen(kw_only=True)
class Greatest(_Extreme):
    kind: ClassVar = "max"
    is_least: ClassVar = False


@explains
def min(field: str, *, where: Condition | None = None) -> Aggregate:  # noqa: A001 (SQL's name)
    """
    Return the least value of a field of a plain type; NaN is greater than all numbers.

    Args:
        field: The field. Text is compared by code point, members of an Enum by their values.
        where: Whose values count.
    """
    return Least(of=field, where=where)


@explains
def max(field: str, *, where: Condition | None = None) -> Aggregate:  # noqa: A001 (SQL's name)
    """
    Return the greatest value of a field of a plain type; NaN is greater than all numbers.

    Args:
        field: The field. Text is compared by code point, members of an Enum by their values.
        where: Whose values count.
    """
    return Greatest(of=field, where=where)


# -- the first and the last ---------------------------------------------------------------------


class _Edge(Kind):
    """The value at the earliest or at the latest time; of several there, by value."""

    __slots__ = ()
    is_ordered: ClassVar = True
    sign: ClassVar[int]
    """That makes both ascending: the last is the first from the other end."""

    def _stores_time(self, bound: BoundAggregate) -> bool:
        """Return whether the time of the value is stored with it."""
        # The start of a session says when its first event was. Its end doesn't say when the last
        # one was: events may have had other gaps, and the rules may have been others.
        return bound.may_be_missing or self.sign < 0 or bound.sequence is not None

    def stored(self, bound: BoundAggregate) -> list[Field]:
        fields = [_value_field(bound)]
        if self._stores_time(bound):
            fields.append(field_of(f"{bound.name}.at", OptionalType(DatetimeType())))
        if bound.sequence is not None:
            fields.append(field_of(f"{bound.name}.sequence", OptionalType(IntType())))
        return fields

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        if not self._stores_time(bound):
            found, _, _ = self._picked(bound, rows, rows.joined(rows.starts, rows.times))
            return [found]
        times = rows.joined(numbers_of(rows.stored(f"{bound.name}.at")), rows.times)
        if bound.sequence is None:
            found, at, missing = self._picked(bound, rows, times)
            return [found, array_of(times[at], DatetimeType.arrow, missing)]
        before = numbers_of(rows.stored(f"{bound.name}.sequence"))
        turns = rows.joined(before, numbers_of(rows.field(bound.sequence)))
        found, at, missing = self._picked(bound, rows, _ranks(times, turns))
        at_times = array_of(times[at], DatetimeType.arrow, missing)
        return [found, at_times, pa.array(turns[at], mask=missing)]

    def _picked(
        self, bound: BoundAggregate, rows: EventRows, keys: Numbers
    ) -> tuple[pa.Array, Numbers, Mask]:
        """
        Return the value of each session at its first key; of several there, by value.

        With it come the place of its row among the keys, which are in order, and which have none.
        """
        before = rows.stored(bound.name)
        values = pa.chunked_array([before, self.values(rows)])
        valid = rows.all_valid(before, self.chosen(rows))
        keys = np.where(valid, self.sign * keys, LARGEST)
        first = np.repeat(rows.reduced(np.minimum, keys), rows.sizes)
        at = np.flatnonzero(valid & (keys == first))
        at = at[self._wins(rows, at, values)]
        places = np.full(len(rows), -1)
        places[rows.sessions[at]] = at
        missing = places < 0
        return whole(values.take(pa.array(rows.order[places], mask=missing))), places, missing

    def _wins(self, rows: EventRows, at: Numbers, values: pa.ChunkedArray) -> Mask:
        """Mark the row that provides the value of each session; all of them if they're equal."""
        sessions = rows.sessions[at]
        if not (np.diff(sessions) == 0).any():
            return np.ones(len(at), np.bool_)
        ranks, _ = ranked(whole(values.take(pa.array(rows.order[at]))))
        best = np.full(len(rows), LARGEST)
        np.minimum.at(best, sessions, self.sign * ranks)
        wins: Mask = self.sign * ranks == best[sessions]
        return wins


def _ranks(times: Numbers, turns: Numbers) -> Numbers:
    """Return numbers that sort as times and turns do; equal ones are equal."""
    order = np.lexsort((turns, times))
    new = (np.diff(times[order]) != 0) | (np.diff(turns[order]) != 0)
    ranks = np.zeros(len(order), np.int64)
    ranks[order[1:]] = np.cumsum(new)
    return ranks


@attrs.frozen(kw_only=True)
class First(_Edge):
    kind: ClassVar = "first"
    sign: ClassVar = 1


@attrs.frozen(kw_only=True)
class Last(_Edge):
    kind: ClassVar = "last"
    sign: ClassVar = -1


@explains
def first(field: str, *, where: Condition | None = None) -> Aggregate:
    """
    Return the value of a field at the earliest event time; of several there, the least.

    Example:
        import pyarrow.compute as pc
        from sessionkit import aggregates as agg

        aggregates = {
            "landing": agg.first("page"),
            "first_price": agg.first("price", where=pc.field("kind") == "buy"),
        }

    Args:
        field: The field, of a plain type.
        where: Whose values count.
    """
    return First(of=field, where=where)


@explains
def last(field: str, *, where: Condition | None = None) -> Aggregate:
    """
    Return the value of a field at the latest event time; of several there, the greatest.

    Args:
        field: The field, of a plain type.
        where: Whose values count.
    """
    return Last(of=field, where=where)


@explains
def entry(field: str, *, where: Condition | None = None) -> Aggregate:
    """
    Return where a session came in: `first`, under the name that analysts use.

    Args:
        field: The field, such as the page.
        where: Whose values count, such as page views.
    """
    return first(field, where=where)


@explains
def exit(field: str, *, where: Condition | None = None) -> Aggregate:  # noqa: A001
    """
    Return where a session went out: `last`, under the name that analysts use.

    Args:
        field: The field, such as the page.
        where: Whose values count, such as page views.
    """
    return last(field, where=where)
