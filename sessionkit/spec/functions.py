"""The functions that users hand over: their names, and why one failed."""

import traceback
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NamedTuple

import attrs

from sessionkit.errors import SessionkitError, UserFunctionError, with_hint

MOST_FRAMES: Final = 20
"""How many frames of a traceback are shown, the last ones."""


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
    while trace is not None:
        module: str = trace.tb_frame.f_globals.get("__name__", "")
        if module.partition(".")[0] != "sessionkit":
            break
        trace = trace.tb_next
    if trace is None:
        return None
    lines = traceback.format_exception(type(error), error, trace, limit=-MOST_FRAMES)
    return "".join(lines).rstrip()


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
