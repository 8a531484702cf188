"""
The fold of a session, one step after another: to find failures, or to ask `state_gap`.

A session is folded in one order, here and in `fold`: first the open sessions that became part of it
are merged, in the order of their starts; then its events are taken in the order of time, those at
one instant in the order of their content, so that a micro-batch that runs again folds them alike.
Under `state_gap` they come later anyway, since it needs sessions whose events came in order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Numbers
from sessionkit._engine.rows.objects import build_events, check_fit, decode_keys, decode_states
from sessionkit._engine.sessions.plan import Members
from sessionkit._instants import instant_of, span_us
from sessionkit.errors import UserFunctionError, with_hint
from sessionkit.spec.functions import call_failed, name_of, wrong_class
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
        except MemoryError:
            raise
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

    Attributes:
        numbers: The number of the event at each place, below 0 for an open session.
        refused: Why its class refuses an event, by its place.
        tried: The places where a function has failed once.
        strict: After these places the state must fit its fields.
        at: The place where a function has failed last.
    """

    fold: SessionFold
    key: Any
    first: int
    numbers: Sequence[int]
    contents: Sequence[Any]
    refused: Mapping[int, str]
    tried: set[int] = attrs.field(factory=set)
    strict: set[int] = attrs.field(factory=set)
    at: int = -1

    @property
    def stop(self) -> int:
        return self.first + len(self.numbers)

    def is_event(self, place: int) -> bool:
        return self.numbers[place - self.first] >= 0

    def after(self, state: Any, place: int) -> Any:
        """Fold what is at a place into a state, None at first, which may be changed in place."""
        content, spec, key = self.contents[place - self.first], self.fold.spec, self.key
        self.at = place
        if self.is_event(place):
            role = "create" if state is None and self.fold.create else "update"
            state = self.fold.added(key, state, content)
        else:
            # A fold may be done again, so what is stored must stay as it is.
            content = self.copied(content)
            if state is None:
                return content
            role, state = "merge", self.fold.merged(key, state, content)
        if place in self.strict:
            function = getattr(spec.functions, role)
            check_fit([state], spec.state, role, function, key, "left a state that")
        return state

    def copied(self, state: Any) -> Any:
        return None if state is None else codec_of(self.fold.spec.state).copied(state)

    def fails_again(self, place: int) -> bool:
        """Return whether a function has failed at a place before."""
        fails_again = place in self.tried
        self.tried.add(place)
        return fails_again


@attrs.define(eq=False)
class Log:
    """
    The fold of a session: the places that were folded, and a copy of the state on the way.

    It copies the state after one place, two more, four more and so on. Where a function fails, it
    goes back to the copy, folds on, and copies the state again right before that place. Only where
    the function fails again, the place has failed. So there are few copies where few places fail,
    and a place is folded about twice at most.

    A state must fit its fields where it's stored, at the end. Where it doesn't, the session is
    folded once more, and each event must leave a state that fits.

    Attributes:
        places: The places of the session.
        length: How many of them are in it; what follows may be another session's now.
        done: How many of them are in the `state`.
        copy: The last copy, and how many places are in it.
        copy_after: How many places after the copy the next one is due.
    """

    part: CarefulFold
    places: list[int] = attrs.field(factory=list, init=False)
    length: int = attrs.field(default=0, init=False)
    done: int = attrs.field(default=0, init=False)
    state: Any = attrs.field(default=None, init=False)
    copy: tuple[int, Any] = attrs.field(default=(0, None), init=False)
    copy_after: int = attrs.field(default=1, init=False)

    def fold(self, place: int) -> None:
        """Fold what is at a place, unless it was folded there already; a failure is raised."""
        length, places = self.length, self.places
        if length == len(places) or places[length] != place:
            self._cut()
            places.append(place)
            self._run()
        self.length += 1

    def ended(self, length: int) -> Any:
        """Return the state after a number of places; one that doesn't fit is a failure."""
        self.length = length
        self._cut()
        self._run()
        spec, has_events = self.part.fold.spec, any(map(self.part.is_event, self.places))
        if has_events and spec.on_error == "reject" and codec_of(spec.state).misfit(self.state):
            self.part.strict.update(self.places)
            self._go_back(0)
            self._run()
        return self.state

    def gap_us(self, rules: SessionRules) -> int | None:
        """Return the gap that the state gives now, if any; a failure is that of the last place."""
        state_gap, part, last = rules.state_gap, self.part, self.places[self.length - 1]
        if state_gap is None or not part.is_event(last):
            return None
        self._cut()
        self._run()
        while True:
            part.at = last
            try:
                return _gap_of(state_gap, self.state, rules.longest)
            except MemoryError:
                raise
            except Exception as error:
                if not part.fails_again(last):
                    continue
                self._go_back(self.length - 1)
                failure = call_failed("state_gap", state_gap, repr(part.key), error)
                raise UserFunctionError(*failure) from error

    def _run(self) -> None:
        """Fold what isn't in the state yet."""
        part, fails_at = self.part, -1
        while self.done < len(self.places):
            if self.done - self.copy[0] >= self.copy_after or self.done == fails_at:
                self.copy = self.done, part.copied(self.state)
                # Copies get rarer as long as nothing fails.
                self.copy_after = 1 if self.done == fails_at else 2 * self.copy_after
            place = self.places[self.done]
            try:
                self.state = part.after(self.state, place)
            except UserFunctionError:
                fails_at, fails_again = self.done, part.fails_again(place)
                if fails_again:
                    del self.places[fails_at:]
                self._go_back(fails_at)
                if fails_again:
                    raise
            else:
                self.done += 1

    def _cut(self) -> None:
        """Forget the places that aren't in the session any more."""
        if self.length < len(self.places):
            del self.places[self.length :]
            if self.length < self.done:
                self._go_back(self.length)

    def _go_back(self, length: int) -> None:
        """Go back to the copy, if no more places are in it; else to the beginning."""
        if length < self.copy[0]:
            self.copy = 0, None
        self.done, self.state, self.copy_after = self.copy[0], self.part.copied(self.copy[1]), 1


def _gap_of(state_gap: Callable[[Any], Any], state: Any, longest: timedelta) -> int:
    """Return the gap that a state gives, in microseconds."""
    returned = state_gap(state)
    if isinstance(returned, timedelta) and timedelta(0) < returned <= longest:
        return span_us(returned)
    what = f"`state_gap` ({name_of(state_gap)})"
    if not isinstance(returned, timedelta):
        what = f"{what} must return a timedelta, found {type(returned).__name__}"
        raise UserFunctionError(with_hint(what, "return timedelta(minutes=...)"))
    if returned <= timedelta(0):
        what = f"{what} must return a gap longer than zero, found {returned}"
        raise UserFunctionError(with_hint(what, "return the shortest gap that a session may have"))
    what = f"{what} must return no gap longer than `gap`, {longest}, found {returned}"
    raise UserFunctionError(with_hint(what, "pass the longest one as `gap`"))


def careful_folds(members: Members, first: Numbers, sizes: Numbers) -> Iterator[CarefulFold]:
    """Yield the folds of parts, each of one key, from their first places and sizes."""
    spec, touched, opened = members.spec, members.touched, len(members.rows)
    fold, after = SessionFold.of(spec), np.cumsum(sizes)
    # Parts at 2 and 7, of 3 and 2 intervals, end at 3 and 5 among all of them. So 2 and 4 are added
    # to 0 1 2 and to 3 4: the places 2 3 4 and 7 8.
    places = np.repeat(first + sizes - after, sizes) + np.arange(after[-1])
    numbers = members.order[places]
    is_event = numbers >= opened
    stored, arrived = touched.take(pa.array(numbers[~is_event])), numbers[is_event] - opened
    objects, reasons = build_events(spec, members.events.table, arrived)
    # `reasons` counts the events: of an open session and two events, the place 2 is the event 1.
    refused = {int(places[is_event][number]): why for number, why in reasons.items()}
    states = iter(decode_states(spec.state, stored))
    events = iter(fold.timed(objects, members.events.starts[arrived]))
    names = touched.column_names[: len(spec.keys)]
    # Open sessions and then events, as members are numbered: so the first of a part names its key.
    key_rows = pa.concat_tables([touched.select(names), members.events.table.select(names)])
    keys = decode_keys(spec, key_rows.take(pa.array(members.order[first])))
    parts = zip(keys, first.tolist(), np.split(numbers - opened, after[:-1]), strict=True)
    for key, place, part in parts:
        # A part with the numbers -2 -1 0 takes two open sessions, and then an event.
        contents = [next(events if event >= 0 else states) for event in part.tolist()]
        yield CarefulFold(fold, key, place, part.tolist(), contents, refused)
