"""
The fold of one session: what the functions of the user make of its parts.

The open sessions of the union are merged in the order of their starts; then its events are taken in
the order of time, those at one instant in the order of their content, so that a micro-batch that
runs again folds them alike. States are decoded anew for every fold: one that fails changes nothing
that is stored.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from sessionkit._functions import call_failed, is_frozen, name_of
from sessionkit.errors import UserFunctionError, with_hint
from sessionkit.session import AnySessionSpec

__all__ = ["FoldError", "fold", "merged"]


class FoldError(UserFunctionError):
    """
    Raised when a function raised or returned the wrong thing during a fold.

    `merged` is set where `merge` failed: the place of the right one among the open sessions.
    """

    merged: int | None = None


def fold(spec: AnySessionSpec, key: Any, opened: Sequence[Any], events: Sequence[Any]) -> Any:
    """
    Return the state of one session: merge what was open, then take its events in order.

    Args:
        spec: Whose functions are called.
        key: The key, as the functions see it.
        opened: The states of the open sessions, by start; they may be changed.
        events: The events in order, each with its time where a function takes that. At least one
            state or event is given.

    Raises:
        FoldError: A function raised, or returned something other than a state.
    """
    if opened:
        return _updated(spec, key, merged(spec, key, opened), events)
    if spec.create is None:
        return _updated(spec, key, _made(spec, key), events)
    return _updated(spec, key, _created(spec, spec.create, key, events[0]), events[1:])


def merged(spec: AnySessionSpec, key: Any, opened: Sequence[Any]) -> Any:
    """
    Return the state of several open sessions that events bridge.

    Raises:
        FoldError: `merge` raised, or returned something other than a state.
    """
    state = opened[0]
    for place in range(1, len(opened)):
        merge = spec.merge or _no_merge
        try:
            state = _returned(spec, "merge", merge, state, merge(state, opened[place]))
        except Exception as error:
            failure = _fold_error("merge", merge, key, error)
            failure.merged = place
            raise failure from error
    return state


def _made(spec: AnySessionSpec, key: Any) -> Any:
    try:
        return spec.state()
    except Exception as error:
        failure = _fold_error("state", spec.state, key, error)
        raise failure from error


def _created(spec: AnySessionSpec, create: Callable[..., Any], key: Any, event: Any) -> Any:
    try:
        state = _over_events(spec, create, takes_time=spec.create_takes_time)(key, event)
        if state.__class__ is not spec.state:
            _refuse_type("create", create, spec.state, state)
    except Exception as error:
        failure = _fold_error("create", create, key, error)
        raise failure from error
    return state


def _updated(spec: AnySessionSpec, key: Any, state: Any, events: Sequence[Any]) -> Any:
    update = _over_events(spec, spec.update, takes_time=spec.update_takes_time)
    cls = spec.state
    try:
        for event in events:
            found = update(state, event)
            state = (
                found
                if found.__class__ is cls
                else _returned(spec, "update", spec.update, state, found)
            )
    except Exception as error:
        failure = _fold_error("update", spec.update, key, error)
        raise failure from error
    return state


def _over_events(
    spec: AnySessionSpec, function: Callable[..., Any], *, takes_time: bool
) -> Callable[[Any, Any], Any]:
    """Return a function of events as they are folded: with their times where one takes these."""
    if not (spec.create_takes_time or spec.update_takes_time):
        return function
    if takes_time:
        return lambda first, timed: function(first, *timed)
    return lambda first, timed: function(first, timed[0])


def _returned(
    spec: AnySessionSpec, role: str, function: Callable[..., Any], given: Any, found: Any
) -> Any:
    """Return the state after a call: None says that the given one was changed in place."""
    if found.__class__ is spec.state:
        return found
    if found is None and not is_frozen(spec.state):
        return given
    return _refuse_type(role, function, spec.state, found)


def _no_merge(_: Any, __: Any) -> Any:
    met = "two open sessions met although the spec has no `merge`"
    raise UserFunctionError(with_hint(met, "pass merge=..."))


def _fold_error(role: str, function: Callable[..., Any], key: Any, error: Exception) -> FoldError:
    return FoldError(call_failed(role, function, repr(key), error))


def _refuse_type(role: str, function: Callable[..., Any], cls: type[Any], found: Any) -> NoReturn:
    what = f"`{role}` ({name_of(function)}) must return a {cls.__name__}"
    hint = "end the function with `return state`" if found is None else f"build a {cls.__name__}"
    raise UserFunctionError(with_hint(f"{what}, found {type(found).__name__}", hint))
