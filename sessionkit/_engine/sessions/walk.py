"""
The walk over a key: it judges the events one instant after another, and cuts them into sessions.

Where nothing is in dispute, `verdicts` judges all keys at once. Here each event meets the lines of
that table in turn. It counts for the events after it until it has a verdict. Then it leaves no
trace: an event that repeats it, or that only it let into a session, is judged without it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

import attrs

from sessionkit._arrays import Mask
from sessionkit._engine.boundaries import is_late
from sessionkit._engine.sessions.cutting import (
    NO_ID,
    CurrentSession,
    Fired,
    Interval,
    closed,
    combined,
    may_open,
)
from sessionkit.timeouts._session_rules import SessionRules


class Verdict:
    """Why an event doesn't count: see the table in `verdicts`."""

    COUNTS: Final = 0
    REFUSED: Final = 1
    REPEAT: Final = 2
    OUTSIDE: Final = 3
    LATE: Final = 4
    FAILED: Final = 5


STORED: Final = -1
"""The place of an event that an earlier micro-batch has processed: before all others."""
NOTHING: Final[Sequence[Interval]] = ()


@attrs.frozen
class LateInWalk:
    """
    Which events of a walk are late.

    Attributes:
        late_us: The events of a session that is over by then are late; None where none is judged.
        alone: Marks the places of events that would be late in a session of their own.
        of_repeats: Whether such an event is late, not a repeat, if no session is open at its time.
    """

    late_us: int | None = None
    alone: Mask | None = None
    of_repeats: bool = False


class Judged(NamedTuple):
    """The intervals of an instant that count, and whether they begin a session."""

    counting: Sequence[Interval]
    instant: Interval
    begins: bool
    fired: Sequence[Fired]


@attrs.define(eq=False)
class Walk:
    """
    A walk over the open sessions and events of one key, at consecutive places.

    Attributes:
        holders: For each id, the place of the event that counts with it; None without repeats.
        turns: The intervals of each instant.
        verdicts: The verdicts so far, by place.
        settled: The places of the events whose verdicts are for good. Others depend on the events
            before, so the walk judges them again where it goes back.
    """

    rules: SessionRules
    lateness: LateInWalk
    intervals: Sequence[Interval]
    holders: dict[int, int] | None
    turns: Sequence[Sequence[Interval]] = attrs.field(init=False)
    verdicts: dict[int, int] = attrs.field(factory=dict, init=False)
    settled: set[int] = attrs.field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        moments = [one.moment for one in self.intervals]
        if len({*moments}) == len(moments):
            self.turns = [[one] for one in self.intervals]
        else:
            self.turns = [list(same) for _, same in groupby(self.intervals, attrgetter("moment"))]

    def sessions(self) -> Iterator[CurrentSession]:
        """Yield the sessions, cut by times and rules alone."""
        turn, judged = 0, None
        while turn < len(self.turns):
            session, end, following = self.ahead(turn, judged)
            if session is not None and self.is_over(session) and self.leave_late(turn, end):
                judged = None
                continue
            if session is not None:
                yield session
            turn, judged = end, following

    def ahead(
        self, turn: int, judged: Judged | None = None
    ) -> tuple[CurrentSession | None, int, Judged | None]:
        """
        Return the next session from an instant on, and the instant that begins another one.

        `judged` is the verdict on the first instant, if it's known.
        """
        session: CurrentSession | None = None
        for at in range(turn, len(self.turns)):
            if judged is None and (judged := self.judged(session, at)) is None:
                continue
            if session is None:
                session = CurrentSession.at(self.rules, judged.instant)
            elif judged.begins:
                return session.copied(judged.fired), at, judged
            session.add(judged.instant)
            judged = None
        return session, len(self.turns), None

    def judged(self, session: CurrentSession | None, turn: int) -> Judged | None:
        """
        Judge an instant, after the session before it; None if none of its events counts.

        First those that aren't repeats are judged, together. If they're outside any session, their
        repeats are judged without them.
        """
        rules, alone, repeats = self.rules, self.lateness.alone, NOTHING
        left = self._left(turn) if self.settled else self.turns[turn]
        while left:
            if self.holders is not None:
                left, repeats = self._parted(left, self.holders)
            if not left:
                is_open = session is not None and not session.is_over_at(repeats[0])
                self._leave_repeats(repeats, is_open=is_open)
                return None
            instant = left[0] if len(left) == 1 else combined(left)
            fired = session.fired_by(instant) if session is not None and rules.ordered else ()
            begins = session is None or bool(fired) or session.is_over_at(instant)
            if not begins or not rules.of_openings or may_open(rules, instant):
                if repeats:
                    self._leave_repeats(repeats, is_open=True)
                return Judged(left, instant, begins, fired)
            for one in left:
                is_late = alone is not None and alone[one.place]
                self.leave_out(one, Verdict.LATE if is_late else Verdict.OUTSIDE)
            left, repeats = repeats, NOTHING
        return None

    def is_over(self, session: CurrentSession) -> bool:
        """Return whether a session, complete, is over, so that its events are late."""
        late_us = self.lateness.late_us
        if late_us is None or session.start > late_us:
            return False
        return is_late(int(closed(self.rules, [session])[0][0]), late_us)

    def leave_late(self, turn: int, end: int) -> bool:
        """Leave out the events that count between two instants; return whether there are any."""
        events = [one for at in range(turn, end) for one in self.turns[at] if self.counts(one)]
        for one in events:
            self.settle(one, Verdict.LATE)
        return bool(events)

    def interval(self, place: int) -> Interval:
        return self.intervals[place - self.intervals[0].place]

    def turn_of(self, place: int) -> int:
        """Return the number of the instant of a place."""
        return bisect_right(self.turns, place, key=lambda turn: turn[0].place) - 1

    def counts(self, interval: Interval) -> bool:
        """Return whether an interval is an event without a verdict."""
        return interval.is_event and interval.place not in self.verdicts

    def settle(self, event: Interval, verdict: int) -> None:
        """Leave out an event for good."""
        self.settled.add(event.place)
        self.leave_out(event, verdict)

    def leave_out(self, event: Interval, verdict: int) -> None:
        self.verdicts[event.place] = verdict
        if self.holders is not None and self.holders.get(event.event_id) == event.place:
            del self.holders[event.event_id]

    def _left(self, turn: int) -> Sequence[Interval]:
        """Return the intervals of an instant that have no verdict for good."""
        intervals, verdicts = self.turns[turn], self.verdicts
        for one in intervals:
            if one.place not in self.settled:
                verdicts.pop(one.place, None)
        return [one for one in intervals if one.place not in self.settled]

    def _parted(
        self, intervals: Sequence[Interval], holders: dict[int, int]
    ) -> tuple[list[Interval], list[Interval]]:
        """Part the intervals that may count from repeats of events that count."""
        first, repeats = list[Interval](), list[Interval]()
        for one in intervals:
            # After the walk went back, an event at this place or a later one may still hold the id.
            if one.event_id == NO_ID:
                first.append(one)
            elif holders.get(one.event_id, one.place) >= one.place:
                holders[one.event_id] = one.place
                first.append(one)
            else:
                repeats.append(one)
        return first, repeats

    def _leave_repeats(self, repeats: Sequence[Interval], *, is_open: bool) -> None:
        """Leave out repeats; `is_open` says whether a session is open at their instant."""
        alone = self.lateness.alone if self.lateness.of_repeats and not is_open else None
        for one in repeats:
            is_late = alone is not None and alone[one.place]
            self.leave_out(one, Verdict.LATE if is_late else Verdict.REPEAT)
