"""The functions of a session spec, checked against each other before anything runs."""

from collections.abc import Mapping
from typing import Any, Final

from sessionkit._functions import (
    FinishMethod,
    Place,
    check_function,
    check_key,
    is_frozen,
    is_method,
    name_of,
    returns_none,
)
from sessionkit._state_class import needed_fields, shared_defaults
from sessionkit.errors import SpecError, with_hint
from sessionkit.timeouts import SessionRules

__all__ = [
    "annotations",
    "check_functions",
    "check_no_functions",
    "check_roles",
]

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
    """
    Check that a spec without functions has nothing that belongs to them.

    Args:
        spec: The spec.
        instead: What it has instead.

    Raises:
        SpecError: It has a function, a class of states, or an order that nothing needs.
    """
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
