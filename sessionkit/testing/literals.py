"""Instants and durations as tests write them in text."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from sessionkit.errors import DriverError, with_hint
from sessionkit.testing.pictures.literals import DEFAULT_DAY

INSTANT: Final = re.compile(
    r"(?:(?P<day>\d{4}-\d\d-\d\d)[ T])?(?P<hour>\d{1,2})(?P<rest>:\d\d(:\d\d(\.\d{1,6})?)?)",
    re.ASCII,
)


def at(text: str) -> datetime:
    """
    Return an instant in UTC: a time on 1 January 2026, or on the day written before it.

    `at("10:03")`, `at("10:03:20.5")`, `at("2026-03-01 10:03")`.

    Raises:
        DriverError: The text has another format, or there is no such time.
    """
    found = INSTANT.fullmatch(text)
    try:
        if found is not None:
            day, clock = found["day"] or DEFAULT_DAY, f"{found['hour']:0>2}{found['rest']}"
            return datetime.fromisoformat(f"{day} {clock}").replace(tzinfo=UTC)
    except ValueError:
        pass
    hint = 'write at("10:03"), at("10:03:20.5") or at("2026-03-01 10:03"), in UTC'
    raise DriverError(with_hint(f"{text!r} isn't an instant", hint))


def seconds(number: float) -> timedelta:
    """Return a duration in seconds."""
    return _span(number, timedelta(seconds=1))


def minutes(number: float) -> timedelta:
    """Return a duration in minutes."""
    return _span(number, timedelta(minutes=1))


def hours(number: float) -> timedelta:
    """Return a duration in hours."""
    return _span(number, timedelta(hours=1))


def _span(number: float, unit: timedelta) -> timedelta:
    try:
        return number * unit
    except (OverflowError, ValueError):
        found = f"{number!r} times {unit} doesn't fit a timedelta"
        raise DriverError(with_hint(found, "pass a smaller number")) from None
