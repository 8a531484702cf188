"""Scalar types: numbers, text, bytes, UUIDs and times; and a table of all scalars."""

import base64
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, cast
from uuid import UUID

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._instants import EPOCH, FIRST_INSTANT_US, LAST_INSTANT_US, micros_of, span_us
from sessionkit.errors import StateValueError
from sessionkit.state._types import INT64, Facts, FieldType, Form, KeyForm, Widening, refused, same

EXACT_FLOAT: Final = 2**53
INTEGERS: Final = frozenset({"Byte", "Short", "Integer", "Long"})
WIDE: Final = Context(prec=40)
EPOCH_DAY: Final = date(1970, 1, 1)
YEARS: Final = "the years 1 to 9999"
UUID_TEXT: Final = r"\A[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\z"


@attrs.frozen
class IntType(FieldType):
    """`int`, 64 bits."""

    arrow: ClassVar = pa.int64()
    exact: ClassVar = frozenset({int})
    form: ClassVar = "int"
    facts: ClassVar = Facts(
        annotation=int,
        columns=INTEGERS,
        tag=b"i",
        key=KeyForm("bigint", "cast({} as bigint)", frozenset({"str", "decimal"})),
    )
    plain = True

    def coerce(self, value: Any, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise refused(value, path, "an int", "convert it with int(...) where you set it")
        if not INT64[0] <= value <= INT64[1]:
            kind, hint = "an int from -2**63 to 2**63 - 1", "declare the field as Decimal or str"
            shown = "a larger one" if value > 0 else "a smaller one"
            raise refused(value, path, kind, hint, shown=shown)
        return int(value)


@attrs.frozen
class FloatType(FieldType):
    """`float`, 64 bits; NaN is a value, never a null."""

    arrow: ClassVar = pa.float64()
    exact: ClassVar = frozenset({float})
    form: ClassVar = "float"
    facts: ClassVar = Facts(
        annotation=float, columns=INTEGERS - {"Long"} | {"Float", "Double"}, tag=b"f"
    )
    plain = True

    def coerce(self, value: Any, path: str) -> float:
        if isinstance(value, float | np.floating):
            return float(value)
        if isinstance(value, int | np.integer) and not isinstance(value, bool):
            if abs(int(value)) <= EXACT_FLOAT:
                return float(value)
            hint = "declare the field as int, or convert it with float(...)"
            raise refused(value, path, "a float that holds it exactly", hint)
        raise refused(value, path, "a float", "convert it with float(...) where you set it")

    def load(self, value: float) -> float:
        return float(value)

    def widening(self, stored: Form) -> Widening | None:
        return Widening(lambda: _exact) if stored == "int" else None


def _exact(value: int) -> float:
    if abs(value) > EXACT_FLOAT:
        raise ValueError(f"{value} has no float that is equal to it")
    return float(value)


@attrs.frozen
class BoolType(FieldType):
    """`bool`."""

    arrow: ClassVar = pa.bool_()
    exact: ClassVar = frozenset({bool})
    form: ClassVar = "bool"
    facts: ClassVar = Facts(
        annotation=bool,
        columns=frozenset({"Boolean"}),
        tag=b"o",
        key=KeyForm("boolean", "cast({} as boolean)"),
    )
    plain = True

    def coerce(self, value: Any, path: str) -> bool:
        if isinstance(value, bool | np.bool_):
            return bool(value)
        raise refused(value, path, "a bool", "convert it with bool(...) where you set it")


@attrs.frozen
class StrType(FieldType):
    """`str`, any Unicode text that UTF-8 can encode."""

    arrow: ClassVar = pa.string()
    exact: ClassVar = frozenset({str})
    form: ClassVar = "str"
    facts: ClassVar = Facts(
        annotation=str,
        columns=frozenset({"String", "Varchar", "Char"}),
        tag=b"s",
        key=KeyForm("string", "cast({} as string)", frozenset({"int", "date", "bytes"})),
    )
    plain = True

    def coerce(self, value: Any, path: str) -> str:
        if not isinstance(value, str):
            raise refused(value, path, "a str", "convert it with str(...) where you set it")
        try:
            value.encode()
        except UnicodeEncodeError:
            hint = "replace the lone surrogates, or declare the field as bytes"
            raise refused(value, path, "a str that UTF-8 can encode", hint) from None
        # `str(...)` of a member of a `(str, Enum)` would return its name.
        return str.__str__(value)

    def widening(self, stored: Form) -> Widening | None:
        return Widening(lambda: same) if stored == "uuid" else None


@attrs.frozen
class BytesType(FieldType):
    """`bytes`; base64 text inside a collection on the wire."""

    arrow: ClassVar = pa.binary()
    exact: ClassVar = frozenset({bytes})
    form: ClassVar = "bytes"
    facts: ClassVar = Facts(
        annotation=bytes,
        columns=frozenset({"Binary"}),
        tag=b"b",
        key=KeyForm("binary", "cast({} as binary)", frozenset({"str"})),
    )

    def load(self, value: bytes | bytearray | str) -> bytes:
        return base64.b64decode(value) if isinstance(value, str) else bytes(value)

    def coerce(self, value: Any, path: str) -> bytes:
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise refused(value, path, "bytes", "encode text with .encode() where you set it")


@attrs.frozen
class DecimalType(FieldType):
    """
    A `Decimal` with a limit of digits: `price: Annotated[Decimal, DecimalType(10, 2)]`.

    Write it where an attrs class declares a field of events, states or results. A value with more
    digits is refused, never rounded. A `Decimal` without it has 38 digits, 18 of them after the
    point.

    Attributes:
        precision: The number of digits, from 1 to 38. A class with another number is refused with a
            `SpecError` by the spec that uses it.
        scale: How many of the digits are after the decimal point, from 0 to `precision`.
    """

    precision: int = 38
    scale: int = 18

    @property
    def form(self) -> Form:
        return ["decimal", self.precision, self.scale]

    @property
    def arrow(self) -> pa.DataType:
        return pa.decimal128(self.precision, self.scale)

    @cached_property
    def facts(self) -> Facts:
        becomes = frozenset({"int", "decimal"})
        return Facts(
            annotation=Annotated[Decimal, self],
            columns=INTEGERS | {"Decimal"},
            tag=b"n",
            is_cast=False,  # a cast would round
            key=KeyForm("string", "{}", becomes, lambda value: format(value, "f")),
        )

    def coerce(self, value: Any, path: str) -> Decimal:
        if isinstance(value, int) and not isinstance(value, bool):
            value = Decimal(value)
        digits = f"a Decimal of {self.precision} digits, {self.scale} of them after the point"
        if not isinstance(value, Decimal) or not value.is_finite():
            raise refused(value, path, digits, "pass Decimal('1.50'), not a float")
        exact = value or Decimal(0)
        if len(exact.as_tuple().digits) <= WIDE.prec:
            exact = exact.normalize(WIDE)  # drop trailing zeros, where this doesn't round
        _, places, exponent = exact.as_tuple()
        after = max(0, -int(exponent))
        before = max(0, len(places) + int(exponent)) if exact else 0
        if after > self.scale or before > self.precision - self.scale:
            hint = "quantize it, or declare Annotated[Decimal, DecimalType(precision, scale)]"
            raise refused(value, path, digits, hint)
        return exact

    def load(self, value: Decimal | str | int) -> Decimal:
        return Decimal(value).quantize(Decimal(1).scaleb(-self.scale), context=WIDE)

    def widening(self, stored: Form) -> Widening | None:
        match stored:
            case ["decimal", precision, scale] if scale <= self.scale:
                has_room = precision - scale <= self.precision - self.scale
                return Widening(lambda: same) if has_room else None
        return None


@attrs.frozen
class UUIDType(FieldType):
    """`UUID`, stored as its text with hyphens, in lower case: Spark has no type for it."""

    arrow: ClassVar = pa.string()
    exact: ClassVar = frozenset({UUID})
    form: ClassVar = "uuid"
    facts: ClassVar = Facts(
        annotation=UUID,
        columns=frozenset({"String", "Varchar", "Char"}),
        tag=b"s",
        hint="cast it to the text of a UUID",
        key=KeyForm("string", "lower(cast({} as string))", frozenset({"str"})),
    )
    misfit: ClassVar = "isn't a UUID with hyphens"

    def fitted(self, column: pa.Array) -> pa.Array:
        is_one = pc.match_substring_regex(column, UUID_TEXT)
        return pc.if_else(is_one, pc.ascii_lower(column), pa.scalar(None, self.arrow))

    def coerce(self, value: Any, path: str) -> UUID:
        if isinstance(value, UUID):
            return value
        raise refused(value, path, "a UUID", "convert it with UUID(...) where you set it")

    def dump(self, value: UUID) -> str:
        return str(value)

    def load(self, value: str) -> UUID:
        try:
            return UUID(value)
        except ValueError:
            raise StateValueError("a text isn't a UUID", "store UUIDs only") from None


@attrs.frozen
class DatetimeType(FieldType):
    """`datetime`: a timezone-aware instant in microseconds, stored in UTC."""

    arrow: ClassVar = pa.timestamp("us", tz="UTC")
    form: ClassVar = "datetime"
    facts: ClassVar = Facts(
        annotation=datetime,
        columns=frozenset({"Timestamp"}),
        tag=b"t",
        is_cast=False,
        key=KeyForm("bigint", "unix_micros({})"),
        bounds=(FIRST_INSTANT_US, LAST_INSTANT_US),
        within=YEARS,
    )

    def coerce(self, value: Any, path: str) -> datetime:
        if value is pd.NaT or not isinstance(value, datetime):
            raise refused(value, path, "a datetime", "use None in an Optional field for 'unknown'")
        if value.tzinfo is None or value.utcoffset() is None:
            hint = "add the time zone, such as datetime(..., tzinfo=UTC)"
            raise refused(value, path, "a datetime with a time zone", hint)
        if isinstance(value, pd.Timestamp):
            if value.nanosecond:
                hint = 'round it with .floor("us") where you set it'
                raise refused(value, path, "a datetime of whole microseconds", hint)
            value = value.to_pydatetime()
        try:
            return cast("datetime", value).astimezone(UTC)
        except OverflowError:
            hint = "use None in an Optional field for 'never'"
            raise refused(value, path, f"a datetime within {YEARS}", hint) from None

    def dump(self, value: datetime) -> int:
        return micros_of(value)

    def load(self, value: int | datetime) -> datetime:
        if isinstance(value, datetime):
            return value.astimezone(UTC)
        return EPOCH + timedelta(microseconds=value)


@attrs.frozen
class DateType(FieldType):
    """`date`, a calendar day."""

    arrow: ClassVar = pa.date32()
    exact: ClassVar = frozenset({date})
    form: ClassVar = "date"
    facts: ClassVar = Facts(
        annotation=date,
        columns=frozenset({"Date"}),
        tag=b"d",
        is_cast=False,
        key=KeyForm("bigint", "cast(unix_date({}) as bigint)", frozenset({"str"})),
        bounds=((date.min - EPOCH_DAY).days, (date.max - EPOCH_DAY).days),
        within=YEARS,
    )

    def coerce(self, value: Any, path: str) -> date:
        if isinstance(value, date) and not isinstance(value, datetime):
            return value
        raise refused(value, path, "a date", "call .date() on a datetime in the time zone you mean")

    def dump(self, value: date) -> int:
        return (value - EPOCH_DAY).days

    def load(self, value: int | date) -> date:
        return value if isinstance(value, date) else EPOCH_DAY + timedelta(days=value)


@attrs.frozen
class TimedeltaType(FieldType):
    """`timedelta`, whole microseconds."""

    arrow: ClassVar = pa.duration("us")
    exact: ClassVar = frozenset({timedelta})
    form: ClassVar = "timedelta"
    facts: ClassVar = Facts(annotation=timedelta, columns=frozenset({"DayTimeInterval"}), tag=b"u")

    def coerce(self, value: Any, path: str) -> timedelta:
        if value is pd.NaT or not isinstance(value, timedelta):
            raise refused(value, path, "a timedelta", "pass timedelta(seconds=...)")
        span: timedelta = value
        if isinstance(value, pd.Timedelta):
            if value.nanoseconds:
                hint = 'round it with .floor("us") where you set it'
                raise refused(value, path, "a timedelta of whole microseconds", hint)
            span = value.to_pytimedelta()
        if not INT64[0] <= span_us(span) <= INT64[1]:
            hint = "set a shorter one"
            raise refused(value, path, "a timedelta that fits in 64 bits of microseconds", hint)
        return span

    def dump(self, value: timedelta) -> int:
        return span_us(value)

    def load(self, value: int | timedelta) -> timedelta:
        return value if isinstance(value, timedelta) else timedelta(microseconds=value)

    def widening(self, stored: Form) -> Widening | None:
        if stored != "seconds":
            return None
        return Widening(lambda: lambda seconds: timedelta(seconds=seconds))


def _micros_of_day(value: time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


@attrs.frozen
class TimeType(FieldType):
    """`time` without a zone, stored as a number: most releases of Spark have no type for it."""

    arrow: ClassVar = pa.int64()
    form: ClassVar = "time"
    facts: ClassVar = Facts(
        annotation=time,
        columns=frozenset({"Integer", "Long"}),
        tag=b"i",
        hint="pass its microseconds since midnight; for a TIME, time_to_micros(column)",
        key=KeyForm("bigint", "cast({} as bigint)"),
        bounds=(0, _micros_of_day(time.max)),
        within="the microseconds of a day",
    )
    dump: ClassVar = staticmethod(_micros_of_day)

    def coerce(self, value: Any, path: str) -> time:
        if not isinstance(value, time):
            raise refused(value, path, "a time", "call .time() on a datetime in the zone you mean")
        if value.tzinfo is not None:
            hint = "leave tzinfo out, or declare the field as datetime"
            raise refused(value, path, "a time without a time zone", hint)
        return value.replace(fold=0)

    def load(self, value: int) -> time:
        seconds, micros = divmod(value, 1_000_000)
        minutes, second = divmod(seconds, 60)
        return time(*divmod(minutes, 60), second, micros)


SCALARS: Final[dict[Any, FieldType]] = {
    int: IntType(),
    float: FloatType(),
    bool: BoolType(),
    str: StrType(),
    bytes: BytesType(),
    datetime: DatetimeType(),
    date: DateType(),
    timedelta: TimedeltaType(),
    time: TimeType(),
    Decimal: DecimalType(),
    UUID: UUIDType(),
}
"""The scalar types by annotation."""
