"""
The pure step of a key: which events and open sessions make one session, and their fold.

Rules of this file. No clock, no frame, no group state: times and objects come in, sessions go out.
What belongs together is decided by times alone, for all keys of a bucket at once; the functions of
the user are then called for one session after the other. Lateness and closing are decided by the
caller, before and after.

Theory of operation
  An event is an interval: from its time to its time + gap. An open session is an interval too:
  from its start to its end. Sort the intervals of a key by their start; one that begins no later
  than the furthest end so far belongs to the same session (`starts_new_session` holds the
  operator). So a session is a connected union of intervals, and cannot depend on the order in
  which its parts came. That covers in one rule what a step per event would have to tell apart:

    no open session in the union      a new session:        create, then update
    one                               it goes on, its start may move back:  update
    several                           events bridge them:   merge from the left, then update

Tie-breaks
  Events are folded in time order. Those of one key at the same instant are put in the order of
  their content before they come here, so that a re-run of a batch folds them alike. Open sessions
  are merged in the order of their starts. At the same start an open session goes before an event.

A refused step changes nothing that is stored: states are decoded anew for every fold.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from sessionkit._functions import call_failed, name_of
from sessionkit.errors import UserFunctionError, with_hint
from sessionkit.session import SessionSpec
from sessionkit.timeouts import starts_new_session

__all__ = ["FoldError", "Unions", "call_failed", "fold", "unite"]

Instants: TypeAlias = npt.NDArray[np.int64]


class FoldError(UserFunctionError):
    """
    Raised when a function raised or returned the wrong thing during a fold.

    `event` is the place of the event among those folded; `merged` is set instead where `merge`
    failed: the place of the right one among the open sessions.
    """

    event: int | None = None
    merged: int | None = None


@attrs.frozen
class Unions:
    """
    Sessions as unions of intervals, in the order of their keys and starts.

    Attributes:
        first: For each session, the place of its first interval in the sorted input.
        start: For each session, its start in microseconds.
        end: For each session, its end in microseconds, exclusive.
    """

    first: npt.NDArray[np.intp]
    start: Instants
    end: Instants

    def sums(self, weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return, for each session, the sum of what its intervals weigh."""
        summed: npt.NDArray[np.int64] = np.add.reduceat(weights, self.first)
        return summed


def unite(keys: Instants, starts: Instants, ends: Instants, *, gap_inclusive: bool) -> Unions:
    """Join intervals, sorted by (key, start), at least one, into sessions; keys count from 0."""
    new = np.ones(len(keys), np.bool_)
    new_key = keys[1:] != keys[:-1]
    furthest = _furthest_end(keys, ends, new_key)
    apart = starts_new_session(starts[1:], furthest[:-1], gap_inclusive=gap_inclusive)
    new[1:] = new_key | apart
    first = np.flatnonzero(new)
    return Unions(first, starts[first], np.maximum.reduceat(ends, first))


def _furthest_end(keys: Instants, ends: Instants, new_key: npt.NDArray[np.bool_]) -> Instants:
    """Return the running maximum of the ends within each key."""
    if bool(np.all((ends[1:] >= ends[:-1]) | new_key)):
        return ends
    # One running maximum serves all keys when ends are replaced by their rank and each key is
    # lifted above the one before; ranks keep the sum within 64 bits, instants would not.
    ascending = np.argsort(ends, kind="stable")
    rank = np.empty(len(ends), np.int64)
    rank[ascending] = np.arange(len(ends))
    lift = keys * len(ends)
    return ends[ascending[np.maximum.accumulate(lift + rank) - lift]]


def fold(
    spec: SessionSpec[Any, Any, Any], key: Any, opened: Sequence[Any], events: Sequence[Any]
) -> Any:
    """
    Fold one session: merge what was open, then take its events in order.

    Args:
        spec: Whose functions are called.
        key: The key, as the functions see it.
        opened: The states of the open sessions, by start; they may be changed.
        events: The events in order. At least one state or event is given.

    Raises:
        FoldError: A function raised, or returned something else than a state.
    """
    if opened:
        state, rest = _merged(spec, key, opened), events
    else:
        state, rest = _created(spec, key, events[0]), events[1:]
    update, cls = spec.update, spec.state
    event = None
    try:
        for event in rest:
            state = update(state, event)
            if state.__class__ is not cls:
                _refuse_type("update", update, cls, state)
    except Exception as error:
        raise _at(_fold_error("update", update, key, error), events, event) from error
    return state


def _created(spec: SessionSpec[Any, Any, Any], key: Any, event: Any) -> Any:
    try:
        state = spec.create(key, event)
        if state.__class__ is not spec.state:
            _refuse_type("create", spec.create, spec.state, state)
    except Exception as error:
        raise _at(_fold_error("create", spec.create, key, error), [event], event) from error
    return state


def _merged(spec: SessionSpec[Any, Any, Any], key: Any, opened: Sequence[Any]) -> Any:
    state = opened[0]
    for place in range(1, len(opened)):
        merge = spec.merge or _no_merge
        try:
            state = merge(state, opened[place])
            if state.__class__ is not spec.state:
                _refuse_type("merge", merge, spec.state, state)
        except Exception as error:
            failure = _fold_error("merge", merge, key, error)
            failure.merged = place
            raise failure from error
    return state


def _no_merge(_: Any, __: Any) -> Any:
    message = "two open sessions met although the spec has no `merge`"
    raise UserFunctionError(with_hint(message, "pass merge=..."))


def _fold_error(role: str, function: Callable[..., Any], key: Any, error: Exception) -> FoldError:
    return FoldError(call_failed(role, function, repr(key), error))


def _at(failure: FoldError, events: Sequence[Any], event: Any) -> FoldError:
    failure.event = next(place for place, other in enumerate(events) if other is event)
    return failure


def _refuse_type(role: str, function: Callable[..., Any], cls: type[Any], found: Any) -> NoReturn:
    what = f"`{role}` ({name_of(function)}) must return a {cls.__name__}"
    hint = "end the function with `return state`" if found is None else f"build a {cls.__name__}"
    raise UserFunctionError(with_hint(f"{what}, found {type(found).__name__}", hint))
