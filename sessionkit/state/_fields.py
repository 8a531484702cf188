"""
Read the classes of events, states and rows: attrs classes, and dataclasses as if they were.

Their fields become typed ones. Ambiguous annotations are refused, never guessed.
"""

import dataclasses
import types
from collections import Counter
from collections.abc import Callable, Hashable
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from typing import (
    Annotated,
    Any,
    Final,
    TypeAlias,
    TypeGuard,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs

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

Attributes: TypeAlias = tuple["attrs.Attribute[Any]", ...]
_FROZEN_SETATTR: Final = attrs.make_class("_Frozen", [], frozen=True).__setattr__
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


# -- classes --


def is_record(value: object) -> TypeGuard[type[Any]]:
    """Return whether a value is an attrs class or a dataclass."""
    return isinstance(value, type) and (attrs.has(value) or dataclasses.is_dataclass(value))


def is_frozen(cls: type[Any]) -> bool:
    """Return whether the objects of a class can't be changed in place."""
    if dataclasses.is_dataclass(cls):
        return bool(cls.__dataclass_params__.frozen)  # type: ignore[attr-defined]  # not in its stub
    return cls.__setattr__ is _FROZEN_SETATTR


def attributes_of(cls: Any) -> Attributes:
    """Return the fields of a class with their types; those of a dataclass as attrs has them."""
    if attrs.has(cls):
        attrs.resolve_types(cls, include_extras=True)
        return cast("Attributes", attrs.fields(cls))
    return _of_dataclass(cls)


@lru_cache(maxsize=256)
def _of_dataclass(cls: Any) -> Attributes:
    hints = get_type_hints(cls, include_extras=True)
    made = {
        one.name: attrs.field(
            default=_dataclass_default(one),
            init=one.init,
            repr=one.repr,
            eq=one.compare,
            kw_only=bool(one.kw_only),
            type=hints[one.name],
            alias=one.name,
        )
        for one in dataclasses.fields(cls)
    }
    return cast("Attributes", attrs.fields(attrs.make_class(cls.__name__, made)))


def _dataclass_default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return attrs.Factory(field.default_factory)
    return attrs.NOTHING if field.default is dataclasses.MISSING else field.default


# -- fields --


@attrs.frozen
class _Place:
    """Where an annotation is: its path, the classes around it, and what is refused so far."""

    path: str
    above: tuple[type, ...] = ()
    problems: list[str] = attrs.field(factory=list)  # one line for each field

    def refuse(self, annotation: Any, hint: str) -> FieldType:
        self.problems.append(f"`{self.path}`: {_spelled(annotation)} can't be stored; {hint}")
        return SCALARS[int]

    def inside(self, part: str, *classes: type) -> "_Place":
        return _Place(self.path + part, (*self.above, *classes), self.problems)


def fields_of(cls: type[Any]) -> AttrsType:
    """Read the fields of an attrs class, once; a `FieldTypeError` names all that have no type."""
    if not isinstance(cls, type):
        found = f"{cls!r} ({type(cls).__name__}) isn't a class"
        raise FieldTypeError(with_hint(found, "pass an attrs class"))
    return _compiled(cast("Hashable", cls))


@lru_cache(maxsize=256)
def _compiled(cls: Hashable) -> AttrsType:
    place = _Place(_spelled(cls))
    found = _attrs_type(cls, place)
    if place.problems:
        lines = "\n  ".join([f"`{place.path}` can't be stored:", *place.problems])
        raise FieldTypeError(with_hint(lines, KNOWN))
    return found


def field_type(annotation: Any, path: str) -> FieldType:
    """Read one annotation, such as that of a key column; a `FieldTypeError` says why not."""
    place = _Place(path)
    found = _read(annotation, place)
    if place.problems:
        raise FieldTypeError(with_hint("; ".join(place.problems), KNOWN))
    return found


def _attrs_type(cls: Any, place: _Place) -> AttrsType:
    attributes = _attributes(cls, place)
    former = {one.name: _former_names(one) for one in attributes}
    taken = Counter([*former, *(name for names in former.values() for name in {*(names or ())})])
    fields = []
    for attribute in attributes:
        at = place.inside(f".{attribute.name}", cls)
        if not attribute.init:
            at.refuse("a field with init=False", "make it an argument of __init__")
        elif attribute.type is None:
            at.refuse("a field without a type", "annotate it")
        else:
            kind, alias = _read(attribute.type, at), attribute.alias or attribute.name
            names = former[attribute.name]
            fields.append(Field(attribute.name, kind, alias, _default(attribute), names))
            for name in [name for name in names or () if taken[name] > 1][:1]:
                found = f"`{name}` is, or was, another field too"
                at.problems.append(f"`{at.path}`: {found}; a former name belongs to one field")
    return AttrsType(cls, tuple(fields), _builder(cls, attributes))


def _attributes(cls: Any, place: _Place) -> Attributes:
    if not is_record(cls):
        place.refuse(cls, "decorate the class with @attrs.define")
        return ()
    try:
        return attributes_of(cls)
    except NameError as error:
        hint = "define the class and the types of its fields at the top level of a module"
        place.refuse(f"the name {error.name!r} in its annotations", hint)
    except (SyntaxError, AttributeError, TypeError) as error:
        place.refuse(f"an annotation ({error})", "write the types without quotes")
    return ()


def _default(attribute: "attrs.Attribute[Any]") -> Callable[[], Any] | None:
    """Return what makes the default of a field; None where it needs the other fields."""
    default: Any = attribute.default
    if isinstance(default, FACTORY):
        return None if default.takes_self else default.factory
    return None if default is attrs.NOTHING else partial(same, default)


def _former_names(attribute: "attrs.Attribute[Any]") -> tuple[str, ...] | None:
    """Return what a field was called before; None where nothing says so."""
    notes = get_args(attribute.type)[1:] if get_origin(attribute.type) is Annotated else ()
    said = [note.names for note in notes if isinstance(note, RenamedFrom)]
    return tuple(name for names in said for name in names) if said else None


def _builder(cls: type[Any], attributes: Attributes) -> Callable[..., Any]:
    """Return a function that builds an object from the values of its fields, in order."""
    if not any(attribute.kw_only for attribute in attributes):
        return cls
    names = [attribute.alias or attribute.name for attribute in attributes]
    return lambda *values: cls(**dict(zip(names, values, strict=True)))


def _read(annotation: Any, place: _Place) -> FieldType:
    if not isinstance(annotation, Hashable):
        return place.refuse(repr(annotation), "annotate it with a type, not with a value")
    if annotation in SCALARS:
        return SCALARS[annotation]
    if hasattr(annotation, "__value__"):  # an alias made with `type X = ...`
        return _read(annotation.__value__, place)
    origin, inside = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and origin is None:
        return _class(annotation, place)
    if origin is Annotated:
        return _annotated(*inside, place=place)
    if origin in {Union, types.UnionType}:
        return _optional(annotation, place)
    if origin in {list, dict, tuple} and (inside or annotation == tuple[()]):
        return _collection(origin, inside, place)
    return place.refuse(annotation, HINTS.get(origin or annotation, KNOWN))


def _class(cls: type[Any], place: _Place) -> FieldType:
    if issubclass(cls, Enum):
        return _enum(cls, place)
    if not is_record(cls):
        return place.refuse(cls, HINTS.get(cls, KNOWN))
    if cls in place.above:
        return place.refuse(cls, "a class cannot contain itself")
    return _attrs_type(cls, place)


def _annotated(inner: Any, *notes: Any, place: _Place) -> FieldType:
    digits = [note for note in notes if isinstance(note, DecimalType)]
    if inner is not Decimal or not digits:
        return _read(inner, place)
    if not 0 <= digits[0].scale <= digits[0].precision <= DecimalType().precision:
        hint = "precision is at most 38, and scale at most the precision"
        return place.refuse(digits[0], hint)
    return digits[0]


def _optional(annotation: Any, place: _Place) -> FieldType:
    others = [part for part in get_args(annotation) if part is not type(None)]
    if len(others) != 1 or len(others) == len(get_args(annotation)):
        hint = "a union other than with None is ambiguous: use one type, or an attrs class"
        return place.refuse(annotation, hint)
    return OptionalType(_read(others[0], place))


def _collection(origin: Any, inside: tuple[Any, ...], place: _Place) -> FieldType:
    if origin is list or (origin is tuple and inside[1:] == (Ellipsis,)):
        return ListType(_read(inside[0], place.inside("[]")), origin)
    if origin is tuple and not inside:
        return place.refuse(tuple[()], "an empty tuple holds nothing: remove it")
    if origin is tuple:
        read = (_read(part, place.inside(f"[{n}]")) for n, part in enumerate(inside))
        return TupleType(tuple(read))
    at = place.inside(" key")
    key = _read(inside[0], at)
    if key.facts is None or isinstance(key, FloatType):
        at.refuse(inside[0], "use a key that is equal to itself, such as str")
    return DictType(key, _read(inside[1], place.inside("[]")))


def _enum(cls: type[Enum], place: _Place) -> FieldType:
    values = [member.value for member in cls]
    if values and all(type(value) is str for value in values):
        return EnumType(cls, StrType())
    if values and all(type(value) is int and INT64[0] <= value <= INT64[1] for value in values):
        return EnumType(cls, IntType())
    return place.refuse(cls, "give every member a str value, or every member a 64-bit int")


def _spelled(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
