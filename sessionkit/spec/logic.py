"""How a session is folded: the functions, or the state class that has them as methods."""

import inspect
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Literal, Protocol, Required, TypeAlias, TypedDict, TypeVar, cast

import attrs

from sessionkit._instants import Duration
from sessionkit.errors import SpecError, with_hint
from sessionkit.spec.functions import FinishMethod, is_frozen, name_of
from sessionkit.spec.signatures import Place, check_function, check_key, is_method, returns_none
from sessionkit.spec.upgrades import Upgrade
from sessionkit.state import codec_of
from sessionkit.timeouts import Emit, EventTimeGap, SessionRules
from sessionkit.typing import FinishResult

__all__ = [
    "HELD",
    "NUMBER",
    "AggregateRules",
    "Finishing",
    "InOrder",
    "InOrderFinishing",
    "Merging",
    "Settings",
    "SettingsInOrder",
    "annotations",
    "check_functions",
    "check_no_functions",
    "check_roles",
    "event_row_class",
    "functions_of",
    "held_class",
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


FUNCTIONS: Final = {
    "create": ("key", "event"),
    "update": ("state", "event"),
    "merge": ("left", "right"),
    "finish": ("session", "state"),
}
METHODS: Final = {
    "create": ("key", "event"),
    "update": ("self", "event"),
    "merge": ("self", "other"),
    "finish": ("self", "session"),
}
MEANINGS: Final[Mapping[str, Mapping[int | None, str]]] = {
    "create": {0: "key", 1: "event", None: "state"},
    "update": {0: "state", 1: "event", None: "state"},
    "merge": {0: "state", 1: "state", None: "state"},
    "finish": {0: "session", 1: "state", None: "row"},
}
"""What the parameters of each function are by their place, and what it returns."""


def annotations(spec: Any, meaning: str) -> list[Place]:
    """Return the annotations that name a class of the spec: event, state or row."""
    roles = ("create", "update", "merge", "finish")
    return [
        Place(role, function, position, own=spec._state)  # noqa: SLF001
        for role in roles
        for function, meanings in [_meanings(spec, role)]
        for position, named in meanings.items()
        if named == meaning
    ]


def _meanings(spec: Any, role: str) -> tuple[Any, dict[int | None, str]]:
    """Return a function, and what its parameters are, and what it returns."""
    function = getattr(spec, role)
    if isinstance(function, FinishMethod):
        return function.method, {0: "state", 1: "session", None: "row"}
    return function, {} if function is None else dict(MEANINGS[role])


def check_functions(spec: Any, classes: Mapping[str, type[Any]]) -> None:
    """Check the functions against the classes, and against what else the spec says."""
    check_roles(spec, classes)
    for place in (*annotations(spec, "key"), *annotations(spec, "session")):
        check_key(place, spec.keys)
    _check_left_out(spec)
    _check_in_place(spec)


def check_roles(spec: Any, classes: Mapping[str, type[Any]]) -> None:
    """Check that each function can be called with what it's given, of these classes."""
    for role in FUNCTIONS:
        _check_role(spec, role, classes)


def _check_role(spec: Any, role: str, classes: Mapping[str, type[Any]]) -> None:
    """Check one function, with the classes that are known by now."""
    function, meanings = _meanings(spec, role)
    if function is None and role != "update":
        return
    names = METHODS[role] if callable(function) and is_method(function) else FUNCTIONS[role]
    wanted = {name: classes.get(meanings.get(place, "")) for place, name in enumerate(names)}
    if getattr(spec, f"{role}_takes_time", False):
        wanted["time"] = None
    check_function(function, role, **wanted)


def check_no_functions(spec: Any, instead: str) -> None:
    """Check that a spec without functions has nothing that belongs to them."""
    given = [role for role in FUNCTIONS if getattr(spec, role) is not None]
    given += ["state"] if spec._state is not None else []  # noqa: SLF001
    given += ["upgrade"] if spec.upgrade else []
    if given:
        found = f"`{instead}` and `{given[0]}` are both given"
        raise SpecError(with_hint(found, "leave out the one that you do not need"))
    ordered = isinstance(spec.timeout, SessionRules) and spec.timeout.in_order
    # In order, it's the earliest copy of an event that counts.
    if spec.order == "event_time" and not ordered and spec.drop_duplicates_for is None:
        found = f'`order="event_time"` has no effect on `{instead}` but to hold events back'
        raise SpecError(with_hint(found, "leave `order` out: any order comes to the same"))


def _check_left_out(spec: Any) -> None:
    """
    Check that what is left out can be done without.

    Raises:
        SpecError: It can't.
    """
    if spec.merge is None and spec.order != "event_time":
        found = "`merge` is missing: an event may bridge two open sessions"
        hint = 'pass merge=..., or order="event_time", where no event can come between'
        raise SpecError(with_hint(found, hint))
    if spec.create is None:
        _check_new_state(spec.state)
    if spec.finish is None and spec.result is not spec.state:
        found = f"`finish` is left out, so the state is the row, and {spec.result.__name__} is not"
        hint = "pass finish=..., or leave result out"
        raise SpecError(with_hint(f"{found} {spec.state.__name__}", hint))


def _check_new_state(state: type[Any]) -> None:
    """Check that `State()` makes a state, and a new one each time."""
    name = state.__name__
    needed = needed_fields(state)
    if needed:
        found = f"`create` is left out, and {name} cannot be made without {', '.join(needed)}"
        hint = f"pass create=..., or give the fields of {name} defaults"
        raise SpecError(with_hint(found, hint))
    for owner, shared in shared_defaults(state):
        kind = type(shared.default).__name__
        found = f"`create` is left out, and all states would share one {kind}, the default of"
        hint = f"write `{shared.name}: ... = attrs.field(factory={kind})`"
        raise SpecError(with_hint(f"{found} `{owner}.{shared.name}`", hint))


def _check_in_place(spec: Any) -> None:
    """
    Check that a function annotated to return nothing can change the state in place.

    Raises:
        SpecError: The class of the state is frozen.
    """
    state = spec.state.__name__
    for role in ("update", "merge"):
        function = getattr(spec, role)
        if function is not None and returns_none(function) and is_frozen(spec.state):
            found = f"`{role}` ({name_of(function)}) returns None: it changes the state in place"
            hint = f"return the new state, or make {state} with attrs.define"
            raise SpecError(with_hint(f"{found}, and {state} is frozen", hint))


HELD: Final = "events"
"""The field of the state that holds the events of a session."""
NUMBER: Final = "number"
"""The field of a row that says which event of its session it is, from 1."""


@lru_cache(maxsize=256)
def held_class(event: type[Any], event_time: str) -> type[Any]:
    """Return the class of the state: the events of a session, each with its time."""
    each = _made("Event", _fields(event, event_time))
    return _made("Events", {HELD: attrs.field(type=list[each])})  # type: ignore[valid-type]


def event_row_class(event: type[Any], event_time: str, keys: Collection[str]) -> type[Any]:
    """Return the class of a row: the event with its number, without what the key says already."""
    return _event_row_class(cast("Hashable", event), event_time, frozenset(keys))


@lru_cache(maxsize=256)
def _event_row_class(event: Any, event_time: str, keys: frozenset[str]) -> type[Any]:
    fields = {NUMBER: attrs.field(type=int, kw_only=True), **_fields(event, event_time)}
    return _made("EventRow", {name: field for name, field in fields.items() if name not in keys})


def _fields(event: type[Any], event_time: str) -> dict[str, Any]:
    codec_of(event)  # resolves the annotations
    own = {
        field.name: attrs.field(type=field.type, default=field.default, kw_only=True)
        for field in attrs.fields(event)
    }
    at = attrs.field(type=datetime, kw_only=True)
    return own if event_time in own else {event_time: at, **own}


def _made(name: str, fields: Mapping[str, Any]) -> type[Any]:
    return attrs.make_class(name, dict(fields), frozen=True)
