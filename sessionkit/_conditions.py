"""Conditions on the fields of an event: checked, and evaluated by Arrow."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from sessionkit.aggregates import Condition
from sessionkit.errors import SpecError, with_hint
from sessionkit.state import BoolType, codec_of, inner_type

__all__ = ["check_condition", "condition_of", "evaluated", "nearest_field"]

UNKNOWN: Final = re.compile(r"No match for FieldRef\.Name\((.*?)\)")


def condition_of(condition: Condition) -> Any:
    """Return a condition as an expression."""
    return pc.field(condition) if isinstance(condition, str) else condition


def evaluated(table: pa.Table, expressions: Sequence[Any]) -> list[pa.ChunkedArray]:
    """Return what expressions come to for the rows of a table."""
    if not expressions:
        return []
    names = [str(place) for place in range(len(expressions))]
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("project", acero.ProjectNodeOptions(list(expressions), names)),
    ]
    found: list[pa.ChunkedArray] = (
        acero.Declaration.from_sequence(steps).to_table(use_threads=False).columns
    )
    return found


def nearest_field(event: type[Any], name: str) -> str:
    """Return the hint for a field that the event class doesn't have."""
    names = [field.name for field in codec_of(event).type.fields]
    near = get_close_matches(name, names, n=1)
    return f"write `{near[0]}`" if near else f"it has {', '.join(names) or 'none'}"


def check_condition(event: type[Any], what: str, condition: Condition | None) -> None:
    """
    Check that a condition is over fields of the event, and is true or false.

    Args:
        event: The event class.
        what: What the condition is for.
        condition: The condition.

    Raises:
        SpecError: It isn't.
    """
    if isinstance(condition, str):
        types = {field.name: inner_type(field.type) for field in codec_of(event).type.fields}
        if condition not in types:
            found = f"{what} is {condition!r}, and {event.__name__} has no field `{condition}`"
            raise SpecError(with_hint(found, nearest_field(event, condition)))
        if not isinstance(types[condition], BoolType):
            found = f"{what} is {condition!r}, and `{event.__name__}.{condition}` is not a bool"
            raise SpecError(with_hint(found, f'compare it: pc.field("{condition}") == ...'))
        return
    schema = codec_of(event).schema
    try:
        (column,) = evaluated(schema.empty_table(), [condition])
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SpecError(_unbound(event, f"{what} is {condition}", error)) from error
    if not pa.types.is_boolean(column.type):
        found = f"{what} is {condition}, which is {column.type}, neither true nor false"
        raise SpecError(with_hint(found, 'compare it, such as pc.field("kind") == "buy"'))


def _unbound(event: type[Any], what: str, error: Exception) -> str:
    unknown = UNKNOWN.search(str(error))
    if unknown:
        found = f"{what}, and {event.__name__} has no field `{unknown[1]}`"
        return with_hint(found, nearest_field(event, unknown[1]))
    found = f"{what}, which does not fit the fields of {event.__name__}: {error}"
    return with_hint(found, "compare a field with a value of its type")
