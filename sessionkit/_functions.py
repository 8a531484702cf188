"""The functions that users hand over: checked before anything runs, named where they fail."""

import inspect
import traceback
import typing
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import attrs

from sessionkit.errors import SessionkitError, SpecError, UserFunctionError, with_hint

__all__ = ["call_failed", "check_function", "is_frozen", "name_of"]


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function as its author would look for it."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or repr(function)
    return f"{module}.{name}" if module and module != "__main__" else name


def call_failed(
    role: str,
    function: Callable[..., Any],
    whose: str,
    error: Exception,
    at: datetime | None = None,
) -> str:
    """Return the text for a function that failed: which one, for whose key, and its traceback."""
    if isinstance(error, UserFunctionError):
        return f"{error}\n\nKey: {whose}"
    if isinstance(error, SessionkitError):
        return f"{error}\n\nRaised in `{role}` ({name_of(function)}), for {whose}"
    when = f", session from {at.isoformat()}" if at else ""
    what = f"`{role}` ({name_of(function)}) raised {type(error).__name__}: {error}"
    trace = "".join(traceback.format_exception(error, limit=-8)).rstrip()
    hint = "mend the function, or count such events as failed with on_error='reject'"
    return with_hint(f"{what}, for {whose}{when}\n\n{trace}", hint)


_FROZEN_SETATTR: Final = attrs.make_class("_Frozen", [], frozen=True).__setattr__


def is_frozen(cls: type[Any]) -> bool:
    """Return whether the objects of an attrs class cannot be changed in place."""
    return cls.__setattr__ is _FROZEN_SETATTR


def check_function(function: object, role: str, **parameters: type | None) -> None:
    """
    Check that a function can be called with these arguments, by position.

    Where a parameter is annotated with another attrs class than the one it will be given, that is
    refused too. A function whose signature Python cannot tell (some builtins) passes.

    Raises:
        SpecError: It is no function, is asynchronous, or takes other arguments.
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
        bound = signature.bind(*parameters)
    except TypeError as error:
        found = f"`{role}` must take {wanted}, found {name_of(function)}{signature}: {error}"
        raise SpecError(with_hint(found, f"write `def {wanted}: ...`")) from None
    if inspect.Parameter.VAR_POSITIONAL not in {p.kind for p in signature.parameters.values()}:
        given = dict(zip(bound.arguments, parameters.items(), strict=True))
        _check_annotations(function, role, given)


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _check_annotations(
    function: Callable[..., Any], role: str, given: dict[str, tuple[str, type | None]]
) -> None:
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return
    for parameter, (meaning, cls) in given.items():
        hint = hints.get(parameter)
        if (
            isinstance(hint, type)
            and attrs.has(hint)
            and cls is not None
            and not issubclass(cls, hint)
        ):
            found = (
                f"`{role}` is given a {cls.__name__} as its {meaning}, but {name_of(function)} "
                f"declares `{parameter}: {hint.__name__}`"
            )
            raise SpecError(with_hint(found, f"declare `{parameter}: {cls.__name__}`"))
