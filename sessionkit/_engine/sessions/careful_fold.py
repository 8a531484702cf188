"""
The fold of a session, one step after another: to find failures, or to ask `state_gap`.

A session is folded in one order, here and in `fold`: first the open sessions that became part of it
are merged, in the order of their starts; then its events are taken in the order of time, those at
one instant in the order of their content, so that a micro-batch that runs again folds them alike.
Under `state_gap` they come later anyway, since it needs sessions whose events came in order.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Numbers
from sessionkit._engine.rows.objects import build_events, check_fit, decode_keys, decode_states
from sessionkit._engine.sessions.plan import Members
from sessionkit._instants import instant_of, span_us
from sessionkit.errors import UserFunctionError, with_hint
from sessionkit.spec.functions import Failure, call_failed, name_of, wrong_class
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of
from sessionkit.state._fields import is_frozen
from sessionkit.timeouts._session_rules import SessionRules


@attrs.frozen
class SessionFold:
    """The functions of a spec, which take an event, or an event and its time."""

    spec: AnySessionSpec
    create: Callable[[Any, Any], Any] | None
    update: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any]
    may_return_nothing: frozenset[str]
    takes_time: bool

    @classmethod
    def of(cls, spec: AnySessionSpec) -> "SessionFold":
        functions = spec.functions
        timed = functions.takes_time

        def over_events(function: Callable[..., Any], role: str) -> Callable[[Any, Any], Any]:
            if not timed:
                return function
            if role in timed:
                return lambda first, pair: function(first, *pair)
            return lambda first, pair: function(first, pair[0])

        create = functions.create and over_events(functions.create, "create")
        update = over_events(functions.update, "update")
        merge = functions.merge or _no_merge
        changing = set() if is_frozen(spec.state) else {"merge", "update"} - spec.must_return
        return cls(spec, create, update, merge, frozenset(changing), bool(timed))

    def timed(self, objects: list[Any], starts_us: Numbers) -> list[Any]:
        """Return events as the functions take them: with their times where one needs these."""
        if not self.takes_time:
            return objects
        return list(zip(objects, map(instant_of, starts_us.tolist()), strict=True))

    def merged(self, key: Any, left: Any, right: Any) -> Any:
        """Merge the states of two open sessions that events bridge; a failure is raised."""
        return self._called("merge", self.merge, key, left, right)

    def added(self, key: Any, state: Any, event: Any) -> Any:
        """Add an event to a state, None at first, which may be changed in place."""
        if state is None:
            if self.create is not None:
                return self._called("create", self.create, key, key, event)
            state = self._called("state", self.spec.state, key)
        return self._called("update", self.update, key, state, event)

    def _called(self, role: str, function: Callable[..., Any], key: Any, *arguments: Any) -> Any:
        """Return the state after a call; None means that the function changed its argument."""
        user_function = getattr(self.spec.functions, role, None) or function
        try:
            returned = function(*arguments)
            if returned is None and role in self.may_return_nothing:
                return arguments[0]
            _check_state(role, user_function, self.spec.state, returned)
        except Exception as error:
            raise UserFunctionError(*call_failed(role, user_function, repr(key), error)) from error
        return returned


def _no_merge(_: Any, __: Any) -> Any:
    met = "two open sessions met although the spec has no `merge`"
    raise UserFunctionError(with_hint(met, "pass merge=..."))


def _check_state(role: str, function: Callable[..., Any], cls: type[Any], returned: Any) -> None:
    if returned.__class__ is not cls:
        what = f"`{role}` ({name_of(function)}) must return a"
        hint = "end the function with `return state`" if returned is None else "build one"
        raise UserFunctionError(wrong_class(what, cls, returned, hint))


@attrs.define(eq=False)
class CarefulFold:
    """
    The fold of open sessions and events of one key, at consecutive places.

    `numbers` has the number of the event at each place, below 0 for an open session. After the
    places in `strict`, the state must fit its fields. `at` is the place where a function has
    failed.
    """

    fold: SessionFold
    key: Any
    first: int
    numbers: Sequence[int]
    contents: Sequence[Any]
    strict: set[int] = attrs.field(factory=set)
    at: int = -1

    @property
    def places(self) -> range:
        return range(self.first, self.first + len(self.numbers))

    def event_at(self, place: int) -> int | None:
        """Return the number of the event at a place; None for an open session."""
        number = self.numbers[place - self.first]
        return None if number < 0 else number

    def opened(self, places: Iterable[int]) -> list[int]:
        """Return the places that hold an open session."""
        return [place for place in places if self.numbers[place - self.first] < 0]

    def state_of(self, places: Sequence[int]) -> Any:
        """Fold the open sessions and events at some places, or raise a UserFunctionError."""
        opened, state = self.opened(places), None
        # Open sessions are merged before any event is added, as in the quick fold.
        for place in [*opened, *(at for at in places if self.numbers[at - self.first] >= 0)]:
            state = self.after(state, place)
        return state

    def after(self, state: Any, place: int) -> Any:
        """Fold what is at a place into a state, None at first, which may be changed in place."""
        event, content = self.event_at(place), self.contents[place - self.first]
        spec, key, self.at = self.fold.spec, self.key, place
        if event is None:
            # A fold may be done again, so what is stored must stay as it is.
            content = self.copied(content)
            if state is None:
                return content
            role, state = "merge", self.fold.merged(key, state, content)
        else:
            role = "create" if state is None and self.fold.create else "update"
            state = self.fold.added(key, state, content)
        if place in self.strict:
            function = getattr(spec.functions, role)
            check_fit([state], spec.state, role, function, key, "left a state that")
        return state

    def copied(self, state: Any) -> Any:
        return None if state is None else codec_of(self.fold.spec.state).copied(state)

    def gap_us(self, rules: SessionRules, state: Any, last: int, *, extends: bool) -> int | None:
        """Return the gap that the state gives after an instant; None if it gives none."""
        if rules.state_gap is None or not extends or self.event_at(last) is None:
            return None
        state_gap, self.at = rules.state_gap, last
        try:
            returned = state_gap(state)
            _check_gap(state_gap, returned, rules.longest)
        except Exception as error:
            failure = call_failed("state_gap", state_gap, repr(self.key), error)
            raise UserFunctionError(*failure) from error
        return span_us(returned)


def _check_gap(state_gap: Callable[[Any], Any], returned: Any, longest: timedelta) -> None:
    what = f"`state_gap` ({name_of(state_gap)})"
    if not isinstance(returned, timedelta):
        what = f"{what} must return a timedelta, found {type(returned).__name__}"
        raise UserFunctionError(with_hint(what, "return timedelta(minutes=...)"))
    if span_us(returned) <= 0:
        what = f"{what} must return a gap longer than zero, found {returned}"
        raise UserFunctionError(with_hint(what, "return the shortest gap that a session may have"))
    if returned > longest:
        what = f"{what} must return no gap longer than `gap`, {longest}, found {returned}"
        raise UserFunctionError(with_hint(what, "pass the longest one as `gap`"))


def careful_folds(members: Members, first: Numbers, sizes: Numbers) -> Iterator[CarefulFold]:
    """Yield the folds of parts, each of one key, from their first places and sizes."""
    spec, touched, number = members.spec, members.touched, len(members.places)
    fold, after = SessionFold.of(spec), np.cumsum(sizes)
    # Parts at 2 and 7, of 3 and 2 intervals, end at 3 and 5 among all of them. So 2 and 4 are added
    # to 0 1 2 and to 3 4: the places 2 3 4 and 7 8.
    numbers = members.order[np.repeat(first + sizes - after, sizes) + np.arange(after[-1])]
    stored = touched.take(pa.array(numbers[numbers < number]))
    arrived = members.events.at(numbers[numbers >= number] - number)
    opened = iter(decode_states(spec.state, stored))
    events = iter(fold.timed(build_events(spec, arrived.table)[0], arrived.starts))
    names = touched.column_names[: len(spec.keys)]
    # Open sessions and then events, as members are numbered: so the first of a part names its key.
    key_rows = pa.concat_tables([touched.select(names), members.events.table.select(names)])
    keys = decode_keys(spec, key_rows.take(pa.array(members.order[first])))
    parts = zip(keys, first.tolist(), np.split(numbers - number, after[:-1]), strict=True)
    for key, place, part in parts:
        # A part with the numbers -2 -1 0 takes two open sessions, and then an event.
        contents = [next(events if event >= 0 else opened) for event in part.tolist()]
        yield CarefulFold(fold, key, place, part.tolist(), contents)


@attrs.define
class StateGaps:
    """
    The gaps that states give, while sessions are cut; see `cutting.Gaps`.

    The states are thrown away: the plan is then folded like any other. After an event that fails,
    nothing keeps its session open.
    """

    rules: SessionRules
    members: Members
    failures: dict[int, Failure] = attrs.field(factory=dict)
    """The first failure of each failing session, by the number of the event."""
    state: Any = None
    has_failed: bool = False

    def __call__(self, first: Numbers, sizes: Numbers) -> Iterator[Callable[..., int | None]]:
        """Yield, for each part, the function that gives the gap after an instant."""
        for part in careful_folds(self.members, first, sizes):
            yield partial(self._after, part)

    def _after(
        self, part: CarefulFold, places: Sequence[int], *, extends: bool, begins: bool
    ) -> int | None:
        if begins:
            self.state, self.has_failed = None, False
        if self.has_failed:
            return None
        try:
            for place in places:
                self.state = part.after(self.state, place)
            return part.gap_us(self.rules, self.state, places[-1], extends=extends)
        except UserFunctionError as error:
            self.has_failed, event = True, part.event_at(part.at)
            if event is not None:
                self.failures[event] = Failure.of(error)
            return None
