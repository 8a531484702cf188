"""Short literals for the instants and durations of a test, and values back as such literals."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import attrs

from sessionkit._instants import span_us
from sessionkit.errors import ScriptError, with_hint

__all__ = ["at", "clock_text", "hours", "literal", "minutes", "seconds"]

DEFAULT_DAY: Final = date(2026, 1, 1)
INSTANT: Final = re.compile(
    r"(?:(?P<day>\d{4}-\d\d-\d\d)[ T])?(?P<hour>\d{1,2}):(?P<minute>\d\d)"
    r"(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6}))?)?",
    re.ASCII,
)
SECOND_US: Final = 1_000_000


def at(text: str) -> datetime:
    """
    Return an instant in UTC: a time of 1 January 2026, or of the day that is written before it.

    `at("10:03")`, `at("10:03:20.5")`, `at("2026-03-01 10:03")`.

    Raises:
        ScriptError: It's written in another way, or there is no such time.
    """
    found = INSTANT.fullmatch(text)
    try:
        if found is not None:
            day = DEFAULT_DAY if found["day"] is None else date.fromisoformat(found["day"])
            hour, minute, second = (int(found[part] or 0) for part in ("hour", "minute", "second"))
            micros = int((found["fraction"] or "").ljust(6, "0"))
            return datetime(day.year, day.month, day.day, hour, minute, second, micros, UTC)
    except ValueError:
        pass
    hint = 'write at("10:03"), at("10:03:20.5") or at("2026-03-01 10:03"), in UTC'
    raise ScriptError(with_hint(f"{text!r} isn't an instant", hint))


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
        found = f"{number!r} times {unit} isn't a duration that a timedelta can hold"
        raise ScriptError(with_hint(found, "pass a smaller number")) from None


def literal(value: Any) -> str:
    """Return a value as a test would write it, with the builders of this module."""
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return f'at("{clock_text(value)}")'
    if isinstance(value, timedelta):
        return _span_literal(value)
    if type(value) is tuple:
        inside = ", ".join(map(literal, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if type(value) is dict:
        inside = ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.items())
        return f"{{{inside}}}"
    if type(value) is list:
        return f"[{', '.join(map(literal, value))}]"
    return _object_literal(value) if attrs.has(type(value)) else repr(value)


def _object_literal(value: Any) -> str:
    """Return an attrs object with literals for its fields, unless its class has its own `repr`."""
    name = type(value).__qualname__.rpartition(">.")[2]

    def text(show: Callable[[Any], str]) -> str:
        shown = [field.name for field in attrs.fields(type(value)) if field.repr]
        return f"{name}({', '.join(f'{field}={show(getattr(value, field))}' for field in shown)})"

    return text(literal) if text(repr) == repr(value) else repr(value)


def clock_text(instant: datetime) -> str:
    """Return an instant as briefly as `at` reads it."""
    moment = instant.astimezone(UTC)
    day = "" if moment.date() == DEFAULT_DAY else f"{moment.date()} "
    clock = f"{moment:%H:%M}"
    if moment.second or moment.microsecond:
        clock = f"{moment:%H:%M:%S}"
    if moment.microsecond:
        clock = f"{moment:%H:%M:%S.%f}".rstrip("0")
    return day + clock


def _span_literal(span: timedelta) -> str:
    for name, size in (("hours", 3600), ("minutes", 60), ("seconds", 1)):
        number, rest = divmod(span_us(span), size * SECOND_US)
        if not rest and (number or name == "seconds"):
            return f"{name}({number})"
    return f"seconds({span.total_seconds()!r})"
