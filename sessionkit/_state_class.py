"""A state class whose methods are the functions of a session: what `SessionSpec.of` takes."""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, Protocol, Required, TypeAlias, TypedDict, TypeVar

import attrs

from sessionkit._functions import FinishMethod, is_frozen
from sessionkit._instants import Duration
from sessionkit._upgrade import Upgrade
from sessionkit.errors import SpecError, with_hint
from sessionkit.timeouts import Emit, EventTimeGap, SessionRules
from sessionkit.typing import FinishResult

__all__ = [
    "AggregateRules",
    "Finishing",
    "InOrder",
    "InOrderFinishing",
    "Merging",
    "Settings",
    "SettingsInOrder",
    "functions_of",
    "needed_fields",
    "shared_defaults",
    "timeout_of",
]

FACTORY: Final[Any] = attrs.Factory  # a class, which its stub declares as a function
E_contra = TypeVar("E_contra", bound=attrs.AttrsInstance, contravariant=True)
S_contra = TypeVar("S_contra", bound=attrs.AttrsInstance, contravariant=True)
R_co = TypeVar("R_co", bound=attrs.AttrsInstance, covariant=True)
E = TypeVar("E", bound=attrs.AttrsInstance)
S = TypeVar("S", bound=attrs.AttrsInstance)
R = TypeVar("R", bound=attrs.AttrsInstance)

Changed: TypeAlias = attrs.AttrsInstance | None
"""What `update` and `merge` return: not `S`, since mypy doesn't match `Self` with that."""


# -- for type checkers: what a state class looks like. They see the class, not an object of it, so
# -- the object that Python calls `self` is the first parameter of each method.


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


class Rules(TypedDict, total=False):
    """What `SessionSpec.aggregate` and `SessionSpec.of` both take."""

    keys: Required[Mapping[str, Any]]
    event_time: Required[str]
    watermark_delay: Required[Duration]
    gap: Duration
    timeout: EventTimeGap | SessionRules | Duration
    late_by: Literal["event", "session"]
    drop_duplicates_for: Duration | None
    per: Literal["session", "both"]
    emit: Emit
    allowed_lateness: Duration | None
    reopen_within: Duration | None
    revisions: Literal["accumulating", "discarding"]
    nulls: Literal["reject", "refuse"]
    on_error: Literal["raise", "reject", "drop_session"]
    max_future_skew: Duration | None
    max_jump: Duration | None
    max_buffered_per_key: int
    passthrough: Mapping[str, Any]
    event_id: str | Sequence[str]
    bucket_count: int
    layout: Literal["buckets", "pages"]
    state_version: int


class AggregateRules(Rules, total=False):
    """What `SessionSpec.aggregate` takes beside the aggregates."""

    order: Literal["arrival", "event_time"]


class _Settings(Rules, total=False):
    result: type[Any]
    create: Callable[..., Any]
    update: Callable[..., Any]
    merge: Callable[..., Any] | None
    finish: Callable[..., Any]
    upgrade: Upgrade


class Settings(_Settings, total=False):
    """What `SessionSpec.of` takes beside the state class and `event`."""

    order: Literal["arrival", "event_time"]


class SettingsInOrder(_Settings):
    """The same where the state class has no `merge`, so that events must come in order."""

    order: Literal["event_time"]


# -- what is read from a state class ------------------------------------------------------------


def functions_of(cls: type[Any], given: Collection[str]) -> dict[str, Callable[..., Any]]:
    """
    Return the functions of a session that a state class has as methods, by the role.

    Args:
        cls: The state class.
        given: What is given beside it, and so isn't looked for in it.

    Raises:
        SpecError: It isn't a class, or `create` is a method of an object.
    """
    if not isinstance(cls, type):
        found = f"`SessionSpec.of` takes the state class, found {cls!r} ({type(cls).__name__})"
        raise SpecError(with_hint(found, "write SessionSpec.of(Visit, ...)"))
    roles = [role for role in ("create", "update", "merge", "finish") if role not in given]
    found = {role: getattr(cls, role) for role in roles if callable(getattr(cls, role, None))}
    if "finish" in found:
        found["finish"] = FinishMethod(found["finish"])
    makes = inspect.getattr_static(cls, "create", None)
    if "create" in found and not isinstance(makes, classmethod | staticmethod):
        text = f"`{cls.__name__}.create` makes a state, so there is none yet to call it on"
        hint = "write `@classmethod` above `def create(cls, key, event): ...`"
        raise SpecError(with_hint(text, hint))
    return found


def timeout_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return settings with `timeout` in place of `gap`.

    Raises:
        SpecError: Both are given, or none.
    """
    if ("gap" in settings) == ("timeout" in settings):
        found = "`gap` and `timeout` are the same" if "gap" in settings else "`gap` is missing"
        raise SpecError(with_hint(found, 'write gap="30 minutes"'))
    return {"timeout" if name == "gap" else name: value for name, value in settings.items()}


def needed_fields(cls: type[Any]) -> list[str]:
    """Return what a class can't be made without."""
    parameters = inspect.signature(cls).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        one.name
        for one in parameters
        if one.default is inspect.Parameter.empty and one.kind not in variadic
    ]


def shared_defaults(cls: type[Any]) -> Iterator[tuple[str, "attrs.Attribute[Any]"]]:
    """Yield each field whose default can change and is one for all objects, with its class."""
    for field in attrs.fields(cls):
        made = field.default.factory if isinstance(field.default, FACTORY) else None
        if isinstance(made, type) and attrs.has(made):
            yield from shared_defaults(made)
        elif _can_change(field.default):
            yield cls.__name__, field


def _can_change(value: object) -> bool:
    if isinstance(value, list | dict | set | bytearray):
        return True
    if isinstance(value, tuple):
        return any(_can_change(item) for item in value)
    cls: type[Any] = type(value)
    if not attrs.has(cls):
        return False
    names = [field.name for field in attrs.fields(cls)]
    return not is_frozen(cls) or any(_can_change(getattr(value, name)) for name in names)
