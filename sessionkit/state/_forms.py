"""
Declared types as JSON: what a payload says of the classes whose values it contains.

A form is a name, such as `"int"`, or a list of a name and its parts, such as `["list", "int"]`; the
part of a class is a dict of its fields. Stored state contains forms, so the form of a type never
changes between releases.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

from sessionkit.state._collections import (
    AttrsType,
    DictType,
    Field,
    ListType,
    OptionalType,
    TupleType,
)
from sessionkit.state._scalars import DecimalType, EnumType
from sessionkit.state._types import FieldType

__all__ = ["Form", "form_of", "form_text", "forms_of", "parts_of"]

Form: TypeAlias = Any


def form_of(kind: FieldType) -> Form:
    """Return the form of a type."""
    match kind:
        case OptionalType():
            return ["optional", form_of(kind.inner)]
        case ListType():
            return [kind.cls.__name__, form_of(kind.item)]
        case DictType():
            return ["dict", form_of(kind.key), form_of(kind.value)]
        case TupleType():
            return ["items", *map(form_of, kind.items)]
        case AttrsType():
            return ["class", forms_of(kind.fields)]
        case EnumType():
            return ["enum", form_of(kind.base)]
        case DecimalType():
            return ["decimal", kind.precision, kind.scale]
    return type(kind).__name__.removesuffix("Type").lower()


def forms_of(fields: Iterable[Field]) -> dict[str, Form]:
    """Return the forms of fields, by their names."""
    return {field.name: form_of(field.type) for field in fields}


def parts_of(form: Form, name: str) -> list[Form] | None:
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
