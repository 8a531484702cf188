"""
Instants and durations in whole microseconds, and the parsing of durations.

Spark counts event time in microseconds and timers in milliseconds. Inside sessionkit, an instant
is an `int` of microseconds since the epoch (suffix `_us`); Spark's watermark or a timer is an `int`
of milliseconds (suffix `_ms`). Users see `timedelta`, and `datetime` in UTC.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from sessionkit.errors import SpecError

Duration: TypeAlias = timedelta | str
"""A length of time, such as `timedelta(minutes=30)`, `"30 minutes"` or `"1h30m"`."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)

# The watermark before the first event, and at the end of a batch. Both are far outside the range of
# a timestamp, and far enough from the limits of 64 bits that adding a duration can't overflow.
BEGINNING_US: Final = -(2**62)
END_OF_TIME_US: Final = 2**62

FIRST_INSTANT_US: Final = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
LAST_INSTANT_US: Final = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
LONGEST_US: Final = timedelta(days=36_500) // MICROSECOND
MOST_DIGITS: Final = 18
FRACTION_DIGITS: Final = 6

UNITS: Final = {
    unit: timedelta(**{f"{unit}s": 1}) // MICROSECOND
    for unit in ("week", "day", "hour", "minute", "second", "millisecond", "microsecond")
}
"""The microseconds of each unit, the longest first."""
CALENDAR: Final = frozenset({"month", "mon", "year", "y", "quarter"})
SHORT_UNITS: Final = {
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "sec": "second",
    "m": "minute",
    "min": "minute",
    "h": "hour",
    "d": "day",
    "w": "week",
}
TERM: Final = re.compile(r"(?P<sign>[+-]?)(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[a-z]+)", re.ASCII)
SPELLING: Final = 'write it like "30 minutes", "1 hour 30 minutes", "30m" or "1h30m"'


def micros_of(instant: datetime) -> int:
    """Return the microseconds since the epoch of a timezone-aware instant."""
    return (instant - EPOCH) // MICROSECOND


def instant_of(instant_us: int) -> datetime:
    """Return the instant, in UTC, from microseconds since the epoch."""
    return EPOCH + timedelta(microseconds=instant_us)


def span_us(span: timedelta) -> int:
    return span // MICROSECOND


def duration_of(value: object, name: str, *, zero_allowed: bool = False) -> timedelta:
    """
    Return a duration of at most a hundred years; a `SpecError` says why a value isn't one.

    It reads a `timedelta`, Spark's interval syntax (`"10 minutes"`, `"1 hour 30 minutes"`, with or
    without a leading `interval`), and a short form (`"30m"`, `"1h30m"`). A day is 24 hours. Spark's
    own `session_window(ts, "30m")` accepts the short form too, but returns no rows.
    """
    if isinstance(value, timedelta):
        micros = span_us(value)
        if value % MICROSECOND:
            found = f"`{name}` must be whole microseconds, found {value!r}"
            raise SpecError(found, "round it; Spark counts time in microseconds")
    elif isinstance(value, str):
        micros = _read(value, name)
    else:
        found = f"`{name}` must be a timedelta or text, found {value!r} ({type(value).__name__})"
        why = "a number has no unit; " if isinstance(value, int | float) else ""
        raise SpecError(found, f"{why}{SPELLING}, or pass timedelta(minutes=30)")
    if micros < 0 or (micros == 0 and not zero_allowed):
        found = f"`{name}` must be {'zero or ' if zero_allowed else ''}longer than zero"
        raise SpecError(f"{found}, found {value!r}", SPELLING)
    if micros > LONGEST_US:
        raise _too_long(value, name)
    return timedelta(microseconds=micros)


def duration_text(span: timedelta) -> str:
    """Return a duration as text that `duration_of` reads, such as `1 hour 30 minutes`."""
    rest, words = span_us(span), []
    for unit, micros in UNITS.items():
        number, rest = divmod(rest, micros)
        if number:
            words.append(f"{number} {unit}{'s' if number > 1 else ''}")
    return " ".join(words) or "0 seconds"


def _read(text: str, name: str) -> int:
    """Parse a duration; return its microseconds."""
    body = text.strip().lower()
    if body.startswith("interval "):
        body = body.removeprefix("interval ").strip()
    total, seen = 0, set[str]()
    for term in TERM.finditer(body):
        unit = SHORT_UNITS.get(term["unit"], term["unit"].removesuffix("s"))
        if unit in CALENDAR:
            found = f"`{name}` must have a fixed length, found {text!r}: months and years have none"
            raise SpecError(found, "count in days, such as '30 days'")
        if unit not in UNITS or unit in seen:
            raise _unreadable(text, name)
        seen.add(unit)
        amount = _amount(term["number"], unit, text, name)
        total += -amount if term["sign"] == "-" else amount
    if not seen or TERM.sub("", body).strip(" \t"):
        raise _unreadable(text, name)
    return total


def _amount(number: str, unit: str, text: str, name: str) -> int:
    whole, _, fraction = number.partition(".")
    if fraction and unit != "second":
        found = f"`{name}` may have a fraction of a second only, found {text!r}"
        raise SpecError(found, "use the next smaller unit, in whole numbers")
    if len(whole) > MOST_DIGITS:  # `int` refuses a few thousand digits with an error of its own
        raise _too_long(text, name)
    if len(fraction) > FRACTION_DIGITS:
        found = f"`{name}` must be whole microseconds, found {text!r}"
        raise SpecError(found, "Spark counts time in microseconds: round it")
    return int(whole) * UNITS[unit] + int(fraction.ljust(FRACTION_DIGITS, "0"))


def _too_long(value: object, name: str) -> SpecError:
    found = f"`{name}` must be at most a hundred years, found {value!r}"
    return SpecError(found, "pass a shorter duration")


def _unreadable(text: str, name: str) -> SpecError:
    return SpecError(f"`{name}` isn't a duration: {text!r}", SPELLING)
