"""State classes whose methods are the functions of a session, for `SessionSpec.of`."""

import inspect
from collections.abc import Callable, Mapping
from datetime import datetime
from types import FunctionType
from typing import Any, Generic, Literal, Protocol, Required, TypeAlias, TypedDict, TypeVar

from sessionkit._instants import Duration
from sessionkit._typing import FinishResult, Record
from sessionkit.errors import SpecError
from sessionkit.spec.base import E, OnError, Order, R, S
from sessionkit.spec.functions import FinishMethod
from sessionkit.spec.memory import Memory
from sessionkit.spec.options import Inputs, Lateness, Results, Storage
from sessionkit.timeouts._policies import EventTimeGap
from sessionkit.timeouts._session_rules import SessionRules

E_contra = TypeVar("E_contra", bound=Record, contravariant=True)
S_contra = TypeVar("S_contra", bound=Record, contravariant=True)
R_co = TypeVar("R_co", bound=Record, covariant=True)

Changed: TypeAlias = Record | None
"""The return type of `update` and `merge`; mypy doesn't match `Self` with `S`."""


def functions_of(cls: type[Any], **passed: Callable[..., Any] | None) -> dict[str, Any]:
    """Return the functions of a session: passed functions, else methods of the state class."""
    if not isinstance(cls, type):
        found = f"`SessionSpec.of` takes the state class, found {cls!r} ({type(cls).__name__})"
        raise SpecError(found, "write SessionSpec.of(Visit, ...)")
    functions: dict[str, Any] = passed
    for role, function in passed.items():
        method = getattr(cls, role, None)
        if function is None and callable(method):
            makes = inspect.getattr_static(cls, role)
            if role == "create" and not isinstance(makes, classmethod | staticmethod):
                found = f"`{cls.__name__}.create` makes a state, so there is none yet to call it on"
                hint = "write `@classmethod` above `def create(cls, key, event): ...`"
                raise SpecError(found, hint)
            functions[role] = FinishMethod(method) if role == "finish" else method
    for name in dir(cls):
        if name.startswith("_") or name in functions:
            continue
        method = inspect.getattr_static(cls, name)
        is_method = isinstance(method, FunctionType | classmethod | staticmethod)
        for role, function in functions.items():
            if is_method and function is None and _is_slip(name, role):
                found = f"`{cls.__name__}.{name}` would never be called, and there is no `{role}`"
                hint = f"rename it `{role}`; or, if it's a helper of your own, `_{name}`"
                raise SpecError(found, hint)
    if functions["update"] is None:
        found = f"`{cls.__name__}` has no method `update`"
        raise SpecError(found, "write `def update(self, event: View) -> None: ...` in it")
    return functions


def _is_slip(name: str, role: str) -> bool:
    """Return whether two names differ by one letter, or by two swapped neighbours."""
    same = 0
    while name[same : same + 1] == role[same : same + 1] != "":
        same += 1
    rest, due = name[same:], role[same:]
    return rest[1:] in {due, due[1:]} or rest in {due[1:], due[1::-1] + due[2:]}


# Protocols of state classes, for type checkers. They match the class, not an object of it, so
# `self` is the first parameter of each method.


class _Update(Protocol[S_contra, E_contra]):
    def update(self, state: S_contra, event: E_contra, /) -> Changed: ...


class _UpdateAt(Protocol[S_contra, E_contra]):
    def update(self, state: S_contra, event: E_contra, time: datetime, /) -> Changed: ...


class _Merge(Protocol[S_contra]):
    def merge(self, left: S_contra, right: S_contra, /) -> Changed: ...


class _Finish(Protocol[S_contra, R_co]):
    def finish(self, state: S_contra, session: Any, /) -> FinishResult[R_co]: ...


class _Merging(_Update[S_contra, E_contra], _Merge[S_contra], Protocol): ...


class _MergingAt(_UpdateAt[S_contra, E_contra], _Merge[S_contra], Protocol): ...


class _InOrderFinishing(_Update[S_contra, E_contra], _Finish[S_contra, R_co], Protocol): ...


class _InOrderFinishingAt(_UpdateAt[S_contra, E_contra], _Finish[S_contra, R_co], Protocol): ...


class _Finishing(_Merging[S_contra, E_contra], _Finish[S_contra, R_co], Protocol): ...


class _FinishingAt(_MergingAt[S_contra, E_contra], _Finish[S_contra, R_co], Protocol): ...


InOrder: TypeAlias = _Update[S, E] | _UpdateAt[S, E]
InOrderFinishing: TypeAlias = _InOrderFinishing[S, E, R] | _InOrderFinishingAt[S, E, R]
Merging: TypeAlias = _Merging[S, E] | _MergingAt[S, E]
Finishing: TypeAlias = _Finishing[S, E, R] | _FinishingAt[S, E, R]


# Keyword arguments of the constructors of `SessionSpec`, for overloads.

Timeout: TypeAlias = EventTimeGap | SessionRules | Duration


class _Shared(TypedDict, total=False):
    keys: Required[Mapping[str, Any]]
    event_time: Required[str]
    watermark_delay: Required[Duration]
    gap: Duration | None
    timeout: Timeout | None
    sequence: str | None
    on_error: OnError
    lateness: Lateness
    results: Results
    inputs: Inputs
    storage: Storage


class AggregateSettings(_Shared, total=False):
    """The keyword arguments of `SessionSpec.aggregate`."""

    order: Order
    memory: Memory | None


class _Functions(_Shared, Generic[E, S], total=False):
    event: type[E] | None
    create: Callable[..., Any] | None
    update: Callable[..., Any] | None
    merge: Callable[..., Any] | None
    finish: Callable[..., Any] | None
    result: type[Any] | None
    memory: Memory[S] | None


class Settings(_Functions[E, S], total=False):
    """The keyword arguments of `SessionSpec.of`."""

    order: Order


class SettingsInOrder(_Functions[E, S]):
    """The same for a state class without `merge`, which needs event-time order."""

    order: Literal["event_time"]
