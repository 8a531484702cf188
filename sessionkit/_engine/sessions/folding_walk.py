"""
The walk that folds: where events fail, or a gap depends on the state, it cuts and folds at once.

A failed event leaves no trace, and without it the rest of its key may be cut in another way. So the
walk keeps its position before each instant, and goes back to the one of the failed event. Each
session has a log of what was folded: as far as it comes out as before, nothing is folded again.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import attrs

from sessionkit._engine.boundaries import starts_new_session
from sessionkit._engine.sessions.careful_fold import CarefulFold, Log
from sessionkit._engine.sessions.cutting import CurrentSession, Interval
from sessionkit._engine.sessions.walk import Judged, Verdict, Walk
from sessionkit.errors import UserFunctionError
from sessionkit.spec.functions import Failure


class Position(NamedTuple):
    """
    The position of a walk before an instant.

    Attributes:
        session: The session so far; None before the first one.
        begun: The instant at which it began.
        opened: The places of the open sessions that it merges, before it takes any event.
        end: The place after its last interval, as it was expected when it began.
        folded: How many places its log has.
        ended: How many sessions have ended before it.
    """

    session: CurrentSession | None = None
    begun: int = 0
    opened: Sequence[int] = ()
    end: int = 0
    folded: int = 0
    ended: int = 0


@attrs.define(eq=False)
class FoldingWalk:
    """
    A walk that folds the sessions of a part, one instant after another.

    It goes back only where a function fails over an event for the second time, and where a session
    without that event has more or fewer open sessions than were merged. So it ends.

    Attributes:
        ended: The sessions, each with its state.
        failures: Why events are refused or have failed, by their places.
    """

    walk: Walk
    part: CarefulFold
    ended: list[tuple[CurrentSession, Any]] = attrs.field(factory=list, init=False)
    failures: dict[int, Failure] = attrs.field(factory=dict, init=False)
    _last_opened: int = attrs.field(init=False)
    """The place of the last open session, or -1."""
    _at: Position = attrs.field(default=Position(), init=False)
    _before: list[Position] = attrs.field(factory=lambda: [Position()], init=False)
    """The position before each instant so far."""
    _logs: dict[int, Log] = attrs.field(factory=dict, init=False)
    """The log of each session, by the instant at which it began."""

    def __attrs_post_init__(self) -> None:
        opened = (one.place for one in self.walk.intervals if not one.is_event)
        self._last_opened = max(opened, default=-1)

    def run(self) -> None:
        """
        Judge and fold the part.

        Raises:
            UserFunctionError: A function fails, under `on_error="raise"`.
        """
        for one in self._between(self.part.first, self.part.stop):
            if (refusal := self.part.refused.get(one.place)) is not None:
                self._settle(one, Verdict.REFUSED, Failure(refusal))
        turn = 0
        while turn <= len(self.walk.turns):
            self._at = self._before[turn]
            del self.ended[self._at.ended :]
            try:
                turn = self._take(turn)
            except UserFunctionError as error:
                if self.part.fold.spec.on_error == "raise":
                    raise
                turn = self._without(self.part.at, Failure.of(error))

    def _take(self, turn: int) -> int:
        """Judge and fold an instant; return the instant to go on with."""
        walk, is_last = self.walk, turn == len(self.walk.turns)
        judged = None if is_last else walk.judged(self._at.session, turn)
        if is_last or (judged is not None and judged.begins):
            following = None if judged is None else self._beginning(turn, judged)
            if judged is not None and following is None:
                return turn
            if not self._ends(turn, judged):
                return self._at.begun
            if following is not None:
                self._at = following._replace(ended=len(self.ended))
        if judged is not None and not self._fold(judged):
            return self._at.begun
        self._before[turn + 1 :] = [self._at]
        return turn + 1

    def _beginning(self, turn: int, judged: Judged) -> Position | None:
        """Look ahead at the session that begins at an instant; None if its events are late."""
        walk, first = self.walk, judged.instant.place
        session = CurrentSession.at(walk.rules, judged.instant)
        if walk.rules.state_gap is not None:
            # Its states say where it ends. So open sessions that come later are merged there.
            opened = [one.place for one in judged.counting if not one.is_event]
            return Position(session, turn, opened, self.part.stop)
        if self._last_opened < first and walk.lateness.late_us is None:
            return Position(session, turn, (), self.part.stop)
        ahead, end, _ = walk.ahead(turn, judged)
        if ahead is not None and walk.is_over(ahead) and walk.leave_late(turn, end):
            return None
        stop = walk.turns[end - 1][-1].place + 1
        places = range(first, min(stop, self._last_opened + 1))
        opened = [place for place in places if not self.part.is_event(place)]
        return Position(session, turn, opened, stop)

    def _ends(self, turn: int, following: Judged | None) -> bool:
        """End the session, if any, before an instant; else it must be judged anew."""
        at, walk, part = self._at, self.walk, self.part
        if (session := at.session) is None:
            return True
        end = part.stop if following is None else following.instant.place
        if following is not None:
            session = session.copied(following.fired)
        if walk.rules.state_gap is None and any(place >= end for place in at.opened):
            return False
        if walk.is_over(session) and walk.leave_late(at.begun, turn):
            return False
        self.ended.append((session, self._logs[at.begun].ended(at.folded)))
        return True

    def _fold(self, judged: Judged) -> bool:
        """Fold an instant; return False if the session merges other open sessions than expected."""
        at, part, rules = self._at, self.part, self.walk.rules
        if (log := self._logs.get(at.begun)) is None:
            log = self._logs[at.begun] = Log(part)
        log.length, events = at.folded, judged.counting
        if at.opened:
            events = [one for one in events if one.place not in at.opened]
        if events and not log.length:
            # Open sessions that reach up to each other are merged only with events.
            for place in at.opened:
                log.fold(place)
        for one in events:
            if not one.is_event and rules.state_gap is None:
                return False
            log.fold(one.place)
        instant, session = judged.instant, at.session
        if session is not None:
            gap_us = log.gap_us(rules) if instant.extends else None
            session = session.copied()
            session.add(instant, gap_us)
            self._at = Position(session, at.begun, at.opened, at.end, log.length, at.ended)
        return True

    def _without(self, place: int, failure: Failure) -> int:
        """Reject the event that fails, or the events that lead up to an open session that does."""
        failed, at = self.walk.interval(place), self._at
        if self.part.is_event(place):
            failing, turn = [failed], self.walk.turn_of(place)
        else:
            first, turn = at.session.first if at.session else place, at.begun
            inclusive = self.walk.rules.gap_inclusive
            # Without the events that reach up to it, the gap separates it from the session before.
            failing = [
                one
                for one in self._between(first, place)
                if not starts_new_session(failed.at, one.end, gap_inclusive=inclusive)
            ]
            # Open sessions that reach up to each other merge only with events of theirs.
            failing = failing or self._between(first, at.end)
        for one in failing:
            self._settle(one, Verdict.FAILED, failure)
        return turn

    def _settle(self, event: Interval, verdict: int, why: Failure) -> None:
        self.walk.settle(event, verdict)
        self.failures[event.place] = why

    def _between(self, first: int, end: int) -> list[Interval]:
        """Return the events that count from a place up to another one."""
        return [one for one in map(self.walk.interval, range(first, end)) if self.walk.counts(one)]
