"""The classes of a spec with a row for each event: what is held of an event, and its row."""

from collections.abc import Collection, Hashable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, cast

import attrs

from sessionkit.state import codec_of

__all__ = ["HELD", "NUMBER", "event_row_class", "held_class"]

HELD: Final = "events"
"""The field of the state that holds the events of a session."""
NUMBER: Final = "number"
"""The field of a row that says which event of its session it is, from 1."""


@lru_cache(maxsize=256)
def held_class(event: type[Any], event_time: str) -> type[Any]:
    """Return the class of the state: the events of a session, each with its time."""
    each = _made("Event", _fields(event, event_time))
    return _made("Events", {HELD: attrs.field(type=list[each])})  # type: ignore[valid-type]


def event_row_class(event: type[Any], event_time: str, keys: Collection[str]) -> type[Any]:
    """Return the class of a row: the event with its number, without what the key says already."""
    return _event_row_class(cast("Hashable", event), event_time, frozenset(keys))


@lru_cache(maxsize=256)
def _event_row_class(event: Any, event_time: str, keys: frozenset[str]) -> type[Any]:
    fields = {NUMBER: attrs.field(type=int, kw_only=True), **_fields(event, event_time)}
    return _made("EventRow", {name: field for name, field in fields.items() if name not in keys})


def _fields(event: type[Any], event_time: str) -> dict[str, Any]:
    codec_of(event)  # resolves the annotations
    own = {
        field.name: attrs.field(type=field.type, default=field.default, kw_only=True)
        for field in attrs.fields(event)
    }
    at = attrs.field(type=datetime, kw_only=True)
    return own if event_time in own else {event_time: at, **own}


def _made(name: str, fields: Mapping[str, Any]) -> type[Any]:
    return attrs.make_class(name, dict(fields), frozen=True)
