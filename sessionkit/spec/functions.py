"""User functions: their names, and the texts of their failures."""

import traceback
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NamedTuple

import attrs

from sessionkit.errors import SessionkitError, UserFunctionError, with_hint
from sessionkit.state._types import is_again

MOST_FRAMES: Final = 20
"""The number of last frames that a traceback shows."""


@attrs.frozen
class FinishMethod:
    """A method `finish(self, session)`, called as `finish(session, state)`."""

    method: Callable[[Any, Any], Any]

    def __call__(self, session: Any, state: Any) -> Any:
        return self.method(state, session)


def name_of(function: Callable[..., Any]) -> str:
    """Return the qualified name of a function, without the module `__main__`."""
    if isinstance(function, FinishMethod):
        function = function.method
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or repr(function)
    return f"{module}.{name}" if module and module != "__main__" else name


class Failure(NamedTuple):
    """The reason of a failed call with its key; the traceback is None if nothing was raised."""

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
    """Describe an error of a user function: its role and name, the key and the traceback."""
    trace = traceback_of(error)
    if isinstance(error, UserFunctionError):
        return Failure(f"{error}\n\nKey: {whose}", trace)
    if isinstance(error, SessionkitError):
        return Failure(f"{error}\n\nRaised in `{role}` ({name_of(function)}), for {whose}", trace)
    when = f", session from {at.isoformat()}" if at else ""
    what = f"`{role}` ({name_of(function)}) raised {type(error).__name__}: {error}"
    return Failure(f"{what}, for {whose}{when}", trace, hint)


def traceback_of(error: Exception) -> str | None:
    """Return the traceback from the first frame of user code; None if there is none."""
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


def wrong_class(what: str, cls: type[Any], found: object, hint: str = "build one") -> str:
    """Return the error text, with its hint, for an object of another class than `cls`."""
    kind = type(found)
    if is_again(kind, cls):
        again = f"found one of another {kind.__name__}: the class was defined again after the spec"
        hint = "build the spec again too; in a notebook, run its cell again"
        return with_hint(f"{what} {cls.__name__}, {again}", hint)
    names = (cls.__name__, kind.__name__)
    if cls.__name__ == kind.__name__:
        names = (f"{cls.__module__}.{cls.__qualname__}", f"{kind.__module__}.{kind.__qualname__}")
    return with_hint(f"{what} {names[0]}, found {names[1]}", hint)


def forgotten(cls: type[Any]) -> str:
    """Return the hint for a function that lacks a `return`."""
    return f"end the function with `return ...`, or annotate it `-> {cls.__name__} | None`"
