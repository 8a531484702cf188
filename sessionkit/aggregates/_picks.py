"""Aggregates that pick one value, the least, greatest, first or last, and `any` and `all`."""

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arguments import explains
from sessionkit._arrays import (
    Array,
    Numbers,
    array_of,
    is_number,
    mask_of,
    numbers_of,
    ranked,
    whole,
)
from sessionkit.aggregates._aggregate import Aggregate, BoundAggregate, Kind
from sessionkit.aggregates._events import Condition, EventRows
from sessionkit.state._collections import Field, OptionalType
from sessionkit.state._scalars import BoolType
from sessionkit.state._types import INT64, FieldType


def _value_field(bound: BoundAggregate) -> Field:
    return bound.field(OptionalType(bound.type) if bound.may_be_missing else bound.type)


class _Extreme(Kind):
    """The least or the greatest value; NaN is greater than all numbers."""

    __slots__ = ()
    merges: ClassVar = (FieldType,)
    picks: ClassVar[np.ufunc]
    neutral: ClassVar[tuple[int, float]]
    """The int and the float that replace values of events that aren't chosen."""

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [_value_field(bound)]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        before, events = bound.column(rows.opened), self.values(rows)
        missing = different = None
        if is_number(events.type):
            values = rows.joined(numbers_of(before), numbers_of(events))
        else:
            ranks, different = ranked(pa.concat_arrays([before, events]))
            values = ranks[rows.order]
        if bound.may_be_missing:
            valid = rows.all_valid(before, self.chosen(rows))
            missing = ~rows.reduced(np.logical_or, valid)
            neutral = self.neutral[values.dtype.kind == "f"]
            values = np.where(valid, values, values.dtype.type(neutral))
        best = rows.reduced(self.picks, values)
        if different is None:
            return [array_of(best, events.type, missing)]
        return [different.take(pa.array(best, mask=missing))]


@attrs.frozen(kw_only=True, order=False, repr=False)
class Least(_Extreme):
    kind: ClassVar = "min"
    picks: ClassVar = np.fmin  # passes over NaN
    neutral: ClassVar = (INT64[1], np.nan)


@attrs.frozen(kw_only=True, order=False, repr=False)
class Greatest(_Extreme):
    kind: ClassVar = "max"
    picks: ClassVar = np.maximum
    neutral: ClassVar = (INT64[0], -np.inf)


@explains
def min(field: str, *, where: Condition | None = None) -> Aggregate:  # noqa: A001 (SQL's name)
    """
    Return the least value of a field; NaN is greater than all numbers.

    The field has any type but a list, a dict, a tuple or a class. Nulls are skipped; without a
    value, the result is None. Text is compared by code point, members of an Enum by their values.
    `where` selects the events to read.
    """
    return Least(of=field, where=where)


@explains
def max(field: str, *, where: Condition | None = None) -> Aggregate:  # noqa: A001 (SQL's name)
    """
    Return the greatest value of a field; NaN is greater than all numbers.

    The field has any type but a list, a dict, a tuple or a class. Nulls are skipped; without a
    value, the result is None. Text is compared by code point, members of an Enum by their values.
    `where` selects the events to read.
    """
    return Greatest(of=field, where=where)


class _Edge(Kind):
    """The value at the earliest or the latest time; the least or greatest of several there."""

    __slots__ = ()
    is_ordered: ClassVar = True
    merges: ClassVar = (FieldType,)
    picks: ClassVar[np.ufunc]

    def _moment_fields(self, bound: BoundAggregate) -> list[Field]:
        """Return the fields with the time of the value, and its place in the `sequence`."""
        # A session's start is the time of its first event. Its end doesn't tell the time of its
        # last event: gaps may vary by event, and rules may cut.
        is_start = not bound.may_be_missing and self.picks is np.minimum
        return [] if is_start and bound.sequence is None else bound.moments(OptionalType)

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [_value_field(bound), *self._moment_fields(bound)]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        before, fields = bound.column(rows.opened), self._moment_fields(bound)
        at = bound.column(rows.opened, ".at") if fields else whole(rows.opened["start"])
        moments = [rows.joined(numbers_of(at), rows.times)]
        if bound.sequence is not None:
            turns = numbers_of(bound.column(rows.opened, ".sequence"))
            moments.append(rows.joined(turns, numbers_of(rows.field(bound.sequence))))
        # The positions in `order` of the candidates.
        left = np.flatnonzero(rows.all_valid(before, self.chosen(rows)))
        for moment in moments:
            left = self._picked(rows, left, moment[left])
        values = pa.chunked_array([before, self.values(rows)])
        if (np.diff(rows.sessions[left]) == 0).any():
            ranks, _ = ranked(whole(values.take(pa.array(rows.order[left]))))
            left = self._picked(rows, left, ranks)
        places = np.full(len(rows), -1)
        places[rows.sessions[left]] = left
        missing = places < 0
        value = whole(values.take(pa.array(rows.order[places], mask=missing)))
        kept = zip(moments, fields, strict=False)
        return [value, *(array_of(at[places], field.type.arrow, missing) for at, field in kept)]

    def _picked(self, rows: EventRows, places: Numbers, keys: Array) -> Numbers:
        """Return the positions whose key is the first or last of its session."""
        if not len(places):
            return places
        begins = np.flatnonzero(np.diff(rows.sessions[places], prepend=-1))
        best = self.picks.reduceat(keys, begins)
        picked: Numbers = places[keys == np.repeat(best, np.diff(begins, append=len(places)))]
        return picked


@attrs.frozen(kw_only=True, order=False, repr=False)
class First(_Edge):
    kind: ClassVar = "first"
    picks: ClassVar = np.minimum


@attrs.frozen(kw_only=True, order=False, repr=False)
class Last(_Edge):
    kind: ClassVar = "last"
    picks: ClassVar = np.maximum


@explains
def first(field: str, *, where: Condition | None = None) -> Aggregate:
    """
    Return the value of a field at the earliest event time; of several at that time, the least.

        agg.first("price", where=pc.field("kind") == "buy")

    The field has any type but a list, a dict, a tuple or a class. Nulls are skipped; without a
    value, the result is None. Analysts call the first page of a session its entry. `where` selects
    the events to read.
    """
    return First(of=field, where=where)


@explains
def last(field: str, *, where: Condition | None = None) -> Aggregate:
    """
    Return the value of a field at the latest event time; of several at that time, the greatest.

    The field has any type but a list, a dict, a tuple or a class. Nulls are skipped; without a
    value, the result is None. Analysts call the last page of a session its exit. `where` selects
    the events to read.
    """
    return Last(of=field, where=where)


class _OfCondition(Kind):
    __slots__ = ()
    gives: ClassVar = bool
    takes_condition: ClassVar = True
    merges: ClassVar = (FieldType,)
    reduced_by: ClassVar[np.ufunc]

    @property
    def conditions(self) -> Mapping[str, Condition]:
        condition = {} if self.of is None else {f"`{self.kind}`": self.of}
        return {**super().conditions, **condition}

    def value_type(self, _: type[Any], __: str) -> FieldType:
        return BoolType()

    def identity(self, _: BoundAggregate) -> str:
        return ""

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [bound.field(BoolType())]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        flags, chosen = mask_of(self.values(rows)), self.chosen(rows)
        if chosen is not None:
            flags = np.where(chosen, flags, self.reduced_by.identity)
        values = rows.joined(mask_of(bound.column(rows.opened)), flags)
        return [pa.array(rows.reduced(self.reduced_by, values))]

    def values(self, rows: EventRows) -> pa.Array:
        return rows.met(self.of)

    def of_nothing(self, _: FieldType) -> Any:
        return self.reduced_by.identity


@attrs.frozen(kw_only=True, order=False, repr=False)
class AnyEvent(_OfCondition):
    kind: ClassVar = "any"
    reduced_by: ClassVar = np.logical_or


@attrs.frozen(kw_only=True, order=False, repr=False)
class AllEvents(_OfCondition):
    kind: ClassVar = "all"
    reduced_by: ClassVar = np.logical_and


@explains
def any(condition: Condition, *, where: Condition | None = None) -> Aggregate:  # noqa: A001
    """
    Return whether a condition holds for at least one event: a bool.

    An event for which the condition is null doesn't count. False if there is no event.

        agg.any(pc.field("kind") == "buy")
        agg.any("is_member")  # a bool field

    `condition` is an expression over the fields, or the name of a bool field. `where` selects the
    events to test.
    """
    return AnyEvent(of=condition, where=where)


@explains
def all(condition: Condition, *, where: Condition | None = None) -> Aggregate:  # noqa: A001
    """
    Return whether a condition holds for every event: a bool.

    An event for which the condition is null doesn't count against it. True if there is no event.

        agg.all(pc.field("seconds") < 60)

    `condition` is an expression over the fields, or the name of a bool field. `where` selects the
    events to test.
    """
    return AllEvents(of=condition, where=where)
