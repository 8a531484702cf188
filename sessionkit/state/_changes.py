"""
How a stored column becomes that of a field, where its class has changed since.

A field that is new reads as its default; one that is gone is dropped; one with a new name says what
it was called (`RenamedFrom`). An int may become a float, a type may become Optional, a Decimal may
get more digits, and an Enum may get more members; so may what is inside of lists, tuples, dicts and
classes. Nothing else is guessed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa

from sessionkit.errors import StateMismatchError, with_hint
from sessionkit.state._codec import MISFITS, encode_column
from sessionkit.state._collections import AttrsType, Field
from sessionkit.state._types import Convert, FieldType, Form, same

BY_HAND: Final = (
    "undo the change, or, for a state, say with `upgrade=` what becomes of a stored value"
)


@attrs.frozen
class Differences:
    """What a comparison of a class with stored values has found."""

    # A line for each field that no rule covers.
    problems: list[str] = attrs.field(factory=list)
    # For each new field that may be one that is gone, a line, and what to write.
    renames: list[tuple[str, str]] = attrs.field(factory=list)
    # For each field, by its path, whether it was stored.
    stored: dict[str, bool] = attrs.field(factory=dict)


@attrs.frozen
class Change:
    """How the stored values of a class become those of one field; new ones have no source."""

    field: Field
    source: str | None
    convert: Convert | None

    @property
    def is_none(self) -> bool:
        """Whether the field is stored as it is."""
        return self.convert is None and self.source == self.field.name

    def column(self, stored: Mapping[str, pa.ChunkedArray], rows: int) -> pa.ChunkedArray:
        """Return the column of the field, of the stored ones by name."""
        name, kind = self.field.name, self.field.type
        if self.source is None:
            values = [self._default() for _ in range(rows)]
            return pa.chunked_array([encode_column(kind, values, name)])
        column = stored[self.source]
        if self.convert is None:
            return column
        try:
            values = list(map(_unless_null(self.convert), column.to_pylist()))
            return pa.chunked_array([pa.array(values, kind.arrow)])
        except MISFITS as misfit:
            found = f"a stored value of `{name}` doesn't fit its new type: {misfit}"
            raise StateMismatchError(with_hint(found, BY_HAND)) from misfit

    def value(self, stored: Mapping[str, Any]) -> Any:
        """Return the value of the field, of one object inside of another."""
        if self.source is None:
            return self.field.type.dump(self._default())
        found = stored[self.source]
        return found if self.convert is None else _unless_null(self.convert)(found)

    def _default(self) -> Any:
        return self.field.default() if self.field.default is not None else None


def changes_of(
    stored: Mapping[str, Form], fields: Sequence[Field], path: str, found: Differences
) -> list[Change]:
    """Return how values that were stored under some forms become those of each field."""
    changes = [_change(stored, field, f"{path}.{field.name}", found) for field in fields]
    taken = {change.source for change in changes}
    for change in changes:
        name, field = f"{path}.{change.field.name}", change.field
        found.stored[name] = change.source is not None
        if change.source is None and field.former is None and field.default is not None:
            gone = [old for old in stored if old not in taken and _fits(stored[old], field.type)]
            if gone:
                found.renames.append((_renamed(name, gone), _say_renamed(field.name, gone[0])))
    return changes


def _fits(stored: Form, kind: FieldType) -> bool:
    found = Differences()
    _conversion(stored, kind, "", found)
    return not (found.problems or found.renames) and all(found.stored.values())


def _renamed(path: str, gone: Sequence[str]) -> str:
    names, verb = ", ".join(f"`{name}`" for name in gone), "isn't" if len(gone) == 1 else "aren't"
    return f"`{path}` isn't in the checkpoint, and {names} {verb} in the class: was it renamed?"


def _say_renamed(name: str, old: str) -> str:
    return (
        f'write `{name}: Annotated[..., RenamedFrom("{old}")]` if it was `{old}`, and '
        "`RenamedFrom()` if it is new"
    )


def _change(stored: Mapping[str, Form], field: Field, path: str, found: Differences) -> Change:
    names = (field.name, *(field.former or ()))
    source = next((name for name in names if name in stored), None)
    if source is not None:
        return Change(field, source, _conversion(stored[source], field.type, path, found))
    if field.default is None:
        found.problems.append(f"`{path}` isn't in the checkpoint, and has no default")
        return Change(field, None, None)
    try:
        field.type.coerce(field.default(), path)
    except ValueError as error:
        line = f"`{path}` isn't in the checkpoint; its default: {error}".split("\n")[0]
        found.problems.append(line)
    return Change(field, None, None)


def _conversion(stored: Form, kind: FieldType, path: str, found: Differences) -> Convert | None:
    """Return what makes a value of a type from one of a stored form; None where nothing need."""
    if stored == kind.form:
        return None
    match stored:
        case ["class", fields] if isinstance(kind, AttrsType):
            return _of_class(changes_of(fields, kind.fields, path, found), fields)
    widening = kind.widening(stored)
    if widening is None:
        now, then = form_text(kind.form), form_text(stored)
        found.problems.append(f"`{path}` is {now} in the class, {then} in the checkpoint")
        return None
    parts = [_conversion(form, part, path + at, found) for at, form, part in widening.parts]
    if parts and not any(parts):
        return None
    return widening.made(*(_unless_null(convert or same) for convert in parts))


def _of_class(changes: Sequence[Change], stored: Mapping[str, Form]) -> Convert | None:
    if all(change.is_none for change in changes) and len(changes) == len(stored):
        return None
    return lambda value: {change.field.name: change.value(value) for change in changes}


def _unless_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def form_text(form: Form) -> str:
    """Return a form as its author would write the annotation."""
    match form:
        case ["optional", inner]:
            return f"{form_text(inner)} | None"
        case ["tuple", item]:
            return f"tuple[{form_text(item)}, ...]"
        case ["items", *items]:
            return f"tuple[{', '.join(map(form_text, items))}]"
        case ["class", fields]:
            named = (f"{name}: {form_text(part)}" for name, part in sorted(fields.items()))
            return f"a class ({', '.join(named)})"
        case ["enum", base]:
            return f"an Enum of {form_text(base)}"
        case [name, *parts]:
            return f"{name}[{', '.join(map(form_text, parts))}]"
    return str(form)
