"""
Instants and durations in whole microseconds, and the parsing of durations.

Spark counts event time in microseconds and timers in milliseconds. Inside sessionkit, an instant
is an `int` of microseconds since the epoch (suffix `_us`); a watermark or a timer is an `int` of
milliseconds (suffix `_ms`). Users see `timedelta`, and `datetime` in UTC.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from sessionkit.errors import SpecError, with_hint

Duration: TypeAlias = timedelta | str

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)

# The watermark before the first one and after the last one: far outside the range of a timestamp,
# and far enough from the limits of 64 bits that adding a duration can't overflow.
BEGINNING_US: Final = -(2**62)
END_OF_TIME_US: Final = 2**62

FIRST_INSTANT_US: Final = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
LAST_INSTANT_US: Final = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
LONGEST: Final = timedelta(days=36_500)
MOST_DIGITS: Final = 18
FRACTION_DIGITS: Final = 6

UNITS: Final = {
    "microsecond": MICROSECOND,
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
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
    """Return the instant, in UTC, this many microseconds after the epoch."""
    return EPOCH + timedelta(microseconds=instant_us)


def span_us(span: timedelta) -> int:
    return span // MICROSECOND


def duration(value: object, name: str, *, zero_allowed: bool = False) -> timedelta:
    """
    Parse a duration strictly.

    Accepts a `timedelta`, Spark's interval syntax (`"10 minutes"`, `"1 hour 30 minutes"`, with or
    without a leading `interval`) and short forms (`"30m"`, `"1h30m"`). A day is 24 hours. Spark's
    own `session_window(ts, "30m")` silently accepts the short form and returns no rows; here it
    means what it says.

    Args:
        value: What the user wrote.
        name: The name of the argument, for the message.
        zero_allowed: Whether zero makes sense for this argument.

    Raises:
        SpecError: It isn't a duration, has no fixed length (months, years), is zero or negative,
            or is longer than a hundred years.
    """
    if isinstance(value, timedelta):
        span = value
    elif isinstance(value, str):
        span = _read(value, name)
    else:
        found = f"`{name}` must be a timedelta or text, found {value!r} ({type(value).__name__})"
        raise SpecError(with_hint(found, f"{SPELLING}, or pass timedelta(minutes=30)"))
    _check_range(span, value, name, zero_allowed=zero_allowed)
    return timedelta(microseconds=span_us(span))


def duration_text(span: timedelta) -> str:
    """Return a duration as text that `duration` can parse: `1 hour 30 minutes`."""
    rest, words = span_us(span), []
    for unit, size in sorted(UNITS.items(), key=lambda pair: pair[1], reverse=True):
        number, rest = divmod(rest, span_us(size))
        if number:
            words.append(f"{number} {unit}{'s' if number > 1 else ''}")
    return " ".join(words) or "0 seconds"


def _check_range(span: timedelta, value: object, name: str, *, zero_allowed: bool) -> None:
    if span < timedelta(0) or (not span and not zero_allowed):
        found = f"`{name}` must be {'zero or ' if zero_allowed else ''}longer than zero"
        raise SpecError(with_hint(f"{found}, found {value!r}", SPELLING))
    if span % MICROSECOND:
        found = f"`{name}` must be whole microseconds, found {value!r}"
        raise SpecError(with_hint(found, "round it; Spark counts time in microseconds"))
    if span > LONGEST:
        found = f"`{name}` must be at most a hundred years, found {value!r}"
        raise SpecError(with_hint(found, "pass a shorter duration"))


def _read(text: str, name: str) -> timedelta:
    body = text.strip().lower()
    if body.startswith("interval "):
        body = body.removeprefix("interval ").strip()
    total, seen = timedelta(0), set[str]()
    for term in TERM.finditer(body):
        unit = _unit(term["unit"], text, name)
        if unit in seen:
            raise _unreadable(text, name)
        seen.add(unit)
        total += _amount(term, unit, text, name)
        if abs(total) > LONGEST:
            raise _too_long(text, name)
    if not seen or TERM.sub("", body).strip(" \t"):
        raise _unreadable(text, name)
    return total


def _amount(term: re.Match[str], unit: str, text: str, name: str) -> timedelta:
    if "." in term["number"] and unit != "second":
        found = f"`{name}` may have a fraction of a second only, found {text!r}"
        raise SpecError(with_hint(found, "use the next smaller unit, in whole numbers"))
    whole, _, fraction = term["number"].partition(".")
    if len(whole) > MOST_DIGITS:
        raise _too_long(text, name)
    if len(fraction) > FRACTION_DIGITS:
        found = f"`{name}` must be whole microseconds, found {text!r}"
        raise SpecError(with_hint(found, "Spark counts time in microseconds: round it"))
    try:
        amount = UNITS[unit] * int(whole)
    except OverflowError:
        raise _too_long(text, name) from None
    amount += MICROSECOND * int(fraction.ljust(FRACTION_DIGITS, "0"))
    return -amount if term["sign"] == "-" else amount


def _too_long(text: str, name: str) -> SpecError:
    found = f"`{name}` must be at most a hundred years, found {text!r}"
    return SpecError(with_hint(found, "pass a shorter duration"))


def _unit(word: str, text: str, name: str) -> str:
    unit = SHORT_UNITS.get(word, word.removesuffix("s"))
    if unit in UNITS:
        return unit
    if unit in {"month", "mon", "year", "y", "quarter"}:
        found = f"`{name}` must have a fixed length, found {text!r}: months and years have none"
        raise SpecError(with_hint(found, "count in days, such as '30 days'"))
    raise _unreadable(text, name)


def _unreadable(text: str, name: str) -> SpecError:
    return SpecError(with_hint(f"`{name}` isn't a duration: {text!r}", SPELLING))
