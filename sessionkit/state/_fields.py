"""Read the fields of events, states and rows from attrs classes and dataclasses."""

import dataclasses
import inspect
import types
from collections.abc import Callable, Hashable, Sequence
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from types import NoneType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    TypeGuard,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs

from sessionkit._arguments import POSITIONAL, REST
from sessionkit.errors import SpecError
from sessionkit.state._collections import (
    AttrsType,
    DictType,
    Field,
    ListType,
    OptionalType,
    RenamedFrom,
    TupleType,
)
from sessionkit.state._declared import FOREIGN, check_declared
from sessionkit.state._derived import EnumType, LiteralType, SecondsType, choice_of
from sessionkit.state._scalars import SCALARS, DecimalType, FloatType
from sessionkit.state._types import FieldType, same

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
    f"use {', '.join(scalar.__name__ for scalar in SCALARS)}, an Enum, "
    "Literal, Optional, "
    "list, dict, tuple, or an attrs class of these"
)
INSTEAD: Final = "pass an attrs class or a dataclass, whose fields name the columns"
FACTORY: Final[Any] = attrs.Factory  # its stub declares the class as a function


def is_record(value: object) -> TypeGuard[type[Any]]:
    """Return whether a value is an attrs class or a dataclass."""
    return isinstance(value, type) and (attrs.has(value) or dataclasses.is_dataclass(value))


def not_a_record(cls: type[Any], *, instead: str) -> tuple[str, str]:
    """
    Return why a class can't be the class of events, states or rows, and what to write.

    For a class of Python or of a package, which nobody can decorate, that is `instead`.
    """
    if cls.__module__.partition(".")[0] in FOREIGN:
        return f"{cls.__name__}, which has no fields", instead
    names = [base.__name__ for base in cls.__bases__ if base is not object]
    # attrs can decorate neither of these two, nor what Pydantic makes.
    bases = [{"tuple": "NamedTuple", "dict": "TypedDict"}.get(name, name) for name in names]
    hint = f"write `@attrs.define` above `class {cls.__name__}:`"
    if issubclass(cls, tuple | dict) or hasattr(cls, "model_fields"):
        hint += f", without {' and '.join(bases) or 'its base'}; its fields stay as they are"
    return f"{cls.__name__}, which is neither an attrs class nor a dataclass", hint


def is_frozen(cls: type[Any]) -> bool:
    if dataclasses.is_dataclass(cls):
        return bool(cls.__dataclass_params__.frozen)  # type: ignore[attr-defined]  # not in its stub
    return cls.__setattr__ is _FROZEN_SETATTR


def attributes_of(cls: Any) -> Attributes:
    """Return the fields of a class with resolved types; a dataclass's fields as attrs fields."""
    if not attrs.has(cls):
        return _of_dataclass(cls)
    attrs.resolve_types(cls, include_extras=True)
    return cast("Attributes", attrs.fields(cls))


@lru_cache(maxsize=256)
def _of_dataclass(cls: Any) -> Attributes:
    hints, fields = get_type_hints(cls, include_extras=True), {}
    for field in dataclasses.fields(cls):
        default: Any = attrs.NOTHING if field.default is dataclasses.MISSING else field.default
        if field.default_factory is not dataclasses.MISSING:
            default = attrs.Factory(field.default_factory)
        fields[field.name] = attrs.field(
            default=default,
            init=field.init,
            repr=field.repr,
            eq=field.compare,
            kw_only=bool(field.kw_only),
            type=hints[field.name],
            alias=field.name,
        )
    return cast("Attributes", attrs.fields(attrs.make_class(cls.__name__, fields)))


@attrs.frozen
class _Place:
    """The location of an annotation: its path, the enclosing classes, and the problems so far."""

    path: str
    above: tuple[type, ...] = ()
    problems: list[str] = attrs.field(factory=list)  # one line for each field

    def refuse(self, annotation: Any, hint: str) -> FieldType:
        spelled = annotation.__name__ if isinstance(annotation, type) else annotation
        self.problems.append(f"`{self.path}`: {spelled} can't be stored; {hint}")
        return SCALARS[int]

    def inside(self, part: str) -> "_Place":
        return _Place(self.path + part, self.above, self.problems)


def check_class(cls: object) -> None:
    """Check that a value is the class of events, states or rows."""
    if not isinstance(cls, type):
        hint = INSTEAD
        if isinstance(cls, dict):
            hint = "declare an attrs class or a dataclass with these fields, and pass that"
        raise SpecError(f"{cls!r} ({type(cls).__name__}) isn't a class", hint)
    if not is_record(cls):
        found, hint = not_a_record(cls, instead=INSTEAD)
        raise SpecError(f"events, states and rows have a class of fields, found {found}", hint)


def fields_of(cls: type[Any]) -> AttrsType:
    """Read the fields of a class; a `SpecError` names all that can't be stored."""
    check_class(cls)
    place = _Place(cls.__name__)
    kind = _attrs_type(cls, place)
    if place.problems:
        lines = "\n  ".join([f"`{place.path}` can't be stored:", *place.problems])
        raise SpecError(lines, KNOWN)
    return kind


def field_type(annotation: Any, path: str) -> FieldType:
    """Read a single annotation, such as a key column's; a `SpecError` says why it can't be used."""
    place = _Place(path)
    kind = _read(annotation, place)
    if len(place.problems) > 1:
        raise SpecError("; ".join(place.problems), KNOWN)
    for problem in place.problems:
        found, _, hint = problem.partition("; ")
        raise SpecError(found, hint)
    return kind


def _attributes(cls: Any, place: _Place) -> Attributes:
    try:
        attributes = attributes_of(cls)
    except NameError as error:
        hint = "define the class and the types of its fields at the top level of a module"
        place.refuse(f"the name {error.name!r} in its annotations", hint)
    except (SyntaxError, AttributeError, TypeError) as error:
        place.refuse(f"an annotation ({error})", "write the types without quotes")
    else:
        check_declared(cls, [attribute.name for attribute in attributes])
        return attributes
    return ()


def _attrs_type(cls: Any, place: _Place) -> AttrsType:
    fields, names = [], []
    for attribute in _attributes(cls, place):
        at = _Place(f"{place.path}.{attribute.name}", (*place.above, cls), place.problems)
        former: tuple[str, ...] | None = None
        if get_origin(attribute.type) is Annotated:
            notes = [note for note in get_args(attribute.type) if isinstance(note, RenamedFrom)]
            former = tuple(name for note in notes for name in note.names) if notes else None
        names += [attribute.name, *{*(former or ())}]
        if not attribute.init:
            at.refuse("a field with init=False", "make it an argument of __init__")
            continue
        if attribute.type is None:
            at.refuse("a field without a type", "annotate it")
            continue
        default: Any = attribute.default
        make: Callable[[], Any] | None = None
        if isinstance(default, FACTORY):
            # A missing field is read without the object that such a factory takes.
            make = None if default.takes_self else default.factory
        elif default is not attrs.NOTHING:
            make = partial(same, default)
        kind, alias = _read(attribute.type, at), attribute.alias or attribute.name
        fields.append(Field(attribute.name, kind, alias, make, former))
    for field in fields:
        if field.former and max(map(names.count, field.former)) > 1:
            name = max(field.former, key=names.count)
            found = f"`{place.path}.{field.name}`: `{name}` is, or was, another field too"
            place.problems.append(f"{found}; a former name belongs to one field")
    names = [field.alias for field in fields]
    is_named = not place.problems and _takes(cls, names, place) != names
    build = partial(_built, cls, names) if is_named else cls
    return AttrsType(cls, tuple(fields), build)


def _takes(cls: type[Any], names: Sequence[str], place: _Place) -> list[str]:
    """Return the first arguments of a class by position; refuse those that aren't its fields."""
    arguments = inspect.signature(cls).parameters
    rest = {argument.kind for argument in arguments.values()}.intersection(REST)
    for name, argument in arguments.items():
        if name in names or argument.kind in REST:
            continue
        # A dataclass lists an InitVar here; with a default, objects are made without it.
        is_known = name in getattr(cls, "__dataclass_fields__", ())
        if not is_known or argument.default is argument.empty:
            hint = "make it a field, or leave it out: objects are made of their fields alone"
            place.refuse(f"the argument `{name}` of __init__", hint)
    for name in names:
        if name not in arguments and not rest:
            place.refuse(f"a class whose __init__ doesn't take `{name}`", "add the argument")
    by_position = [name for name, argument in arguments.items() if argument.kind in POSITIONAL]
    if inspect.Parameter.VAR_POSITIONAL in rest and names[: len(by_position)] == by_position:
        return [*names]
    return by_position[: len(names)]


def _built(cls: type[Any], names: Sequence[str], *values: Any) -> Any:
    return cls(**dict(zip(names, values, strict=True)))


def _read(annotation: Any, place: _Place) -> FieldType:
    if not isinstance(annotation, Hashable):
        return place.refuse(repr(annotation), "annotate it with a type, not with a value")
    if isinstance(annotation, str):
        return place.refuse(f"the text {annotation!r}", "write the type itself, such as str")
    if annotation in SCALARS:
        return SCALARS[annotation]
    # An alias, `type X = ...`, has the first; a NewType has the second.
    for attribute in ("__value__", "__supertype__"):
        if hasattr(annotation, attribute):
            return _read(getattr(annotation, attribute), place)
    origin, inside = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and origin is None:
        return _class(annotation, place)
    return _with_parts(annotation, origin, inside, place)


def _with_parts(annotation: Any, origin: Any, inside: tuple[Any, ...], place: _Place) -> FieldType:
    if origin is Annotated:
        return _annotated(*inside, place=place)
    if origin is Literal:
        if (base := choice_of(inside)) is not None:
            return LiteralType(annotation, inside, base)
        hint = "name str values only, or 64-bit ints only; write `| None` after it for None"
        return place.refuse(annotation, hint)
    if origin in {Union, types.UnionType}:
        not_none = [part for part in inside if part is not NoneType]
        if len(not_none) != 1 or len(not_none) == len(inside):
            hint = "a union other than with None is ambiguous: use one type, or an attrs class"
            return place.refuse(annotation, hint)
        return OptionalType(_read(not_none[0], place))
    if origin in {list, dict, tuple} and (inside or annotation == tuple[()]):
        return _collection(origin, inside, place)
    return place.refuse(annotation, HINTS.get(origin or annotation, KNOWN))


def _class(cls: type[Any], place: _Place) -> FieldType:
    if issubclass(cls, Enum):
        if (base := choice_of([member.value for member in cls])) is not None:
            return EnumType(cls, base)
        return place.refuse(cls, "give every member a str value, or every member a 64-bit int")
    if not is_record(cls):
        return place.refuse(cls, not_a_record(cls, instead=HINTS.get(cls, KNOWN))[1])
    if cls in place.above:
        return place.refuse(cls, "a class cannot contain itself")
    return _attrs_type(cls, place)


def _annotated(inner: Any, *notes: Any, place: _Place) -> FieldType:
    if inner is timedelta and "seconds" in notes:
        return SecondsType()
    digits = [note for note in notes if isinstance(note, DecimalType)]
    if inner is not Decimal or not digits:
        return _read(inner, place)
    precision, scale = digits[0].precision, digits[0].scale
    are_whole = type(precision) is int and type(scale) is int
    if not (are_whole and 0 < precision <= DecimalType().precision and 0 <= scale <= precision):
        hint = "precision is a whole number from 1 to 38, and scale from 0 to the precision"
        return place.refuse(digits[0], hint)
    return digits[0]


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
