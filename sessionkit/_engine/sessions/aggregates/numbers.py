"""
Aggregates that are numbers: counts, sums, means, durations, and whether a condition holds.

Sums of integers are exact even where they may not fit. A number of 64 or 128 bits is split into
limbs of 32 bits, of which only the top one has a sign. Sums of limbs fit 64 bits for up to two
thousand million rows; then what each limb has above its 32 bits is carried into the next.
"""

from datetime import timedelta
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.rows.table import Mask, Numbers, micros, whole
from sessionkit._engine.sessions.aggregates.rows import Kernel, Rows, array_of, mask_of, numbers_of
from sessionkit._engine.sessions.intervals import Unions
from sessionkit._instants import span_us
from sessionkit.spec.aggregates import BoundAggregate
from sessionkit.state._collections import Field
from sessionkit.state._scalars import BoolType, DecimalType, FloatType, IntType
from sessionkit.state._times import DatetimeType, TimedeltaType

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


def _field(name: str, kind: Any) -> Field:
    return Field(name, kind, name)


def _chosen_numbers(bound: BoundAggregate, rows: Rows) -> Any:
    """Return the numbers of the events, 0 for those without a part."""
    numbers, chosen = numbers_of(rows.values(bound)), rows.chosen(bound)
    return numbers if chosen is None else np.where(chosen, numbers, numbers.dtype.type(0))


# -- counts and means ---------------------------------------------------------------------------


def _count_stored(bound: BoundAggregate) -> list[Field]:
    """Return no column for a count of all events: that is the session's own."""
    return [_field(bound.name, IntType())] if bound.may_be_missing else []


def _count(bound: BoundAggregate, rows: Rows) -> list[pa.Array]:
    if not bound.may_be_missing:
        return []
    chosen = rows.chosen(bound)
    ones = np.ones(len(rows.times), np.int64) if chosen is None else chosen.astype(np.int64)
    counts = rows.joined(numbers_of(rows.part(bound.name)), ones)
    return [pa.array(rows.plan.unions.reduced(np.add, counts))]


def _count_result(bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
    return whole(sessions[f"state.{bound.name}" if bound.may_be_missing else "events"])


COUNT: Final = Kernel(_count_stored, _count, _count_result)


def _counted(bound: BoundAggregate) -> BoundAggregate:
    """Return the count that a mean is divided by."""
    return attrs.evolve(bound, name=f"{bound.name}.count")


def _mean_stored(bound: BoundAggregate) -> list[Field]:
    return [_field(f"{bound.name}.sum", FloatType()), *_count_stored(_counted(bound))]


def _mean(bound: BoundAggregate, rows: Rows) -> list[pa.Array]:
    before = numbers_of(rows.part(f"{bound.name}.sum"))
    values = _chosen_numbers(bound, rows).astype(np.float64)
    sums = rows.plan.unions.reduced(np.add, rows.joined(before, values))
    return [pa.array(sums), *_count(_counted(bound), rows)]


def _mean_result(bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
    """Return the means: null where there was no value."""
    sums = numbers_of(whole(sessions[f"state.{bound.name}.sum"]))
    counts = numbers_of(_count_result(_counted(bound), sessions))
    return pa.array(sums / np.maximum(counts, 1), mask=counts == 0)


MEAN: Final = Kernel(_mean_stored, _mean, _mean_result)


# -- conditions and durations -------------------------------------------------------------------


def _truth(bound: BoundAggregate, rows: Rows) -> list[pa.Array]:
    """Return whether a condition is true for at least one event (`any`), or false for none."""
    is_any = bound.aggregate.kind == "any"
    flags, chosen = mask_of(rows.values(bound)), rows.chosen(bound)
    if chosen is not None:
        flags = flags & chosen if is_any else flags | ~chosen
    values = rows.joined(mask_of(rows.part(bound.name)), flags)
    return [pa.array(rows.plan.unions.reduced(np.logical_or if is_any else np.logical_and, values))]


TRUTH: Final = Kernel(lambda bound: [_field(bound.name, BoolType())], _truth)


def _last_times(bound: BoundAggregate, rows: Rows) -> list[pa.Array]:
    """Return when the last event was: with gaps that vary, the end of the session doesn't say."""
    times = rows.joined(numbers_of(rows.part(bound.name)), rows.times)
    return [array_of(rows.plan.unions.reduced(np.maximum, times), DatetimeType.arrow)]


def _durations(bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
    spans = micros(sessions[f"state.{bound.name}"]) - micros(sessions["start"])
    return array_of(spans, TimedeltaType.arrow)


DURATION: Final = Kernel(
    lambda bound: [_field(bound.name, DatetimeType())], _last_times, _durations
)


def _rate_stored(bound: BoundAggregate) -> list[Field]:
    return [*DURATION.stored(bound), *_count_stored(_counted(bound))]


def _rate(bound: BoundAggregate, rows: Rows) -> list[pa.Array]:
    return [*_last_times(bound, rows), *_count(_counted(bound), rows)]


def _rate_result(bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
    """Return the numbers of events by the lengths of sessions: null where that is zero."""
    lengths = micros(sessions[f"state.{bound.name}"]) - micros(sessions["start"])
    counts = numbers_of(_count_result(_counted(bound), sessions)).astype(np.float64)
    per = span_us(bound.aggregate.per or timedelta(0))
    return pa.array(counts * per / np.maximum(lengths, 1), mask=lengths == 0)


RATE: Final = Kernel(_rate_stored, _rate, _rate_result)


# -- sums ---------------------------------------------------------------------------------------


def _sum_type(bound: BoundAggregate) -> Any:
    kind = bound.type
    return DecimalType(scale=kind.scale) if isinstance(kind, DecimalType) else kind


def _sum(bound: BoundAggregate, rows: Rows) -> list[pa.Array]:
    kind, over = _sum_type(bound), None
    if isinstance(kind, DecimalType):
        sums, over = _decimal_sums(rows.plan.unions, _decimals(bound, rows, kind.arrow))
    else:
        before = numbers_of(rows.part(bound.name))
        values = rows.joined(before, _chosen_numbers(bound, rows))
        if isinstance(kind, FloatType):
            return [pa.array(rows.plan.unions.reduced(np.add, values))]
        found, over = _integer_sums(rows.plan.unions, values)
        sums = array_of(found, kind.arrow)
    if over is not None and over.any():
        raise SumTooLargeError(bound, over)
    return [sums]


SUM: Final = Kernel(lambda bound: [_field(bound.name, _sum_type(bound))], _sum)


def _decimals(bound: BoundAggregate, rows: Rows, kind: pa.DataType) -> pa.Array:
    """Return the decimals of open sessions and events, in order."""
    events, chosen = rows.values(bound).cast(kind), rows.chosen(bound)
    if chosen is not None:
        events = pc.if_else(pa.array(chosen), events, pa.scalar(0).cast(kind))
    both = pa.concat_arrays([rows.part(bound.name), events])
    return both.take(pa.array(rows.plan.order))


def _integer_sums(unions: Unions, values: Numbers) -> tuple[Numbers, Mask | None]:
    """Return the sum for each session, and which of them do not fit; None if all do."""
    largest = max(int(values.max()), -int(values.min()))
    if largest * int(unions.sizes.max()) < FITS:
        return unions.reduced(np.add, values), None
    low, high = _carried(unions, [values & LOW, values >> BITS])
    sums: Numbers = (high << BITS) | low
    return sums, _beyond(high)


def _decimal_sums(unions: Unions, values: pa.Array) -> tuple[pa.Array, Mask]:
    """Return the sum of decimals of 38 digits for each session, and which of them do not fit."""
    words = np.frombuffer(values.buffers()[1], "<i8").reshape(-1, 2)[: len(values)]
    limbs = [part for word in words.T for part in (word & LOW, word >> BITS)]
    # The upper half of the lower word has no sign.
    limbs[1] &= LOW
    limbs = _carried(unions, limbs)
    low = (limbs[1] << BITS) | limbs[0]
    high = (limbs[3] << BITS) | limbs[2]
    packed = np.ascontiguousarray(np.stack([low, high], axis=1).astype("<i8"))
    sums = pa.Array.from_buffers(values.type, len(low), [None, pa.py_buffer(packed)])
    return sums, _beyond(limbs[3]) | _outside(high, low)


def _carried(unions: Unions, limbs: list[Numbers]) -> list[Numbers]:
    """Add up limbs, the lowest first, and carry."""
    sums = [unions.reduced(np.add, limb) for limb in limbs]
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
