"""Conditions on events: expressions of Arrow, checked against the event class and computed."""

import re
from collections.abc import Callable, Collection
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from sessionkit._arrays import whole
from sessionkit.errors import SpecError, with_hint
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import inner_type
from sessionkit.state._scalars import BoolType
from sessionkit.state._types import FieldType

Condition: TypeAlias = str | pc.Expression
"""
The name of a bool field of the event class, or a pyarrow expression over its fields.

`"is_view"`, or `pc.field("kind") == "view"`. Arrow computes it for all events of a micro-batch at
once. Where it is null, the event isn't chosen. A spec raises a `SpecError` for a field that the
event class doesn't have, and for an expression that isn't a bool.
"""

UNKNOWN: Final = re.compile(r"No match for FieldRef\.Name\((.*?)\)")


def evaluated(table: pa.Table, conditions: Collection[Condition]) -> list[pa.Array]:
    """Return the values of conditions for the rows of a table."""
    if not conditions:
        return []
    expressions = [pc.field(one) if isinstance(one, str) else one for one in conditions]
    names = [str(place) for place in range(len(expressions))]
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("project", acero.ProjectNodeOptions(expressions, names)),
    ]
    columns = acero.Declaration.from_sequence(steps).to_table(use_threads=False).columns
    return list(map(whole, columns))


def type_in(event: type[Any], name: str, found: str) -> FieldType:
    """Return the type of a field of the event class; `found` is the error where it has none."""
    types = {field.name: field.type for field in codec_of(event).type.fields}
    if name not in types:
        near = get_close_matches(name, types, n=1)
        hint = f"write `{near[0]}`" if near else f"it has {', '.join(types) or 'none'}"
        raise SpecError(with_hint(found, hint))
    return types[name]


def fields_of_condition(condition: Condition, type_of: Callable[[str], pa.DataType]) -> list[str]:
    """Return the names of the fields that a condition reads; each is asked for its type."""
    if isinstance(condition, str):
        type_of(condition)
        return [condition]
    read: dict[str, pa.DataType] = {}
    while True:
        # Arrow doesn't list the fields of an expression; it names the first that a table lacks.
        try:
            evaluated(pa.schema(read).empty_table(), [condition])
        except pa.ArrowException as error:
            unknown = UNKNOWN.search(str(error))
            if unknown is None or unknown[1] in read:
                return list(read)
            read[unknown[1]] = type_of(unknown[1])
        else:
            return list(read)


def check_condition(event: type[Any], what: str, condition: Condition | None) -> None:
    """Check that a condition is over fields of the event, and is true or false."""
    if isinstance(condition, str):
        found = f"{what} is {condition!r}, and {event.__name__} has no field `{condition}`"
        if not isinstance(inner_type(type_in(event, condition, found)), BoolType):
            found = f"{what} is {condition!r}, and `{event.__name__}.{condition}` is not a bool"
            raise SpecError(with_hint(found, f'compare it: pc.field("{condition}") == ...'))
        return
    schema = codec_of(event).schema
    try:
        (column,) = evaluated(schema.empty_table(), [condition])
    except (pa.ArrowException, TypeError, ValueError) as error:
        unknown = UNKNOWN.search(str(error))
        if unknown:
            found = f"{what} is {condition}, and {event.__name__} has no field `{unknown[1]}`"
            type_in(event, unknown[1], found)
        found = f"{what} is {condition}, which does not fit the fields of {event.__name__}: {error}"
        hint = "compare a field with a value of its type"
        raise SpecError(with_hint(found, hint)) from error
    if not pa.types.is_boolean(column.type):
        found = f"{what} is {condition}, which is {column.type}, neither true nor false"
        raise SpecError(with_hint(found, 'compare it, such as pc.field("kind") == "buy"'))
