"""Turn an attrs class into typed fields. Ambiguous annotations are refused, never guessed."""

import types
from collections.abc import Callable, Hashable
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from typing import Annotated, Any, Final, TypeAlias, Union, cast, get_args, get_origin

import attrs

from sessionkit._classes import attributes_of, is_record
from sessionkit.errors import FieldTypeError, with_hint
from sessionkit.state._collections import (
    AttrsType,
    DictType,
    Field,
    ListType,
    OptionalType,
    RenamedFrom,
    TupleType,
)
from sessionkit.state._scalars import SCALARS, DecimalType, EnumType, FloatType, IntType, StrType
from sessionkit.state._types import INT64, FieldType, same

HINTS: Final[dict[Any, str]] = {
    Any: "name the one type of the field",
    object: "name the one type of the field",
    list: "name the type of its items, such as list[str]",
    dict: "name the types of its keys and values, such as dict[str, int]",
    tuple: "name the types of its items, such as tuple[int, str] or tuple[int, ...]",
    set: "use list[...], which keeps an order",
    frozenset: "use tuple[..., ...], which keeps an order",
    complex: "use two floats",
    type(None): "a field that is always None holds nothing: remove it",
}
KNOWN: Final = (
    f"use {', '.join(scalar.__name__ for scalar in SCALARS)}, an Enum, Optional, "
    "list, dict, tuple, or an attrs class of these"
)
FACTORY: Final[Any] = attrs.Factory  # a class, which its stub declares as a function
Above: TypeAlias = tuple[type, ...]
TWO_NAMES: Final = "a former name belongs to one field"


class _Problems(list[str]):
    """The refused fields found so far, one line each."""

    def refuse(self, path: str, annotation: Any, hint: str) -> FieldType:
        self.append(f"`{path}`: {_spelled(annotation)} can't be stored; {hint}")
        return SCALARS[int]


def fields_of(cls: type[Any]) -> AttrsType:
    """Read the fields of an attrs class, once; a `FieldTypeError` names all that have no type."""
    if not isinstance(cls, type):
        found = f"{cls!r} ({type(cls).__name__}) isn't a class"
        raise FieldTypeError(with_hint(found, "pass an attrs class"))
    return _compiled(cast("Hashable", cls))


@lru_cache(maxsize=256)
def _compiled(cls: Hashable) -> AttrsType:
    problems = _Problems()
    found = _attrs_type(cls, _spelled(cls), problems, ())
    if problems:
        title = f"`{_spelled(cls)}` can't be stored:"
        raise FieldTypeError(with_hint("\n  ".join([title, *problems]), KNOWN))
    return found


def field_type(annotation: Any, path: str) -> FieldType:
    """Read one annotation, such as that of a key column; a `FieldTypeError` says why not."""
    problems = _Problems()
    found = _read(annotation, path, problems, ())
    if problems:
        raise FieldTypeError(with_hint("; ".join(problems), KNOWN))
    return found


def _attrs_type(cls: Any, path: str, problems: _Problems, above: Above) -> AttrsType:
    attributes = _attributes(cls, path, problems)
    fields = []
    for attribute in attributes:
        where = f"{path}.{attribute.name}"
        if not attribute.init:
            problems.refuse(where, "a field with init=False", "make it an argument of __init__")
        elif attribute.type is None:
            problems.refuse(where, "a field without a type", "annotate it")
        else:
            kind = _read(attribute.type, where, problems, (*above, cls))
            alias = attribute.alias or attribute.name
            names = (attribute.name, _former(attribute, attributes, where, problems))
            fields.append(Field(names[0], kind, alias, _default(attribute), names[1]))
    return AttrsType(cls, tuple(fields), _builder(cls, attributes))


def _attributes(cls: Any, path: str, problems: _Problems) -> tuple["attrs.Attribute[Any]", ...]:
    if not is_record(cls):
        problems.refuse(path, cls, "decorate the class with @attrs.define")
        return ()
    try:
        return attributes_of(cls)
    except NameError as error:
        hint = "define the class and the types of its fields at the top level of a module"
        problems.refuse(path, f"the name {error.name!r} in its annotations", hint)
        return ()
    except (SyntaxError, AttributeError, TypeError) as error:
        problems.refuse(path, f"an annotation ({error})", "write the types without quotes")
        return ()


def _default(attribute: "attrs.Attribute[Any]") -> Callable[[], Any] | None:
    """Return what makes the default of a field; None where it needs the other fields."""
    default: Any = attribute.default
    if isinstance(default, FACTORY):
        return None if default.takes_self else default.factory
    return None if default is attrs.NOTHING else partial(same, default)


def _former(
    attribute: "attrs.Attribute[Any]",
    attributes: tuple["attrs.Attribute[Any]", ...],
    path: str,
    problems: _Problems,
) -> tuple[str, ...] | None:
    """Return what a field was called before; None where nothing says so."""
    former = _former_names(attribute)
    others = [_former_names(other) or () for other in attributes if other is not attribute]
    taken = {*(name for names in others for name in names), *(one.name for one in attributes)}
    doubled = [name for name in former or () if name in taken]
    if doubled:
        problems.append(f"`{path}`: `{doubled[0]}` is, or was, another field too; {TWO_NAMES}")
    return former


def _former_names(attribute: "attrs.Attribute[Any]") -> tuple[str, ...] | None:
    notes = get_args(attribute.type)[1:] if get_origin(attribute.type) is Annotated else ()
    said = [note.names for note in notes if isinstance(note, RenamedFrom)]
    return tuple(name for names in said for name in names) if said else None


def _builder(cls: type[Any], attributes: tuple["attrs.Attribute[Any]", ...]) -> Callable[..., Any]:
    """Return a function that builds an object from the values of its fields, in order."""
    if not any(attribute.kw_only for attribute in attributes):
        return cls
    names = [attribute.alias or attribute.name for attribute in attributes]
    return lambda *values: cls(**dict(zip(names, values, strict=True)))


def _read(annotation: Any, path: str, problems: _Problems, above: Above) -> FieldType:
    if not isinstance(annotation, Hashable):
        return problems.refuse(path, repr(annotation), "annotate it with a type, not with a value")
    if annotation in SCALARS:
        return SCALARS[annotation]
    if hasattr(annotation, "__value__"):  # an alias made with `type X = ...`
        return _read(annotation.__value__, path, problems, above)
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return _class(annotation, path, problems, above)
    return _generic(annotation, path, problems, above)


def _class(cls: type[Any], path: str, problems: _Problems, above: Above) -> FieldType:
    if issubclass(cls, Enum):
        return _enum(cls, path, problems)
    if not is_record(cls):
        return problems.refuse(path, cls, HINTS.get(cls, KNOWN))
    if cls in above:
        return problems.refuse(path, cls, "a class cannot contain itself")
    return _attrs_type(cls, path, problems, above)


def _generic(annotation: Any, path: str, problems: _Problems, above: Above) -> FieldType:
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _annotated(annotation, path, problems, above)
    if origin in {Union, types.UnionType}:
        return _optional(annotation, path, problems, above)
    if origin in {list, dict, tuple} and (inside or annotation == tuple[()]):
        return _collection(origin, inside, path, problems, above)
    return problems.refuse(path, annotation, HINTS.get(origin or annotation, KNOWN))


def _annotated(annotation: Any, path: str, problems: _Problems, above: Above) -> FieldType:
    inner, *notes = get_args(annotation)
    digits = [note for note in notes if isinstance(note, DecimalType)]
    if inner is Decimal and digits:
        if not 0 <= digits[0].scale <= digits[0].precision <= DecimalType().precision:
            hint = "precision is at most 38, and scale at most the precision"
            return problems.refuse(path, digits[0], hint)
        return digits[0]
    return _read(inner, path, problems, above)


def _optional(annotation: Any, path: str, problems: _Problems, above: Above) -> FieldType:
    others = [part for part in get_args(annotation) if part is not type(None)]
    if len(others) != 1 or len(others) == len(get_args(annotation)):
        hint = "a union other than with None is ambiguous: use one type, or an attrs class"
        return problems.refuse(path, annotation, hint)
    return OptionalType(_read(others[0], path, problems, above))


def _collection(
    origin: Any, inside: tuple[Any, ...], path: str, problems: _Problems, above: Above
) -> FieldType:
    if origin is list:
        return ListType(_read(inside[0], f"{path}[]", problems, above))
    if origin is tuple and inside[1:] == (Ellipsis,):
        return ListType(_read(inside[0], f"{path}[]", problems, above), tuple)
    if origin is tuple and not inside:
        return problems.refuse(path, tuple[()], "an empty tuple holds nothing: remove it")
    if origin is tuple:
        read = (_read(part, f"{path}[{n}]", problems, above) for n, part in enumerate(inside))
        return TupleType(tuple(read))
    key = _read(inside[0], f"{path} key", problems, above)
    if key.facts is None or isinstance(key, FloatType):
        problems.refuse(f"{path} key", inside[0], "use a key that is equal to itself, such as str")
    return DictType(key, _read(inside[1], f"{path}[]", problems, above))


def _enum(cls: type[Enum], path: str, problems: _Problems) -> FieldType:
    values = [member.value for member in cls]
    if values and all(type(value) is str for value in values):
        return EnumType(cls, StrType())
    if values and all(type(value) is int and INT64[0] <= value <= INT64[1] for value in values):
        return EnumType(cls, IntType())
    return problems.refuse(path, cls, "give every member a str value, or every member a 64-bit int")


def _spelled(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
