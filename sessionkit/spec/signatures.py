"""
The parameters and annotations of the users' functions, read once, and checked.

Annotations that are text are resolved with the names that the function sees; one that can't be is
left as text. Python can't tell the signature of some builtins: these pass every check.
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

from sessionkit.errors import SpecError
from sessionkit.spec.bytecode import ends_in_none
from sessionkit.spec.functions import is_again, name_of
from sessionkit.state._fields import is_record, not_a_record

AGAIN: Final = "define the function again too; in a notebook, run its cell again"
"""The hint where an annotation names a class as it was before it was defined again."""
MAY_TAKE_TIME: Final = ("create", "update")
MAY_YIELD: Final = ("finish", "process", "on_timer")
MAY_GIVE_NOTHING: Final = ("update", "merge", "process", "on_timer")
"""What the others return is all that they're called for."""
MAY_BE_NONE: Final = ("finish", "remember")
NOTHING_MEANT: Final = ", or annotate it `-> None`"
GIVES: Final = {
    "create": "a session begins with what it returns",
    "finish": "a row is what it returns",
    "remember": "the next session is told what it returns",
}
"""The functions that are for nothing but what they return."""
NOT_SAID: Final = inspect.Parameter.empty
POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@attrs.frozen
class Place:
    """A parameter that a function takes by position, or what it returns."""

    role: str  # what the function is to the spec, such as `update`
    function: Callable[..., Any]
    own: type[Any] | None  # the class whose method it is, if any: what `Self` is
    name: str
    annotation: Any  # None where nothing is said
    is_needed: bool = True  # whether the parameter has no default

    @cached_property
    def cls(self) -> type[Any] | None:
        """The class that it is said to be of; None where the annotation leaves that open."""
        cls = get_origin(self.annotation) or self.annotation
        is_open = cls in {Any, object, Union, UnionType} or getattr(cls, "_is_protocol", False)
        return cls if isinstance(cls, type) and not is_open else None

    @property
    def declared(self) -> str:
        """The parameter as its author wrote it, with the last parts of the names of classes."""
        of = classes_in(self.annotation) if get_args(self.annotation) else []
        inside = f"[{', '.join(cls.__name__ for cls in of)}]" if of else ""
        return self.name if self.cls is None else f"{self.name}: {self.cls.__name__}{inside}"

    def __str__(self) -> str:
        return f"`{self.role}` ({name_of(self.function)})"


@attrs.frozen
class Signature:
    """A function, and what it says of itself."""

    role: str
    function: Callable[..., Any]
    parameters: Sequence[Place]
    returned: Place
    inspected: inspect.Signature | None  # None where Python can't tell
    plain: FunctionType | None  # what a call runs alone; None of a builtin, and of one decorated
    always_returns: bool  # whether it's annotated to return one object of a class, and never None

    @property
    def takes_time(self) -> bool:
        """Whether the third parameter is `time`, or is needed and annotated `datetime`."""
        for one in self.parameters[2:3]:
            return one.name == "time" or (one.is_needed and one.annotation is datetime)
        return False

    @property
    def returns_nothing(self) -> bool:
        """Whether it is annotated so, or has no annotation and returns no value."""
        said = self.returned.annotation
        if said is not None or self.plain is None:
            return said is NoneType
        return ends_in_none(self.plain)


def signature_of(function: Any, role: str = "", own: type[Any] | None = None) -> Signature:
    """Read a function; `role` is what it is to the spec, `own` the class whose method it is."""
    try:
        inspected = inspect.signature(function)
    except (TypeError, ValueError):
        returned = Place(role, function, own, "return", None)
        return Signature(role, function, (), returned, None, None, always_returns=False)
    called = function
    while isinstance(called, functools.partial):
        called = called.func
    plain = _plain(inspect.unwrap(called))
    raw, positional = {}, []
    for one in inspected.parameters.values():
        if one.kind in POSITIONAL:
            raw[one.name] = one.annotation
            positional.append(one)
    said = _resolved({**raw, "return": inspected.return_annotation}, plain)
    parameters = []
    for one in positional:
        is_needed = one.default is NOT_SAID
        parameters.append(Place(role, function, own, one.name, said.get(one.name), is_needed))
    returned = Place(role, function, own, "return", said.get("return"))
    promised = returned.annotation not in (None, NoneType) and _is_object(returned.annotation)
    # A decorator may return what the function doesn't.
    plain = None if hasattr(called, "__wrapped__") else plain
    return Signature(role, function, parameters, returned, inspected, plain, promised)


def _plain(called: Any) -> FunctionType | None:
    """Return the function that a call runs."""
    if not inspect.isroutine(called):
        called = getattr(type(called), "__call__", None)  # noqa: B004 (what a call would run)
    called = getattr(called, "__func__", called)
    return called if isinstance(called, FunctionType) else None


def _resolved(raw: Mapping[str, Any], plain: FunctionType | None) -> dict[str, Any]:
    """Return what annotations say, with texts replaced by what they name, where that is known."""

    def carrier() -> None: ...

    said: dict[str, Any] = {}
    for name, annotation in raw.items():
        if annotation is NOT_SAID:
            continue
        carrier.__annotations__ = said_here = {name: annotation}
        try:
            # The names that the function sees: those of its module, and of functions around it.
            of_module = {} if plain is None else plain.__globals__
            around = {} if plain is None else dict(inspect.getclosurevars(plain).nonlocals)
            said |= typing.get_type_hints(carrier, of_module, around)
        except (NameError, TypeError, ValueError, AttributeError, SyntaxError):
            said |= said_here
    return said


def _is_object(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin in {Union, UnionType}:
        return all(map(_is_object, get_args(annotation)))
    return annotation is typing.Self or is_record(origin or annotation)


# -- the classes that annotations name ----------------------------------------------------------


def classes_in(annotation: Any, own: type[Any] | None = None) -> list[type[Any]]:
    """Return the users' classes in an annotation, also inside of `list[...]` or `| None`."""
    if annotation is typing.Self:
        annotation = own
    arguments = get_args(annotation)
    if not arguments:
        is_own = is_record(annotation) and not annotation.__module__.startswith("sessionkit.")
        return [annotation] if is_own else []
    if get_origin(annotation) is Generator:
        arguments = arguments[:1]
    return [cls for argument in arguments for cls in classes_in(argument, own)]


def class_of(name: str, given: type[Any] | None, places: Collection[Place], hint: str) -> type[Any]:
    """Return a class of a spec: the one that was given, or else the one that annotations say."""
    named: dict[type[Any], Place] = {}
    for place in places:
        for cls in classes_in(place.annotation, place.own):
            named.setdefault(cls, place)
    if given is None:
        # Of those that they name, the one below all others.
        for cls in named:
            if all(issubclass(cls, other) for other in named):
                return cls
        raise _not_inferred(name, places, hint, named)
    if not named or given in named or not is_record(given):
        return given
    if not any(issubclass(given, one) or issubclass(one, given) for one in named):
        shown, found = given.__name__, "the annotations name another class"
        if any(one.__name__ == shown for one in named):
            shown = f"{given.__module__}.{given.__qualname__}"
        hint = f"leave {name} out, or change the annotations"
        if any(is_again(given, one) for one in named):
            found = "an annotation names the class as it was before it was defined again"
            hint = AGAIN
        raise SpecError(f"`{name}` is {shown}, and {found}: {_said(named)}", hint)
    return given


def _said(named: Mapping[type[Any], Place]) -> str:
    return ", ".join(f"{place} says {cls.__name__}" for cls, place in named.items())


def _not_inferred(
    name: str, places: Collection[Place], hint: str, named: Mapping[type[Any], Place]
) -> SpecError:
    left_out = f"`{name}` is left out, and"
    if any(is_again(cls, other) for cls in named for other in named):
        found = "one of the functions names a class from before it was defined again"
        hint = "define the functions again too; in a notebook, run their cells again"
        return SpecError(f"{left_out} {found}: {_said(named)}", hint)
    if named:
        hint = f"make them agree, or pass {name}=..."
        return SpecError(f"{left_out} the annotations disagree: {_said(named)}", hint)
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
    """Return the classes in an annotation that can't be those of an event, a state or a row."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if arguments and origin is not dict:
        return [cls for one in arguments for cls in _classes_without_fields(one)]
    cls = origin or annotation
    is_open = cls in {Any, object, NoneType} or getattr(cls, "_is_protocol", False)
    return [cls] if isinstance(cls, type) and not (is_open or is_record(cls)) else []


def check_key_annotation(place: Place, keys: Collection[str]) -> None:
    """Check a named tuple that the annotation of a key, or of a session with one, names."""
    for cls in (place.annotation, *get_args(place.annotation)):
        fields = getattr(cls, "_fields", None)
        if isinstance(cls, type) and fields is not None and fields != tuple(keys):
            found = f"{place} declares the key as {cls.__name__}, with the fields"
            hint = f"give {cls.__name__} the fields of `keys`, in their order"
            raise SpecError(f"{found} {', '.join(fields)}; `keys` has {', '.join(keys)}", hint)


# -- checks --------------------------------------------------------------------------------------


def check_function(function: object, role: str, **parameters: Any) -> Signature:
    """Check that a function can be called with these arguments, by position, of these classes."""
    check_callable(function, role, parameters)
    signature = signature_of(function, role)
    check_call(signature, parameters)
    check_annotations(signature, parameters)
    return signature


def check_callable(function: Any, role: str, parameters: Collection[str]) -> None:
    wanted = f"{role}({', '.join(parameters)})"
    if not callable(function):
        found = f"`{role}` must be a function, found {function!r} ({type(function).__name__})"
        raise SpecError(found, f"write `def {wanted}: ...` and pass its name")
    for one in (function, function.__call__):
        if inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one):
            found = f"`{role}` must be a plain function, found the async {name_of(function)}"
            raise SpecError(found, "write it with `def`")
    if inspect.isgeneratorfunction(function) and role not in MAY_YIELD:
        found = f"`{role}` must return a value, found the generator {name_of(function)}"
        raise SpecError(found, "write `return` in place of `yield`")


def check_returned(signature: Signature) -> None:
    """Check that a function returns what it says, and returns at all where that is its use."""
    role, plain, said = signature.role, signature.plain, signature.returned.annotation
    must_return = signature.always_returns or (said is None and role not in MAY_GIVE_NOTHING)
    if plain and must_return and not inspect.isgeneratorfunction(plain) and ends_in_none(plain):
        shown = "" if said is None else f" is annotated `-> {getattr(said, '__name__', said)}`, and"
        or_not = NOTHING_MEANT if said is None and role in MAY_BE_NONE else ""
        found = f"{signature.returned}{shown} returns nothing"
        raise SpecError(found, f"end it with `return ...`{or_not}")


def check_call(signature: Signature, parameters: Collection[str]) -> None:
    """Check that a function takes these arguments by position, and returns what it says."""
    role, function = signature.role, signature.function
    check_returned(signature)
    if signature.inspected is None:
        return
    try:
        signature.inspected.bind(*parameters)
    except TypeError as error:
        wanted = f"{role}({', '.join(parameters)})"
        shown = f"{name_of(function)}{signature.inspected}"
        found = f"`{role}` must take {wanted}, found {shown}: {error}"
        hint = f"write `def {wanted}: ...`"
        may_take_time = role in MAY_TAKE_TIME and "time" not in parameters
        if may_take_time and len(signature.parameters) > len(parameters):
            hint += "; a third parameter must be `time`, the event's time"
        raise SpecError(found, hint) from None


def check_returns(signature: Signature) -> None:
    """Check that a function that is for nothing but what it returns doesn't return None alone."""
    if signature.returns_nothing and not inspect.isgeneratorfunction(signature.plain):
        found = f"{signature.returned} never returns anything, and {GIVES[signature.role]}"
        raise SpecError(
            found, "let it return an object, and annotate its class, such as `-> Visit`"
        )


def check_annotations(signature: Signature, parameters: Mapping[str, Any]) -> None:
    """Check the order of the parameters, by their annotations or names, and their classes."""
    wanted, role, function = [*parameters], signature.role, signature.function
    places: list[int] = []
    for one in signature.parameters[: len(wanted)]:
        meant = [one.name] if one.name in parameters else []
        if one.cls is not None:
            fits = [
                name
                for name, given in parameters.items()
                if given is not None and issubclass(get_origin(given) or given, one.cls)
            ]
            meant = fits if len(fits) == 1 else meant
        places += map(wanted.index, meant)
    if places != sorted(places):
        shown = ", ".join(one.declared for one in signature.parameters)
        call = f"{role}({', '.join(wanted)})"
        found = f"`{role}` must take {call}, found another order: {name_of(function)}({shown})"
        raise SpecError(found, f"write `def {call}: ...`")
    for one, (meaning, given) in zip(signature.parameters, parameters.items(), strict=False):
        said, cls = one.cls, get_origin(given) or given
        if given is None or said is None or issubclass(cls, said):
            continue
        found = f"`{role}` is given a {cls.__name__} as its {meaning}, but "
        found += f"{name_of(function)} declares `{one.declared}`"
        of = classes_in(one.annotation) if get_args(given) else []
        hint = f"declare `{one.name}: {cls.__name__}{f'[{of[0].__name__}]' if of else ''}`"
        if is_again(said, cls):
            found, hint = f"{found}, as the class was before it was defined again", AGAIN
        raise SpecError(found, hint)
