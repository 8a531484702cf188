"""Counts, sums, means and deviations; sums of integers and decimals are exact."""

from decimal import Context, Decimal
from typing import Any, ClassVar, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arguments import explains, flag
from sessionkit._arrays import LARGEST, Array, Mask, Numbers, array_of, mask_of, numbers_of, whole
from sessionkit.aggregates._aggregate import Aggregate, BoundAggregate, Kind, expression
from sessionkit.aggregates._events import Condition, EventRows
from sessionkit.errors import SpecError
from sessionkit.state._collections import Field
from sessionkit.state._scalars import BoolType, DecimalType, FloatType, IntType, TimedeltaType
from sessionkit.state._types import INT64, FieldType

MOST: Final = 10**38 - 1
"""The largest decimal of 38 digits, without its point."""
WIDE: Final = Context(prec=76)


class SumTooLargeError(Exception):
    """Raised where the sums of the marked sessions don't fit their type."""

    def __init__(self, bound: BoundAggregate, sessions: Mask) -> None:
        super().__init__(bound.name)
        self.bound = bound
        self.sessions = sessions


def _chosen_numbers(aggregate: Kind, rows: EventRows) -> Array:
    """Return the numbers of the events, 0 for events that aren't chosen."""
    numbers, chosen = numbers_of(aggregate.values(rows)), aggregate.chosen(rows)
    return numbers if chosen is None else np.where(chosen, numbers, numbers.dtype.type(0))


@attrs.frozen(kw_only=True, order=False, repr=False)
class Count(Kind):
    kind: ClassVar = "count"
    needs_field: ClassVar = False
    gives: ClassVar = int
    without: ClassVar = "; agg.count() counts all events"
    merges: ClassVar = (FieldType,)

    def check_type(self, kind: FieldType, found: str) -> None:
        """Accept every type."""

    def stored(self, bound: BoundAggregate) -> list[Field]:
        """Return no field for a count of all events, which sessions store anyway."""
        return [bound.field(IntType())] if bound.may_be_missing else []

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        if not bound.may_be_missing:
            return []
        chosen = self.chosen(rows)
        ones = np.ones(len(rows.times), np.int64) if chosen is None else chosen.astype(np.int64)
        counts = rows.joined(numbers_of(bound.column(rows.opened)), ones)
        return [pa.array(rows.reduced(np.add, counts))]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        return bound.column(sessions) if bound.may_be_missing else whole(sessions["events"])


def counted(bound: BoundAggregate) -> BoundAggregate:
    """Return the count of the events that an aggregate reads."""
    count = Count(of=bound.aggregate.of, where=bound.aggregate.where)
    return attrs.evolve(bound, name=f"{bound.name}.count", aggregate=count)


@explains
def count(
    field: str | None = None, *, at_most: int | None = None, where: Condition | None = None
) -> Aggregate:
    """
    Count the events of a session, or the values of a field that aren't null: an int.

        agg.count()
        agg.count("query")  # the searches: events whose query isn't null
        agg.count(where=pc.field("kind") == "buy")

    Args:
        field: The field; None for whole events.
        at_most: The result is never more than this. It may change while a checkpoint lives.
        where: Selects the events to count.
    """
    counted = Count(of=field, where=where)
    if at_most is None:
        return counted
    # Checks the limit, which isn't part of what is stored.
    limit = attrs.evolve(counted, at_most=at_most).most
    return expression("least", counted, limit)


@attrs.frozen(kw_only=True, order=False, repr=False)
class Mean(Kind):
    kind: ClassVar = "mean"

    def check_type(self, kind: FieldType, found: str) -> None:
        if not isinstance(kind, IntType | FloatType):
            hint = "use a number, such as a column that Spark casts to a float"
            if isinstance(kind, DecimalType | TimedeltaType):
                hint = f'divide the sum by the count: agg.sum("{self.of}") / agg.count("{self.of}")'
            raise SpecError(f"{found} is neither an int nor a float", hint)

    def annotation(self, bound: BoundAggregate) -> Any:
        return float | None if bound.may_be_missing else float

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [bound.field(FloatType(), ".sum"), *counted(bound).stored]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        before = numbers_of(bound.column(rows.opened, ".sum"))
        values = _chosen_numbers(self, rows).astype(np.float64)
        sums = rows.reduced(np.add, rows.joined(before, values))
        return [pa.array(sums), *counted(bound).fold(rows)]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        sums = numbers_of(bound.column(sessions, ".sum"))
        counts = numbers_of(counted(bound).result(sessions))
        return pa.array(sums / np.maximum(counts, 1), mask=counts == 0)


@explains
def mean(field: str, *, where: Condition | None = None) -> Aggregate:
    """
    Return the mean of a field that is an int or a float, as a float; None without a value.

    Nulls are skipped. `where` selects the events to read.
    """
    return Mean(of=field, where=where)


@attrs.frozen(kw_only=True, order=False, repr=False)
class Deviation(Mean):
    """
    The standard deviation or the variance, from a count, a mean and a sum of squared distances.

    Parts are combined by the formula of Chan, Golub and LeVeque (1979), for any number of parts at
    once; an event is a part of its own.
    """

    kind: ClassVar = "stddev"
    population: bool = attrs.field(default=False, validator=flag)
    variance: bool = attrs.field(default=False, validator=flag)

    def annotation(self, bound: BoundAggregate) -> Any:
        return float if self.population and not bound.may_be_missing else float | None

    def stored(self, bound: BoundAggregate) -> list[Field]:
        parts = [bound.field(FloatType(), part) for part in (".mean", ".squares")]
        return [*parts, *counted(bound).stored]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        values = _chosen_numbers(self, rows).astype(np.float64)
        chosen = self.chosen(rows)
        ones = np.ones(len(values)) if chosen is None else chosen.astype(np.float64)
        counts = numbers_of(counted(bound).result(rows.opened)).astype(np.float64)
        weights = rows.joined(counts, ones)
        before = numbers_of(bound.column(rows.opened, ".mean"))
        with np.errstate(all="ignore"):
            values = np.where(weights > 0, rows.joined(before, values), 0.0)
            totals = np.maximum(rows.reduced(np.add, weights), 1)
            means = rows.reduced(np.add, weights * values) / totals
            distances = np.where(weights > 0, values - np.repeat(means, rows.sizes), 0.0)
            # A mean that was rounded is corrected by the mean of the distances from it.
            off = rows.reduced(np.add, weights * distances)
            squares = rows.reduced(np.add, weights * distances**2) - off**2 / totals
            stored = numbers_of(bound.column(rows.opened, ".squares"))
            squares += rows.reduced(np.add, rows.joined(stored, np.zeros(len(ones))))
            means += off / totals
        return [pa.array(means), pa.array(squares), *counted(bound).fold(rows)]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        counts = numbers_of(counted(bound).result(sessions))
        free = counts if self.population else counts - 1
        squares = numbers_of(bound.column(sessions, ".squares"))
        # Rounding may leave less than zero.
        variances = np.maximum(squares, 0.0) / np.maximum(free, 1)
        return pa.array(variances if self.variance else np.sqrt(variances), mask=free < 1)


@explains
def stddev(
    field: str,
    *,
    population: bool = False,
    variance: bool = False,
    where: Condition | None = None,
) -> Aggregate:
    """
    Return the standard deviation of a field that is an int or a float, as a float.

        agg.stddev("seconds")  # Spark's stddev, which is stddev_samp
        agg.stddev("seconds", population=True, variance=True)  # var_pop

    As in Spark, it's the deviation of a sample: None for fewer than two values. The result is
    precise too for values that are far from zero and close together.

    Args:
        field: The field.
        population: Whether the values are all there are, rather than a sample. Then one value gives
            0, and no value None.
        variance: Whether to return the variance, the square of the deviation. Both may change while
            a checkpoint lives.
        where: Selects the events to read.
    """
    return Deviation(of=field, where=where, population=population, variance=variance)


@attrs.frozen(kw_only=True, order=False, repr=False)
class Sum(Kind):
    kind: ClassVar = "sum"
    merges: ClassVar = (IntType, TimedeltaType, DecimalType)

    def check_type(self, kind: FieldType, found: str) -> None:
        if not isinstance(kind, IntType | FloatType | TimedeltaType | DecimalType):
            hint = "add up an int, a float, a timedelta or a Decimal"
            if isinstance(kind, BoolType):
                hint = f'count the events: count(where="{self.of}")'
            raise SpecError(f"{found} is none of int, float, timedelta, Decimal", hint)

    def annotation(self, bound: BoundAggregate) -> Any:
        return attrs.evolve(bound, type=_sum_type(bound)).python_type

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [bound.field(_sum_type(bound))]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        kind, before = _sum_type(bound), bound.column(rows.opened)
        if isinstance(kind, DecimalType):
            values = pa.concat_arrays([before, self._decimals(rows, kind.arrow)])
            values = values.take(pa.array(rows.order))
            # A decimal has two words; the upper one of a small decimal has the sign alone.
            low, high = np.frombuffer(values.buffers()[1], "<i8").reshape(-1, 2)[: len(values)].T
            if (high == low >> 63).all() and _fits(rows, low):
                sums = rows.reduced(np.add, low)
                words = np.ascontiguousarray(np.stack([sums, sums >> 63], axis=1))
                return [pa.Array.from_buffers(kind.arrow, len(sums), [None, pa.py_buffer(words)])]
            return [_exact_sums(bound, rows, values, (-MOST, MOST)).cast(kind.arrow)]
        numbers = rows.joined(numbers_of(before), _chosen_numbers(self, rows))
        if isinstance(kind, FloatType) or _fits(rows, numbers):
            return [array_of(rows.reduced(np.add, numbers), kind.arrow)]
        exact = _exact_sums(bound, rows, pa.array(numbers), INT64).cast(pa.int64())
        return [array_of(numbers_of(exact), kind.arrow)]

    def _decimals(self, rows: EventRows, kind: pa.DataType) -> pa.Array:
        """Return the decimals of the events, 0 for events that aren't chosen."""
        events, chosen = self.values(rows).cast(kind), self.chosen(rows)
        if chosen is None:
            return events
        return pc.if_else(pa.array(chosen), events, pa.scalar(0).cast(kind))


def _sum_type(bound: BoundAggregate) -> FieldType:
    kind = bound.type
    return DecimalType(scale=kind.scale) if isinstance(kind, DecimalType) else kind


def _fits(rows: EventRows, values: Numbers) -> bool:
    """Return whether all sums of integers are sure to fit 64 bits."""
    largest = max(int(values.max()), -int(values.min()))
    return largest * int(rows.sizes.max()) <= LARGEST


def _exact_sums(
    bound: BoundAggregate, rows: EventRows, values: pa.Array, fits: tuple[int, int]
) -> pa.Array:
    """Return the sums as wide decimals; `fits` is the allowed range, as unscaled integers."""
    scale = getattr(values.type, "scale", 0)
    wide = values.cast(pa.decimal256(76, scale))
    table = pa.table({"session": rows.sessions, "value": wide})
    # The rows are in order of sessions, and so are the sums.
    summed = table.group_by("session", use_threads=False).aggregate([("value", "sum")])
    sums = whole(summed["value_sum"])
    least, most = (pa.scalar(Decimal(end).scaleb(-scale, WIDE), wide.type) for end in fits)
    over = mask_of(pc.or_(pc.less(sums, least), pc.greater(sums, most)))
    if over.any():
        raise SumTooLargeError(bound, over)
    return sums


@explains
def sum(field: str, *, where: Condition | None = None) -> Aggregate:  # noqa: A001 (SQL's name)
    """
    Add up the values of a field that is an int, a float, a timedelta or a Decimal.

    The sum has the type of the field; of a Decimal, 38 digits. Nulls are skipped; without a value,
    the sum is 0. A sum of ints, timedeltas or Decimals is exact. `where` selects the events to
    read.

    A sum that doesn't fit its type is never stored, even if later events would bring it back. It
    stops the query with a `StateValueError`, which names the key and the aggregate. With
    `on_error="reject"`, all events of the micro-batch that would have joined the session count as
    failed, and the query goes on.
    """
    return Sum(of=field, where=where)
