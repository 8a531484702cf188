"""
Sessions that can't be folded, under `on_error="reject"`: folded again without the events that fail.

A failed event leaves no trace. So events are tried on a copy of the state, and the state goes on
without those that fail: at first those of one instant, then of two, four and so on, until one
fails. So there are few copies where few events fail, and at most about two calls and a copy an
event. Where an event fails, the other events of its instant are processed again without it.

A session may fall apart where a failed event was all that held two parts together; and under rules
that need an order, every session after a failed event may be another one. So sessions are cut while
they're folded. Their open sessions are merged first, as they were planned. One that so turns out to
be apart, or can't be merged, is taken out, and what comes before it is folded anew; so it is where
one shows only later to belong to it.

A state must fit its fields where it's stored, after the last event. Where it doesn't, its session
is folded anew, and each event must leave one that fits.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.boundaries import is_late, starts_new_session
from sessionkit._engine.rows.order import key_numbers
from sessionkit._engine.rows.table import Mask, Numbers, Rejected, key_columns, micros
from sessionkit._engine.sessions.careful_fold import CarefulFold, FoldError, Members
from sessionkit._engine.sessions.cutting import (
    Interval,
    Piece,
    RuledIntervals,
    by_times,
    closed_pieces,
    instant_of,
    instants_of,
)
from sessionkit._engine.sessions.intervals import Unions
from sessionkit._engine.sessions.plan import Joined, Plan
from sessionkit._engine.sessions.program import Program
from sessionkit.spec.functions import Failure
from sessionkit.timeouts import SessionRules

Together: TypeAlias = Sequence[Interval]
"""What stands at one instant."""


@attrs.define
class Session:
    """A session so far. Some of the open sessions that are merged may come only later."""

    turn: int
    begins: Interval
    piece: Piece
    state: Any
    previous: "Session | None" = None
    places: list[int] = attrs.field(factory=list)
    merged: set[int] = attrs.field(factory=set)


@attrs.define
class Walk:
    """
    Cuts and folds open sessions and events of one key, and leaves out the events that fail.

    `reach` says for each place up to where the session goes that was planned there: so far its open
    sessions are merged first, unless `limits` says less for a session with this first place. Those
    in `alone` can't be merged with what comes before.
    """

    part: CarefulFold
    rules: SessionRules
    intervals: Sequence[Interval]
    reach: Numbers
    failures: dict[int, Failure]
    limits: dict[int, int] = attrs.field(factory=dict)
    alone: set[int] = attrs.field(factory=set)
    session: Session | None = None

    def sessions(self) -> list[Session]:
        turns = instants_of(self.intervals)
        turn, most = 0, 1
        while True:
            run = [self._left(together) for together in turns[turn : turn + most]]
            if run and not run[0]:
                turn += 1
                continue
            begins = not run or self._begins(self.session, run[0])
            if begins and self.session is not None and self._is_unsound(self.session, run):
                turn, most = self._back(self.session), 1
            elif run:
                try:
                    turn, most = self._go_on(turn, run, most, begins=begins)
                except FoldError as error:
                    turn, most = self._without(error, turn, run[0], begins=begins), 1
            else:
                break
        found, cut_by = list[Session](), None
        while self.session is not None:
            if cut_by is not None:
                self.session.piece = self.session.piece.cut_by(self.rules, cut_by)
            found.append(self.session)
            cut_by, self.session = self.session.begins, self.session.previous
        return found[::-1]

    def _left(self, together: Together) -> list[Interval]:
        return [one for one in together if self.part.event_at(one.place) not in self.failures]

    def _begins(self, session: Session | None, together: Together) -> bool:
        """Return whether the events of an instant belong to another session."""
        if session is None or any(one.place in self.alone for one in together):
            return True
        return session.piece.is_cut_at(self.rules, instant_of(together))

    def _back(self, session: Session) -> int:
        """Give up a session; return the turn from which on its events are processed again."""
        self.session = session.previous
        return session.turn

    def _is_unsound(self, session: Session, run: Sequence[Together]) -> bool:
        """Return whether a session that ends before a run must be folded anew, and note how."""
        strict, places = self.part.strict, session.places
        if run and any(place >= run[0][0].place for place in session.merged):
            self.limits[session.piece.first] = run[0][0].place
            return True
        if len(self.part.opened(places)) == len(places) or strict.issuperset(places):
            return False
        if self.part.fits(session.state):
            return False
        strict.update(places)
        return True

    def _go_on(
        self, turn: int, run: Sequence[Together], most: int, *, begins: bool
    ) -> tuple[int, int]:
        """
        Add what belongs to one session of a run; return the next turn, and how many to try.

        Where what stands first fails, a `FoldError` is raised.
        """
        session = self._with_opened(turn, run[0], begins=begins)
        for number, together in enumerate(run):
            if not together:
                continue
            if number and self._waits(session, together):
                break
            try:
                for one in together:
                    if self.part.event_at(one.place) is not None:
                        session.state = self.part.after(session.state, one.place)
                self._take(session, together)
            except FoldError:
                if number:
                    return turn, number
                if len(together) == 1:
                    raise
                break
        else:
            number = len(run)
        if not number:
            # Not while the error is handled: it would be part of those that follow.
            return self._one_by_one(turn, run[0], begins=begins), 1
        self.session = session
        return turn + number, 2 * most

    def _waits(self, session: Session, together: Together) -> bool:
        """Return whether an instant is processed alone: it begins a session, or merges one."""
        opened = self.part.opened(one.place for one in together)
        return not session.merged.issuperset(opened) or self._begins(session, together)

    def _with_opened(self, turn: int, together: Together, *, begins: bool) -> Session:
        """Return a copy of the session that an instant belongs to, with the open ones merged."""
        part, session, first = self.part, self.session, together[0].place
        if session is None or begins:
            planned = int(self.reach[first - part.first])
            end = min([planned, *(place for place in self.alone if place > first)])
            ahead = part.opened(range(first, min(end, self.limits.get(first, end))))
            instant, state = instant_of(together), part.state_of(ahead)
            return Session(turn, instant, Piece.at(instant), state, session, [], {*ahead})
        opened, merged = part.opened(one.place for one in together), session.merged
        if merged.issuperset(opened):
            state = part.copied(session.state)
        else:
            merged = merged.union(opened)
            state = part.state_of(sorted(merged.union(session.places)))
        return attrs.evolve(session, state=state, places=[*session.places], merged=merged)

    def _take(self, session: Session, together: Together) -> None:
        """Add an instant to a session, after the state was updated."""
        instant, last = instant_of(together), together[-1].place
        gap_us = self.part.gap_us(self.rules, session.state, last, extends=instant.extends)
        session.piece = session.piece.after(self.rules, instant, gap_us)
        session.places += [one.place for one in together]

    def _one_by_one(self, turn: int, together: Together, *, begins: bool) -> int:
        """Leave out the events of an instant that fail; return the turn to go on with."""
        session, good = self._with_opened(turn, together, begins=begins), list[Interval]()
        for one in together:
            try:
                if self.part.event_at(one.place) is not None:
                    state = self.part.copied(session.state)
                    session.state = self.part.after(state, one.place)
            except FoldError as error:
                self._fails(error)
                if begins and session.begins.shows:
                    # Without it, the others may belong to the session before.
                    return turn
                continue
            good.append(one)
        if not good:
            return turn + 1
        try:
            self._take(session, good)
        except FoldError as error:
            self._fails(error)
            return turn
        self.session = session
        return turn + 1

    def _fails(self, error: FoldError) -> None:
        event = self.part.event_at(error.place)
        if event is not None:
            self.failures[event] = Failure.of(error)

    def _without(self, error: FoldError, turn: int, together: Together, *, begins: bool) -> int:
        """Leave out what fails at an instant, or before it; return the turn to go on with."""
        session, place = self.session, error.place
        is_opened = place is not None and self.part.event_at(place) is None
        self._fails(error)
        if place is not None and is_opened:
            first = together[0].place if session is None or begins else session.piece.first
            self._keep_apart(first, place, Failure.of(error))
        if session is None or begins or (not is_opened and place == together[0].place):
            return turn
        return self._back(session)

    def _keep_apart(self, first: int, place: int, failure: Failure) -> None:
        """Blame the events that lead up to an open session, which can't be merged."""
        self.alone.add(place)
        low, inclusive = self.part.first, self.rules.gap_inclusive
        at = self.intervals[place - low].at
        for one in self._left(self.intervals[first - low : place - low]):
            event = self.part.event_at(one.place)
            if event is not None and not starts_new_session(at, one.end, gap_inclusive=inclusive):
                self.failures[event] = failure


def rejected(program: Program, plan: Plan, good: Mask, states: list[pa.Array]) -> Joined:
    """
    Fold the sessions that aren't good again, from what is stored, without the events that fail.

    All that the gap alone would join is cut again too: where a rule cuts depends on what's before.
    What comes out is a plan again, without these events. So what holds for a plan (ids, duplicates,
    revisions, what rules store) holds for it.
    """
    found, failures = list[Session](), dict[int, Failure]()
    rules = _gap_alone(program) if program.rules is None else program.rules.rules
    intervals = _intervals(program, plan)
    whole, unions = by_times(rules, intervals), plan.unions
    concerned = whole.reduced(np.logical_or, unions.spread(plan.active & ~good))
    reach = unions.spread(unions.first + unions.sizes)
    members = Members(plan.spec, plan.touched, plan.events, plan.order)
    for part in members.parts(whole.first[concerned], whole.sizes[concerned]):
        own = intervals.part(rules, part.first, len(part.numbers))
        found += Walk(part, rules, own, reach[part.first :], failures).sessions()
    late_us = plan.horizon.late_us if program.late_by_session else None
    left, late = _in_time(plan, rules, intervals, found, late_us)
    kept = ~whole.spread(concerned)[unions.first]
    after = _replanned(plan, rules, kept, left, [*failures, *late])
    is_new = np.arange(len(after.counts)) >= kept.sum()
    folded = is_new & after.active
    new = [one.state for one, came in zip(left, folded[is_new], strict=True) if came]
    encoded, stays = after.encoded(folded, new), pa.array(kept[good])
    both = zip(states, encoded, strict=True)
    columns = [pa.concat_arrays([old.filter(stays), one]) for old, one in both]
    folded[~is_new] = good[kept]
    reasons = dict.fromkeys(late, program.late_for_session)
    left_out = [
        *Rejected.with_failures("failed", failures, plan.events.table),
        *Rejected.with_reasons("late", reasons, plan.events.table),
    ]
    sessions = program.sessions_after(after, folded, columns)
    return Joined(sessions, int(after.counts[folded].sum()), left_out)


def _gap_alone(program: Program) -> SessionRules:
    return SessionRules(program.spec.timeout.longest, gap_inclusive=program.gap_inclusive)


def _intervals(program: Program, plan: Plan) -> RuledIntervals:
    """Return what the sessions of a plan are made of, as the rules see it."""
    events, touched, order = plan.events, plan.touched, plan.order
    numbers, found = key_numbers(key_columns(events.table), key_columns(touched))
    bounds = (
        np.concatenate([found, numbers]),
        np.concatenate([micros(touched["start"]), events.starts]),
        np.concatenate([micros(touched["end"]), events.ends]),
    )
    if program.rules is not None:
        return program.rules.intervals(touched, events, order, bounds)
    return RuledIntervals.by_gap(*(column[order] for column in bounds))


def _in_time(
    plan: Plan,
    rules: SessionRules,
    intervals: RuledIntervals,
    found: Sequence[Session],
    late_us: int | None,
) -> tuple[list[Session], list[int]]:
    """Return sessions, without their new events where they're late, and the late events."""
    numbers = plan.order - plan.touched.num_rows
    left, late = list[Session](), list[int]()
    closes, _ = closed_pieces(rules, [one.piece for one in found])
    for one, closes_us in zip(found, closes.tolist(), strict=True):
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
                piece = Piece.at(instant).after(rules, instant)
                left.append(Session(one.turn, instant, piece, None, None, [place]))
    return left, late


def _replanned(
    plan: Plan, rules: SessionRules, kept: Mask, sessions: Sequence[Session], gone: Sequence[int]
) -> Plan:
    """Return a plan with others in place of some sessions, after those that stay."""
    stored, unions = plan.touched.num_rows, plan.unions
    stays = np.ones(stored + len(plan.events.starts), np.bool_)
    stays[stored + np.array(gone, np.int64)] = False
    places = np.array([place for one in sessions for place in one.places], np.int64)
    members = np.concatenate([np.flatnonzero(unions.spread(kept)), places])
    order = (np.cumsum(stays) - 1)[plan.order[members]]
    pieces = [one.piece for one in sessions]
    new: list[npt.NDArray[Any]] = [
        np.array([len(one.places) for one in sessions], np.intp),
        np.array([one.start for one in pieces], np.int64),
        np.array([one.end for one in pieces], np.int64),
        *closed_pieces(rules, pieces),
    ]
    old: list[npt.NDArray[Any]]
    old = [unions.sizes, unions.start, unions.end, unions.closes, unions.closed_by]
    columns = [np.concatenate([one[kept], two]) for one, two in zip(old, new, strict=True)]
    others = Unions(np.cumsum(columns[0]) - columns[0], *columns)
    is_event = order >= stored
    return attrs.evolve(
        plan,
        events=plan.events.without(gone),
        order=order,
        is_event=is_event,
        unions=others,
        counts=others.reduced(np.add, is_event.astype(np.int64)),
        failures={},
    )
