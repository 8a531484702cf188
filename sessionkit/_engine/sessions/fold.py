"""
The functions of the user, as they fold one session.

A session is folded in one order, whoever folds it: first the open sessions that became part of it
are merged, in the order of their starts; then its events are taken in the order of time, those at
one instant in the order of their content, so that a micro-batch that runs again folds them alike.

`fold_all` is the loop over all sessions; it says only which of them fail. `careful_fold` takes one
step after another, from new objects since the functions may have changed the old ones, and says
why.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import attrs
import numpy as np
import numpy.typing as npt

from sessionkit._classes import is_frozen
from sessionkit._instants import instant_of
from sessionkit.errors import UserFunctionError, with_hint
from sessionkit.spec.functions import call_failed, name_of, wrong_class
from sessionkit.spec.session import AnySessionSpec


class FoldError(UserFunctionError):
    """
    Raised when a function raised or returned the wrong thing during a fold.

    `place` is where the open session or event stands over which it did, once that's known.
    """

    place: int | None = None


@attrs.frozen
class SessionFold:
    """The functions of a spec, over what is folded: an event, or an event and its time."""

    spec: AnySessionSpec
    create: Callable[[Any, Any], Any] | None
    update: Callable[[Any, Any], Any]
    may_return_nothing: bool
    takes_time: bool

    @classmethod
    def of(cls, spec: AnySessionSpec) -> "SessionFold":
        """Look up once what every fold needs."""
        functions = spec.functions
        create: Callable[..., Any] | None = functions.create
        if create is not None:
            create = _over_events(spec, create, takes_time=functions.create_takes_time)
        update = _over_events(spec, functions.update, takes_time=functions.update_takes_time)
        takes_time = spec.functions.create_takes_time or spec.functions.update_takes_time
        return cls(spec, create, update, not is_frozen(spec.state), takes_time)

    def timed(self, objects: list[Any], starts_us: npt.NDArray[np.int64]) -> list[Any]:
        """Return events as they are folded: with their times where a function takes these."""
        if not self.takes_time:
            return objects
        return list(zip(objects, map(instant_of, starts_us.tolist()), strict=True))

    def fold_all(  # noqa: C901 (a call more a session would show in the speed)
        self,
        new_keys: Iterator[Any],
        opened: Sequence[Any],
        events: Sequence[Any],
        counts: Iterable[tuple[int, int]],
    ) -> tuple[list[Any], list[int]]:
        """
        Return the states of many sessions, and the places of those that fail.

        `new_keys` are of those without an open session, where there is a `create`; `counts` says
        how many of the open sessions, whose states may be changed, and of the events are whose.
        """
        cls, create, update = self.spec.state, self.create, self.update
        needs_return = not self.may_return_nothing
        states: list[Any] = []
        failed: list[int] = []
        old = new = 0
        for opened_count, event_count in counts:
            first_old, first_new = old, new
            old, new = old + opened_count, new + event_count
            try:
                if opened_count:
                    state = opened[first_old]
                    for right in opened[first_old + 1 : old]:
                        state = self.merged(None, state, right)
                elif create is None:
                    state = cls()
                else:
                    state = create(next(new_keys), events[first_new])
                    first_new += 1
                    if state.__class__ is not cls:
                        _refuse_type("create", self.spec, state)
                for event in events[first_new:new]:
                    found = update(state, event)
                    if found is not state:
                        if found.__class__ is cls:
                            state = found
                        elif needs_return or found is not None:
                            _refuse_type("update", self.spec, found)
            except Exception:  # noqa: BLE001 (the functions of the user)
                failed.append(len(states))
                state = None
            states.append(state)
        return states, failed

    def merged(self, key: Any, left: Any, right: Any) -> Any:
        """
        Return the state of two open sessions that events bridge.

        Raises:
            FoldError: `merge` raised, or returned something other than a state.
        """
        merge = self.spec.functions.merge or _no_merge
        try:
            return self._kept("merge", left, merge(left, right))
        except Exception as error:
            failure = _fold_error("merge", merge, key, error)
            raise failure from error

    def added(self, key: Any, state: Any, event: Any) -> Any:
        """
        Return a state, which may be changed, with one more event; None for no state yet.

        Raises:
            FoldError: A function raised, or returned something other than a state.
        """
        if state is None:
            if self.create is not None:
                return self._created(self.create, key, event)
            state = self._made(key)
        try:
            return self._kept("update", state, self.update(state, event))
        except Exception as error:
            failure = _fold_error("update", self.spec.functions.update, key, error)
            raise failure from error

    def _made(self, key: Any) -> Any:
        try:
            return self.spec.state()
        except Exception as error:
            failure = _fold_error("state", self.spec.state, key, error)
            raise failure from error

    def _created(self, create: Callable[[Any, Any], Any], key: Any, event: Any) -> Any:
        try:
            state = create(key, event)
            if state.__class__ is not self.spec.state:
                _refuse_type("create", self.spec, state)
        except Exception as error:
            failure = _fold_error("create", self.spec.functions.create or create, key, error)
            raise failure from error
        return state

    def _kept(self, role: str, given: Any, found: Any) -> Any:
        """Return the state after a call: None says that the given one was changed in place."""
        if found.__class__ is self.spec.state:
            return found
        if found is None and self.may_return_nothing:
            return given
        return _refuse_type(role, self.spec, found)


def _over_events(
    spec: AnySessionSpec, function: Callable[..., Any], *, takes_time: bool
) -> Callable[[Any, Any], Any]:
    """Return a function of events as they are folded: with their times where one takes these."""
    if not (spec.functions.create_takes_time or spec.functions.update_takes_time):
        return function
    if takes_time:
        return lambda first, timed: function(first, *timed)
    return lambda first, timed: function(first, timed[0])


def _no_merge(_: Any, __: Any) -> Any:
    met = "two open sessions met although the spec has no `merge`"
    raise UserFunctionError(with_hint(met, "pass merge=..."))


def _fold_error(role: str, function: Callable[..., Any], key: Any, error: Exception) -> FoldError:
    return FoldError(*call_failed(role, function, repr(key), error))


def _refuse_type(role: str, spec: AnySessionSpec, found: Any) -> NoReturn:
    what = f"`{role}` ({name_of(getattr(spec.functions, role))}) must return a"
    hint = "end the function with `return state`" if found is None else "build one"
    raise UserFunctionError(wrong_class(what, spec.state, found, hint))
