"""Keys and instants as a test would write them: how pictures name them."""

from datetime import UTC, date, datetime
from typing import Any, Final

DEFAULT_DAY: Final = date(2026, 1, 1)


def plain_key(key: Any) -> Any:
    """Return the key as `add` takes it: the value of its only column, else a plain tuple."""
    if not isinstance(key, tuple):
        return key
    return key[0] if len(key) == 1 else tuple(key)


def literal(key: Any) -> str:
    """Return a key as a test would write it."""
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
