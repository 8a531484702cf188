"""What a function says of itself: its parameters and annotations, checked before anything runs."""

import functools
import inspect
import typing
from collections.abc import Callable, Collection, Generator, Mapping
from datetime import datetime
from types import NoneType
from typing import Any, Final, get_args

import attrs

from sessionkit._classes import is_record
from sessionkit.errors import SpecError, with_hint
from sessionkit.spec.functions import is_again, name_of

MAY_TAKE_TIME: Final = ("create", "update")

MISSING: Final = inspect.Parameter.empty
POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def positional_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that a function takes by position; none where Python can't tell."""
    signature = _signature(function)
    parameters = signature.parameters.values() if signature is not None else ()
    return [parameter for parameter in parameters if parameter.kind in POSITIONAL]


def annotation_of(function: Callable[..., Any], position: int | None) -> Any:
    """
    Return the annotation of a parameter, or of what a function returns where the position is None.

    A text that can't be resolved is returned as it is, and None where there is no annotation.
    """
    if position is None:
        signature = _signature(function)
        raw = MISSING if signature is None else signature.return_annotation
    else:
        parameters = positional_parameters(function)
        raw = parameters[position].annotation if position < len(parameters) else MISSING
    return None if raw is MISSING else _resolved(raw, function)


def classes_in(annotation: Any, own: type[Any] | None = None) -> list[type[Any]]:
    """Return the attrs classes that an annotation names, also inside of `list[...]` or `| None`."""
    if annotation is typing.Self:
        annotation = own
    arguments = typing.get_args(annotation)
    if not arguments:
        return [annotation] if is_record(annotation) else []
    if typing.get_origin(annotation) is Generator:
        arguments = arguments[:1]
    return [cls for argument in arguments for cls in classes_in(argument, own)]


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _resolved(raw: Any, function: Callable[..., Any]) -> Any:
    def carrier() -> None: ...

    carrier.__annotations__ = {"it": raw}
    try:
        return typing.get_type_hints(carrier, *_names_of(function))["it"]
    except (NameError, TypeError, AttributeError, SyntaxError):
        return raw


def _names_of(function: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the names that a function sees: those of its module, and of the functions around."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function):
        function = type(function).__call__
    function = getattr(function, "__func__", function)
    if not inspect.isfunction(function):
        return {}, {}
    return function.__globals__, dict(inspect.getclosurevars(function).nonlocals)


@attrs.frozen
class Place:
    """
    An annotation of a function of a spec.

    Attributes:
        role: What the function is for.
        function: The function.
        position: That of the parameter; None for what the function returns.
        meaning: What the parameter is, if the annotation is that of one.
        own: What `Self` is.
    """

    role: str
    function: Callable[..., Any]
    position: int | None
    meaning: str = ""
    own: type[Any] | None = None

    @property
    def annotation(self) -> Any:
        """What the annotation says; None where there is none."""
        return annotation_of(self.function, self.position)

    @property
    def classes(self) -> list[type[Any]]:
        """The attrs classes that the annotation names, but for a `KeyState` of anything."""
        named = classes_in(self.annotation, self.own)
        return [cls for cls in named if not cls.__module__.startswith("sessionkit.")]

    def __str__(self) -> str:
        """Name the function."""
        return f"`{self.role}` ({name_of(self.function)})"


def class_of(name: str, given: type[Any] | None, places: Collection[Place], hint: str) -> type[Any]:
    """Return a class of a spec: the one that was given, or else the one that annotations say."""
    if given is None:
        return _inferred_class(name, places, hint)
    if is_record(given):
        _check_class(name, given, places)
    return given


def _inferred_class(name: str, places: Collection[Place], hint: str) -> type[Any]:
    """Return the class that annotations agree on: of those they name, the one below all others."""
    named = _named(places)
    for cls in named:
        if all(issubclass(cls, other) for other in named):
            return cls
    raise SpecError(_not_inferred(name, places, named, hint))


def _check_class(name: str, cls: object, places: Collection[Place]) -> None:
    """Check that annotations name no class, or one that is the class, above it or below it."""
    named = _named(places)
    if not named or not isinstance(cls, type):
        return
    if not any(issubclass(cls, other) or issubclass(other, cls) for other in named):
        found = "the annotations name another class"
        hint = f"leave {name} out, or change the annotations"
        if any(is_again(cls, other) for other in named):
            found = "an annotation names the class as it was before it was defined again"
            hint = "define the function again too; in a notebook, run its cell again"
        shown = cls.__name__
        if any(other.__name__ == shown for other in named):
            shown = f"{cls.__module__}.{cls.__qualname__}"
        raise SpecError(with_hint(f"`{name}` is {shown}, and {found}: {_said(named)}", hint))


def _named(places: Collection[Place]) -> dict[type[Any], Place]:
    """Return the classes that annotations name, each with the first place that does."""
    named: dict[type[Any], Place] = {}
    for place in places:
        for cls in place.classes:
            named.setdefault(cls, place)
    return named


def _said(named: Mapping[type[Any], Place]) -> str:
    return ", ".join(f"{place} says {cls.__name__}" for cls, place in named.items())


def _not_inferred(
    name: str, places: Collection[Place], named: Mapping[type[Any], Place], hint: str
) -> str:
    said = _said(named)
    if any(is_again(cls, other) for cls in named for other in named):
        found = "one of the functions names a class from before it was defined again"
        hint = "define the functions again too; in a notebook, run their cells again"
        return with_hint(f"`{name}` is left out, and {found}: {said}", hint)
    if named:
        found = f"`{name}` is left out, and the annotations disagree: {said}"
        return with_hint(found, f"make them agree, or pass {name}=...")
    for place in places:
        if isinstance(place.annotation, str):
            found = f"`{name}` is left out, and {place} says {place.annotation!r}"
            hint = f"pass {name}=..., or define the class at the top of its module"
            return with_hint(f"{found}, which cannot be resolved", hint)
    hint = f"pass {name}=..., or annotate {hint}"
    return with_hint(f"`{name}` is left out, and no annotation says it", hint)


def check_key(place: Place, keys: Collection[str]) -> None:
    """Check a named tuple that the annotation of a key, or of a session with one, names."""
    for cls in (place.annotation, *get_args(place.annotation)):
        fields = getattr(cls, "_fields", None)
        if isinstance(cls, type) and fields is not None and fields != tuple(keys):
            found = f"{place} declares the key as {cls.__name__}, with the fields"
            hint = f"give {cls.__name__} the fields of `keys`, in their order"
            text = f"{found} {', '.join(fields)}; `keys` has {', '.join(keys)}"
            raise SpecError(with_hint(text, hint))


def returns_none(function: Callable[..., Any]) -> bool:
    """Return whether a function is annotated to return None, and nothing else."""
    return annotation_of(function, None) is NoneType


def is_method(function: Callable[..., Any]) -> bool:
    """Return whether a function was written as a method: whether it takes `self` first."""
    return [one.name for one in positional_parameters(function)[:1]] == ["self"]


def takes_time(function: Callable[..., Any]) -> bool:
    """
    Return whether a function takes the event's time.

    It does by a third parameter named `time`, or by one that is needed and annotated `datetime`.
    """
    for third in positional_parameters(function)[2:3]:
        needed = third.default is inspect.Parameter.empty
        return third.name == "time" or (needed and annotation_of(function, 2) is datetime)
    return False


def check_function(function: object, role: str, **parameters: type | None) -> None:
    """
    Check that a function can be called with these arguments, by position.

    Where a parameter is annotated with another attrs class than the one it will be given, that is
    refused too. A function whose signature Python can't tell (some builtins) passes.
    """
    wanted = f"{role}({', '.join(parameters)})"
    if not callable(function):
        found = f"`{role}` must be a function, found {function!r} ({type(function).__name__})"
        raise SpecError(with_hint(found, f"write `def {wanted}: ...` and pass its name"))
    if _is_async(function) or _is_async(getattr(function, "__call__", None)):  # noqa: B004
        found = f"`{role}` must be a plain function, found the async {name_of(function)}"
        raise SpecError(with_hint(found, "write it with `def`"))
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*parameters)
    except TypeError as error:
        found = f"`{role}` must take {wanted}, found {name_of(function)}{signature}: {error}"
        hint = f"write `def {wanted}: ...`"
        may_take_time = role in MAY_TAKE_TIME and "time" not in parameters
        if may_take_time and len(positional_parameters(function)) > len(parameters):
            hint += "; a third parameter must be `time`, the event's time"
        raise SpecError(with_hint(found, hint)) from None
    for position, (meaning, cls) in enumerate(parameters.items()):
        if cls is not None:
            _check_annotation(Place(role, function, position, meaning), cls)


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _check_annotation(place: Place, cls: type[Any]) -> None:
    said = place.annotation
    if is_record(said) and not issubclass(cls, said):
        name = positional_parameters(place.function)[place.position or 0].name
        found = (
            f"`{place.role}` is given a {cls.__name__} as its {place.meaning}, but "
            f"{name_of(place.function)} declares `{name}: {said.__name__}`"
        )
        if is_again(said, cls):
            hint = "define the function again too; in a notebook, run its cell again"
            raise SpecError(
                with_hint(f"{found}, as the class was before it was defined again", hint)
            )
        raise SpecError(with_hint(found, f"declare `{name}: {cls.__name__}`"))
