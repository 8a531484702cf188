"""
Expressions: operators over aggregates and constants, as users write them.

An aggregate is a leaf here, of any class that can be the key of a dict.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeAlias, TypeVar

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit.aggregates._operands import Column, Value, decimal_of
from sessionkit.aggregates._operators import ALIKE, OPERATORS
from sessionkit.errors import HINT, SpecError, StateValueError
from sessionkit.state._codec import encode_column
from sessionkit.state._fields import field_type
from sessionkit.state._scalars import SCALARS
from sessionkit.state._types import FieldType, type_name

A = TypeVar("A")
LOGIC: Final = frozenset("&|~")
NOT_BY_EQUALITY: Final = "compare values by .eq(...): `==` compares the aggregates themselves"
"""The hint where a bool is found, which `==` of two aggregates has given."""
NOT_A_BOOL: Final = (
    "leave a constant True or False out; or, if it comes from `==`, which compares the aggregates "
    "themselves, write .eq(...)"
)
INSTEAD: Final = (
    'compute it from the columns of the rows, such as F.floor(F.col("pages") / 2); aggregates have '
    "+ - * /, < <= > >=, & | ~, abs, .eq, .ne, .is_null and .fill_null"
)
LONGEST: Final = 80
"""How many characters of an expression an error shows."""
Plain: TypeAlias = bool | int | float | Decimal | str | bytes | date | time | timedelta | Enum
"""A constant; a datetime is a date, too."""


def shortened(expression: object) -> str:
    """Return the text of an expression for an error."""
    text = str(expression)
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]}...{text[-half:]}"


def _lacking(sign: str) -> Callable[..., NoReturn]:
    """Return the method of an operator of Python that aggregates don't have."""

    def refuse(self: object, *_: object) -> NoReturn:
        found = f"aggregates have no `{sign}`, found it at `{shortened(self)}`"
        raise SpecError(found, INSTEAD)

    return refuse


class LackingError(SpecError, AttributeError):
    """Raised for a method that aggregates don't have, such as one of a column of Spark."""


class Operators(Generic[A]):
    """Python's operators for aggregates; each makes an aggregate of its operands."""

    __slots__ = ()

    def _operated(self, sign: str, *operands: object) -> A:
        """Return the aggregate of an operator and its operands."""
        raise NotImplementedError

    def __add__(self, other: A | Plain) -> A:
        return self._operated("+", self, other)

    def __radd__(self, other: A | Plain) -> A:
        return self._operated("+", other, self)

    def __sub__(self, other: A | Plain) -> A:
        return self._operated("-", self, other)

    def __rsub__(self, other: A | Plain) -> A:
        return self._operated("-", other, self)

    def __mul__(self, other: A | Plain) -> A:
        return self._operated("*", self, other)

    def __rmul__(self, other: A | Plain) -> A:
        return self._operated("*", other, self)

    def __truediv__(self, other: A | Plain) -> A:
        return self._operated("/", self, other)

    def __rtruediv__(self, other: A | Plain) -> A:
        return self._operated("/", other, self)

    def __neg__(self) -> A:
        return self._operated("neg", self)

    def __abs__(self) -> A:
        return self._operated("abs", self)

    def __lt__(self, other: A | Plain) -> A:
        return self._operated("<", self, other)

    def __le__(self, other: A | Plain) -> A:
        return self._operated("<=", self, other)

    def __gt__(self, other: A | Plain) -> A:
        return self._operated(">", self, other)

    def __ge__(self, other: A | Plain) -> A:
        return self._operated(">=", self, other)

    def __and__(self, other: A) -> A:
        return self._operated("&", self, other)

    def __or__(self, other: A) -> A:
        return self._operated("|", self, other)

    def __invert__(self) -> A:
        return self._operated("~", self)

    # On the left, only the bool of a `==` comes first, which is refused as on the right.
    __rand__, __ror__ = __and__, __or__

    if not TYPE_CHECKING:  # a type checker reports these itself
        __floordiv__ = __rfloordiv__ = _lacking("//")
        __mod__ = __rmod__ = _lacking("%")
        __divmod__ = __rdivmod__ = _lacking("divmod")
        __pow__ = __rpow__ = _lacking("**")
        __xor__ = __rxor__ = _lacking("^")
        __matmul__ = __rmatmul__ = _lacking("@")
        __lshift__ = __rlshift__ = _lacking("<<")
        __rshift__ = __rrshift__ = _lacking(">>")
        __pos__ = _lacking("+")
        __round__, __int__, __float__ = _lacking("round"), _lacking("int"), _lacking("float")
        __floor__, __ceil__, __trunc__ = _lacking("floor"), _lacking("ceil"), _lacking("trunc")
        __len__, __getitem__ = _lacking("len"), _lacking("[]")

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            hint = 'its name is that of the argument: .agg(pages=agg.count()), or {"pages": ...}'
            found = f"an aggregate is no column of Spark, and has no `{name}`"
            raise LackingError(found, hint if name in {"alias", "name"} else INSTEAD)

    def __bool__(self) -> NoReturn:
        found = f"`{shortened(self)}` is neither true nor false before there are sessions"
        hint = (
            "combine with &, | and ~, in parentheses: (a > 1) & (a < 9); in place of Python's max "
        )
        raise SpecError(found, f"{hint}and min, write agg.greatest(a, b) and agg.least(a, b)")


@attrs.frozen
class Constant:
    """A constant; 1, 1.0 and True differ."""

    value: Any = attrs.field(eq=repr)

    def __str__(self) -> str:
        return repr(self.value)

    @property
    def type(self) -> FieldType:
        if isinstance(self.value, Decimal):
            return decimal_of(self.value) or SCALARS[Decimal]
        return field_type(type(self.value), "a constant")

    def column(self, rows: int) -> Column:
        """Return the constant as a column of this many rows."""
        single = encode_column(self.type, [self.value], str(self))
        digits = len(str(abs(self.value))) if type(self.value) is int else None
        value = Value(self.type, digits=digits, is_divisor=bool(self.value))
        return Column(value, single.take(pa.array(np.zeros(rows, np.int64))))


@attrs.frozen
class Operation:
    """
    An operator and its operands: leaves, constants and further operations.

    Attributes:
        sign: The name of the operator among `OPERATORS`.
    """

    sign: str
    operands: tuple[Hashable, ...]

    def __str__(self) -> str:
        operands = [str(operand) for operand in self.operands]
        if OPERATORS[self.sign].is_infix:
            return f"({operands[0]} {self.sign} {operands[1]})"
        return f"{self.sign}({', '.join(operands)})"

    def leaves(self) -> Iterator[Any]:
        for operand in self.operands:
            if isinstance(operand, Operation):
                yield from operand.leaves()
            elif not isinstance(operand, Constant):
                yield operand

    def changed(self, change: Callable[[Any], Hashable]) -> "Operation":
        """Return the operation with each leaf changed."""

        def changed(operand: Hashable) -> Hashable:
            if isinstance(operand, Operation):
                return operand.changed(change)
            return operand if isinstance(operand, Constant) else change(operand)

        return attrs.evolve(self, operands=tuple(map(changed, self.operands)))

    def column(self, leaves: Mapping[Any, Column], rows: int, name: str) -> Column:
        """Compute the column of a field from the columns of the leaves, by their aggregates."""

        def column(operand: Hashable) -> Column:
            if isinstance(operand, Operation):
                return operand.column(leaves, rows, name)
            return operand.column(rows) if isinstance(operand, Constant) else leaves[operand]

        operands = list(map(column, self.operands))
        operator, values = OPERATORS[self.sign], [operand.value for operand in operands]
        result = operator.type(*values)
        if result is None:
            types = " and ".join(type_name(value.type) for value in values)
            takes = f"`{self.sign}` takes {operator.takes}, found {types}"
            raise SpecError(f"`{name}` has `{shortened(self)}`: {takes}", _hint(self.sign, values))
        return Column(result, operator.compute(result.type, *operands))


def constant_of(sign: str, value: object) -> Constant:
    """Check an operand that isn't an aggregate."""
    hint = "pass an aggregate or a constant, such as agg.count() or 2"
    if isinstance(value, pc.Expression):
        hint = 'pass an aggregate of the field, such as agg.max("price")'
        hint = f"pass an aggregate of it: agg.any({value})" if sign in LOGIC else hint
    elif sign in LOGIC:
        hint = "pass a comparison in parentheses, such as (agg.count() > 1)"
        hint = NOT_A_BOOL if isinstance(value, bool) else hint
    elif type(value) in SCALARS or isinstance(value, Enum):
        constant = Constant(value)
        try:
            constant.column(1)
        except StateValueError as error:
            text, _, hint = str(error).partition(HINT)
            raise SpecError(f"`{sign}` of an aggregate: {text}", hint) from error
        return constant
    raise SpecError(f"`{sign}` of an aggregate can't take {value!r}", hint)


def _hint(sign: str, values: Sequence[Value]) -> str:
    """Return what to write in place of operands whose types don't fit."""
    if any(value.type.facts is None for value in values):
        return "use aggregates of one value, such as count, sum or first"
    if sign in LOGIC:
        return "compare first, each comparison in parentheses: (agg.count() > 1)"
    if OPERATORS[sign].takes == ALIKE:
        return f"compare it with a {type_name(values[0].type)}"
    return "use fields that are numbers, such as columns that Spark computes from them"
