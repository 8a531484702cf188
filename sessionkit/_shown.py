"""How values are shown: as the calls that make them, and as tables in a notebook."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any, Final, TypeVar

import attrs
import pyarrow.compute as pc

from sessionkit._instants import duration_text

T = TypeVar("T")
FACTORY: Final[Any] = type(attrs.Factory(list))
MOST_ROWS: Final = 100
"""How many rows a table shows."""
MOST_CHARACTERS: Final = 100
"""How many characters of a value a table shows."""
NO_VALUES: Final[tuple[Any, ...]] = (None, (), {})


# -- calls --------------------------------------------------------------------------------------


def set_fields(value: Any) -> dict[str, Any]:
    """Return the shown fields of an attrs object that differ from their defaults, by argument."""
    shown = [field for field in attrs.fields(type(value)) if field.init and field.repr]
    values = [(field, getattr(value, field.name)) for field in shown]
    return {
        str(field.alias): found
        for field, found in values
        if not _are_equal(found, _default(field, value))
    }


def as_call(value: Any) -> str:
    """Return an attrs object as the call that makes it, without default arguments."""
    arguments = (f"{name}={_as_code(argument)}" for name, argument in set_fields(value).items())
    return f"{type(value).__name__}({', '.join(arguments)})"


def _are_equal(value: Any, default: Any) -> bool:
    """Return whether two values are equal; an expression is neither equal nor unequal to None."""
    return value is default or (type(value) is type(default) and value == default)


def _default(field: "attrs.Attribute[Any]", value: Any) -> Any:
    default: Any = field.default
    if not isinstance(default, FACTORY):
        return default
    return default.factory(value) if default.takes_self else default.factory()


def _as_code(value: Any) -> str:
    """Return an argument as code: a duration as text, a function or a class by its name."""
    function = getattr(value, "method", value)  # of a `finish` that is a method
    if isinstance(value, type) or inspect.isroutine(function):
        return str(function.__qualname__.rpartition("<locals>.")[2])
    if isinstance(value, timedelta):
        return repr(duration_text(value))
    if isinstance(value, pc.Expression):
        return str(value)
    if isinstance(value, Mapping):
        items = (f"{key!r}: {_as_code(item)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    return repr(value)


# -- tables -------------------------------------------------------------------------------------


class Listed(list[T]):
    """A list of objects with fields, which a notebook shows as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        if not (self and _names(self[0])):
            return None
        rows = [_cells(item) for item in self[:MOST_ROWS]]
        # A column without any value says nothing.
        names = [*dict.fromkeys(name for row in rows for name in row if row[name] not in NO_VALUES)]
        table = html_table(names, ([row.get(name) for name in names] for row in rows))
        more = len(self) - MOST_ROWS
        return table if more <= 0 else f"{table}<p>and {more:,} more</p>"


def html_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as a table in HTML; instants in UTC."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _cells(item: Any) -> dict[str, Any]:
    """Return the fields of an object by name, with each part of its key, state and result."""
    cells = dict[str, Any]()
    for name in _names(item):
        value = getattr(item, name)
        if hasattr(value, "_asdict"):
            cells |= value._asdict()
        elif parts := _names(value):
            cells |= {f"{name}.{part}": getattr(value, part) for part in parts}
        else:
            cells[name] = value
    return cells


def _names(value: Any) -> list[str]:
    """Return the names of the fields of an attrs object or a dataclass; none of other values."""
    cls = type(value)
    if attrs.has(cls):
        return [field.name for field in attrs.fields(cls)]
    return [field.name for field in fields(value)] if is_dataclass(cls) else []


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        text = f"{value.astimezone(UTC).replace(tzinfo=None)} UTC"
    else:
        text = "" if value is None else str(value)
    is_long = len(text) > MOST_CHARACTERS
    return f"<td>{escape(f'{text[:MOST_CHARACTERS]}…' if is_long else text)}</td>"
