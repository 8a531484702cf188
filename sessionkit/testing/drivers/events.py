"""An event of a test as a row of the source: its columns come from event, key and time."""

from collections.abc import Mapping
from typing import Any

import attrs

from sessionkit.errors import ScriptError, with_hint
from sessionkit.spec.functions import wrong_class
from sessionkit.spec.shared import AnySpec
from sessionkit.state import codec_of
from sessionkit.testing.drivers.frames import Row

__all__ = ["event_row"]


def event_row(
    spec: AnySpec,
    key: Any,
    event_time: Any,
    event: Any,
    passthrough: Mapping[str, Any],
) -> Row:
    """
    Return an event as a row, by column name.

    Args:
        spec: The spec whose columns are read.
        key: The value of the key column; a tuple of values if there are several columns.
        event_time: When it happened; `attrs.NOTHING` where the event says so.
        event: The event.
        passthrough: The values of the passthrough columns.

    Raises:
        ScriptError: The event has another class, the key the wrong number of values, no event time
            is given, or a column is given two values.
    """
    _check_class(spec, event)
    name = spec.event_time
    fields = codec_of(spec.event).type.fields
    row = {field.name: getattr(event, field.name) for field in fields}
    _add(row, _key_columns(spec, key), event, "in the key")
    if name is not None and event_time is not attrs.NOTHING:
        _add(row, {name: event_time}, event, "as the event time")
    _add(row, passthrough, event, "in the passthrough columns")
    if name not in {None, *row}:
        found = f"no event time is given, and {spec.event.__name__} has no field `{name}`"
        raise ScriptError(
            with_hint(found, 'pass it before the event: add(key, at("10:00"), event)')
        )
    return row


def _check_class(spec: AnySpec, event: Any) -> None:
    if not isinstance(event, spec.event):
        hint = "use add_row for a row with nulls"
        raise ScriptError(wrong_class("the event must be a", spec.event, event, hint))


def _key_columns(spec: AnySpec, key: Any) -> Row:
    values = key if isinstance(key, tuple) else (key,)
    if len(values) != len(spec.keys):
        found = f"the key must have one value for each of {list(spec.keys)}, found {key!r}"
        hint = "pass the value, or a tuple of values if there are several columns"
        raise ScriptError(with_hint(found, hint))
    return dict(zip(spec.keys, values, strict=True))


def _add(row: Row, columns: Mapping[str, Any], event: Any, where: str) -> None:
    """Add columns to a row; one that is there already must have the same value."""
    for name, value in columns.items():
        if row.setdefault(name, value) != value:
            found = f"`{name}` is {row[name]} in the {type(event).__name__}, and {value} {where}"
            raise ScriptError(with_hint(found, "give both the same value"))
