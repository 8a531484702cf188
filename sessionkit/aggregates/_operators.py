"""
Operators over the values of sessions: their types, and their columns for many sessions at once.

Types and nulls are as in Spark's SQL, by `try_add` and its like where a result may not exist: a
null operand, a number that doesn't fit its type and a division by zero give null. Integers, times
and decimals are exact; decimals round half up, to the digits that Spark gives them.
"""

import operator
from collections.abc import Callable, Mapping
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
    numbers_of,
    one_form,
    ranked,
)
from sessionkit.aggregates._operands import DIGITS, Column, Value, exact_column, quotients, scale_of
from sessionkit.state._scalars import (
    BoolType,
    DatetimeType,
    DecimalType,
    FloatType,
    IntType,
    TimedeltaType,
)
from sessionkit.state._types import FieldType

LEAST_SCALE: Final = 6
"""The digits after the point that a result keeps if it has them, as in Spark."""
Family: TypeAlias = str
NUMBER: Final = (IntType, FloatType, DecimalType)


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
    families = (_family(left), _family(right))
    is_of_numbers = families == ("number", "number")
    kind = _number_type(sign, left, right) if is_of_numbers else OF_TIMES.get((sign, *families))
    if kind is None:
        return None
    may_not_fit = not isinstance(kind, FloatType) or (sign == "/" and not right.is_divisor)
    return Value(kind, may_not_fit or left.may_be_missing or right.may_be_missing)


def _number_type(sign: str, left: Value, right: Value) -> FieldType:
    kinds = (left.type, right.type)
    if any(isinstance(kind, FloatType) for kind in kinds):
        return FloatType()
    if not any(isinstance(kind, DecimalType) for kind in kinds):
        return FloatType() if sign == "/" else IntType()
    first, second = left.decimal, right.decimal
    whole = (first.precision - first.scale, second.precision - second.scale)
    match sign:
        case "*":
            scale = first.scale + second.scale
            return _fitted(sum(whole) + 1 + scale, scale)
        case "/":
            scale = max(LEAST_SCALE, first.scale + second.precision + 1)
            return _fitted(whole[0] + second.scale + scale, scale)
    scale = max(first.scale, second.scale)
    return _fitted(max(whole) + 1 + scale, scale)


def _fitted(precision: int, scale: int) -> DecimalType:
    """Return a decimal of at most 38 digits; Spark gives up digits after the point first."""
    if precision <= DIGITS:
        return DecimalType(precision, scale)
    kept = max(DIGITS - (precision - scale), min(scale, LEAST_SCALE))
    return DecimalType(DIGITS, kept)


def _arithmetic(sign: str, result: FieldType, left: Column, right: Column) -> pa.Array:
    missing = left.missing | right.missing
    kinds = (result, left.type, right.type)
    if any(isinstance(kind, FloatType) for kind in kinds):
        numbers, divisors = left.floats, right.floats
        if sign == "/":
            missing |= divisors == 0
            divisors = np.where(divisors == 0, 1, divisors)
        with np.errstate(all="ignore"):
            numbers = FUNCTIONS[sign](numbers, divisors)
        if isinstance(result, FloatType):
            return one_form(array_of(numbers, result.arrow, missing))
        return _rounded(result, numbers, missing)
    if sign != "/" and not any(isinstance(kind, DecimalType) for kind in kinds):
        integers = (numbers_of(left.array), numbers_of(right.array))
        # A wider type is needed only where a result might not fit.
        function = operator.mul if sign == "*" else operator.add
        if function(*map(_largest, integers)) <= LARGEST:
            return exact_column(result, FUNCTIONS[sign](*integers), missing)
    return exact_column(result, _exact(sign, result, left, right, missing), missing)


def _exact(sign: str, kind: FieldType, left: Column, right: Column, missing: Mask) -> Array:
    """Work out exact numbers; a division by zero is marked as missing."""
    numbers, others = left.exact, right.exact
    match sign:
        case "*":
            return quotients(numbers * others, 10 ** (left.scale + right.scale), scale_of(kind))
        case "/":
            missing |= others == 0
            divisors = np.where(others == 0, 1, others) * 10**left.scale
            return quotients(numbers * 10**right.scale, divisors, scale_of(kind))
    scale = max(left.scale, right.scale)
    return quotients(FUNCTIONS[sign](*_in_units(scale, left, right)), 10**scale, scale_of(kind))


def _in_units(scale: int, *columns: Column) -> list[Array]:
    """Return exact values as integers in units of the last digit of a scale."""
    return [column.exact * 10 ** (scale - column.scale) for column in columns]


def _largest(numbers: Array) -> int:
    return max(int(numbers.max(initial=0)), -int(numbers.min(initial=0)))


def _rounded(kind: FieldType, numbers: Array, missing: Mask) -> pa.Array:
    """Return floats as whole numbers, half up; null where one isn't finite or doesn't fit."""
    missing = missing | ~(np.abs(numbers) < LARGEST)
    numbers = np.where(missing, 0, numbers)
    floors = np.trunc(numbers)
    floors += np.sign(numbers) * (np.abs(numbers - floors) >= 1 / 2)
    return exact_column(kind, floors.astype(np.int64), missing)


def _signed_type(value: Value) -> Value | None:
    if _family(value) not in {"number", "span"}:
        return None
    # The least integer has no opposite.
    may_not_fit = isinstance(value.type, IntType | TimedeltaType)
    return Value(value.type, value.may_be_missing or may_not_fit)


def _signed(function: Callable[[Any], Any], kind: FieldType, column: Column) -> pa.Array:
    if isinstance(kind, FloatType):
        return one_form(array_of(function(column.floats), kind.arrow, column.missing))
    return exact_column(kind, function(column.exact), column.missing)


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
        values, others = left.floats, right.floats
        nan, other_nan = np.isnan(values), np.isnan(others)
        return (values < others) | (other_nan & ~nan), (values == others) | (nan & other_nan)
    if any(isinstance(kind, DecimalType) for kind in kinds):
        values, others = _in_units(max(left.scale, right.scale), left, right)
    elif is_number(left.array.type):
        values, others = numbers_of(left.array), numbers_of(right.array)
    else:
        places, _ = ranked(pa.concat_arrays([left.array, right.array]))
        values, others = np.split(places, 2)
    return (values < others).astype(np.bool_), (values == others).astype(np.bool_)


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


def _logic_type(*values: Value) -> Value | None:
    if not all(isinstance(value.type, BoolType) for value in values):
        return None
    return Value(BoolType(), any(value.may_be_missing for value in values))


def _logic(function: Callable[..., pa.Array], _: FieldType, *columns: Column) -> pa.Array:
    return function(*(column.array for column in columns))


def _null_type(value: Value) -> Value | None:
    return None if value.type.facts is None else Value(BoolType())


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
