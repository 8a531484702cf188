"""The operands of operators: what is known of them, and their values for many sessions."""

from decimal import Decimal
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Array, Mask, array_of, mask_of, numbers_of
from sessionkit.state._collections import OptionalType
from sessionkit.state._scalars import DecimalType, FloatType
from sessionkit.state._types import INT64, FieldType

DIGITS: Final = 38
"""The most digits of a decimal."""
LOWER_WORD: Final = 2**64 - 1


@attrs.frozen
class Value:
    """
    What is known of an operand before there are sessions.

    Attributes:
        type: Its type, without Optional.
        may_be_missing: Whether it's null for some sessions.
        digits: The digits of a constant that is an int; None for all else.
        is_divisor: Whether it's a constant other than zero.
    """

    type: FieldType
    may_be_missing: bool = False
    digits: int | None = None
    is_divisor: bool = False

    @classmethod
    def of(cls, kind: FieldType) -> "Value":
        if isinstance(kind, OptionalType):
            return cls(kind.inner, may_be_missing=True)
        return cls(kind)

    @property
    def decimal(self) -> DecimalType:
        """The decimal type that a whole number becomes next to a decimal."""
        if isinstance(self.type, DecimalType):
            return self.type
        return DecimalType(20 if self.digits is None else self.digits, 0)


@attrs.frozen(eq=False)
class Column:
    """The values of an operand, a row for each session."""

    value: Value
    array: pa.Array

    @property
    def type(self) -> FieldType:
        return self.value.type

    @property
    def missing(self) -> Mask:
        return ~mask_of(self.array.is_valid())

    @property
    def scale(self) -> int:
        return scale_of(self.type)

    @property
    def exact(self) -> Array:
        """The values as Python's integers, in units of the last digit; 0 for a null."""
        if not isinstance(self.type, DecimalType):
            return numbers_of(self.array).astype(object)
        if not len(self.array):
            return np.zeros(0, object)
        words = np.frombuffer(self.array.buffers()[1], "<i8").reshape(-1, 2)
        low, high = words[self.array.offset :][: len(self.array)].T
        numbers = high.astype(object) * (LOWER_WORD + 1) + low.view(np.uint64).astype(object)
        exact: Array = np.where(self.missing, 0, numbers)
        return exact

    @property
    def floats(self) -> Array:
        if isinstance(self.type, DecimalType):
            # Python divides integers to the nearest float.
            divided: Array = (self.exact / 10**self.scale).astype(np.float64)
            return divided
        return numbers_of(self.array).astype(np.float64)

    def converted(self, kind: FieldType) -> "Column":
        """Return numbers as a wider type; null where one doesn't fit."""
        if kind == self.type:
            return self
        if isinstance(kind, FloatType):
            return Column(Value(kind), array_of(self.floats, kind.arrow, self.missing))
        numbers = quotients(self.exact, 10**self.scale, scale_of(kind))
        return Column(Value(kind), exact_column(kind, numbers, self.missing))


def scale_of(kind: FieldType) -> int:
    """Return the digits after the point of a decimal; 0 for other types."""
    return kind.scale if isinstance(kind, DecimalType) else 0


def quotients(numerators: Array, denominators: Any, scale: int) -> Array:
    """Divide exact integers, rounded half up to `scale` digits, in units of the last digit."""
    numerators = numerators * 10**scale
    sizes = (2 * abs(numerators) + abs(denominators)) // (2 * abs(denominators))
    quotients: Array = np.where((numerators < 0) != (denominators < 0), -sizes, sizes)
    return quotients


def exact_column(kind: FieldType, numbers: Array, missing: Mask) -> pa.Array:
    """Return exact integers as a column; null where marked, and where one doesn't fit the type."""
    if isinstance(kind, DecimalType):
        bounds = (1 - 10**kind.precision, 10**kind.precision - 1)
    else:
        bounds = (kind.facts.bounds if kind.facts else None) or INT64
    missing = missing | (numbers < bounds[0]) | (numbers > bounds[1])
    numbers = np.where(missing, 0, numbers)
    if not isinstance(kind, DecimalType):
        return array_of(numbers.astype(np.int64), kind.arrow, missing)
    words = np.empty((len(numbers), 2), np.uint64)
    words[:, 0] = (numbers & LOWER_WORD).astype(np.uint64)
    words[:, 1] = (numbers >> 64).astype(np.int64).view(np.uint64)
    valid = pa.array(~missing).buffers()[1]
    return pa.Array.from_buffers(kind.arrow, len(numbers), [valid, pa.py_buffer(words)])


def decimal_of(value: Decimal) -> DecimalType | None:
    """Return the type of a constant, as Spark reads it; None if it has too many digits."""
    if not value.is_finite():
        return None
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale, 1)
    return DecimalType(precision, scale) if precision <= DIGITS else None
