"""Expressions over aggregates in plain Python: exact numbers are fractions, and None is a null."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from enum import Enum
from fractions import Fraction
from typing import Any, Final

from sessionkit.aggregates._expressions import Constant, Operation

Kind = str | tuple[int, int]
"""The name of a type, or the digits of a decimal: all, and those after the point."""
Typed = tuple[Kind, Any]
MICRO: Final = timedelta(microseconds=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NUMBERS: Final = ("int", "float")


def kind_of(value: Any) -> Kind:
    """Return the type of a constant."""
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        scale = max(0, -int(exponent))
        return max(len(digits) + max(0, int(exponent)), scale, 1), scale
    return {timedelta: "span", datetime: "instant"}.get(type(value), type(value).__name__)


def naive(operation: Operation, leaf: Callable[[Any], Typed]) -> Any:
    """Return the value of an expression; `leaf` gives the type and the value of an aggregate."""
    kind, value = _typed(operation, leaf)
    if not isinstance(kind, tuple) or value is None:
        return value
    with localcontext(prec=80):
        return Decimal(value.numerator) / Decimal(value.denominator)


def _typed(operand: Any, leaf: Callable[[Any], Typed]) -> Typed:
    if isinstance(operand, Constant):
        return kind_of(operand.value), _exact(operand.value)
    if not isinstance(operand, Operation):
        kind, value = leaf(operand)
        return kind, _exact(value)
    operands = [_typed(part, leaf) for part in operand.operands]
    values = [value for _, value in operands]
    match operand.sign:
        case "is_null":
            return "bool", values[0] is None
        case "fill_null" | "least" | "greatest":
            return _chosen(operand, operands)
        case "&" | "|":
            # What decides wins over a null.
            decides = operand.sign == "|"
            decided = decides in values
            return "bool", decides if decided else None if None in values else not decides
        case "~":
            return "bool", None if values[0] is None else not values[0]
        case "neg" | "abs":
            changed = abs if operand.sign == "abs" else lambda value: -value
            value = None if values[0] is None else changed(values[0])
            return operands[0][0], _within(operands[0][0], value)
        case "+" | "-" | "*" | "/":
            return _arithmetic(operand, operands)
    if None in values:
        return "bool", None
    order = _order(*operands)
    return "bool", {
        "<": order < 0,
        "<=": order <= 0,
        ">": order > 0,
        ">=": order >= 0,
        "eq": order == 0,
        "ne": order != 0,
    }[operand.sign]


def _exact(value: Any) -> Any:
    return Fraction(value) if isinstance(value, Decimal) else value


def _order(left: Typed, right: Typed) -> int:
    first, second = left[1], right[1]
    if "float" in (left[0], right[0]):
        first, second = float(first), float(second)
        if math.isnan(first) or math.isnan(second):
            return math.isnan(first) - math.isnan(second)
    if isinstance(first, Enum):
        first, second = first.value, second.value
    return int(first > second) - int(first < second)


def _digits(operand: Typed, constant: Any) -> tuple[int, int]:
    """Return the digits of a number as a decimal; a constant has no more than it needs."""
    if not isinstance(operand[0], str):
        return operand[0]
    return (len(str(abs(operand[1]))) if isinstance(constant, Constant) else 20), 0


def _chosen(operation: Operation, operands: list[Typed]) -> Typed:
    kinds = {kind for kind, _ in operands}
    kind: Kind = operands[0][0]
    if "float" in kinds:
        kind = "float"
    elif any(isinstance(kind, tuple) for kind in kinds):
        digits = list(map(_digits, operands, operation.operands))
        scale, whole = max(s for _, s in digits), max(p - s for p, s in digits)
        kind = (min(38, whole + scale), max(0, min(scale, 38 - whole)))
    found = [(kind, _converted(kind, value)) for _, value in operands]
    found = [pair for pair in found if pair[1] is not None]
    if operation.sign == "fill_null":
        return found[0] if found else (kind, None)
    best: Typed = (kind, None)
    for pair in found:
        better = best[1] is None or _order(pair, best) * (1 if operation.sign == "greatest" else -1)
        best = pair if better is True or better > 0 else best
    return best


def _converted(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, tuple):
        return _within(kind, Fraction(value))
    return float(value) if kind == "float" else value


def _half_up(value: Fraction) -> int:
    return math.floor(abs(value) + Fraction(1, 2)) * (1 if value >= 0 else -1)


def _within(kind: Kind, value: Any) -> Any:
    """Round an exact value to its type; None if it doesn't fit."""
    if value is None or kind == "float":
        return value
    if isinstance(kind, tuple):
        unscaled = _half_up(value * 10 ** kind[1])
        return Fraction(unscaled, 10 ** kind[1]) if abs(unscaled) < 10 ** kind[0] else None
    if kind == "span":
        value = value // MICRO if isinstance(value, timedelta) else _half_up(value)
        fits = -(2**63) <= value < 2**63
        return timedelta(microseconds=value) if fits else None
    return int(value) if -(2**63) <= value < 2**63 else None


def _result(sign: str, left: Typed, right: Typed, digits: list[tuple[int, int]]) -> Kind:
    kinds = (left[0], right[0])
    if "instant" in kinds:
        return "span" if kinds == ("instant", "instant") else "instant"
    if "span" in kinds:
        return "float" if sign == "/" and kinds == ("span", "span") else "span"
    if "float" in kinds:
        return "float"
    if kinds == ("int", "int"):
        return "float" if sign == "/" else "int"
    # Apache Spark's table of result types of decimals, and what it does beyond 38 digits.
    (p1, s1), (p2, s2) = digits
    if sign == "*":
        precision, scale = p1 + p2 + 1, s1 + s2
    elif sign == "/":
        scale = max(6, s1 + p2 + 1)
        precision = p1 - s1 + s2 + scale
    else:
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
    if precision > 38:
        return 38, max(38 - (precision - scale), min(scale, 6))
    return precision, scale


def _arithmetic(operation: Operation, operands: list[Typed]) -> Typed:
    sign, (left, right) = operation.sign, operands
    digits = []
    if any(isinstance(kind, tuple) for kind, _ in operands) and "float" not in dict(operands):
        digits = [
            (0, 0) if operand[0] == "span" else _digits(operand, constant)
            for operand, constant in zip(operands, operation.operands, strict=True)
        ]
    kind = _result(sign, left, right, digits)
    first, second = left[1], right[1]
    if first is None or second is None:
        return kind, None
    if "instant" in (left[0], right[0]):
        return kind, _moved(sign, first, second)
    first, second = (
        value // MICRO if isinstance(value, timedelta) else value for value in (first, second)
    )
    if sign == "/" and not second:
        return kind, None
    if kind == "float" or "float" in (left[0], right[0]):
        return kind, _of_floats(kind, sign, float(first), float(second))
    return kind, _within(kind, _calculated(sign, Fraction(first), Fraction(second)))


def _moved(sign: str, first: Any, second: Any) -> Any:
    try:
        return first - second if sign == "-" else first + second
    except OverflowError:  # beyond the years 1 to 9999
        return None


def _calculated(sign: str, first: Any, second: Any) -> Any:
    match sign:
        case "+":
            return first + second
        case "-":
            return first - second
        case "*":
            return first * second
    return first / second


def _of_floats(kind: Kind, sign: str, first: float, second: float) -> Any:
    try:
        value = _calculated(sign, first, second)
    except OverflowError:
        value = math.inf
    if kind == "float":
        return value
    return _within(kind, Fraction(value)) if math.isfinite(value) else None
