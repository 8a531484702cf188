"""The functions that users hand over: checked before anything runs, named where they fail."""

import inspect
import traceback
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from types import FrameType, NoneType
from typing import Any, Final, NamedTuple, get_args

import attrs

from sessionkit._annotations import annotation_of, classes_in, positional_parameters
from sessionkit.errors import SessionkitError, SpecError, UserFunctionError, with_hint

__all__ = [
    "Failure",
    "FinishMethod",
    "Place",
    "call_failed",
    "check_class",
    "check_function",
    "check_key",
    "inferred_class",
    "is_frozen",
    "is_method",
    "name_of",
    "returns_none",
    "takes_time",
    "traceback_of",
    "wrong_class",
]


MAY_TAKE_TIME: Final = ("create", "update")
MOST_FRAMES: Final = 20
"""How many frames of a traceback are shown, the last ones."""


@attrs.frozen
class FinishMethod:
    """
    A method `finish(self, session)` as the function `finish(session, state)`.

    Attributes:
        method: The method.
    """

    method: Callable[[Any, Any], Any]

    def __call__(self, session: Any, state: Any) -> Any:
        """Call the method."""
        return self.method(state, session)


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function as its author would look for it."""
    if isinstance(function, FinishMethod):
        function = function.method
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or repr(function)
    return f"{module}.{name}" if module and module != "__main__" else name


# -- what a function did ------------------------------------------------------------------------


class Failure(NamedTuple):
    """
    Why a function failed.

    Attributes:
        reason: What failed, for whose key, and the error.
        traceback: The traceback of the function; None where it didn't raise.
        hint: What to do, where that isn't part of the reason.
    """

    reason: str
    traceback: str | None = None
    hint: str | None = None

    @classmethod
    def of(cls, error: UserFunctionError) -> "Failure":
        """Return an error as data."""
        return cls(error.reason, error.traceback)


def call_failed(
    role: str,
    function: Callable[..., Any],
    whose: str,
    error: Exception,
    at: datetime | None = None,
    *,
    hint: str = "fix the function, or count such events as failed with on_error='reject'",
) -> Failure:
    """Return why a function failed: which one, for whose key, and its traceback."""
    trace = traceback_of(error)
    if isinstance(error, UserFunctionError):
        return Failure(f"{error}\n\nKey: {whose}", trace)
    if isinstance(error, SessionkitError):
        return Failure(f"{error}\n\nRaised in `{role}` ({name_of(function)}), for {whose}", trace)
    when = f", session from {at.isoformat()}" if at else ""
    what = f"`{role}` ({name_of(function)}) raised {type(error).__name__}: {error}"
    return Failure(f"{what}, for {whose}{when}", trace, hint)


def traceback_of(error: Exception) -> str | None:
    """Return the traceback of an error from the user's first frame on; None where there is none."""
    trace = error.__traceback__
    while trace is not None and _is_own(trace.tb_frame):
        trace = trace.tb_next
    if trace is None:
        return None
    lines = traceback.format_exception(type(error), error, trace, limit=-MOST_FRAMES)
    return "".join(lines).rstrip()


def _is_own(frame: FrameType) -> bool:
    module: str = frame.f_globals.get("__name__", "")
    return module.partition(".")[0] == "sessionkit"


def _is_again(cls: type[Any], other: type[Any]) -> bool:
    """Return whether two classes are one that was defined again, as a notebook's cell does."""
    names = (cls.__module__, cls.__qualname__)
    return cls is not other and names == (other.__module__, other.__qualname__)


def wrong_class(what: str, cls: type[Any], found: object, hint: str = "build one") -> str:
    """
    Return the text for a value that isn't of the class that it must be of.

    Args:
        what: What must be of the class, up to its name: "`create` (visits.create) must return a".
        cls: The class.
        found: The value.
        hint: What to do, unless the class was defined again.
    """
    kind = type(found)
    if _is_again(kind, cls):
        again = f"found one of another {kind.__name__}: the class was defined again after the spec"
        hint = "build the spec again too; in a notebook, run its cell again"
        return with_hint(f"{what} {cls.__name__}, {again}", hint)
    names = (cls.__name__, kind.__name__)
    if cls.__name__ == kind.__name__:
        names = (f"{cls.__module__}.{names[0]}", f"{kind.__module__}.{names[1]}")
    return with_hint(f"{what} {names[0]}, found {names[1]}", hint)


_FROZEN_SETATTR: Final = attrs.make_class("_Frozen", [], frozen=True).__setattr__


def is_frozen(cls: type[Any]) -> bool:
    """Return whether the objects of an attrs class can't be changed in place."""
    return cls.__setattr__ is _FROZEN_SETATTR


# -- what a function says -----------------------------------------------------------------------


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


def inferred_class(name: str, places: Collection[Place], hint: str) -> type[Any]:
    """
    Return the class that annotations agree on: of those they name, the one below all others.

    Args:
        name: The argument that would give the class.
        places: Where to look.
        hint: What to annotate where they don't say it.

    Raises:
        SpecError: They name none, or several.
    """
    named = _named(places)
    for cls in named:
        if all(issubclass(cls, other) for other in named):
            return cls
    raise SpecError(_not_inferred(name, places, named, hint))


def check_class(name: str, cls: object, places: Collection[Place]) -> None:
    """
    Check a class that is given against those that annotations name.

    Raises:
        SpecError: They name classes, none of which is the class, above it or below it.
    """
    named = _named(places)
    if not named or not isinstance(cls, type):
        return
    if not any(issubclass(cls, other) or issubclass(other, cls) for other in named):
        found = "the annotations name another class"
        hint = f"leave {name} out, or change the annotations"
        if any(_is_again(cls, other) for other in named):
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
    if any(_is_again(cls, other) for cls in named for other in named):
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

    Raises:
        SpecError: It isn't a function, is asynchronous, or takes other arguments.
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


def check_key(place: Place, keys: Collection[str]) -> None:
    """
    Check a named tuple that the annotation of a key, or of a session with one, names.

    Raises:
        SpecError: It has other fields than the key.
    """
    for cls in (place.annotation, *get_args(place.annotation)):
        fields = getattr(cls, "_fields", None)
        if isinstance(cls, type) and fields is not None and fields != tuple(keys):
            found = f"{place} declares the key as {cls.__name__}, with the fields"
            hint = f"give {cls.__name__} the fields of `keys`, in their order"
            text = f"{found} {', '.join(fields)}; `keys` has {', '.join(keys)}"
            raise SpecError(with_hint(text, hint))


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _check_annotation(place: Place, cls: type[Any]) -> None:
    said = place.annotation
    if isinstance(said, type) and attrs.has(said) and not issubclass(cls, said):
        name = positional_parameters(place.function)[place.position or 0].name
        found = (
            f"`{place.role}` is given a {cls.__name__} as its {place.meaning}, but "
            f"{name_of(place.function)} declares `{name}: {said.__name__}`"
        )
        if _is_again(said, cls):
            hint = "define the function again too; in a notebook, run its cell again"
            raise SpecError(
                with_hint(f"{found}, as the class was before it was defined again", hint)
            )
        raise SpecError(with_hint(found, f"declare `{name}: {cls.__name__}`"))
