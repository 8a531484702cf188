"""Aggregates that are numbers of NumPy: counts, sums, means, and whether a condition holds."""

from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.rows.table import whole
from sessionkit._engine.sessions.aggregates.exact import decimal_sums, integer_sums
from sessionkit._engine.sessions.aggregates.rows import Rows
from sessionkit._engine.sessions.aggregates.values import (
    Mask,
    array_of,
    mask_of,
    numbers_of,
)
from sessionkit.spec.aggregates import BoundAggregate
from sessionkit.state import (
    BoolType,
    DecimalType,
    Field,
    FloatType,
    IntType,
)

__all__ = ["Count", "Mean", "Sum", "SumTooLargeError", "Truth"]


class SumTooLargeError(Exception):
    """
    Raised where sums don't fit their type.

    Attributes:
        bound: The aggregate.
        sessions: The sessions concerned.
    """

    def __init__(self, bound: BoundAggregate, sessions: Mask) -> None:
        super().__init__(bound.name)
        self.bound = bound
        self.sessions = sessions


@attrs.frozen
class Count:
    """How many events have a part. That of all events is the session's own, and is not stored."""

    bound: BoundAggregate

    @property
    def stored(self) -> list[Field]:
        """The columns of the state."""
        return [_field(self.bound.name, IntType())] if self.bound.may_be_missing else []

    def fold(self, rows: Rows) -> list[pa.Array]:
        """Return the columns of the state."""
        if not self.bound.may_be_missing:
            return []
        chosen = rows.chosen(self.bound)
        ones = np.ones(len(rows.times), np.int64) if chosen is None else chosen.astype(np.int64)
        counts = rows.joined(numbers_of(rows.part(self.bound.name)), ones)
        return [pa.array(rows.segments.reduced(np.add, counts))]

    def result(self, sessions: pa.Table) -> pa.Array:
        """Return the column of the result."""
        name = f"state.{self.bound.name}" if self.bound.may_be_missing else "events"
        return whole(sessions[name])


@attrs.frozen
class Sum:
    """The sum of a field; of no events it is 0."""

    bound: BoundAggregate

    @property
    def stored(self) -> list[Field]:
        """The columns of the state."""
        kind = self.bound.type
        kind = DecimalType(scale=kind.scale) if isinstance(kind, DecimalType) else kind
        return [_field(self.bound.name, kind)]

    def fold(self, rows: Rows) -> list[pa.Array]:
        """
        Return the columns of the state.

        Raises:
            SumTooLargeError: Sums do not fit.
        """
        if isinstance(self.bound.type, DecimalType):
            return [self._checked(*self._decimals(rows))]
        before = numbers_of(rows.part(self.bound.name))
        values = rows.joined(before, _chosen_numbers(rows, self.bound))
        if isinstance(self.bound.type, FloatType):
            return [pa.array(rows.segments.reduced(np.add, values))]
        sums, over = integer_sums(rows.segments, values)
        return [array_of(self._checked(sums, over), self.bound.type.arrow)]

    def _decimals(self, rows: Rows) -> tuple[pa.Array, Mask | None]:
        (field,) = self.stored
        events, chosen = rows.values(self.bound).cast(field.type.arrow), rows.chosen(self.bound)
        if chosen is not None:
            events = pc.if_else(pa.array(chosen), events, pa.scalar(0).cast(field.type.arrow))
        both = pa.concat_arrays([rows.part(self.bound.name), events])
        return decimal_sums(rows.segments, both.take(pa.array(rows.segments.order)))

    def _checked(self, sums: Any, over: Mask | None) -> Any:
        if over is not None and over.any():
            raise SumTooLargeError(self.bound, over)
        return sums

    def result(self, sessions: pa.Table) -> pa.Array:
        """Return the column of the result."""
        return whole(sessions[f"state.{self.bound.name}"])


@attrs.frozen
class Mean:
    """The mean of a field, kept as sum and count."""

    bound: BoundAggregate

    @property
    def stored(self) -> list[Field]:
        """The columns of the state."""
        return [_field(f"{self.bound.name}.sum", FloatType()), *self._count.stored]

    @property
    def _count(self) -> Count:
        return Count(attrs.evolve(self.bound, name=f"{self.bound.name}.count"))

    def fold(self, rows: Rows) -> list[pa.Array]:
        """Return the columns of the state."""
        before = numbers_of(rows.part(f"{self.bound.name}.sum"))
        values = _chosen_numbers(rows, self.bound).astype(np.float64)
        sums = rows.segments.reduced(np.add, rows.joined(before, values))
        return [pa.array(sums), *self._count.fold(rows)]

    def result(self, sessions: pa.Table) -> pa.Array:
        """Return the column of the result: null where there was no value."""
        sums = numbers_of(whole(sessions[f"state.{self.bound.name}.sum"]))
        counts = numbers_of(self._count.result(sessions))
        return pa.array(sums / np.maximum(counts, 1), mask=counts == 0)


@attrs.frozen
class Truth:
    """Whether a condition is true for at least one event (`any`), or false for none (`all`)."""

    bound: BoundAggregate

    @property
    def stored(self) -> list[Field]:
        """The columns of the state."""
        return [_field(self.bound.name, BoolType())]

    def fold(self, rows: Rows) -> list[pa.Array]:
        """Return the columns of the state."""
        is_any = self.bound.aggregate.kind == "any"
        holds = rows.values(self.bound)
        flags = mask_of(holds)
        chosen = rows.chosen(self.bound)
        if chosen is not None:
            flags = flags & chosen if is_any else flags | ~chosen
        values = rows.joined(mask_of(rows.part(self.bound.name)), flags)
        ufunc = np.logical_or if is_any else np.logical_and
        return [pa.array(rows.segments.reduced(ufunc, values))]

    def result(self, sessions: pa.Table) -> pa.Array:
        """Return the column of the result."""
        return whole(sessions[f"state.{self.bound.name}"])


def _chosen_numbers(rows: Rows, bound: BoundAggregate) -> Any:
    """Return the numbers of the events, 0 for those without a part."""
    numbers, chosen = numbers_of(rows.values(bound)), rows.chosen(bound)
    return numbers if chosen is None else np.where(chosen, numbers, numbers.dtype.type(0))


def _field(name: str, kind: Any) -> Field:
    return Field(name, kind, name)
