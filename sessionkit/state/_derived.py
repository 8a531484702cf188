"""Types whose values are stored as a scalar: an `Enum`, a `Literal`, a span in seconds."""

from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arguments import sql_type
from sessionkit._instants import span_us
from sessionkit.errors import StateValueError
from sessionkit.state._scalars import INTEGERS, FloatType, IntType, StrType, TimedeltaType
from sessionkit.state._types import (
    INT64,
    Facts,
    FieldType,
    Form,
    Widening,
    of_another_class,
    refused,
)

KEEP: Final = "keep a member as long as state contains it, or start with a new checkpoint"
SHOWN: Final = 4
SECOND_US: Final = 1_000_000
MOST_SECONDS: Final = 2.0**33
"""Up to here, 272 years, every whole microsecond has a float of its own."""


@attrs.frozen
class EnumType(FieldType):
    """
    An `Enum` whose values are all text or all integers, stored by value; a `Flag` too.

    Any other value is what `cls(value)` makes of it: the member that `_missing_` returns, or
    several flags.
    """

    cls: type[Enum]
    base: StrType | IntType

    @property
    def form(self) -> Form:
        return ["enum", self.base.form]

    @property
    def arrow(self) -> pa.DataType:
        return self.base.arrow

    @cached_property
    def facts(self) -> Facts:
        return attrs.evolve(self.base.facts, annotation=self.cls, key=None)

    @property
    def exact(self) -> frozenset[type]:
        return frozenset({self.cls})

    @property
    def misfit(self) -> str:
        return f"isn't a member of {self.cls.__name__}"

    def fitted(self, column: pa.Array) -> pa.Array:
        is_known = pc.is_in(column, value_set=pa.array([e.value for e in self.cls], self.arrow))
        others = column.filter(pc.and_(column.is_valid(), pc.invert(is_known))).unique()
        if not len(others):
            return column
        made = pa.array(map(self._made, others.to_pylist()), self.arrow)
        return pc.if_else(is_known, column, made.take(pc.index_in(column, value_set=others)))

    def _made(self, value: Any) -> Any:
        """Return the value of the member that Python makes of a value; None if it makes none."""
        try:
            member: Any = self.cls(value)
            # Under the boundary EJECT, a Flag makes an int.
            return self.base.coerce(member.value, "") if isinstance(member, self.cls) else None
        except Exception:  # noqa: BLE001 (the user's own `_missing_`)
            return None

    def coerce(self, value: Any, path: str) -> Enum:
        if isinstance(value, self.cls):
            return value
        name = self.cls.__name__
        hint = f"write {name}(value) where you set it"
        raise of_another_class(value, path, self.cls, f"a member of {name}", hint)

    def dump(self, value: Enum) -> Any:
        return value.value

    def load(self, value: Any) -> Enum:
        try:
            return self.cls(value)
        except ValueError:
            found = f"no member of {self.cls.__name__} has the value {value!r}"
            raise StateValueError(found, KEEP) from None


@attrs.frozen
class LiteralType(FieldType):
    """`Literal["a", "b"]`: some texts, or some integers; stored as the values that they are."""

    annotation: Any
    values: Sequence[Any]
    base: StrType | IntType

    @property
    def form(self) -> Form:
        return self.base.form

    @property
    def arrow(self) -> pa.DataType:
        return self.base.arrow

    @cached_property
    def facts(self) -> Facts:
        return attrs.evolve(self.base.facts, annotation=self.annotation)

    @property
    def misfit(self) -> str:
        return f"isn't {self._one_of}"

    @property
    def _one_of(self) -> str:
        shown = [*map(repr, self.values[:SHOWN]), *["..."][: len(self.values) - SHOWN]]
        return f"one of {', '.join(shown)}" if shown[1:] else shown[0]

    def fitted(self, column: pa.Array) -> pa.Array:
        is_one = pc.is_in(column, value_set=pa.array(self.values, self.arrow))
        return pc.if_else(is_one, column, pa.scalar(None, self.arrow))

    def coerce(self, value: Any, path: str) -> Any:
        plain = self.base.coerce(value, path)
        if plain not in self.values:
            hint = "add it to the Literal, or check it where you set it"
            raise refused(value, path, self._one_of, hint, shown=f"another {type(plain).__name__}")
        return plain

    def load(self, value: Any) -> Any:
        if value not in self.values:
            found = f"the value {value!r} isn't {self._one_of}"
            raise StateValueError(found, KEEP)
        return value


@attrs.frozen
class SecondsType(FloatType):
    """`Annotated[timedelta, "seconds"]`: a span in whole microseconds, stored in seconds."""

    form: ClassVar = "seconds"
    exact: ClassVar = frozenset()
    facts: ClassVar = Facts(
        annotation=Annotated[timedelta, "seconds"],
        columns=INTEGERS | {"Float", "Double", "Decimal"},
        tag=b"f",
    )
    misfit: ClassVar = "isn't a number of seconds within 272 years"
    plain = False

    @property
    def shown(self) -> str:
        return f"{sql_type(self.arrow)} of seconds"

    def fitted(self, column: pa.Array) -> pa.Array:
        seconds = column.fill_null(0.0).to_numpy()
        with np.errstate(invalid="ignore"):
            is_outside = ~(np.abs(seconds) <= MOST_SECONDS)
            micros = np.rint(np.where(is_outside, 0.0, seconds) * SECOND_US)
        missing = is_outside | column.is_null().to_numpy(zero_copy_only=False)
        return pa.array(micros / SECOND_US, self.arrow, mask=missing)

    def coerce(self, value: Any, path: str) -> Any:
        span = TimedeltaType().coerce(value, path)
        if abs(span_us(span)) > MOST_SECONDS * SECOND_US:
            hint = "declare the field as timedelta, or set a shorter one"
            raise refused(value, path, "a timedelta within 272 years", hint)
        return span

    def dump(self, value: timedelta) -> float:
        return span_us(value) / SECOND_US

    def load(self, value: float) -> Any:
        return timedelta(seconds=value)

    def widening(self, stored: Form) -> Widening | None:
        return Widening(lambda: _seconds) if stored == "timedelta" else None


def seconds_of(spans: pa.Array) -> pa.Array:
    """Return a column of timedeltas as one of seconds."""
    return pc.divide(spans.cast(pa.int64()).cast(pa.float64(), safe=False), float(SECOND_US))


def _seconds(span: timedelta) -> float:
    return SecondsType().dump(SecondsType().coerce(span, "span"))


def choice_of(values: Sequence[Any]) -> StrType | IntType | None:
    """Return how the values of an `Enum` or a `Literal` are stored; None if they can't be."""
    kinds = {*map(type, values)}
    if kinds == {str}:
        return StrType()
    if kinds == {int} and INT64[0] <= min(values) <= max(values) <= INT64[1]:
        return IntType()
    return None
