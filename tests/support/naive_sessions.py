"""A sessioniser that anyone can check by eye: sort the events of a key, and scan them once."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple


class Event(NamedTuple):
    """One event of a timeline; `gap` is its own where the spec reads it from the event."""

    key: str
    at: datetime
    value: int
    gap: timedelta


class Found(NamedTuple):
    """One session: its bounds, the end exclusive, and its values in time order."""

    key: str
    start: datetime
    end: datetime
    values: tuple[int, ...]


def naive_sessions(events: Iterable[Event], *, gap_inclusive: bool = True) -> list[Found]:
    """Return the sessions of a timeline, every event on time, in order of key and start."""
    found: list[Found] = []
    for event in sorted(events, key=lambda e: (e.key, e.at, e.value, e.gap)):
        end = event.at + event.gap
        last = found[-1] if found and found[-1].key == event.key else None
        joins = last is not None and (
            event.at < last.end or (gap_inclusive and event.at == last.end)
        )
        if last is not None and joins:
            found[-1] = last._replace(end=max(last.end, end), values=(*last.values, event.value))
        else:
            found.append(Found(event.key, event.at, end, (event.value,)))
    return found
