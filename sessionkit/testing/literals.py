"""Instants, durations and keys as text: read in tests, and shown in pictures."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from sessionkit._arguments import explains
from sessionkit.errors import DriverError

DEFAULT_DAY: Final = date(2026, 1, 1)
INSTANT: Final = re.compile(
    r"(?:(?P<day>\d{4}-\d\d-\d\d)[ T])?(?P<hour>\d{1,2})(?P<rest>:\d\d(:\d\d(\.\d{1,6})?)?)",
    re.ASCII,
)
DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


@explains
def at(text: str | date) -> datetime:
    """
    Return an instant in UTC, from a time on 1 January 2026 or on a given day.

    `at("10:03")`, `at("10:03:20.5")`, `at("2026-03-01 10:03")`; `at("2026-03-01")` and
    `at(date(2026, 3, 1))` are midnight.

    Raises:
        DriverError: The text has another format, or there is no such time.
    """
    written = "" if isinstance(text, datetime) else str(text)
    match = INSTANT.fullmatch(f"{written} 00:00" if DAY.fullmatch(written) else written)
    try:
        if match is not None:
            day, clock = match["day"] or DEFAULT_DAY, f"{match['hour']:0>2}{match['rest']}"
            return datetime.fromisoformat(f"{day} {clock}").replace(tzinfo=UTC)
    except ValueError:
        pass
    hint = 'write at("10:03"), at("10:03:20.5"), at("2026-03-01") or at("2026-03-01 10:03"), in UTC'
    raise DriverError(f"{text!r} isn't an instant", hint)


@explains
def seconds(number: float) -> timedelta:
    """Return a duration in seconds."""
    return _span(number, timedelta(seconds=1))


@explains
def minutes(number: float) -> timedelta:
    """Return a duration in minutes."""
    return _span(number, timedelta(minutes=1))


@explains
def hours(number: float) -> timedelta:
    """Return a duration in hours."""
    return _span(number, timedelta(hours=1))


def _span(number: float, unit: timedelta) -> timedelta:
    if not isinstance(number, int | float):
        raise DriverError(f"{number!r} isn't a number", "write one, such as minutes(5)")
    try:
        return number * unit
    except (OverflowError, ValueError):
        found = f"{number!r} times {unit} doesn't fit a timedelta"
        raise DriverError(found, "pass a smaller number") from None


def plain_key(key: Any) -> Any:
    """Return the key as `add` takes it: the value of its only column, else a plain tuple."""
    if not isinstance(key, tuple):
        return key
    return key[0] if len(key) == 1 else tuple(key)


def literal(key: Any) -> str:
    """Return a key as Python code."""
    if isinstance(key, datetime):
        return f'at("{clock_text(key)}")'
    if type(key) is tuple:
        return f"({', '.join(map(literal, key))})"
    return repr(key)


def clock_text(instant: datetime) -> str:
    """Return the shortest text that `at` reads as this instant."""
    moment = instant.astimezone(UTC)
    day = "" if moment.date() == DEFAULT_DAY else f"{moment.date()} "
    clock = f"{moment:%H:%M}"
    if moment.second or moment.microsecond:
        clock = f"{moment:%H:%M:%S}"
    if moment.microsecond:
        clock = f"{moment:%H:%M:%S.%f}".rstrip("0")
    return day + clock
