"""
How a stored column becomes that of a field, where its class has changed since.

A field that is new reads as its default; one that is gone is dropped; one with a new name says what
it was called (`RenamedFrom`). An int may become a float, a type may become Optional, a Decimal may
get more digits, and an Enum may get more members; so may what is inside of lists, tuples, dicts and
classes. Nothing else is guessed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa

from sessionkit.errors import StateMismatchError, with_hint
from sessionkit.state._codec import MISFITS, encode_column
from sessionkit.state._collections import (
    AttrsType,
    DictType,
    Field,
    ListType,
    OptionalType,
    TupleType,
)
from sessionkit.state._scalars import EXACT_FLOAT, DecimalType, FloatType
from sessionkit.state._types import FieldType, Form

Convert: TypeAlias = Callable[[Any], Any]
"""Turns a value as Arrow lists it into one of which Arrow makes the type of the field."""
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
    if isinstance(kind, OptionalType):
        (inner,) = _parts_of(stored, "optional") or [stored]
        return _conversion(inner, kind.inner, path, found)
    if isinstance(kind, FloatType) and stored == "int":
        return _exact
    if isinstance(kind, DecimalType) and _has_room(stored, kind):
        return _same
    inside = INSIDE.get(type(kind))
    parts = _parts_of(stored, str(kind.form[0])) if inside else None
    if inside is None or parts is None:
        found.problems.append(_unlike(stored, kind, path))
        return None
    return inside(parts, kind, path, found)


def _in_list(parts: list[Form], kind: Any, path: str, found: Differences) -> Convert | None:
    convert = _conversion(parts[0], kind.item, f"{path}[]", found)
    each = _unless_null(convert) if convert else None
    return each and (lambda items: [each(item) for item in items])


def _in_tuple(parts: list[Form], kind: Any, path: str, found: Differences) -> Convert | None:
    if len(parts) != len(kind.items):
        found.problems.append(_unlike(["items", *parts], kind, path))
        return None
    both = enumerate(zip(parts, kind.items, strict=True))
    items = [_conversion(part, item, f"{path}[{n}]", found) for n, (part, item) in both]
    each = {f"_{n}": _unless_null(convert or _same) for n, convert in enumerate(items)}
    return (lambda value: {n: do(value[n]) for n, do in each.items()}) if any(items) else None


def _in_dict(parts: list[Form], kind: Any, path: str, found: Differences) -> Convert | None:
    key = _conversion(parts[0], kind.key, f"{path} key", found)
    value = _conversion(parts[1], kind.value, f"{path}[]", found)
    of_key, of_value = key or _same, _unless_null(value or _same)
    return (key or value) and (lambda pairs: [(of_key(k), of_value(v)) for k, v in pairs])


def _in_class(parts: list[Form], kind: Any, path: str, found: Differences) -> Convert | None:
    changes = changes_of(parts[0], kind.fields, path, found)
    if all(change.is_none for change in changes) and len(changes) == len(parts[0]):
        return None
    return lambda value: {change.field.name: change.value(value) for change in changes}


INSIDE: Final[dict[type[Any], Callable[..., Convert | None]]] = {
    ListType: _in_list,
    TupleType: _in_tuple,
    DictType: _in_dict,
    AttrsType: _in_class,
}


def _unlike(stored: Form, kind: FieldType, path: str) -> str:
    now, then = form_text(kind.form), form_text(stored)
    return f"`{path}` is {now} in the class, {then} in the checkpoint"


def _has_room(stored: Form, kind: DecimalType) -> bool:
    """Return whether decimals of all digits of a stored form are decimals of a type."""
    precision, scale = _parts_of(stored, "decimal") or (kind.precision + 1, 0)
    return bool(kind.scale >= scale and kind.precision - kind.scale >= precision - scale)


def _unless_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _exact(value: int) -> float:
    if abs(value) > EXACT_FLOAT:
        found = f"{value} has no float that is equal to it"
        raise ValueError(found)
    return float(value)


def _parts_of(form: Form, name: str) -> list[Form] | None:
    """Return the parts of a form that has this name; None for another one."""
    return form[1:] if isinstance(form, list) and form[0] == name else None


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
