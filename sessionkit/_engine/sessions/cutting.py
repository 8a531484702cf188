"""
How sessions end: by the gap alone, or by rules that cut them before.

The rule that fires first in event time ends a session. Where several fire at one instant, the first
in `SessionRules.in_use` counts.

    by times     rules that read only a session's own times: all sessions at once
    in order     rules that depend on earlier cuts: one instant of a key after the other;
                 `state_gap` on the state after it, too

The second kind visits only the sessions in which such a rule may fire and, under `state_gap`, those
with events. Where an instant that begins a session may not open one, its events are outside any
session: the cut goes on as if they weren't there, and the plan is made again without them.

Events of one instant have no order, so they stay together; a `sequence` makes each an instant of
its own. Then several sessions of a key may begin at one instant. All of these are known at once,
since such events are cut only under `order="event_time"`, in one micro-batch. The first has the id
of its key and start; each later one has a salt, made of the number of sessions that begin there
before it.
"""

from collections.abc import Callable, Iterator, Sequence, Sized
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._arrays import Array, Mask, Numbers, numbers_in, whole
from sessionkit._engine.boundaries import starts_new_session
from sessionkit._engine.sessions.careful_fold import StateGaps
from sessionkit._engine.sessions.plan import (
    GapAlone,
    Members,
    Unions,
    United,
    WindowedEvents,
    unite,
)
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts._rule import Readings, RuleInput
from sessionkit.timeouts._session_rules import RULES, SessionRules

Fired: TypeAlias = tuple[int, int]
"""The time at which a rule fires, in microseconds, and its place in `in_use`: the least counts."""


class Interval(NamedTuple):
    """
    An open session or event, at its place by key and start; or all of a key at one instant.

    `readings` holds, for each ordered rule, what the rule has read of each of them.
    """

    place: int
    moment: int
    at: int
    end: int
    extends: bool
    readings: Sequence[Readings]


def combined(simultaneous: Sequence[Interval]) -> Interval:
    """Combine intervals of a key, at least one, that start at one instant."""
    first = simultaneous[0]
    if len(simultaneous) == 1:
        return first
    by_rule = zip(*(interval.readings for interval in simultaneous), strict=True)
    return first._replace(
        end=max(interval.end for interval in simultaneous),
        extends=any(interval.extends for interval in simultaneous),
        readings=[list(chain.from_iterable(readings)) for readings in by_rule],
    )


def input_of(members: Members) -> RuleInput:
    """Return what rules read: open sessions and events, in order."""
    return RuleInput(members.touched, members.events.table, members.starts, members.order)


@attrs.frozen
class RuledIntervals:
    """
    Open sessions and events, by key and start, and what the rules have read of them.

    Attributes:
        keys: The number of the key of each interval.
        moments: Equal for intervals that no rule parts: the start, unless there is a `sequence`.
        starts: The start of each interval, in microseconds.
        ends: The end of its gap, exclusive.
        least: The end of an event if it kept no session open; of an open session, its end.
        extends: Which intervals are events that keep their sessions open.
        columns: What each ordered rule has read.
    """

    keys: Numbers
    moments: Numbers
    starts: Numbers
    ends: Numbers
    least: Numbers
    extends: Mask
    columns: Sequence[Sequence[Array]]

    @classmethod
    def of(cls, rules: SessionRules, members: Members) -> "RuledIntervals":
        order, ends, events = members.order, members.ends, members.events
        starts, sequence, rows = members.starts[order], members.spec.sequence, input_of(members)
        least = ends.copy()
        # Open sessions are numbered first: of one open session and two events, these are its end
        # and the starts of the two.
        least[len(members.places) :] = events.starts + (0 if rules.gap_inclusive else 1)
        return cls(
            keys=members.keys[order],
            moments=starts if sequence is None else moments_of(members, sequence),
            starts=starts,
            ends=ends[order],
            least=least[order],
            extends=(ends > least)[order],
            columns=[rule.read(rows) for _, rule in rules.ordered],
        )

    def part(self, rules: SessionRules, first: int, size: int) -> list[Interval]:
        """
        Return `size` intervals from the place `first` on.

        Under `state_gap` each ends where it starts: its own gap doesn't count.
        """
        chosen = slice(first, first + size)
        ends = self.ends if rules.state_gap is None else self.least
        all_numbers = self.moments, self.starts, ends, self.extends
        numbers = (column[chosen].tolist() for column in all_numbers)
        # A rule that has read `5 6` and `a b` of two intervals: the readings [(5, a)], [(6, b)].
        readings = [
            [[read] for read in zip(*(column[chosen].tolist() for column in columns), strict=True)]
            for columns in self.columns
        ]
        by_interval = zip(*readings, strict=True) if readings else [()] * size
        return list(map(Interval, range(first, first + size), *numbers, by_interval))


class CurrentSession(NamedTuple):
    """
    The session to which a walk adds instants, from its first one on.

    `known` holds what each ordered rule knows of it; `fired`, the rules that fired, and when.
    """

    rules: SessionRules
    first: int
    start: int
    end: int
    known: Sequence[Any]
    fired: Sequence[Fired] = ()

    @classmethod
    def at(cls, rules: SessionRules, instant: Interval) -> "CurrentSession":
        """Begin a session at an instant, which isn't added yet."""
        return cls(rules, instant.place, instant.at, instant.at, [None] * len(rules.ordered))

    def after(self, instant: Interval, gap_us: int | None = None) -> "CurrentSession":
        """Add an instant, and the gap that the state gives after it, if any."""
        known, fired, ordered = list[Any](), [*self.fired], self.rules.ordered
        for (place, rule), before, read in zip(ordered, self.known, instant.readings, strict=True):
            known.append(rule.after(before, read))
            if rule.is_last(known[-1]):
                fired.append((instant.at, place))
        end = max(self.end, instant.end) if gap_us is None else instant.at + gap_us
        return CurrentSession(self.rules, self.first, self.start, end, known, fired)

    def is_over_at(self, instant: Interval) -> bool:
        """Return whether the session is over before an instant, by its own events and times."""
        inclusive = self.rules.gap_inclusive
        is_apart = starts_new_session(instant.at, self.end, gap_inclusive=inclusive)
        return is_apart or bool(self.fired)

    def fired_by(self, instant: Interval) -> list[Fired]:
        """Return the rules by which an instant begins the next session."""
        rules = zip(self.rules.ordered, self.known, instant.readings, strict=True)
        return [
            (instant.at, place)
            for (place, rule), known, readings in rules
            if rule.begins_next(known, readings)
        ]

    def closing(self, by_times: Fired) -> Fired:
        """Return the rule that closes the session, and when; its times alone give `by_times`."""
        at, place = by_times
        if self.rules.in_use[place].inclusive:
            # An event at that instant still belongs to the session.
            return min((fired for fired in self.fired if fired[0] <= at), default=by_times)
        return min([*self.fired, by_times])


GapAfter: TypeAlias = Callable[..., int | None]
"""A function of an instant's places, `extends` and `begins`: the gap by the state after it."""


def cut(
    rules: SessionRules, intervals: RuledIntervals, gaps: StateGaps | None = None
) -> tuple[Unions, Sequence[int]]:
    """
    Join intervals, at least one, into sessions, and find when and why each session closes.

    Returns the places of events outside any session too: where there are some, the sessions don't
    count. Under `state_gap` each interval has the longest gap, and `gaps` gives the gaps in force.
    """
    by_gap = by_times(rules, intervals)
    if not rules.ordered and gaps is None:
        return by_gap, ()
    marked = _marked(rules, intervals, by_gap)
    if not marked.any():
        return by_gap, ()
    first, sizes = by_gap.first[marked], by_gap.sizes[marked]
    within = [None] * len(first) if gaps is None else gaps(first, sizes)
    walk = SessionWalk(rules, intervals, {} if gaps is None else gaps.failures)
    parts = zip(first.tolist(), sizes.tolist(), within, strict=True)
    walked = [session for part in parts for session in walk.sessions(*part)]
    if walk.outside:
        return by_gap, walk.outside
    starts = np.array([session.start for session in walked], np.int64)
    ends = np.array([session.end for session in walked], np.int64)
    closes, closed_by = closings(rules, starts, ends, walked)
    # Of sessions at [0, 2, 5], the second is marked, and cut at 2 and 4: [0, 5] and [2, 4] become
    # [0, 2, 4, 5].
    first = np.concatenate([by_gap.first[~marked], [session.first for session in walked]])
    order = np.argsort(first)
    first = first[order]
    unions = Unions(
        first,
        np.diff(first, append=len(intervals.keys)),
        intervals.starts[first],
        np.concatenate([by_gap.end[~marked], ends])[order],
        np.concatenate([by_gap.closes[~marked], closes])[order],
        np.concatenate([by_gap.closed_by[~marked], closed_by])[order],
    )
    return unions, ()


def by_times(rules: SessionRules, intervals: RuledIntervals) -> Unions:
    """Join intervals by the gap, within a key and a day; rules only cut further."""
    # Keys [0, 0, 0, 1] on days [3, 3, 4, 4]: `new` is [no, yes, yes], and the groups [0, 0, 1, 2].
    new = np.diff(intervals.keys) != 0
    for rule in rules.in_use:
        if (days := rule.days(intervals.starts)) is not None:
            new |= np.diff(days) != 0
    groups = np.concatenate([[0], np.cumsum(new)])
    inclusive = rules.gap_inclusive
    unions = unite(groups, intervals.starts, intervals.ends, gap_inclusive=inclusive)
    closes, closed_by = closings(rules, unions.start, unions.end)
    return attrs.evolve(unions, closes=closes, closed_by=closed_by)


def closings(
    rules: SessionRules, starts: Numbers, ends: Numbers, walked: Sequence[CurrentSession] = ()
) -> tuple[Numbers, npt.NDArray[np.int8]]:
    """Return when sessions close, and the codes of the rules that close them."""
    instants_by_rule = [rule.closes(starts, ends) for rule in rules.in_use]
    by_times = [place for place, closes in enumerate(instants_by_rule) if closes is not None]
    fired = np.stack([closes for closes in instants_by_rule if closes is not None])
    # Of equal instants, `argmin` takes the first rule: the one that counts.
    closes, places = fired.min(axis=0), np.array(by_times)[fired.argmin(axis=0)]
    for nth, session in enumerate(walked):
        if session.fired:
            # Rules of both kinds have fired: the earlier one counts.
            closes[nth], places[nth] = session.closing((int(closes[nth]), int(places[nth])))
    return closes, np.array([rule.code for rule in rules.in_use], np.int8)[places]


def reasons_of(rules: SessionRules, codes: pa.Array) -> pa.Array:
    """Return the names of rules by their codes, also of rules no longer in use."""
    names = {rule.code: rule.name for rule in RULES}
    names |= {rule.code: rule.name for rule in rules.in_use}
    return pa.array([names.get(code) for code in range(max(names) + 1)], pa.string()).take(codes)


def may_open(rules: SessionRules, instant: Interval) -> bool:
    """Return whether a session may open at an instant."""
    return all(rule.may_open(instant.readings[place]) for place, rule in rules.of_openings)


def instants_of(intervals: Sequence[Interval]) -> list[list[Interval]]:
    """Group the intervals of a key by the instants at which they start."""
    return [list(same) for _, same in groupby(intervals, key=attrgetter("moment"))]


def _marked(rules: SessionRules, intervals: RuledIntervals, by_gap: Unions) -> Mask:
    """Mark the sessions in which a rule that depends on the order of events may fire."""
    # Of a session at 10:00, 10:00 and 10:05, only the last one comes later than its first instant.
    later = intervals.moments > by_gap.spread(intervals.moments[by_gap.first])
    marked: Mask = np.zeros(len(by_gap), np.bool_)
    if rules.state_gap is not None:
        marked |= by_gap.reduced(np.logical_or, intervals.extends)
    for (_, rule), columns in zip(rules.ordered, intervals.columns, strict=True):
        marked |= rule.may_fire(columns, later, by_gap)
    return marked


@attrs.frozen
class SessionWalk:
    """
    A walk over intervals, one instant after another, which cuts them into sessions.

    `failures` has the events that fail meanwhile, and `outside` the places of the events outside
    any session.
    """

    rules: SessionRules
    intervals: RuledIntervals
    failures: Sized
    outside: list[int] = attrs.field(factory=list, init=False)

    def sessions(self, first: int, size: int, gap: GapAfter | None) -> Iterator[CurrentSession]:
        """Yield the sessions within intervals that the gap joins."""
        rules, failed, limited = self.rules, len(self.failures), bool(self.rules.of_openings)
        session: CurrentSession | None = None
        fired: Sequence[Fired] = ()
        for simultaneous in instants_of(self.intervals.part(rules, first, size)):
            instant, gap_us, begins = combined(simultaneous), None, session is None
            if session is not None:
                fired = session.fired_by(instant)
                begins = bool(fired) or session.is_over_at(instant)
            # After an event that fails, nobody knows which session is open.
            if begins and limited and not may_open(rules, instant) and len(self.failures) == failed:
                self.outside.extend(interval.place for interval in simultaneous)
                continue
            if session is None or begins:
                if session is not None:
                    yield session._replace(fired=[*session.fired, *fired])
                session = CurrentSession.at(rules, instant)
            if gap is not None:
                places = [interval.place for interval in simultaneous]
                gap_us = gap(places, extends=instant.extends, begins=begins)
            session = session.after(instant, gap_us)
        if session is not None:
            yield session


def moments_of(members: Members, sequence: str) -> Numbers:
    """
    Return a number for each interval, in order; intervals of one number stay together.

    An open session has no sequence. It comes before the events of its start.
    """
    order, number = members.order, len(members.places)
    turns = np.zeros(len(order), np.int64)
    # With one open session and events of the sequence 5 and 7: 0 5 7.
    turns[number:] = numbers_in(members.events.table, f"event.{sequence}")
    # `number` counts the open sessions, so members from there on are events.
    is_event, new = order >= number, np.zeros(len(order), np.bool_)
    for column in (members.keys[order], members.starts[order], turns[order], is_event):
        new[1:] |= column[1:] != column[:-1]
    # Of one key, events at 10:00 with sequence 1, 1, 2 and one at 10:01: [0, 0, 1, 2].
    moments: Numbers = np.cumsum(new)
    return moments


def numbered(members: Members, unions: Unions) -> Unions:
    """Count, from 0, the sessions of a key that begin at one instant."""
    keys, places = members.keys[members.order[unions.first]], np.arange(len(unions))
    # Of sessions of one key that begin at 10:00, 10:00, 10:00 and 10:05: `same` is [no, yes, yes,
    # no], and they're numbered [0, 1, 2, 0].
    same = np.zeros(len(unions), np.bool_)
    same[1:] = (keys[1:] == keys[:-1]) & (unions.start[1:] == unions.start[:-1])
    if not same.any():
        return unions
    return attrs.evolve(unions, nth=places - np.maximum.accumulate(np.where(same, 0, places)))


@attrs.frozen
class ByRules:
    """The cuts of a spec with rules; `features.rules` stores when and why its sessions close."""

    rules: SessionRules
    column: str = "closes"

    def over_at(self, events: WindowedEvents) -> Numbers:
        return closings(self.rules, events.starts, events.ends)[0]

    def united(self, members: Members) -> United:
        gaps = None if self.rules.state_gap is None else StateGaps(self.rules, members)
        unions, outside = cut(self.rules, RuledIntervals.of(self.rules, members), gaps)
        if members.spec.sequence is not None:
            unions = numbered(members, unions)
        # Of two open sessions and the order `0 2 1 3`, the place 3 is the event 1.
        events = (members.order[[*outside]] - len(members.places)).tolist() if outside else ()
        return United(unions, {} if gaps is None else gaps.failures, events)

    def reasons(self, sessions: pa.Table) -> pa.Array:
        return reasons_of(self.rules, whole(sessions["closed_by"]))


Cuts: TypeAlias = GapAlone | ByRules


def cuts_of(spec: AnySessionSpec) -> Cuts:
    timeout = spec.timeout
    if isinstance(timeout, SessionRules):
        return ByRules(timeout)
    longest, inclusive = timeout.max_gap, timeout.gap_inclusive
    return GapAlone(SessionRules(timeout.gap, max_gap=longest, gap_inclusive=inclusive))
