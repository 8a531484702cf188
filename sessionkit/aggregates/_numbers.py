"""
Counts, sums and means.

Sums of integers are exact even where they may not fit. A number of 64 or 128 bits is split into
limbs of 32 bits, of which only the top one has a sign: 2**32 + 5 is the limbs 5 and 1. Sums of
limbs fit 64 bits for up to two thousand million rows; then what each limb has above its 32 bits is
carried into the next.
"""

from typing import Any, ClassVar, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import Array, Mask, Numbers, array_of, numbers_of, whole
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
from sessionkit.state._collections import Field
from sessionkit.state._scalars import BoolType, DecimalType, FloatType, IntType, TimedeltaType
from sessionkit.state._types import FieldType

BITS: Final = 32
LOW: Final = 2**BITS - 1
TOP: Final = 2 ** (BITS - 1)
FITS: Final = 2**63
MOST: Final = 10**38 - 1
"""The largest decimal of 38 digits, without its point."""


class SumTooLargeError(Exception):
    """Raised where the sums of some sessions, which are marked, don't fit their type."""

    def __init__(self, bound: BoundAggregate, sessions: Mask) -> None:
        super().__init__(bound.name)
        self.bound = bound
        self.sessions = sessions


def _chosen_numbers(aggregate: Kind, rows: EventRows) -> Array:
    """Return the numbers of the events, 0 for those without a part."""
    numbers, chosen = numbers_of(aggregate.values(rows)), aggregate.chosen(rows)
    return numbers if chosen is None else np.where(chosen, numbers, numbers.dtype.type(0))


# -- counts -------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Count(Kind):
    kind: ClassVar = "count"

    def check_type(self, kind: FieldType, found: str) -> None:
        """Values of any type are counted."""

    def annotation(self, _: BoundAggregate) -> Any:
        return int

    def stored(self, bound: BoundAggregate) -> list[Field]:
        """Return no column for a count of all events: that is the session's own."""
        return [field_of(bound.name, IntType())] if bound.may_be_missing else []

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        if not bound.may_be_missing:
            return []
        chosen = self.chosen(rows)
        ones = np.ones(len(rows.times), np.int64) if chosen is None else chosen.astype(np.int64)
        counts = rows.joined(numbers_of(rows.stored(bound.name)), ones)
        return [pa.array(rows.reduced(np.add, counts))]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        return whole(sessions[f"state.{bound.name}" if bound.may_be_missing else "events"])


def counted(bound: BoundAggregate) -> BoundAggregate:
    """Return the count that goes with an aggregate, of the same events."""
    count = Count(of=bound.aggregate.of, where=bound.aggregate.where)
    return attrs.evolve(bound, name=f"{bound.name}.count", aggregate=count)


@explains
def count(field: str | None = None, *, where: Condition | None = None) -> Aggregate:
    """
    Count the events of a session, or the values of a field that aren't null: an int.

    Example:
        import pyarrow.compute as pc
        from sessionkit import aggregates as agg

        aggregates = {
            "events": agg.count(),
            "searches": agg.count("query"),  # those whose query isn't null
            "purchases": agg.count(where=pc.field("kind") == "buy"),
        }

    Args:
        field: The field whose values count.
        where: Which events count.
    """
    return Count(of=field, where=where)


# -- means --------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Mean(Kind):
    kind: ClassVar = "mean"

    def check_type(self, kind: FieldType, found: str) -> None:
        if not isinstance(kind, IntType | FloatType):
            hint = "use `sum` and `count`, and divide one by the other"
            raise SpecError(with_hint(f"{found} neither an int nor a float", hint))

    def annotation(self, bound: BoundAggregate) -> Any:
        return float | None if bound.may_be_missing else float

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [field_of(f"{bound.name}.sum", FloatType()), *counted(bound).stored]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        before = numbers_of(rows.stored(f"{bound.name}.sum"))
        values = _chosen_numbers(self, rows).astype(np.float64)
        sums = rows.reduced(np.add, rows.joined(before, values))
        return [pa.array(sums), *counted(bound).fold(rows)]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        """Return the means: null where there was no value."""
        sums = numbers_of(stored_column(sessions, f"{bound.name}.sum"))
        counts = numbers_of(counted(bound).result(sessions))
        return pa.array(sums / np.maximum(counts, 1), mask=counts == 0)


@explains
def mean(field: str, *, where: Condition | None = None) -> Aggregate:
    """
    Return the mean of a field that is an int or a float, as a float.

    Args:
        field: The field.
        where: Whose values count.
    """
    return Mean(of=field, where=where)


# -- sums ---------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Sum(Kind):
    kind: ClassVar = "sum"

    def check_type(self, kind: FieldType, found: str) -> None:
        if not isinstance(kind, IntType | FloatType | TimedeltaType | DecimalType):
            hint = "add up an int, a float, a timedelta or a Decimal"
            if isinstance(kind, BoolType):
                hint = f'count the events: count(where="{self.of}")'
            raise SpecError(with_hint(f"{found} none of int, float, timedelta, Decimal", hint))

    def annotation(self, bound: BoundAggregate) -> Any:
        return annotation_of(_sum_type(bound))

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [field_of(bound.name, _sum_type(bound))]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        kind, over = _sum_type(bound), None
        if isinstance(kind, DecimalType):
            sums, over = _decimal_sums(rows, self._decimals(bound, rows, kind.arrow))
        else:
            before = numbers_of(rows.stored(bound.name))
            values = rows.joined(before, _chosen_numbers(self, rows))
            if isinstance(kind, FloatType):
                return [pa.array(rows.reduced(np.add, values))]
            found, over = _integer_sums(rows, values)
            sums = array_of(found, kind.arrow)
        if over is not None and over.any():
            raise SumTooLargeError(bound, over)
        return [sums]

    def _decimals(self, bound: BoundAggregate, rows: EventRows, kind: pa.DataType) -> pa.Array:
        """Return the decimals of open sessions and events, in order."""
        events, chosen = self.values(rows).cast(kind), self.chosen(rows)
        if chosen is not None:
            events = pc.if_else(pa.array(chosen), events, pa.scalar(0).cast(kind))
        both = pa.concat_arrays([rows.stored(bound.name), events])
        return both.take(pa.array(rows.order))


def _sum_type(bound: BoundAggregate) -> FieldType:
    kind = bound.type
    return DecimalType(scale=kind.scale) if isinstance(kind, DecimalType) else kind


def _integer_sums(rows: EventRows, values: Numbers) -> tuple[Numbers, Mask | None]:
    """Return the sum for each session, and which of them do not fit; None if all do."""
    largest = max(int(values.max()), -int(values.min()))
    if largest * int(rows.sizes.max()) < FITS:
        return rows.reduced(np.add, values), None
    low, high = _carried(rows, [values & LOW, values >> BITS])
    sums: Numbers = (high << BITS) | low
    return sums, _beyond(high)


def _decimal_sums(rows: EventRows, values: pa.Array) -> tuple[pa.Array, Mask]:
    """Return the sum of decimals of 38 digits for each session, and which of them do not fit."""
    words = np.frombuffer(values.buffers()[1], "<i8").reshape(-1, 2)[: len(values)]
    limbs = [part for word in words.T for part in (word & LOW, word >> BITS)]
    # The upper half of the lower word has no sign.
    limbs[1] &= LOW
    limbs = _carried(rows, limbs)
    low = (limbs[1] << BITS) | limbs[0]
    high = (limbs[3] << BITS) | limbs[2]
    packed = np.ascontiguousarray(np.stack([low, high], axis=1).astype("<i8"))
    sums = pa.Array.from_buffers(values.type, len(low), [None, pa.py_buffer(packed)])
    return sums, _beyond(limbs[3]) | _outside(high, low)


def _carried(rows: EventRows, limbs: list[Numbers]) -> list[Numbers]:
    """Add up limbs, the lowest first, and carry."""
    sums = [rows.reduced(np.add, limb) for limb in limbs]
    for place in range(len(sums) - 1):
        sums[place + 1] += sums[place] >> BITS
        sums[place] &= LOW
    return sums


def _beyond(top: Numbers) -> Mask:
    """Mark the numbers with more bits than fit; the top limb is signed."""
    beyond: Mask = (top < -TOP) | (top >= TOP)
    return beyond


def _outside(high: Numbers, low: Numbers) -> Mask:
    """Mark decimals of more than 38 digits, from their two words."""
    unsigned = low.view(np.uint64)
    most_high, most_low = divmod(MOST, 2**64)
    least_high, least_low = divmod(-MOST, 2**64)
    above = (high > most_high) | ((high == most_high) & (unsigned > np.uint64(most_low)))
    below = (high < least_high) | ((high == least_high) & (unsigned < np.uint64(least_low)))
    outside: Mask = above | below
    return outside


@explains
def sum(field: str, *, where: Condition | None = None) -> Aggregate:  # noqa: A001 (SQL's name)
    """
    Add up a field that is an int, a float, a timedelta or a Decimal.

    The sum has the type of the field, a Decimal with 38 digits. A sum of ints, timedeltas or
    Decimals is exact. One that doesn't fit its type is never stored: it stops the query with the
    key and the name of the aggregate, or with `on_error="reject"` the events of the micro-batch
    that would have joined the session count as failed.

    Args:
        field: The field.
        where: Whose values count.
    """
    return Sum(of=field, where=where)
