"""
The signatures of user functions: read once, and checked.

Annotations that are text are resolved in the scope of the function, or stay text. Builtins without
a signature pass every check.
"""

import functools
import inspect
import typing
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from types import FunctionType, NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

import attrs

from sessionkit._arguments import POSITIONAL
from sessionkit.errors import SpecError
from sessionkit.spec.bytecode import ends_in_none
from sessionkit.spec.functions import name_of
from sessionkit.state._declared import check_declared
from sessionkit.state._fields import check_class, is_record, not_a_record
from sessionkit.state._types import is_again

AGAIN: Final = "define the function again too; in a notebook, run its cell again"
MAY_TAKE_TIME: Final = ("create", "update")
MAY_YIELD: Final = ("finish", "process", "on_timer")
MAY_GIVE_NOTHING: Final = ("update", "merge", "process", "on_timer")
"""The functions that may return nothing; the others are called for their value."""
NO_ROWS_MEANT: Final = "; to return no rows, annotate it `-> None` and pass the class `result=...`"
GIVES: Final = {
    "create": "a session begins with what it returns",
    "finish": "a row is what it returns",
    "remember": "the next session is told what it returns",
}
"""The purpose of the functions that are called only for their value."""
USED: Final = "it's called for its value"
NOT_SAID: Final = inspect.Parameter.empty


@attrs.frozen
class Place:
    """A positional parameter of a function, or its return value."""

    role: str  # the argument of the spec, such as `update`
    function: Callable[..., Any]
    owner: type[Any] | None  # the class of a method, to resolve `Self`
    name: str
    annotation: Any  # None without an annotation
    is_needed: bool = True  # whether the parameter has no default

    @cached_property
    def cls(self) -> type[Any] | None:
        """The annotated class; None where the annotation allows several or any."""
        cls = get_origin(self.annotation) or self.annotation
        is_open = cls in {Any, object, Union, UnionType} or getattr(cls, "_is_protocol", False)
        return cls if isinstance(cls, type) and not is_open else None

    @property
    def declared(self) -> str:
        """The parameter with its annotation, class names without their modules."""
        inner = classes_in(self.annotation) if get_args(self.annotation) else []
        inside = f"[{', '.join(cls.__name__ for cls in inner)}]" if inner else ""
        return self.name if self.cls is None else f"{self.name}: {self.cls.__name__}{inside}"

    def __str__(self) -> str:
        return f"`{self.role}` ({name_of(self.function)})"


@attrs.frozen
class Signature:
    """A user function with its parameters and annotations."""

    role: str
    function: Callable[..., Any]
    parameters: Sequence[Place]
    returned: Place
    inspected: inspect.Signature | None  # None for some builtins
    plain: FunctionType | None  # the only code that a call runs; None if builtin or decorated
    always_returns: bool  # whether the annotation promises an object, never None

    @property
    def takes_time(self) -> bool:
        """Whether the third parameter is `time`, or required and annotated `datetime`."""
        for third in self.parameters[2:3]:
            return third.name == "time" or (third.is_needed and third.annotation is datetime)
        return False

    @property
    def returns_nothing(self) -> bool:
        """Whether it's annotated `-> None`, or has no annotation and returns no value."""
        annotation = self.returned.annotation
        if annotation is not None or self.plain is None:
            return annotation is NoneType
        return ends_in_none(self.plain)


def signature_of(function: Any, role: str = "", owner: type[Any] | None = None) -> Signature:
    """Read a function; `role` is its argument of the spec, `owner` the class of a method."""
    try:
        inspected = inspect.signature(function)
    except (TypeError, ValueError):
        returned = Place(role, function, owner, "return", None)
        return Signature(role, function, (), returned, None, None, always_returns=False)
    called = function
    while isinstance(called, functools.partial):
        called = called.func
    plain = _plain(inspect.unwrap(called))
    positional = [part for part in inspected.parameters.values() if part.kind in POSITIONAL]
    raw = {part.name: part.annotation for part in positional}
    hints = _resolved({**raw, "return": inspected.return_annotation}, plain)
    _check_hints(role, function, hints)
    parameters = [
        Place(role, function, owner, part.name, hints.get(part.name), part.default is NOT_SAID)
        for part in positional
    ]
    returned = Place(role, function, owner, "return", hints.get("return"))
    promised = returned.annotation not in (None, NoneType) and _is_object(returned.annotation)
    # A decorator may return another value than the function.
    plain = None if hasattr(called, "__wrapped__") else plain
    return Signature(role, function, parameters, returned, inspected, plain, promised)


def _plain(called: Any) -> FunctionType | None:
    """Return the function that a call runs; None for a builtin."""
    if not inspect.isroutine(called):
        called = getattr(type(called), "__call__", None)  # noqa: B004 (what a call would run)
    called = getattr(called, "__func__", called)
    return called if isinstance(called, FunctionType) else None


def _resolved(raw: Mapping[str, Any], plain: FunctionType | None) -> dict[str, Any]:
    """Resolve annotations that are text, where their names are known."""

    def carrier() -> None: ...

    hints: dict[str, Any] = {}
    for name, annotation in raw.items():
        if annotation is NOT_SAID:
            continue
        carrier.__annotations__ = unresolved = {name: annotation}
        try:
            of_module = {} if plain is None else plain.__globals__
            of_closure = {} if plain is None else dict(inspect.getclosurevars(plain).nonlocals)
            hints |= typing.get_type_hints(carrier, of_module, of_closure)
        except (NameError, TypeError, ValueError, AttributeError, SyntaxError):
            hints |= unresolved
    return hints


def _check_hints(role: str, function: Any, hints: Mapping[str, Any]) -> None:
    """Check that annotations are types, such as `list[View]`, and not values, such as `[View]`."""
    for name, annotation in hints.items():
        try:
            hash(annotation)
        except TypeError:
            said = f"-> {annotation!r}" if name == "return" else f"{name}: {annotation!r}"
            found = f"`{role}` ({name_of(function)}) is annotated `{said}`, which isn't a type"
            hint = "write a class, or list[View] for a list of its objects"
            raise SpecError(found, hint) from None


def _is_object(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin in {Union, UnionType}:
        return all(map(_is_object, get_args(annotation)))
    return annotation is typing.Self or is_record(origin or annotation)


# -- the classes that annotations name ----------------------------------------------------------


def classes_in(annotation: Any, owner: type[Any] | None = None) -> list[type[Any]]:
    """Return the user's classes in an annotation, also inside `list[...]` or `| None`."""
    if annotation is typing.Self:
        annotation = owner
    arguments = get_args(annotation)
    if not arguments:
        is_users = is_record(annotation) and not annotation.__module__.startswith("sessionkit.")
        return [annotation] if is_users else []
    if get_origin(annotation) is Generator:
        arguments = arguments[:1]
    return [cls for argument in arguments for cls in classes_in(argument, owner)]


def class_of(
    name: str, passed: type[Any] | None, places: Collection[Place], hint: str
) -> type[Any]:
    """Return a class of a spec: the passed class, else the most derived annotated class."""
    annotated: dict[type[Any], Place] = {}
    for place in places:
        for cls in classes_in(place.annotation, place.owner):
            annotated.setdefault(cls, place)
    if passed is None:
        for cls in annotated:
            if all(issubclass(cls, other) for other in annotated):
                return cls
        raise _not_inferred(name, places, hint, annotated)
    check_class(passed)
    if not annotated or passed in annotated:
        return passed
    if not any(issubclass(passed, cls) or issubclass(cls, passed) for cls in annotated):
        shown, found = passed.__name__, "the annotations name another class"
        if any(cls.__name__ == shown for cls in annotated):
            shown = f"{passed.__module__}.{passed.__qualname__}"
        hint = f"leave {name} out, or change the annotations"
        if any(is_again(passed, cls) for cls in annotated):
            found = "an annotation names the class as it was before it was defined again"
            hint = AGAIN
        raise SpecError(f"`{name}` is {shown}, and {found}: {_listed(annotated)}", hint)
    return passed


def _listed(annotated: Mapping[type[Any], Place]) -> str:
    return ", ".join(f"{place} says {cls.__name__}" for cls, place in annotated.items())


def _not_inferred(
    name: str, places: Collection[Place], hint: str, annotated: Mapping[type[Any], Place]
) -> SpecError:
    left_out = f"`{name}` is left out, and"
    if any(is_again(cls, other) for cls in annotated for other in annotated):
        found = "one of the functions names a class from before it was defined again"
        hint = "define the functions again too; in a notebook, run their cells again"
        return SpecError(f"{left_out} {found}: {_listed(annotated)}", hint)
    if annotated:
        hint = f"make them agree, or pass {name}=..."
        return SpecError(f"{left_out} the annotations disagree: {_listed(annotated)}", hint)
    for place in places:
        for cls in _classes_without_fields(place.annotation):
            declared = f"declare an attrs class or a dataclass, and annotate {hint}"
            found, instead = not_a_record(cls, instead=declared)
            return SpecError(f"{left_out} {place} says {found}", instead)
        if isinstance(place.annotation, str):
            found = f"{left_out} {place} says {place.annotation!r}, which cannot be resolved"
            return SpecError(
                found, f"pass {name}=..., or define the class at the top of its module"
            )
    hint = f"pass {name}=..., or annotate {hint}"
    return SpecError(f"{left_out} no annotation says it", hint)


def _classes_without_fields(annotation: Any) -> list[type[Any]]:
    """Return the classes in an annotation that can't be an event, a state or a row."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if arguments and origin is not dict:
        return [cls for argument in arguments for cls in _classes_without_fields(argument)]
    cls = origin or annotation
    is_open = cls in {Any, object, NoneType} or getattr(cls, "_is_protocol", False)
    return [cls] if isinstance(cls, type) and not (is_open or is_record(cls)) else []


def check_key_annotation(place: Place, keys: Collection[str]) -> None:
    """Check that a named tuple in the annotation of a key has the fields of `keys`."""
    for cls in (place.annotation, *get_args(place.annotation)):
        fields = getattr(cls, "_fields", None)
        if isinstance(cls, type) and fields is not None and fields != tuple(keys):
            found = f"{place} declares the key as {cls.__name__}, with the fields"
            hint = f"give {cls.__name__} the fields of `keys`, in their order"
            raise SpecError(f"{found} {', '.join(fields)}; `keys` has {', '.join(keys)}", hint)
        if isinstance(cls, type) and fields is not None:
            check_declared(cls, fields)


def check_function(function: object, role: str, **parameters: Any) -> Signature:
    """Check that a function takes these parameters by position, of these classes."""
    check_callable(function, role, parameters)
    signature = signature_of(function, role)
    check_call(signature, parameters)
    check_annotations(signature, parameters)
    return signature


def check_callable(function: Any, role: str, parameters: Collection[str]) -> None:
    """Check that a role has a plain function: neither async, nor a generator."""
    call = f"{role}({', '.join(parameters)})"
    if not callable(function):
        found = f"`{role}` must be a function, found {function!r} ({type(function).__name__})"
        raise SpecError(found, f"write `def {call}: ...` and pass its name")
    for called in (function, function.__call__):
        if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
            found = f"`{role}` must be a plain function, found the async {name_of(function)}"
            raise SpecError(found, "write it with `def`")
    if inspect.isgeneratorfunction(function) and role not in MAY_YIELD:
        found = f"`{role}` must return a value, found the generator {name_of(function)}"
        raise SpecError(found, "write `return` in place of `yield`")


def check_returned(signature: Signature, *, or_nothing: bool = False) -> None:
    """
    Check that a function returns a value where its annotation or its role needs one.

    With `or_nothing`, it may do without if it's annotated `-> None`.
    """
    role, plain, annotation = signature.role, signature.plain, signature.returned.annotation
    is_used = role not in MAY_GIVE_NOTHING
    if inspect.isgeneratorfunction(plain):
        return
    if is_used and annotation is NoneType and not or_nothing:
        found = f"{signature.returned} never returns anything, and {GIVES.get(role, USED)}"
        value = "an object, and annotate its class, such as `-> Visit`"
        raise SpecError(found, f"let it return {value if role in GIVES else 'a value'}")
    must_return = signature.always_returns or (is_used and annotation is None)
    if plain and must_return and ends_in_none(plain):
        name = getattr(annotation, "__name__", annotation)
        shown = "" if annotation is None else f" is annotated `-> {name}`, and"
        or_not = NO_ROWS_MEANT if annotation is None and role == "finish" else ""
        found = f"{signature.returned}{shown} returns nothing"
        raise SpecError(found, f"end it with `return ...`{or_not}")


def check_call(
    signature: Signature, parameters: Collection[str], *, or_nothing: bool = False
) -> None:
    """Check that a function takes these arguments by position, and returns a value."""
    role, function = signature.role, signature.function
    check_returned(signature, or_nothing=or_nothing)
    if signature.inspected is None:
        return
    try:
        signature.inspected.bind(*parameters)
    except TypeError as error:
        call = f"{role}({', '.join(parameters)})"
        shown = f"{name_of(function)}{signature.inspected}"
        found = f"`{role}` must take {call}, found {shown}: {error}"
        hint = f"write `def {call}: ...`"
        may_take_time = role in MAY_TAKE_TIME and "time" not in parameters
        if may_take_time and len(signature.parameters) > len(parameters):
            hint += "; a third parameter must be `time`, the event's time"
        raise SpecError(found, hint) from None


def _is_subclass(cls: type[Any], declared: type[Any]) -> bool:
    return not typing.is_typeddict(declared) and issubclass(cls, declared)


def check_annotations(signature: Signature, parameters: Mapping[str, Any]) -> None:
    """Check the order of the parameters, by annotation or name, and their classes."""
    expected, role, function = [*parameters], signature.role, signature.function
    positions: list[int] = []
    for place in signature.parameters[: len(expected)]:
        matches = [place.name] if place.name in parameters else []
        if place.cls is not None:
            fits = [
                name
                for name, passed in parameters.items()
                if passed is not None and _is_subclass(get_origin(passed) or passed, place.cls)
            ]
            matches = fits if len(fits) == 1 else matches
        positions += map(expected.index, matches)
    if positions != sorted(positions):
        shown = ", ".join(place.declared for place in signature.parameters)
        call = f"{role}({', '.join(expected)})"
        found = f"`{role}` must take {call}, found another order: {name_of(function)}({shown})"
        raise SpecError(found, f"write `def {call}: ...`")
    for place, (name, passed) in zip(signature.parameters, parameters.items(), strict=False):
        declared, cls = place.cls, get_origin(passed) or passed
        if passed is None or declared is None or _is_subclass(cls, declared):
            continue
        found = f"`{role}` is given a {cls.__name__} as its {name}, but "
        found += f"{name_of(function)} declares `{place.declared}`"
        inner = classes_in(place.annotation) if get_args(passed) else []
        inside = f"[{inner[0].__name__}]" if inner else ""
        hint = f"declare `{place.name}: {cls.__name__}{inside}`"
        if is_again(declared, cls):
            found, hint = f"{found}, as the class was before it was defined again", AGAIN
        raise SpecError(found, hint)
