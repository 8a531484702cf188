"""Values as a test would write them: also how pictures name keys and instants."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from sessionkit._classes import attributes_of, is_record
from sessionkit._instants import span_us

DEFAULT_DAY: Final = date(2026, 1, 1)
SECOND_US: Final = 1_000_000


def plain_key(key: Any) -> Any:
    """Return the key as `add` takes it: the value of its only column, else a plain tuple."""
    if not isinstance(key, tuple):
        return key
    return key[0] if len(key) == 1 else tuple(key)


def literal(value: Any) -> str:
    """Return a value as a test would write it."""
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
    return _object_literal(value) if is_record(type(value)) else repr(value)


def _object_literal(value: Any) -> str:
    """Return an object with literals for its fields, unless its class has its own `repr`."""
    name = type(value).__qualname__.rpartition(">.")[2]

    def text(show: Callable[[Any], str]) -> str:
        shown = [field.name for field in attributes_of(type(value)) if field.repr]
        return f"{name}({', '.join(f'{field}={show(getattr(value, field))}' for field in shown)})"

    return text(literal) if text(repr) == repr(value) else repr(value)


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


def _span_literal(span: timedelta) -> str:
    for name, size in (("hours", 3600), ("minutes", 60), ("seconds", 1)):
        number, rest = divmod(span_us(span), size * SECOND_US)
        if not rest and (number or name == "seconds"):
            return f"{name}({number})"
    return f"seconds({span.total_seconds()!r})"
