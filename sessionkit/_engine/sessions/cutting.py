"""
How rules cut a session that the gap joins.

The rule that fires first in event time ends a session. Where several fire at one instant, the first
in `SessionRules.in_use` counts.

    by times     rules that read only a session's own times: all sessions at once (`plan.by_times`)
    in order     rules that depend on earlier cuts: one instant of a key after the other (`walk`);
                 `state_gap` on the state after it, too

Only the sessions in which a rule of the second kind may fire are `disputed`, and walked.

Events of one instant have no order, so they stay together; a `sequence` makes each an instant of
its own. Then several sessions of a key may begin at one instant. All of these are known at once,
since such events are cut only under `order="event_time"`, in one micro-batch. The first has the id
of its key and start; each later one has a salt, made of the number of sessions that begin there
before it.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import chain, repeat
from typing import Any, Final, NamedTuple, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from sessionkit._arrays import Array, Mask, Numbers, numbers_in
from sessionkit._engine.boundaries import starts_new_session
from sessionkit._engine.sessions.plan import Members, Unions, codes_of, first_by_times, groups_of
from sessionkit.timeouts._rule import Readings, RuleInput
from sessionkit.timeouts._session_rules import SessionRules

NO_ID: Final = -1
Fired: TypeAlias = tuple[int, int]
"""When a rule fires, in microseconds, and its position in `in_use`: the least counts."""


class Interval(NamedTuple):
    """
    An open session or event, at its place by key and start; or all of a key at one instant.

    `event_id` is a number that stands for the id of an event, or `NO_ID`; `readings` is
    what each ordered rule has read.
    """

    place: int
    event_id: int
    moment: int
    group: int
    at: int
    end: int
    is_event: bool
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


@attrs.frozen(slots=False, eq=False)
class Intervals:
    """
    Open sessions and events as intervals, by place; each column is made at its first use.

    `ids` has a number for the id of each member, if events may be repeats.
    """

    rules: SessionRules
    members: Members
    ids: Numbers | None = None

    @cached_property
    def starts(self) -> Numbers:
        return self.members.starts[self.members.order]

    @cached_property
    def moments(self) -> Numbers:
        """Equal for intervals of a key that no rule parts: the start, unless there's a sequence."""
        sequence = self.members.spec.sequence
        return self.starts if sequence is None else moments_of(self.members, sequence)

    @cached_property
    def groups(self) -> Numbers:
        return groups_of(self.rules, self.members.keys[self.members.order], self.starts)

    @cached_property
    def least(self) -> Numbers:
        """The end of an event if it kept no session open; of an open session, its end."""
        least, events = self.members.ends.copy(), self.members.events
        # Open sessions are numbered first: of one open session and two events, these are its end
        # and the starts of the two.
        least[len(self.members.rows) :] = events.starts + (0 if self.rules.gap_inclusive else 1)
        return least[self.members.order]

    @cached_property
    def extends(self) -> Mask:
        """Which intervals are events that keep their sessions open."""
        mask: Mask = self.members.ends[self.members.order] > self.least
        return mask

    @cached_property
    def columns(self) -> Sequence[Sequence[Array]]:
        """What each ordered rule has read."""
        rows = input_of(self.members)
        return [rule.read(rows) for _, rule in self.rules.ordered]

    def disputed(self, unions: Unions) -> Mask:
        """Mark the sessions, joined by times, that a rule which goes by the order may cut."""
        # Of a session at 10:00, 10:00 and 10:05, only the last one comes later than its first.
        later = self.moments > unions.spread(self.moments[unions.first])
        marked: Mask = np.zeros(len(unions), np.bool_)
        if self.rules.state_gap is not None:
            marked |= unions.reduced(np.logical_or, self.extends)
        for (_, rule), columns in zip(self.rules.ordered, self.columns, strict=True):
            marked |= rule.may_fire(columns, later, unions)
        return marked

    def part(self, first: int, size: int) -> list[Interval]:
        """
        Return `size` intervals from the place `first` on.

        Under `state_gap` each ends where it starts: its own gap doesn't count.
        """
        chosen, opened = slice(first, first + size), len(self.members.rows)
        by_state = self.rules.state_gap is not None
        numbers = self.members.order[chosen]
        ids = repeat(NO_ID) if self.ids is None else self.ids[numbers].tolist()
        ends = (self.least[chosen] if by_state else self.members.ends[numbers]).tolist()
        of_places = self.moments, self.groups, self.starts
        times = (column[chosen].tolist() for column in of_places)
        # A rule that has read `5 6` and `a b` of two intervals: the readings [(5, a)], [(6, b)].
        readings = [
            [[read] for read in zip(*(column[chosen].tolist() for column in columns), strict=True)]
            for columns in self.columns
        ]
        by_interval = zip(*readings, strict=True) if readings else [()] * size
        flags = (numbers >= opened).tolist(), self.extends[chosen].tolist()
        places = range(first, first + size)
        return list(map(Interval, places, ids, *times, ends, *flags, by_interval))


@attrs.define(eq=False)
class CurrentSession:
    """
    The session to which a walk adds instants, from its first one on.

    `known` holds what each ordered rule knows of it; `fired`, the rules that fired, and when.
    """

    rules: SessionRules
    first: int
    group: int
    start: int
    end: int
    known: list[Any]
    fired: list[Fired]

    @classmethod
    def at(cls, rules: SessionRules, instant: Interval) -> "CurrentSession":
        """Begin a session at an instant, which isn't added yet."""
        at, unknown = instant.at, [None] * len(rules.ordered)
        return cls(rules, instant.place, instant.group, at, at, unknown, [])

    def copied(self, fired: Sequence[Fired] = ()) -> "CurrentSession":
        """Return a copy, in which some more rules have fired."""
        bounds = self.rules, self.first, self.group, self.start, self.end
        return CurrentSession(*bounds, [*self.known], [*self.fired, *fired])

    def add(self, instant: Interval, gap_us: int | None = None) -> None:
        """Add an instant, and the gap that the state gives after it, if any."""
        known = self.known
        for nth, (place, rule) in enumerate(self.rules.ordered):
            known[nth] = rule.after(known[nth], instant.readings[nth])
            if rule.is_last(known[nth]):
                self.fired.append((instant.at, place))
        self.end = max(self.end, instant.end) if gap_us is None else instant.at + gap_us

    def is_over_at(self, instant: Interval) -> bool:
        """Return whether the session is over before an instant, by its own events and times."""
        inclusive = self.rules.gap_inclusive
        is_apart = starts_new_session(instant.at, self.end, gap_inclusive=inclusive)
        return is_apart or instant.group != self.group or bool(self.fired)

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


def closed(
    rules: SessionRules, sessions: Sequence[CurrentSession]
) -> tuple[Numbers, npt.NDArray[np.int8]]:
    """Return when sessions close, and the codes of the rules that close them."""
    starts = np.array([session.start for session in sessions], np.int64)
    ends = np.array([session.end for session in sessions], np.int64)
    closes, positions = first_by_times(rules, starts, ends)
    for nth, session in enumerate(sessions):
        if session.fired:
            # Rules of both kinds have fired: the earlier one counts.
            closes[nth], positions[nth] = session.closing((int(closes[nth]), int(positions[nth])))
    return closes, codes_of(rules)[positions]


def may_open(rules: SessionRules, instant: Interval) -> bool:
    """Return whether a session may open at an instant."""
    return all(rule.may_open(instant.readings[place]) for place, rule in rules.of_openings)


def moments_of(members: Members, sequence: str) -> Numbers:
    """
    Return a number for each interval, in order; intervals of one number stay together.

    An open session has no sequence. It comes before the events of its start.
    """
    order, opened = members.order, len(members.rows)
    turns = np.zeros(len(order), np.int64)
    # With one open session and events of the sequence 5 and 7: 0 5 7.
    turns[opened:] = numbers_in(members.events.table, f"event.{sequence}")
    # Open sessions are numbered first, so members from `opened` on are events.
    is_event, new = order >= opened, np.zeros(len(order), np.bool_)
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
