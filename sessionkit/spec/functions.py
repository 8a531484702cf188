"""The functions that users hand over: what they say of themselves, and why one failed."""

import dis
import functools
import inspect
import traceback
import typing
from collections.abc import Callable, Collection, Generator, Mapping
from datetime import datetime
from itertools import pairwise
from types import FrameType, FunctionType, NoneType, UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin

import attrs

from sessionkit._classes import is_record
from sessionkit.errors import SessionkitError, SpecError, UserFunctionError, with_hint

MOST_FRAMES: Final = 20
"""How many frames of a traceback are shown, the last ones."""
MAY_TAKE_TIME: Final = ("create", "update")
MAY_YIELD: Final = ("finish", "process", "on_timer")
MISSING: Final = inspect.Parameter.empty
POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@attrs.frozen
class FinishMethod:
    """A method `finish(self, session)` as the function `finish(session, state)`."""

    method: Callable[[Any, Any], Any]

    def __call__(self, session: Any, state: Any) -> Any:
        return self.method(state, session)


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function as its author would look for it."""
    if isinstance(function, FinishMethod):
        function = function.method
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or repr(function)
    return f"{module}.{name}" if module and module != "__main__" else name


class Failure(NamedTuple):
    """Why a function failed, and for whose key; without a traceback where it didn't raise."""

    reason: str
    traceback: str | None = None
    hint: str | None = None

    @classmethod
    def of(cls, error: UserFunctionError) -> "Failure":
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


def is_again(cls: type[Any], other: type[Any]) -> bool:
    """Return whether two classes are one that was defined again, as a notebook's cell does."""
    names = (cls.__module__, cls.__qualname__)
    return cls is not other and names == (other.__module__, other.__qualname__)


def wrong_class(what: str, cls: type[Any], found: object, hint: str = "build one") -> str:
    """Return the text for a value that isn't of the class that it must be of."""
    kind = type(found)
    if is_again(kind, cls):
        again = f"found one of another {kind.__name__}: the class was defined again after the spec"
        hint = "build the spec again too; in a notebook, run its cell again"
        return with_hint(f"{what} {cls.__name__}, {again}", hint)
    names = (cls.__name__, kind.__name__)
    if cls.__name__ == kind.__name__:
        names = (f"{cls.__module__}.{names[0]}", f"{kind.__module__}.{names[1]}")
    return with_hint(f"{what} {names[0]}, found {names[1]}", hint)


def forgotten(cls: type[Any]) -> str:
    """Return the hint for a function that returned None and is annotated with a class."""
    return f"end the function with `return ...`, or annotate it `-> {cls.__name__} | None`"


# -- signatures and annotations -----------------------------------------------------------------


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
    plain = _plain(function)
    if plain is None:
        return {}, {}
    return plain.__globals__, dict(inspect.getclosurevars(plain).nonlocals)


def _plain(function: Any) -> FunctionType | None:
    """Return the function that Python runs in the end; None where that is a builtin."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function):
        function = type(function).__call__
    function = getattr(function, "__func__", function)
    return function if inspect.isfunction(function) else None


def returns_nothing(function: Callable[..., Any]) -> bool:
    """Return whether a function is annotated so, or has no annotation and returns no value."""
    said, plain = annotation_of(function, None), _plain(function)
    if said is not None or plain is None:
        return said is NoneType
    return _ends_in_none(plain)


def _ends_in_none(plain: FunctionType) -> bool:
    """Return whether a function returns, and never a value."""
    steps = list(dis.get_instructions(plain))
    ends = [(before, end) for before, end in pairwise(steps) if end.opname.startswith("RETURN_")]
    return bool(ends) and all(_is_none(before, end) for before, end in ends)


def always_returns(function: Callable[..., Any]) -> bool:
    """Return whether a function is annotated to return one object of a class, and never None."""
    if isinstance(function, FinishMethod):
        function = function.method
    return _is_object(annotation_of(function, None))


def _is_object(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin in {Union, UnionType}:
        return all(map(_is_object, get_args(annotation)))
    return annotation is typing.Self or is_record(origin or annotation)


def _is_none(before: dis.Instruction, end: dis.Instruction) -> bool:
    if end.opname == "RETURN_CONST":
        return end.argval is None
    # Where branches come together, the value may be that of another one.
    is_constant = before.opname == "LOAD_CONST" and before.argval is None
    return end.opname == "RETURN_VALUE" and is_constant and not end.is_jump_target


@attrs.frozen
class Place:
    """An annotation of a function: that of the parameter at a position, or of what it returns."""

    role: str
    function: Callable[..., Any]
    position: int | None
    own: type[Any] | None = None
    """What `Self` is."""

    @property
    def annotation(self) -> Any:
        return annotation_of(self.function, self.position)

    @property
    def classes(self) -> list[type[Any]]:
        """The attrs classes that the annotation names, but for a `KeyState` of anything."""
        named = _classes_in(self.annotation, self.own)
        return [cls for cls in named if not cls.__module__.startswith("sessionkit.")]

    def __str__(self) -> str:
        return f"`{self.role}` ({name_of(self.function)})"


def _classes_in(annotation: Any, own: type[Any] | None) -> list[type[Any]]:
    """Return the attrs classes that an annotation names, also inside of `list[...]` or `| None`."""
    if annotation is typing.Self:
        annotation = own
    arguments = get_args(annotation)
    if not arguments:
        return [annotation] if is_record(annotation) else []
    if typing.get_origin(annotation) is Generator:
        arguments = arguments[:1]
    return [cls for argument in arguments for cls in _classes_in(argument, own)]


def class_of(name: str, given: type[Any] | None, places: Collection[Place], hint: str) -> type[Any]:
    """Return a class of a spec: the one that was given, or else the one that annotations say."""
    named: dict[type[Any], Place] = {}
    for place in places:
        for cls in place.classes:
            named.setdefault(cls, place)
    said = ", ".join(f"{place} says {cls.__name__}" for cls, place in named.items())
    if given is None:
        # Of those that they name, the one below all others.
        for cls in named:
            if all(issubclass(cls, other) for other in named):
                return cls
        raise SpecError(_not_inferred(name, places, named, said, hint))
    if is_record(given) and named:
        _check_related(name, given, named, said)
    return given


def _check_related(name: str, cls: type[Any], named: Collection[type[Any]], said: str) -> None:
    """Check that one of the classes that annotations name is the class, above it or below it."""
    if any(issubclass(cls, other) or issubclass(other, cls) for other in named):
        return
    found = "the annotations name another class"
    hint = f"leave {name} out, or change the annotations"
    if any(is_again(cls, other) for other in named):
        found = "an annotation names the class as it was before it was defined again"
        hint = "define the function again too; in a notebook, run its cell again"
    shown = cls.__name__
    if any(other.__name__ == shown for other in named):
        shown = f"{cls.__module__}.{cls.__qualname__}"
    raise SpecError(with_hint(f"`{name}` is {shown}, and {found}: {said}", hint))


def _not_inferred(
    name: str, places: Collection[Place], named: Collection[type[Any]], said: str, hint: str
) -> str:
    if any(is_again(cls, other) for cls in named for other in named):
        found = "one of the functions names a class from before it was defined again"
        hint = "define the functions again too; in a notebook, run their cells again"
        return with_hint(f"`{name}` is left out, and {found}: {said}", hint)
    if named:
        found = f"`{name}` is left out, and the annotations disagree: {said}"
        return with_hint(found, f"make them agree, or pass {name}=...")
    for place in places:
        if dict in (place.annotation, get_origin(place.annotation)):
            found = f"`{name}` is left out, and {place} says dict, which has no fields"
            return with_hint(found, f"declare an attrs class or a dataclass, and annotate {hint}")
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


def takes_time(function: Callable[..., Any]) -> bool:
    """Return whether the third parameter is `time`, or is needed and annotated `datetime`."""
    for third in positional_parameters(function)[2:3]:
        is_needed = third.default is MISSING
        return third.name == "time" or (is_needed and annotation_of(function, 2) is datetime)
    return False


def check_function(function: object, role: str, **parameters: Any) -> None:
    """
    Check that a function can be called with these arguments, by position, of these classes.

    Where a parameter is annotated with another class than the one it will be given, that is refused
    too. A function whose signature Python can't tell (some builtins) passes.
    """
    wanted = f"{role}({', '.join(parameters)})"
    if not callable(function):
        found = f"`{role}` must be a function, found {function!r} ({type(function).__name__})"
        raise SpecError(with_hint(found, f"write `def {wanted}: ...` and pass its name"))
    if _is_async(function) or _is_async(getattr(function, "__call__", None)):  # noqa: B004
        found = f"`{role}` must be a plain function, found the async {name_of(function)}"
        raise SpecError(with_hint(found, "write it with `def`"))
    if inspect.isgeneratorfunction(function) and role not in MAY_YIELD:
        found = f"`{role}` must return a value, found the generator {name_of(function)}"
        raise SpecError(with_hint(found, "write `return` in place of `yield`"))
    _check_return(function, role)
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
    _check_order(function, role, parameters)
    for position, (meaning, given) in enumerate(parameters.items()):
        if given is not None:
            _check_annotation(function, role, position, meaning, given)


def _check_return(function: Callable[..., Any], role: str) -> None:
    """Check that a function which is annotated to return an object has a `return` that does."""
    plain = _plain(function)
    if plain is None or not always_returns(function) or inspect.isgeneratorfunction(plain):
        return
    if _ends_in_none(plain):
        said = annotation_of(function, None)
        found = (
            f"`{role}` ({name_of(function)}) is annotated `-> {getattr(said, '__name__', said)}`"
        )
        raise SpecError(with_hint(f"{found}, and returns nothing", "end it with `return ...`"))


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _check_order(function: Callable[..., Any], role: str, parameters: Mapping[str, Any]) -> None:
    """Refuse parameters in another order, as their annotations say it, or else their names."""
    own, wanted = positional_parameters(function), [*parameters]
    classes = {name: get_origin(given) or given for name, given in parameters.items() if given}
    meant = []
    for position, one in enumerate(own[: len(wanted)]):
        said = _class_said(function, position)
        fits = [name for name, cls in classes.items() if said and issubclass(cls, said)]
        meant += fits if len(fits) == 1 else [one.name]
    known = [name for name in meant if name in wanted]
    if known != sorted(known, key=wanted.index):
        shown = ", ".join(_declared(function, place) for place, _ in enumerate(own))
        found = f"`{role}` must take {role}({', '.join(wanted)}), found another order: "
        hint = f"write `def {role}({', '.join(wanted)}): ...`"
        raise SpecError(with_hint(f"{found}{name_of(function)}({shown})", hint))


def _class_said(function: Callable[..., Any], position: int) -> type[Any] | None:
    """Return the class that an annotation says a value is of; None where it leaves that open."""
    said = annotation_of(function, position)
    cls = get_origin(said) or said
    is_open = cls in {Any, object, Union, UnionType} or getattr(cls, "_is_protocol", False)
    return cls if isinstance(cls, type) and not is_open else None


def _declared(function: Callable[..., Any], position: int) -> str:
    """Return a parameter as its author wrote it, with the last parts of the names of classes."""
    name, said = positional_parameters(function)[position].name, _class_said(function, position)
    annotation = annotation_of(function, position)
    of = _classes_in(annotation, None) if get_args(annotation) else []
    inside = f"[{', '.join(cls.__name__ for cls in of)}]" if of else ""
    return name if said is None else f"{name}: {said.__name__}{inside}"


def _check_annotation(
    function: Callable[..., Any], role: str, position: int, meaning: str, given: Any
) -> None:
    said, cls = _class_said(function, position), get_origin(given) or given
    if said is None or issubclass(cls, said):
        return
    name = positional_parameters(function)[position].name
    found = f"`{role}` is given a {cls.__name__} as its {meaning}, but "
    found += f"{name_of(function)} declares `{_declared(function, position)}`"
    of = _classes_in(annotation_of(function, position), None) if get_args(given) else []
    hint = f"declare `{name}: {cls.__name__}{f'[{of[0].__name__}]' if of else ''}`"
    if is_again(said, cls):
        found += ", as the class was before it was defined again"
        hint = "define the function again too; in a notebook, run its cell again"
    raise SpecError(with_hint(found, hint))
