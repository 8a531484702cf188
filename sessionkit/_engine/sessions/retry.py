"""
Sessions that can't be folded, where failures are data: folded again, to say why.

Under `on_error="reject"` they're folded without the events that fail.

A failed event leaves no trace. So events are tried on a copy of the state, and the state goes on
without those that fail: at first one event, then two, four and so on, until one fails. So there are
few copies where few events fail, and at most about two calls and a copy an event. A session may
fall apart where a failed event was all that held two parts together; then the part after it begins
anew. A failed event between two stored sessions makes both parts start again.

A state must fit its fields where it's stored, after the last event. Where it doesn't, each event
must leave one that fits.

Under rules that depend on the order of events, every session of a key after a failed event may be
another one: see `sifting`. Under `on_error="drop_session"` the first failure is all that counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from sessionkit._engine.rows.objects import build_events, decode_keys, decode_states
from sessionkit._engine.rows.table import micros
from sessionkit._engine.sessions.fold import FoldError, SessionFold, timed
from sessionkit._engine.sessions.plan import Plan
from sessionkit.errors import StateValueError
from sessionkit.spec.functions import Failure, name_of
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state import codec_of
from sessionkit.timeouts import starts_new_session

__all__ = ["FirstFailure", "added", "check_fit", "first_failures", "refold"]

Mask: TypeAlias = npt.NDArray[np.bool_]


@attrs.frozen(eq=False)
class Interval:
    """
    One part of a session.

    Attributes:
        start: Its start, in microseconds.
        end: Its end, exclusive.
        content: The event, or the state of an open session.
        event: The place of the event among all; None for an open session.
        events: How many events it stands for.
    """

    start: int
    end: int
    content: Any
    event: int | None
    events: int

    @property
    def is_held(self) -> bool:
        """Whether it's an open session with a state: all of its events may be discarded."""
        return self.event is None and self.events > 0


Part: TypeAlias = list[Interval]


@attrs.frozen
class FirstFailure:
    """
    Why a session can't be folded.

    Attributes:
        failure: The first failure.
        events: The places of the events over which it came: one, or all where none fails alone.
    """

    failure: Failure
    events: list[int]


@attrs.frozen
class Refolded:
    """Why events fail, by their places, and the states of the sessions that others make."""

    failures: dict[int, Failure]
    states: list[Any]


def refold(plan: Plan) -> Refolded:
    """
    Fold the sessions of a plan again, event by event, and leave out the events that fail.

    Args:
        plan: Which events and open sessions go together; each of its sessions has events.
    """
    fold, failures, states = SessionFold.of(plan.spec), dict[int, Failure](), list[Any]()
    keys = decode_keys(plan.spec, plan.keys_of(plan.active))
    for key, part in zip(keys, _parts(plan, plan.active), strict=True):
        waiting, found = [part], dict[int, Any]()
        while waiting:
            waiting += _Retry(fold, key, failures, found).run(waiting.pop())
        states += [found[start] for start in sorted(found)]
    return Refolded(failures, states)


def first_failures(plan: Plan, failed: Mask) -> list[FirstFailure]:
    """
    Return, for each session that can't be folded, why not.

    Args:
        plan: Which events and open sessions go together.
        failed: Its sessions that can't be folded.
    """
    fold = SessionFold.of(plan.spec)
    keys = decode_keys(plan.spec, plan.keys_of(failed))
    return [
        _Retry(fold, key, {}, {}).first_failure(part, plan.failures)
        for key, part in zip(keys, _parts(plan, failed), strict=True)
    ]


def _parts(plan: Plan, chosen: Mask) -> Iterator[Part]:
    """Yield the intervals of each of the chosen sessions, in order."""
    spec, opened, places = plan.spec, plan.opened_of(chosen), plan.places_of(chosen)
    came = plan.events.at(places)
    contents = timed(spec, build_events(spec, came.table)[0], came.starts)
    times = came.starts.tolist(), came.ends.tolist()
    events = map(Interval, *times, contents, places.tolist(), repeat(1))
    starts, ends = micros(opened["start"]).tolist(), micros(opened["end"]).tolist()
    states, counts = decode_states(spec.state, opened), opened["events"].to_pylist()
    sessions = map(Interval, starts, ends, states, repeat(None), counts)
    members = plan.is_event[plan.unions.spread(chosen)].tolist()
    intervals = iter([next(events if is_event else sessions) for is_event in members])
    for size in plan.unions.sizes[chosen].tolist():
        yield list(islice(intervals, size))


@attrs.frozen(eq=False)
class _Retry:
    """
    The fold of one session, without the events that fail.

    Attributes:
        fold: The functions.
        key: Its key.
        failures: Why events fail, by their places.
        states: The states of sessions with events that don't, by their starts.
        must_fit: Whether each event must leave a state that fits.
    """

    fold: SessionFold
    key: Any
    failures: dict[int, Failure]
    states: dict[int, Any]
    must_fit: bool = False

    def run(self, part: Part) -> Sequence[Part]:
        """Fold a part, note what became of it, and return the parts that are left to be done."""
        opened = [interval for interval in part if interval.is_held]
        try:
            state = self._merged(opened)
        except FoldError as error:
            return self._without_bridges(part, opened[error.merged or 0], Failure.of(error))
        kept: Part = []
        end = part[0].start
        place, most = 0, 1
        while place < len(part):
            if kept and self._is_apart(part[place], end):
                return self._fallen_apart(part, place, state, kept)
            run = self._together(part[place : place + most], end)
            tried, number, failed = self._tried(state, run)
            if failed is None:
                state, kept = tried, kept + run
                end = max(end, *(one.end for one in run))
                place, most = place + number, 2 * most
            elif number:
                most = number
            else:
                self._fails(part[place], failed)
                place, most = place + 1, 1
        return self._settled(state, kept)

    def _together(self, part: Part, end: int) -> Part:
        """Return the first intervals of a part, up to one that is apart from those before it."""
        for number, one in enumerate(part):
            if number and self._is_apart(one, end):
                return part[:number]
            end = max(end, one.end)
        return part

    def _tried(self, state: Any, part: Part) -> tuple[Any, int, FoldError | None]:
        """Return a state with the events of a part, or how many come before one that fails."""
        state = self._copied(state)
        for number, interval in enumerate(part):
            if interval.event is not None:
                try:
                    state = self._with(state, interval.content)
                except FoldError as error:
                    return None, number, error
        return state, len(part), None

    def _with(self, state: Any, event: Any) -> Any:
        """Return a state, which may be changed, with one more event."""
        return added(self.fold, self.key, state, event, must_fit=self.must_fit)

    def _copied(self, state: Any) -> Any:
        return None if state is None else codec_of(self.fold.spec.state).copied(state)

    def _fails(self, interval: Interval, error: FoldError) -> None:
        if interval.event is not None:
            self.failures[interval.event] = Failure.of(error)

    def _is_apart(self, interval: Interval, end: int) -> bool:
        inclusive = self.fold.spec.timeout.gap_inclusive
        return starts_new_session(interval.start, end, gap_inclusive=inclusive)

    def _merged(self, opened: Part) -> Any:
        """Return the state of the open sessions together; None where there are none."""
        if not opened:
            return None
        state = self._copied(opened[0].content)
        for place, right in enumerate(opened[1:], start=1):
            try:
                state = self.fold.merged(self.key, [state, self._copied(right.content)])
                if self.must_fit:
                    check_fit(self.fold, "merge", self.key, state)
            except FoldError as error:
                error.merged = place
                raise
        return state

    def _without_bridges(self, part: Part, right: Interval, failure: Failure) -> Sequence[Part]:
        """Blame the events that lead up to the session on the right, which can't be merged."""
        place = part.index(right)
        for one in part[:place]:
            if one.event is not None and not self._is_apart(right, one.end):
                self.failures[one.event] = failure
        return self._remaining(part[:place]), part[place:]

    def _fallen_apart(self, part: Part, place: int, state: Any, kept: Part) -> Sequence[Part]:
        """Go on where a failed event no longer holds a part together."""
        if any(interval.event is None for interval in part[place:]):
            # A session on the right was merged into the left too early.
            return self._remaining(part[:place]), part[place:]
        return [*self._settled(state, kept), part[place:]]

    def _settled(self, state: Any, kept: Part) -> Sequence[Part]:
        """Note what is left of a part; where its state doesn't fit, see which events are why."""
        came = any(one.event is not None for one in kept)
        if came and not self.must_fit and codec_of(self.fold.spec.state).misfit(state) is not None:
            return attrs.evolve(self, must_fit=True).run(kept)
        if came:
            self.states[kept[0].start] = state
        return []

    def first_failure(self, part: Part, known: Mapping[int, Failure]) -> FirstFailure:
        """
        Return the first event that fails; where none does alone, that the session does.

        Args:
            part: What the session is made of.
            known: Why events fail, by their places, as far as that is known.
        """
        events = [interval.event for interval in part if interval.event is not None]
        try:
            state = self._merged([interval for interval in part if interval.is_held])
        except FoldError as error:
            return FirstFailure(Failure.of(error), events)
        for interval in part:
            if interval.event is None:
                continue
            if interval.event in known:
                return FirstFailure(known[interval.event], [interval.event])
            try:
                state = self._with(state, interval.content)
            except FoldError as error:
                return FirstFailure(Failure.of(error), [interval.event])
        if not self.must_fit:
            return attrs.evolve(self, must_fit=True).first_failure(part, known)
        return FirstFailure(Failure("its session can't be folded, though each event can"), events)

    def _remaining(self, part: Part) -> Part:
        return [one for one in part if one.event not in self.failures]


def added(fold: SessionFold, key: Any, state: Any, event: Any, *, must_fit: bool) -> Any:
    """
    Return a state, which may be changed, with one more event.

    Args:
        fold: The functions.
        key: The key.
        state: The state; None for none.
        event: The event, as it's folded.
        must_fit: Whether it fails where it leaves a state that doesn't fit.

    Raises:
        FoldError: The event fails.
    """
    is_first = state is None and fold.spec.create is not None
    found = fold.fold(key, [] if state is None else [state], [event])
    if must_fit:
        check_fit(fold, "create" if is_first else "update", key, found)
    return found


def check_fit(fold: SessionFold, role: str, key: Any, state: Any) -> None:
    """
    Check that a state fits its fields.

    Raises:
        FoldError: It doesn't; the function that left it is named.
    """
    misfit = codec_of(fold.spec.state).misfit(state)
    if misfit is not None:
        raise _left_a_misfit(fold.spec, role, key, misfit)


def _left_a_misfit(spec: AnySessionSpec, role: str, key: Any, misfit: StateValueError) -> FoldError:
    what = f"`{role}` ({name_of(getattr(spec, role))}), for {key!r}, left a state"
    return FoldError(f"{what} that does not fit: {misfit}")
