"""What the annotations of a function say, as far as they can be resolved."""

import functools
import inspect
import typing
from collections.abc import Callable, Generator
from typing import Any, Final

import attrs

__all__ = ["annotation_of", "classes_in", "positional_parameters"]

MISSING: Final = inspect.Parameter.empty
POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def positional_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that a function takes by position; none where Python can't tell."""
    signature = _signature(function)
    parameters = signature.parameters.values() if signature is not None else ()
    return [parameter for parameter in parameters if parameter.kind in POSITIONAL]


def annotation_of(function: Callable[..., Any], position: int | None) -> Any:
    """
    Return an annotation of a function.

    Args:
        function: Whose.
        position: That of the parameter; None for what the function returns.

    Returns:
        The annotation; a text that can't be resolved as it is; None where there is none.
    """
    if position is None:
        signature = _signature(function)
        raw = MISSING if signature is None else signature.return_annotation
    else:
        parameters = positional_parameters(function)
        raw = parameters[position].annotation if position < len(parameters) else MISSING
    return None if raw is MISSING else _resolved(raw, function)


def classes_in(annotation: Any, own: type[Any] | None = None) -> list[type[Any]]:
    """
    Return the attrs classes that an annotation names, also inside of `list[...]` or `| None`.

    Args:
        annotation: The annotation.
        own: What `Self` is.
    """
    if annotation is typing.Self:
        annotation = own
    arguments = typing.get_args(annotation)
    if not arguments:
        return [annotation] if isinstance(annotation, type) and attrs.has(annotation) else []
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
