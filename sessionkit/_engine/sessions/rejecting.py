"""
Sessions that can't be folded, under `on_error="reject"`: folded again without the events that fail.

A failed event leaves no trace. So the state is copied now and then: after one event, two more, four
more and so on. Where an event fails, its session goes on from the last copy without it, and copies
the state again where that event was. So there are few copies where few events fail, and an event is
folded about twice at most.

Without a failed event, its session may split in two; and under rules that need an order, every
session after it may be another one. So sessions are cut while they're folded. The open sessions
that were planned to join a session are merged first. Where one of them turns out not to belong to
it, or can't be merged, or where another one turns out to belong to it, the session is folded again.

A state must fit its fields where it's stored, after the last event. Where it doesn't, its session
is folded anew, and each event must leave one that fits.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._arrays import Mask, Numbers
from sessionkit._engine.boundaries import is_late, starts_new_session
from sessionkit._engine.rows.tables import Rejected
from sessionkit._engine.sessions.careful_fold import CarefulFold, careful_folds
from sessionkit._engine.sessions.cutting import (
    Interval,
    PartialSession,
    RuledIntervals,
    by_times,
    closings_of,
    cuts_of,
    instant_of,
    instants_of,
    numbered,
)
from sessionkit._engine.sessions.plan import Folded, Plan, Unions
from sessionkit.errors import UserFunctionError
from sessionkit.spec.functions import Failure
from sessionkit.state._codec import codec_of
from sessionkit.timeouts._session_rules import SessionRules


class Refolded(NamedTuple):
    """A session, the places of what is left of it, and its state."""

    partial: PartialSession
    places: list[int]
    state: Any = None


@attrs.frozen
class SavedFold:
    """The fold of a session up to a place, exclusive, which stands at the instant of a turn."""

    place: int
    turn: int
    partial: PartialSession
    state: Any = None


@attrs.define
class RunningSession:
    """
    A session that is being folded: the events before `place` are in its state.

    Where one fails, the fold goes on from `saved`, the last copy; the next one is taken after
    `copy_after` more events. Some of the open sessions that are merged may be at later places.
    """

    start: SavedFold
    merged: set[int]
    previous: "RunningSession | None"
    saved: SavedFold
    place: int
    partial: PartialSession
    state: Any = None
    copy_after: int = 1


@attrs.define
class Refold:
    """
    Cuts and folds open sessions and events of one key, and leaves out the events that fail.

    `reach` has for each place the end of the session that was planned there: its open sessions up
    to there are merged first, or up to the place in `limits`, by the session's first place. Open
    sessions in `alone` can't be merged with what comes before them.
    """

    part: CarefulFold
    rules: SessionRules
    intervals: Sequence[Interval]
    reach: Numbers
    failures: dict[int, Failure]
    limits: dict[int, int] = attrs.field(factory=dict)
    alone: set[int] = attrs.field(factory=set)
    session: RunningSession | None = None

    def sessions(self) -> list[Refolded]:
        turns, turn, end = instants_of(self.intervals), 0, self.part.places.stop
        # A turn may lead back: without an event that fails, the sessions before may be others.
        while turn < len(turns) or not self._is_sound(end):
            turn = self._after(turn, turns[turn]) if turn < len(turns) else self._back()
        refolded, cut_by = list[Refolded](), None
        while (session := self.session) is not None:
            left = self._left(session.start.place, end)
            partial = session.partial
            if cut_by is not None:
                partial = partial.cut_by(partial.fired_by(cut_by))
            refolded.append(Refolded(partial, [one.place for one in left], session.state))
            cut_by = instant_of([one for one in left if one.moment == left[0].moment])
            end, self.session = session.start.place, session.previous
        return refolded[::-1]

    def _left(self, first: int, end: int) -> list[Interval]:
        """Return the intervals between two places, without the events that failed."""
        every = self.intervals[first - self.part.first : end - self.part.first]
        return [one for one in every if self.part.event_at(one.place) not in self.failures]

    def _after(self, turn: int, instant: Sequence[Interval]) -> int:
        """Add what is left of an instant; return the turn to go on with."""
        simultaneous, session = self._left(instant[0].place, instant[-1].place + 1), self.session
        has_begun = session is not None and session.start.turn == turn
        if not simultaneous:
            if has_begun:
                self._back()
            return turn + 1
        if session is None or (not has_begun and self._is_apart(session, simultaneous)):
            if not self._is_sound(instant[0].place):
                return self._back()
            session = self._begin(turn, simultaneous)
        try:
            self._add(session, turn, simultaneous)
        except UserFunctionError as error:
            return self._without(session, turn, simultaneous, Failure.of(error))
        return turn + 1

    def _is_apart(self, session: RunningSession, simultaneous: Sequence[Interval]) -> bool:
        """Return whether the intervals at an instant belong to another session."""
        if any(one.place in self.alone for one in simultaneous):
            return True
        return session.partial.is_cut_at(instant_of(simultaneous))

    def _is_sound(self, end: int) -> bool:
        """Return whether the session, if any, may end at a place; else note how to fold it anew."""
        if (session := self.session) is None:
            return True
        first, strict = session.start.place, self.part.strict
        if any(place >= end for place in session.merged):
            self.limits[first] = end
            return False
        places = [one.place for one in self._left(first, end)]
        only_opened = len(self.part.opened(places)) == len(places)
        if only_opened or strict.issuperset(places):
            return True
        if codec_of(self.part.fold.spec.state).misfit(session.state) is None:
            return True
        # The next time each event is checked, so the one that makes a misfit is found.
        strict.update(places)
        return False

    def _back(self) -> int:
        """Give up the session, if any; return the turn from which on to process its events anew."""
        if (session := self.session) is None:
            return 0
        self.session = session.previous
        return session.start.turn

    def _begin(self, turn: int, simultaneous: Sequence[Interval]) -> RunningSession:
        first = simultaneous[0].place
        end = int(self.reach[first - self.part.first])
        end = min([end, *(place for place in self.alone if place > first)])
        merged = self.part.opened(range(first, min(end, self.limits.get(first, end))))
        start = SavedFold(first, turn, PartialSession.at(self.rules, instant_of(simultaneous)))
        self.session = RunningSession(start, {*merged}, self.session, start, first, start.partial)
        return self.session

    def _add(self, session: RunningSession, turn: int, simultaneous: Sequence[Interval]) -> None:
        """Add an instant to the session, or raise a UserFunctionError."""
        part, last = self.part, simultaneous[-1].place
        opened = part.opened(one.place for one in simultaneous)
        if turn > session.start.turn and not session.merged.issuperset(opened):
            session.merged.update(opened)
            session.place, session.saved = session.start.place, session.start
        if session.place == session.start.place:
            session.state = part.state_of(sorted(session.merged))
        for place in range(session.place, last + 1):
            event = part.event_at(place)
            has_failed = event in self.failures
            if place - session.saved.place >= session.copy_after:
                copied = part.copied(session.state)
                session.saved = SavedFold(place, turn, session.partial, copied)
                # Copies get rarer as long as nothing fails: 1, 2, 4 events apart.
                session.copy_after = 1 if has_failed else 2 * session.copy_after
            if event is not None and not has_failed:
                session.state = part.after(session.state, place)
            session.place = place + 1
        instant = instant_of(simultaneous)
        gap_us = part.gap_us(self.rules, session.state, last, extends=instant.extends)
        session.partial = session.partial.after(instant, gap_us)

    def _without(
        self, session: RunningSession, turn: int, simultaneous: Sequence[Interval], failure: Failure
    ) -> int:
        """Leave out what fails while an instant is added; return the turn to go on with."""
        place, saved = self.part.at, session.saved
        event = self.part.event_at(place)
        if event is None:
            self._reject_before(place, session.start.place, failure)
            return self._back()
        self.failures[event] = failure
        first, before = simultaneous[0].place, session.previous
        left = self._left(first, simultaneous[-1].place + 1)
        begins = turn == session.start.turn
        # Without what failed, what is left of an instant may belong to the session before.
        may_go_on = begins and before is not None and left and not self._is_apart(before, left)
        if may_go_on or place < max(first, saved.place):
            return self._back()
        session.place, session.partial = saved.place, saved.partial
        session.copy_after = place - saved.place
        session.state = self.part.copied(saved.state)
        return saved.turn

    def _reject_before(self, place: int, first: int, failure: Failure) -> None:
        """Reject the events that lead up to an open session that can't be merged."""
        self.alone.add(place)
        # Without the events that reach up to it, the gap parts it from the session before.
        at, inclusive = self.intervals[place - self.part.first].at, self.rules.gap_inclusive
        for one in self._left(first, place):
            event = self.part.event_at(one.place)
            if event is not None and not starts_new_session(at, one.end, gap_inclusive=inclusive):
                self.failures[event] = failure


def rejected(plan: Plan, good: Mask, states: Sequence[pa.Array]) -> Folded:
    """
    Fold the sessions that aren't good again, from what is stored, without the events that fail.

    All that the gap alone would join is cut again too: where a rule cuts depends on what's before.
    What comes out is a plan again, without these events. So what holds for a plan (ids, duplicates,
    revisions, what rules store) holds for it.
    """
    refolded, failures = list[Refolded](), dict[int, Failure]()
    rules = cuts_of(plan.spec).rules
    intervals = RuledIntervals.of(rules, plan)
    by_gap, unions = by_times(rules, intervals), plan.unions
    # The gap makes two sessions, and a rule cuts the first of them in two. One of its parts isn't
    # good, so all of it is folded again: [True, False].
    concerned = by_gap.reduced(np.logical_or, unions.spread(plan.active & ~good))
    # Of sessions of two intervals and of one: the first two reach to place 2, the last one to 3.
    reach = unions.spread(unions.first + unions.sizes)
    for part in careful_folds(plan, by_gap.first[concerned], by_gap.sizes[concerned]):
        own = intervals.part(rules, part.first, len(part.numbers))
        refolded += Refold(part, rules, own, reach[part.first :], failures).sessions()
    left, late = _in_time(plan, rules, intervals, refolded)
    # A session stays where its first interval isn't in one of these.
    kept = ~by_gap.spread(concerned)[unions.first]
    after = _replanned(plan, rules, kept, left)
    # The sessions that are kept come first: with two of these and one new one, [no, no, yes].
    is_new = np.arange(len(after.unions)) >= kept.sum()
    folded = is_new & after.active
    new = [one.state for one, came in zip(left, folded[is_new], strict=True) if came]
    encoded, stays = after.encoded(folded, new), pa.array(kept[good])
    both = zip(states, encoded, strict=True)
    columns = [pa.concat_arrays([old.filter(stays), one]) for old, one in both]
    folded[~is_new] = good[kept]
    failed = Rejected.with_failures("failed", failures, plan.events.table)
    return Folded(after, folded, columns, failed, failures, late)


def _in_time(
    plan: Plan, rules: SessionRules, intervals: RuledIntervals, refolded: Sequence[Refolded]
) -> tuple[list[Refolded], list[int]]:
    """Return sessions, without their new events where they're late, and the late events."""
    numbers, late_us = plan.order - len(plan.places), plan.horizon.late_session_us
    left, late = list[Refolded](), list[int]()
    closes, _ = closings_of(rules, [one.partial for one in refolded])
    for one, closes_us in zip(refolded, closes.tolist(), strict=True):
        events = [number for number in numbers[one.places].tolist() if number >= 0]
        over = late_us is not None and is_late(closes_us, late_us)
        if (events and not over) or (not events and len(one.places) == 1):
            left.append(one)
            continue
        late += events
        # A stored session is over here only where it's kept beyond that, so as it is.
        for place in one.places:
            if numbers[place] < 0:
                instant = instant_of(intervals.part(rules, place, 1))
                left.append(Refolded(PartialSession.at(rules, instant).after(instant), [place]))
    return left, late


def _replanned(plan: Plan, rules: SessionRules, kept: Mask, refolded: Sequence[Refolded]) -> Plan:
    """Return a plan of the sessions that are kept, and of others after them."""
    unions, partials = plan.unions, [one.partial for one in refolded]
    new: list[npt.NDArray[Any]] = [
        np.array([len(one.places) for one in refolded], np.intp),
        np.array([one.start for one in partials], np.int64),
        np.array([one.end for one in partials], np.int64),
        *closings_of(rules, partials),
    ]
    old: list[npt.NDArray[Any]]
    old = [unions.sizes, unions.start, unions.end, unions.closes, unions.closed_by]
    columns = [np.concatenate([one[kept], two]) for one, two in zip(old, new, strict=True)]
    # The members of the sessions that stay, and after them those of the others, in their order.
    places = np.array([place for one in refolded for place in one.places], np.intp)
    members = plan.order[np.concatenate([np.flatnonzero(unions.spread(kept)), places])]
    after = plan.with_unions(Unions(np.cumsum(columns[0]) - columns[0], *columns), members)
    if plan.spec.sequence is None:
        return after
    return attrs.evolve(after, unions=numbered(after, after.unions))
