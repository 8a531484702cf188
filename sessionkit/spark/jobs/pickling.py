"""Find what can't be sent to the executors, on the driver, and name it."""

import inspect
from collections.abc import Iterator
from typing import Any

import attrs
from pyspark import cloudpickle

from sessionkit.errors import NotPicklableError, with_hint
from sessionkit.spec.functions import name_of

__all__ = ["check_picklable"]


def check_picklable(spec: Any) -> None:
    """
    Check that a spec can be sent to the executors.

    Raises:
        NotPicklableError: It can't. The message names the attribute, and the variable of the
            function if that is what doesn't pickle.
    """
    if _problem(spec) is None:
        return
    for attribute in attrs.fields(type(spec)):
        value = getattr(spec, attribute.name)
        problem = _problem(value)
        if problem is not None:
            raise NotPicklableError(_text(attribute.name, value, problem))
    whole = f"the spec can't be sent to the executors: {_problem(spec)}"
    raise NotPicklableError(whole)


def _problem(value: object) -> Exception | None:
    try:
        cloudpickle.dumps(value)  # type: ignore[no-untyped-call]  # bundled without annotations
    except Exception as error:  # noqa: BLE001 (a foreign __reduce__ may raise anything)
        return error
    return None


def _text(name: str, value: Any, problem: Exception) -> str:
    found = f"`{name}` of the spec can't be sent to the executors: {problem}"
    hint = "use only what can be pickled: numbers, text, and functions and classes of modules"
    for variable, held in _variables(value):
        if _problem(held) is not None:
            kind = type(held).__name__
            found = f"`{name}` ({name_of(value)}) uses `{variable}`, a {kind}, which can't be sent"
            hint = f"create the {kind} inside the function, or pass plain values"
            break
    return with_hint(found, hint)


def _variables(value: Any) -> Iterator[tuple[str, Any]]:
    if inspect.isfunction(value):
        variables = inspect.getclosurevars(value)
        yield from variables.nonlocals.items()
        yield from variables.globals.items()
