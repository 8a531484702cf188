"""Check that a spec can be sent to the executors, and loaded there."""

import inspect
import pickletools
import sys
from collections import deque
from collections.abc import Iterator
from importlib.machinery import PathFinder
from typing import Any, Final

import attrs
from pyspark import cloudpickle

from sessionkit.errors import NotPicklableError
from sessionkit.spec.functions import name_of
from sessionkit.spec.session import SessionSpec

MAIN: Final = ("__main__", "__mp_main__")
TEXTS: Final = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")
IMPORT: Final = (cloudpickle.subimport.__module__, cloudpickle.subimport.__qualname__)
"""The function that a pickle calls to import a module."""
SESSION: Final = b"SparkSession.__reduce__"
"""What pickles of a session of Connect, and of its frames, contain: they load only here."""
JOIN: Final = "join what it needs to the events before: an executor has no session of Spark"


@attrs.frozen
class Problem:
    """Why a value can't be sent, as a phrase that follows its name, and a hint."""

    found: str
    hint: str
    is_by_name: bool = False


def check_picklable(spec: Any) -> None:
    """Check that the driver can send a spec, and an executor can load it."""
    problem = _problem(spec)
    if problem is None:
        return
    for owner in [spec.logic, spec] if isinstance(spec, SessionSpec) else [spec]:
        for name, value in attrs.asdict(owner, recurse=False).items():
            value_problem = _problem(value)
            if value_problem is not None:
                raise _error(name, value, value_problem)
    raise NotPicklableError(f"the spec {problem.found}", problem.hint)


def _problem(value: object) -> Problem | None:
    try:
        dumped = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]  # bundled without annotations
    except Exception as error:  # noqa: BLE001 (a foreign __reduce__ may raise anything)
        hint = "use only what can be pickled: numbers, text, and functions and classes of modules"
        return Problem(f"can't be sent to the executors: {error}", hint)
    if SESSION in dumped:
        return Problem("uses a session of Spark, and an executor has none", JOIN)
    # Mostly there is none, and no need for a walk through the pickle.
    only_here = {name for name in filter(_is_only_here, [*sys.modules]) if name.encode() in dumped}
    for module, name in imported_by(dumped) if only_here else ():
        if module in only_here:
            return _by_name(module, name)
    return None


def _is_only_here(module: str) -> bool:
    """Return whether a module exists only in this process, or differs in others."""
    if module in MAIN:
        return True
    loaded = sys.modules.get(module)
    # A package may create a submodule when it's imported, in any process.
    is_made = loaded is not None and getattr(loaded, "__spec__", None) is None and "." not in module
    return is_made and PathFinder.find_spec(module) is None


def imported_by(dumped: bytes) -> Iterator[tuple[str, str | None]]:
    """Yield each module that a pickle names, and the name in it; None for the whole module."""
    memo: list[Any] = []
    last: deque[Any] = deque([None, None], maxlen=2)  # the last pushes; None if unknown
    for code, argument, _ in pickletools.genops(dumped):
        match code.name:
            case "FRAME":
                pass
            case "MEMOIZE":
                memo.append(last[-1])
            case "BINGET" | "LONG_BINGET":
                last.append(memo[int(argument or 0)])
            case "STACK_GLOBAL":
                yield last[0], last[1]
                last.append((last[0], last[1]))
            case "TUPLE1" if last[0] == IMPORT:
                yield last[1], None
                last.append(None)
            case kind:
                last.append(argument if kind in TEXTS else None)


def _by_name(module: str, name: str | None) -> Problem:
    if module not in MAIN:
        found = f"uses the module `{module}`, which was made in this process: no executor has it"
        return Problem(found, "write it to a file, and import that", is_by_name=True)
    if name is None:
        found = f"uses the module `{module}`, and an executor has another one of this name"
        hint = "put what it uses of it into a module, and import that"
        return Problem(found, hint, is_by_name=True)
    found = f"uses `{name}` of this script or notebook, pickled by name: no executor has it"
    hint = f"put `{name.partition('.')[0]}` into a module, and import it from there"
    return Problem(found, hint, is_by_name=True)


def _error(role: str, value: Any, problem: Problem) -> NotPicklableError:
    culprits = [] if problem.is_by_name else [*_culprits(value, [])]
    if culprits:
        value, name, used = culprits[-1]
        kind = type(used).__name__
        hint = f"create the {kind} inside the function, or pass plain values"
        if type(used).__module__.startswith("pyspark."):
            hint = JOIN
        elif inspect.isfunction(used):
            hint = f"put `{name}` into a module, and import it from there"
        found = f"uses `{name}`, a {kind}, which can't be sent to the executors"
        problem = Problem(found, hint)
    called = f"`{role}` ({name_of(value)})" if callable(value) else f"`{role}` of the spec"
    return NotPicklableError(f"{called} {problem.found}", problem.hint)


def _culprits(function: object, seen: list[object]) -> Iterator[tuple[Any, str, object]]:
    """Yield a function, and the name and value of what it uses that can't be sent; recursively."""
    seen.append(function)
    if not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
        return
    variables = inspect.getclosurevars(function)
    for name, used in {**variables.nonlocals, **variables.globals}.items():
        if not any(used is visited for visited in seen) and _problem(used) is not None:
            yield function, name, used
            yield from _culprits(used, seen)
            return
