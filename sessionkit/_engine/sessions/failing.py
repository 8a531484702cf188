"""
The search for events that fail under `on_error="reject"`: sessions can be folded without them.

A failed event leaves no trace: the others are planned again without it (`joining`). Its session may
then split in two, and under rules that need an order, every later session may change. So the walk
visits each key once, and cuts its sessions while it folds them. Where it can't tell how the rest
goes on, it ends, and the next plan tells.

The walk copies the state after one event, two more, four more and so on. Where a function fails, it
goes back to the last copy, and copies the state again right before that event. So it makes few
copies where few events fail, and folds an event about twice at most.

A state must fit its fields where it's stored, after the last event. Where it doesn't, the walk
folds the session once more, and each event must leave a state that fits.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

import attrs
import numpy as np

from sessionkit._arrays import Numbers
from sessionkit._engine.boundaries import starts_new_session
from sessionkit._engine.sessions.careful_fold import CarefulFold, careful_folds
from sessionkit._engine.sessions.cutting import (
    CurrentSession,
    Interval,
    RuledIntervals,
    by_times,
    combined,
    cuts_of,
    instants_of,
    may_open,
)
from sessionkit._engine.sessions.plan import Members, Plan, members_of
from sessionkit.errors import UserFunctionError
from sessionkit.spec.functions import Failure
from sessionkit.state._codec import codec_of
from sessionkit.timeouts._session_rules import SessionRules


class UnclearError(Exception):
    """The walk can't go on: only the next plan tells how the rest of a key is cut."""


class Position(NamedTuple):
    """
    The position of a walk: the next instant, and the session before it.

    Attributes:
        turn: The number of the instant.
        folded: How many of its events are in the state already.
        begun: The turn at which the session began; -1 before the first session.
        session: The session without the events of this turn; None until one begins.
        merged: The places of the open sessions that are in the state.
    """

    turn: int = 0
    folded: int = 0
    begun: int = -1
    session: CurrentSession | None = None
    merged: Sequence[int] = ()
    state: Any = None

    def is_apart(self, left: Sequence[Interval]) -> bool:
        """Return whether an instant, without the events that failed, begins another session."""
        session, instant = self.session, combined(left)
        return session is None or session.is_over_at(instant) or bool(session.fired_by(instant))


@attrs.define
class Walk:
    """
    A walk over open sessions and events of one key, at consecutive places.

    `reach` holds, for each place, the end of the session planned there: the open sessions before
    that end are merged before any event is added.

    A walk goes back only where a function fails over an event for the first or the second time, or
    where a session must fit from now on. So it ends.

    Attributes:
        failures: Why events have failed, by their numbers: a function failed twice over each.
        states: The states of the sessions, by their first places.
    """

    part: CarefulFold
    rules: SessionRules
    intervals: Sequence[Interval]
    reach: Numbers
    failures: dict[int, Failure] = attrs.field(factory=dict, init=False)
    states: dict[int, Any] = attrs.field(factory=dict, init=False)
    _tried: set[int] = attrs.field(factory=set, init=False)
    _turns: Sequence[Sequence[Interval]] = attrs.field(init=False)
    _opened: Sequence[int] = attrs.field(init=False)
    _at: Position = attrs.field(default=Position(), init=False)
    _before: Position = attrs.field(default=Position(), init=False)
    """The position before the session, with the previous one; or the beginning of the walk."""
    _saved: Position = attrs.field(default=Position(), init=False)
    _saved_place: int = attrs.field(default=0, init=False)
    _copy_after: int = attrs.field(default=1, init=False)

    def __attrs_post_init__(self) -> None:
        self._turns = instants_of(self.intervals)
        self._opened = self.part.opened(self.part.places)

    def run(self) -> None:
        """Find the events that fail, or raise an UnclearError after some of them."""
        turns, end = self._turns, self.part.places.stop
        # `_ends` may go back to fold a session again, so there is a turn again.
        while self._at.turn < len(turns) or not self._ends(end):
            if left := self._left(turns[self._at.turn]):
                self._take(left)
            else:
                self._at = self._at._replace(turn=self._at.turn + 1, folded=0)

    def _take(self, left: Sequence[Interval]) -> None:
        """Fold the next instant without the events that failed, or go back."""
        at = self._at
        is_judged = at.folded or at.begun == at.turn
        try:
            if not is_judged and at.is_apart(left):
                if not self._may_open(left):
                    # Its events are outside any session, and leave no trace.
                    self._at = at._replace(turn=at.turn + 1)
                    return
                if not self._ends(left[0].place):
                    return
                self._begin(left)
            self._fold(left)
        except UserFunctionError as error:
            self._go_on_without(Failure.of(error))

    def _left(self, intervals: Sequence[Interval]) -> Sequence[Interval]:
        """Return intervals without the events that failed."""
        event_at, failed = self.part.event_at, self.failures
        if not failed:
            return intervals
        return [interval for interval in intervals if event_at(interval.place) not in failed]

    def _may_open(self, left: Sequence[Interval]) -> bool:
        return may_open(self.rules, combined(left))

    def _between(self, first: int, end: int) -> Sequence[Interval]:
        return self._left(self.intervals[first - self.part.first : end - self.part.first])

    def _ends(self, end: int) -> bool:
        """Return whether the session, if any, may end at a place; else go back to its beginning."""
        at, strict = self._at, self.part.strict
        if at.session is None:
            return True
        if any(place >= end for place in at.merged):
            raise UnclearError
        places = [interval.place for interval in self._between(at.session.first, end)]
        is_checked = len(at.merged) == len(places) or strict.issuperset(places)
        if is_checked or codec_of(self.part.fold.spec.state).misfit(at.state) is None:
            self.states[at.session.first] = at.state
            return True
        strict.update(places)
        self._go_back()
        return False

    def _begin(self, left: Sequence[Interval]) -> None:
        """Begin a session with the next instant, or raise a UserFunctionError."""
        turn, first = self._at.turn, left[0].place
        end = self.reach[first - self.part.first]
        merged = [place for place in self._opened if first <= place < end]
        session = CurrentSession.at(self.rules, combined(left))
        self._before, self._at = self._at, Position(turn, 0, turn, session, merged)
        self._at = self._at._replace(state=self.part.state_of(merged))
        self._save(self._at, first)

    def _fold(self, left: Sequence[Interval]) -> None:
        """Fold the remaining events of the next instant, or raise a UserFunctionError."""
        at, part = self._at, self.part
        for place in (interval.place for interval in left[at.folded :]):
            event, state = part.event_at(place), at.state
            if place - self._saved_place >= self._copy_after:
                # Copies get rarer as long as nothing fails: 1, 2, 4 events apart.
                self._save(at, place, 1 if event in self._tried else 2 * self._copy_after)
            if event is not None:
                state = part.after(state, place)
            elif place not in at.merged:
                raise UnclearError
            at = at._replace(folded=at.folded + 1, state=state)
        if (session := at.session) is not None:
            instant = combined(left)
            gap_us = part.gap_us(self.rules, at.state, left[-1].place, extends=instant.extends)
            session = session.after(instant, gap_us)
        self._at = at._replace(turn=at.turn + 1, folded=0, session=session)

    def _save(self, at: Position, place: int, copy_after: int = 1) -> None:
        self._saved = at._replace(state=self.part.copied(at.state))
        self._saved_place, self._copy_after = place, copy_after

    def _go_back(self) -> None:
        """Go back to where the session began."""
        self._at, self._before = self._before, Position()
        self._save(self._at, self._turns[self._at.turn][0].place)

    def _go_on_without(self, failure: Failure) -> None:
        """Go back before the event over which a function failed; the second time, reject it."""
        at, place, begins = self._at, self.part.at, self._at.begun == self._at.turn
        event = self.part.event_at(place)
        if event is None:
            self._reject_up_to(place, failure)
        is_first = event not in self._tried
        self._tried.add(event)
        if not is_first:
            self.failures[event] = failure
            left = self._left(self._turns[at.turn])
            # Without it, the rest of its instant may belong to the session before after all, or to
            # none.
            if begins and not (left and self._before.is_apart(left) and self._may_open(left)):
                self._go_back()
                return
            if left and not begins and at.is_apart(left):
                raise UnclearError
        if place < self._saved_place:
            # `state_gap` has failed after an event, and the copy is of the state with that event.
            self._go_back()
            return
        self._at = self._saved
        if is_first or place > self._saved_place:
            self._save(self._at, self._saved_place, max(place - self._saved_place, 1))
        else:
            self._copy_after = 1  # the next event comes later, and is folded onto a copy again

    def _reject_up_to(self, place: int, failure: Failure) -> NoReturn:
        """Reject the events that lead up to an open session that can't be merged."""
        first, inclusive = self._left(self._turns[self._at.turn])[0].place, self.rules.gap_inclusive
        at = self.intervals[place - self.part.first].at
        # Without the events that reach up to it, the gap separates it from the session before.
        leading = self._events(
            interval
            for interval in self._between(first, place)
            if not starts_new_session(at, interval.end, gap_inclusive=inclusive)
        )
        # Open sessions that reach up to each other merge only with events of theirs.
        reach = int(self.reach[first - self.part.first])
        leading = leading or self._events(self._between(first, reach))
        self.failures |= dict.fromkeys(leading, failure)
        raise UnclearError

    def _events(self, intervals: Iterable[Interval]) -> list[int]:
        """Return the numbers of the events among intervals."""
        numbers = (self.part.event_at(interval.place) for interval in intervals)
        return [number for number in numbers if number is not None]


@attrs.frozen
class Walked:
    """
    The intervals that are walked for a plan, with the events outside any session.

    Such an event may be in a session once another event fails. Each array has an entry for each
    interval, in order.

    Attributes:
        members: The open sessions and events.
        sessions: The number of the planned session; -1 outside any, and where the key isn't in the
            plan.
        reach: The place after the session planned there.
    """

    members: Members
    sessions: Numbers
    reach: Numbers

    @classmethod
    def of(cls, plan: Plan) -> "Walked":
        if plan.left_out is None:
            unions = plan.unions
            # Of sessions of two intervals and of one: the first two reach to place 2, the last one
            # to 3.
            return cls(plan, unions.numbers, unions.spread(unions.first + unions.sizes))
        members = members_of(plan.spec, plan.sessions, plan.all_events)
        opened, planned = np.split(plan.owners, [len(plan.places)])
        sessions = np.full(len(members.order), -1)
        sessions[np.searchsorted(members.places, plan.places)] = opened
        first = len(members.places)
        sessions[first : first + len(planned)] = planned
        sessions = sessions[members.order]
        # The sessions 0 -1 0 1 reach to the places 3 2 3 4.
        places = np.arange(1, 1 + len(sessions))
        ends = np.zeros(len(plan.unions), np.int64)
        is_planned = sessions >= 0
        np.maximum.at(ends, sessions[is_planned], places[is_planned])
        return cls(members, sessions, np.where(is_planned, ends[sessions], places))


def failing_events(plan: Plan, failing: Numbers) -> tuple[dict[int, Any], Mapping[int, Failure]]:
    """
    Return the states of failing sessions, by their numbers, and the failures of their events.

    The states count only if no event fails: then a function has failed once, and not again.
    """
    has_failed = np.zeros(len(plan.unions), np.bool_)
    has_failed[failing] = True
    has_failed[plan.owners[len(plan.places) + np.array([*plan.failures], np.int64)]] = True
    walked = Walked.of(plan)
    rules = cuts_of(plan.spec).rules
    intervals = RuledIntervals.of(rules, walked.members)
    by_gap = by_times(rules, intervals)
    # The gap makes two sessions, and a rule cuts the first of them in two. One of its parts fails,
    # so the walk takes all of it: [True, False].
    fails = (walked.sessions >= 0) & has_failed[walked.sessions]
    parts = by_gap.reduced(np.logical_or, fails)
    states, failures = dict[int, Any](), dict[int, Failure]()
    for part in careful_folds(walked.members, by_gap.first[parts], by_gap.sizes[parts]):
        members = intervals.part(rules, part.first, len(part.numbers))
        walk = Walk(part, rules, members, walked.reach[part.first :])
        with suppress(UnclearError):
            walk.run()
        states |= {int(walked.sessions[first]): state for first, state in walk.states.items()}
        failures |= walk.failures
    # A failed `state_gap` has cut sessions: they must be planned again.
    return states, failures or plan.failures
