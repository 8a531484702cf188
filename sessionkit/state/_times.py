"""The types of times: instants, days, durations and times of day."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any, ClassVar, Final

import attrs
import pandas as pd
import pyarrow as pa

from sessionkit._instants import (
    FIRST_INSTANT_US,
    LAST_INSTANT_US,
    instant_of,
    micros_of,
    span_us,
)
from sessionkit.state._types import INT64, Facts, FieldType, KeyForm, refused

EPOCH_DAY: Final = date(1970, 1, 1)
YEARS: Final = "the years 1 to 9999"


@attrs.frozen
class DatetimeType(FieldType):
    """`datetime`, an instant: timezone-aware, in microseconds, and in UTC once stored."""

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
        """Accept aware datetimes of whole microseconds, in any time zone."""
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
            instant: datetime = value.astimezone(UTC)
        except OverflowError:
            hint = "use None in an Optional field for 'never'"
            raise refused(value, path, "a datetime within the years 1 to 9999", hint) from None
        return instant

    def dump(self, value: datetime) -> int:
        return micros_of(value)

    def load(self, value: int | datetime) -> datetime:
        if isinstance(value, datetime):
            return value.astimezone(UTC)
        return instant_of(value)


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
        """Accept dates; refuse a datetime, whose day depends on a time zone."""
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
    facts: ClassVar = Facts(
        annotation=timedelta,
        columns=frozenset({"DayTimeInterval"}),
        tag=b"u",
    )

    def coerce(self, value: Any, path: str) -> timedelta:
        """Accept timedeltas, and those of pandas in whole microseconds."""
        if value is pd.NaT or not isinstance(value, timedelta):
            raise refused(value, path, "a timedelta", "pass timedelta(seconds=...)")
        taken: timedelta = value
        if isinstance(value, pd.Timedelta):
            if value.nanoseconds:
                hint = 'round it with .floor("us") where you set it'
                raise refused(value, path, "a timedelta of whole microseconds", hint)
            taken = value.to_pytimedelta()
        if not INT64[0] <= span_us(taken) <= INT64[1]:
            hint = "set a shorter one; 64 bits of microseconds are 292,271 years"
            raise refused(value, path, "a timedelta that fits in 64 bits of microseconds", hint)
        return taken

    def dump(self, value: timedelta) -> int:
        return span_us(value)

    def load(self, value: int | timedelta) -> timedelta:
        return value if isinstance(value, timedelta) else timedelta(microseconds=value)


def _micros_of_day(value: time) -> int:
    """Return the microseconds from midnight to a time of day."""
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


@attrs.frozen
class TimeType(FieldType):
    """
    `time`, a time of day without a zone: a number of microseconds since midnight.

    That number is what is stored and what Spark has too: most releases have no type for it.
    """

    arrow: ClassVar = pa.int64()
    form: ClassVar = "time"
    facts: ClassVar = Facts(
        annotation=time,
        columns=frozenset({"Integer", "Long"}),
        tag=b"i",
        hint="pass its microseconds since midnight; those of a TIME are time_to_micros(column)",
        key=KeyForm("bigint", "cast({} as bigint)"),
        bounds=(0, _micros_of_day(time.max)),
        within="the microseconds of a day",
    )
    dump: ClassVar = staticmethod(_micros_of_day)

    def coerce(self, value: Any, path: str) -> time:
        """Accept times without a zone: with one, the time of day depends on the day."""
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
