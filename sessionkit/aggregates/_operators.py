"""
Operators over the values of sessions: their types, and their columns for many sessions at once.

Types and nulls are as in Spark's SQL, by `try_add` and its like where a result may not exist: a
null operand, a number that doesn't fit its type and a division by zero give null. Integers, times
and decimals are exact; decimals round half up, to the digits that Spark gives them.
"""

import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial, reduce
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import (
    LARGEST,
    Array,
    Mask,
    array_of,
    is_number,
    mask_of,
    numbers_of,
    one_form,
    ranked,
)
from sessionkit.state._collections import OptionalType
from sessionkit.state._scalars import (
    BoolType,
    DatetimeType,
    DecimalType,
    FloatType,
    IntType,
    TimedeltaType,
)
from sessionkit.state._types import INT64, FieldType

DIGITS: Final = 38
"""The most digits of a decimal."""
LEAST_SCALE: Final = 6
"""The digits after the point that a result keeps if it has them, as in Spark."""
LOWER_WORD: Final = 2**64 - 1
Family: TypeAlias = str
NUMBER: Final = (IntType, FloatType, DecimalType)


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
        return self.type.scale if isinstance(self.type, DecimalType) else 0

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
        numbers = _quotients(self.exact, 10**self.scale, _scale(kind))
        return Column(Value(kind), _array(kind, numbers, self.missing))


def _scale(kind: FieldType) -> int:
    return kind.scale if isinstance(kind, DecimalType) else 0


def _quotients(numerators: Array, denominators: Any, scale: int) -> Array:
    """Divide exact integers, half up, in units of the last digit of a scale."""
    numerators = numerators * 10**scale
    sizes = (2 * abs(numerators) + abs(denominators)) // (2 * abs(denominators))
    quotients: Array = np.where((numerators < 0) != (denominators < 0), -sizes, sizes)
    return quotients


def _array(kind: FieldType, numbers: Array, missing: Mask) -> pa.Array:
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


# -- arithmetic ---------------------------------------------------------------------------------


def _family(value: Value) -> Family:
    if isinstance(value.type, NUMBER):
        return "number"
    families = {TimedeltaType: "span", DatetimeType: "instant"}
    return families.get(type(value.type), "")


OF_TIMES: Final[Mapping[tuple[str, Family, Family], FieldType]] = {
    ("+", "span", "span"): TimedeltaType(),
    ("-", "span", "span"): TimedeltaType(),
    ("+", "instant", "span"): DatetimeType(),
    ("+", "span", "instant"): DatetimeType(),
    ("-", "instant", "span"): DatetimeType(),
    ("-", "instant", "instant"): TimedeltaType(),
    ("*", "span", "number"): TimedeltaType(),
    ("*", "number", "span"): TimedeltaType(),
    ("/", "span", "number"): TimedeltaType(),
    ("/", "span", "span"): FloatType(),
}
FUNCTIONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def _arithmetic_type(sign: str, left: Value, right: Value) -> Value | None:
    if _family(left) == _family(right) == "number":
        kind = _number_type(sign, left, right)
    elif (sign, _family(left), _family(right)) in OF_TIMES:
        kind = OF_TIMES[sign, _family(left), _family(right)]
    else:
        return None
    may_not_fit = not isinstance(kind, FloatType) or (sign == "/" and not right.is_divisor)
    return Value(kind, may_not_fit or left.may_be_missing or right.may_be_missing)


def _number_type(sign: str, left: Value, right: Value) -> FieldType:
    kinds = (left.type, right.type)
    if any(isinstance(kind, FloatType) for kind in kinds):
        return FloatType()
    if not any(isinstance(kind, DecimalType) for kind in kinds):
        return FloatType() if sign == "/" else IntType()
    one, other = left.decimal, right.decimal
    match sign:
        case "*":
            scale = one.scale + other.scale
            return _fitted(one.precision + other.precision + 1, scale)
        case "/":
            scale = max(LEAST_SCALE, one.scale + other.precision + 1)
            return _fitted(one.precision - one.scale + other.scale + scale, scale)
    scale = max(one.scale, other.scale)
    return _fitted(max(one.precision - one.scale, other.precision - other.scale) + scale + 1, scale)


def _fitted(precision: int, scale: int) -> DecimalType:
    """Return a decimal of at most 38 digits; Spark gives up digits after the point first."""
    if precision <= DIGITS:
        return DecimalType(precision, scale)
    kept = max(DIGITS - (precision - scale), min(scale, LEAST_SCALE))
    return DecimalType(DIGITS, kept)


def _arithmetic(sign: str, kind: FieldType, left: Column, right: Column) -> pa.Array:
    missing = left.missing | right.missing
    kinds = (kind, left.type, right.type)
    if any(isinstance(one, FloatType) for one in kinds):
        numbers, divisors = left.floats, right.floats
        if sign == "/":
            missing |= divisors == 0
            divisors = np.where(divisors == 0, 1, divisors)
        with np.errstate(all="ignore"):
            numbers = FUNCTIONS[sign](numbers, divisors)
        if isinstance(kind, FloatType):
            return one_form(array_of(numbers, kind.arrow, missing))
        return _rounded(kind, numbers, missing)
    if sign != "/" and not any(isinstance(one, DecimalType) for one in kinds):
        one, other = numbers_of(left.array), numbers_of(right.array)
        # A wider type is needed only where a result might not fit.
        function = operator.mul if sign == "*" else operator.add
        if function(_largest(one), _largest(other)) <= LARGEST:
            return _array(kind, FUNCTIONS[sign](one, other), missing)
    return _array(kind, _exact(sign, kind, left, right, missing), missing)


def _exact(sign: str, kind: FieldType, left: Column, right: Column, missing: Mask) -> Array:
    """Work out exact numbers; a division by zero is marked as missing."""
    one, other = left.exact, right.exact
    match sign:
        case "*":
            return _quotients(one * other, 10 ** (left.scale + right.scale), _scale(kind))
        case "/":
            missing |= other == 0
            divisors = np.where(other == 0, 1, other) * 10**left.scale
            return _quotients(one * 10**right.scale, divisors, _scale(kind))
    scale = max(left.scale, right.scale)
    one, other = one * 10 ** (scale - left.scale), other * 10 ** (scale - right.scale)
    return _quotients(FUNCTIONS[sign](one, other), 10**scale, _scale(kind))


def _largest(numbers: Array) -> int:
    return max(int(numbers.max(initial=0)), -int(numbers.min(initial=0)))


def _rounded(kind: FieldType, numbers: Array, missing: Mask) -> pa.Array:
    """Return floats as whole numbers, half up; null where one isn't finite or doesn't fit."""
    missing = missing | ~(np.abs(numbers) < LARGEST)
    numbers = np.where(missing, 0, numbers)
    floors = np.trunc(numbers)
    floors += np.sign(numbers) * (np.abs(numbers - floors) >= 1 / 2)
    return _array(kind, floors.astype(np.int64), missing)


def _signed_type(value: Value) -> Value | None:
    if _family(value) not in {"number", "span"}:
        return None
    # The least integer has no opposite.
    may_not_fit = isinstance(value.type, IntType | TimedeltaType)
    return Value(value.type, value.may_be_missing or may_not_fit)


def _signed(function: Callable[[Any], Any], kind: FieldType, column: Column) -> pa.Array:
    if isinstance(kind, FloatType):
        return one_form(array_of(function(column.floats), kind.arrow, column.missing))
    return _array(kind, function(column.exact), column.missing)


# -- comparisons --------------------------------------------------------------------------------


def _common(*values: Value) -> FieldType | None:
    """Return the type to which values are brought to be compared; None if they can't be."""
    kinds = [value.type for value in values]
    if any(kind.facts is None for kind in kinds):
        return None
    if not all(isinstance(kind, NUMBER) for kind in kinds):
        return kinds[0] if kinds.count(kinds[0]) == len(kinds) else None
    if any(isinstance(kind, FloatType) for kind in kinds):
        return FloatType()
    if all(isinstance(kind, IntType) for kind in kinds):
        return IntType()
    decimals = [value.decimal for value in values]
    scale = max(kind.scale for kind in decimals)
    whole = max(kind.precision - kind.scale for kind in decimals)
    # Unlike a sum, a value is kept whole: only digits after the point are given up.
    return DecimalType(min(DIGITS, whole + scale), max(0, min(scale, DIGITS - whole)))


def _compared(left: Column, right: Column) -> tuple[Mask, Mask]:
    """Return where the left value is less, and where both are equal; NaN is the greatest."""
    kinds = (left.type, right.type)
    if any(isinstance(kind, FloatType) for kind in kinds):
        one, other = left.floats, right.floats
        nan, also = np.isnan(one), np.isnan(other)
        return (one < other) | (also & ~nan), (one == other) | (nan & also)
    if any(isinstance(kind, DecimalType) for kind in kinds):
        scale = max(left.scale, right.scale)
        one = left.exact * 10 ** (scale - left.scale)
        other = right.exact * 10 ** (scale - right.scale)
    elif is_number(left.array.type):
        one, other = numbers_of(left.array), numbers_of(right.array)
    else:
        places, _ = ranked(pa.concat_arrays([left.array, right.array]))
        one, other = np.split(places, 2)
    return (one < other).astype(np.bool_), (one == other).astype(np.bool_)


def _comparison_type(left: Value, right: Value) -> Value | None:
    if _common(left, right) is None:
        return None
    return Value(BoolType(), left.may_be_missing or right.may_be_missing)


COMPARISONS: Final[Mapping[str, Callable[[Mask, Mask], Mask]]] = {
    "<": lambda less, equal: less,  # noqa: ARG005 (all take both)
    "<=": operator.or_,
    ">": lambda less, equal: ~(less | equal),
    ">=": lambda less, equal: ~less,  # noqa: ARG005
    "eq": lambda less, equal: equal,  # noqa: ARG005
    "ne": lambda less, equal: ~equal,  # noqa: ARG005
}


def _comparison(sign: str, _: FieldType, left: Column, right: Column) -> pa.Array:
    found = COMPARISONS[sign](*_compared(left, right))
    return pa.array(found, mask=left.missing | right.missing)


def _chosen_type(*values: Value) -> Value | None:
    if (kind := _common(*values)) is None:
        return None
    # A decimal that gives up digits after the point is rounded, and may then not fit.
    is_rounded = isinstance(kind, DecimalType) and any(
        value.decimal.scale > kind.scale for value in values
    )
    return Value(kind, is_rounded or all(value.may_be_missing for value in values))


def _extreme(sign: str, kind: FieldType, *columns: Column) -> pa.Array:
    """Return the least or the greatest of the values that aren't null."""

    def better(left: Column, right: Column) -> Column:
        less, equal = _compared(left, right)
        wins = ~(less | equal) if sign == "least" else less
        takes = left.missing | (wins & ~right.missing)
        return Column(left.value, pc.if_else(pa.array(takes), right.array, left.array))

    return reduce(better, [column.converted(kind) for column in columns]).array


def _filled(kind: FieldType, column: Column, default: Column) -> pa.Array:
    return pc.coalesce(column.converted(kind).array, default.converted(kind).array)


# -- logic --------------------------------------------------------------------------------------


def _logic_type(*values: Value) -> Value | None:
    if not all(isinstance(value.type, BoolType) for value in values):
        return None
    return Value(BoolType(), any(value.may_be_missing for value in values))


def _logic(function: Callable[..., pa.Array], _: FieldType, *columns: Column) -> pa.Array:
    return function(*(column.array for column in columns))


def _null_type(value: Value) -> Value | None:
    return None if value.type.facts is None else Value(BoolType())


# -- the operators ------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Operator:
    """
    An operator.

    Attributes:
        type: Returns what is known of the result; None for operands that it doesn't take.
        compute: Computes the column of the result, of a type, from the columns of the operands.
        takes: What it takes, in words.
        is_infix: Whether it's written between its operands.
    """

    type: Callable[..., Value | None]
    compute: Callable[..., pa.Array]
    takes: str
    is_infix: bool = False


ALIKE: Final = "values of one type, or numbers"
OPERATORS: Final[Mapping[str, Operator]] = {
    **{
        sign: Operator(
            partial(_arithmetic_type, sign), partial(_arithmetic, sign), takes, is_infix=True
        )
        for sign, takes in {
            "+": "numbers, or times and timedeltas",
            "-": "numbers, or times and timedeltas",
            "*": "numbers, or a timedelta and a number",
            "/": "numbers, or a timedelta and a number or another timedelta",
        }.items()
    },
    **{
        sign: Operator(
            _comparison_type, partial(_comparison, sign), ALIKE, is_infix=sign not in {"eq", "ne"}
        )
        for sign in COMPARISONS
    },
    "&": Operator(_logic_type, partial(_logic, pc.and_kleene), "bools", is_infix=True),
    "|": Operator(_logic_type, partial(_logic, pc.or_kleene), "bools", is_infix=True),
    "~": Operator(_logic_type, partial(_logic, pc.invert), "a bool"),
    "neg": Operator(_signed_type, partial(_signed, operator.neg), "a number or a timedelta"),
    "abs": Operator(_signed_type, partial(_signed, abs), "a number or a timedelta"),
    "least": Operator(_chosen_type, partial(_extreme, "least"), ALIKE),
    "greatest": Operator(_chosen_type, partial(_extreme, "greatest"), ALIKE),
    "is_null": Operator(_null_type, partial(_logic, pc.is_null), "a plain value"),
    "fill_null": Operator(_chosen_type, _filled, ALIKE),
}


def decimal_of(value: Decimal) -> DecimalType | None:
    """Return the type of a constant, as Spark reads it; None if it has too many digits."""
    if not value.is_finite():
        return None
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale, 1)
    return DecimalType(precision, scale) if precision <= DIGITS else None
