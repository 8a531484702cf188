"""
Where rules cut sessions, besides the gap.

The rule that fires first in event time ends a session; where several fire at one instant, the order
of `CLOSED_BY` decides.

    midnight, gap                  depend on each session's own times: all sessions at once
    the rules that need an order   depend on where the session was cut before: one instant of a key
                                   after the other, as pieces; `state_gap` on its state, too

The second kind looks only at sessions in which such a rule fires at all, and where the gap depends
on the state, at those with events. Events of one instant have no order, so they stay together; but
by a `sequence`, each is an instant of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._arrays import Mask, Numbers, whole
from sessionkit._engine.boundaries import days_of, starts_new_session
from sessionkit._engine.sessions.intervals import BY_GAP, Members, Unions, unite
from sessionkit._engine.sessions.sequence import moments_of
from sessionkit._instants import END_OF_TIME_US, span_us
from sessionkit.timeouts import ClosedBy, SessionRules
from sessionkit.timeouts._session_rules import CLOSED_BY

CODES: Final[dict[ClosedBy, int]] = {
    "until": 0,
    "max_events": 1,
    "midnight": 2,
    "gap": BY_GAP,
    "starts_with": 4,
    "changes_of": 5,
    "max_duration": 6,
    "idle": 7,
}
"""How the rules are stored. Checkpoints hold these numbers: a new rule gets the next one."""
NAMES: Final = tuple(sorted(CODES, key=CODES.__getitem__))
"""The rules by their codes."""
PRIORITIES: Final = {CODES[name]: place for place, name in enumerate(CLOSED_BY)}
"""By code, the place of a rule among those that fire at one instant: the first one counts."""
BY_TIMES: Final = [name for name in CLOSED_BY if name in {"midnight", "gap", "max_duration"}]


class Interval(NamedTuple):
    """
    An open session or event, at its place by key and start, or all that start at one instant.

    `shown` has for each field of `changes_of` the values that are not null, in order; for the
    others, see `RuledIntervals`.
    """

    place: int
    moment: int
    at: int
    end: int
    events: int
    extends: bool
    until: bool
    starts_with: bool
    shown: Sequence[Sequence[int]]

    @property
    def shows(self) -> bool:
        """Whether its content, and not only its time, may begin a session."""
        return self.starts_with or any(self.shown)


def instant_of(together: Sequence[Interval]) -> Interval:
    """Combine intervals of a key, at least one, that start at one instant."""
    one = together[0]
    if len(together) == 1:
        return one
    shown = zip(*(each.shown for each in together), strict=True)
    return Interval(
        place=one.place,
        moment=one.moment,
        at=one.at,
        end=max(each.end for each in together),
        events=sum(each.events for each in together),
        extends=any(each.extends for each in together),
        until=any(each.until for each in together),
        starts_with=any(each.starts_with for each in together),
        shown=[list(chain.from_iterable(values)) for values in shown],
    )


@attrs.frozen
class RuledIntervals:
    """
    Open sessions and events, by key and start, and what the rules need to know of them.

    Attributes:
        keys: The number of the key of each.
        moments: Where the next one has the same, the two are never parted: its start, unless
            events have a `sequence`.
        starts: Its start, in microseconds.
        ends: The end of its gap, exclusive.
        least: The end that it would have if it kept no session open; of an open session, its end.
        events: How many events it stands for.
        extends: Whether it's an event that keeps its session open.
        until: Whether it's an event that ends its session.
        starts_with: Whether it's an event that starts a session.
        values: For each field of `changes_of`, a number for its value; -1 for a null.
    """

    keys: Numbers
    moments: Numbers
    starts: Numbers
    ends: Numbers
    least: Numbers
    events: Numbers
    extends: Mask
    until: Mask
    starts_with: Mask
    values: Sequence[Numbers]

    @classmethod
    def of(cls, rules: SessionRules, members: Members) -> "RuledIntervals":
        order, ends, events = members.order, members.ends, members.events
        starts, sequence = members.starts[order], members.spec.sequence
        number = len(members.places)
        counts = members.touched["events"].to_numpy(), np.ones(len(events.starts), np.int64)
        least = ends.copy()
        least[number:] = events.starts + (0 if rules.gap_inclusive else 1)
        return cls(
            keys=members.keys[order],
            moments=starts if sequence is None else moments_of(members, sequence),
            starts=starts,
            ends=ends[order],
            events=np.concatenate(counts)[order],
            least=least[order],
            extends=(ends > least)[order],
            until=_held(members, "rule.until"),
            starts_with=_held(members, "rule.starts_with"),
            values=[_codes(members, name) for name in rules.changes_of],
        )

    def part(self, rules: SessionRules, first: int, size: int) -> list[Interval]:
        """Return so many from a place on; where the state says the gap, with none of their own."""
        chosen = slice(first, first + size)
        ends = self.ends if rules.state_gap is None else self.least
        numbers = self.moments, self.starts, ends, self.events
        flags = self.extends, self.until, self.starts_with
        columns = [column[chosen].tolist() for column in (*numbers, *flags)]
        shown = [
            [[code] if code >= 0 else [] for code in column[chosen].tolist()]
            for column in self.values
        ]
        every = zip(*shown, strict=True) if shown else [()] * size
        return list(map(Interval, range(first, first + size), *columns, every))


def _held(members: Members, name: str) -> Mask:
    """Mark the events, in order, for which a predicate is true."""
    held = np.zeros(len(members.order), np.bool_)
    if name in members.events.table.column_names:
        column = whole(members.events.table[name])
        held[len(members.places) :] = column.to_numpy(zero_copy_only=False)
    return held[members.order]


def field_values(members: Members, name: str) -> pa.Array:
    """Return the values of a field: the last ones of open sessions, then those of events."""
    stored, came = members.touched[f"last.{name}"], members.events.table[f"event.{name}"]
    return whole(pa.chunked_array([*stored.chunks, *came.chunks], stored.type))


def _codes(members: Members, name: str) -> Numbers:
    """Return a number for each value, in order, -1 for a null."""
    indices = field_values(members, name).dictionary_encode().indices.fill_null(-1)
    codes: Numbers = indices.to_numpy().astype(np.int64)[members.order]
    return codes


@attrs.frozen
class Piece:
    """
    A session so far, from one cut on.

    `values` has its last value of each field of `changes_of`, as a number, and None for none;
    `cuts` when which rules fired that depend on order, by their codes.
    """

    first: int
    start: int
    end: int
    events: int
    values: Sequence[int | None]
    cuts: Sequence[tuple[int, int]] = ()

    @classmethod
    def at(cls, instant: Interval) -> "Piece":
        """Return a session that begins at an instant, before the instant is added."""
        return cls(instant.place, instant.at, instant.at, 0, [None] * len(instant.shown))

    def after(self, rules: SessionRules, instant: Interval, gap_us: int | None = None) -> "Piece":
        """Add an instant, and the gap that the state gives after it, if any."""
        events, cuts = self.events + instant.events, [*self.cuts]
        if instant.until:
            cuts.append((instant.at, CODES["until"]))
        if rules.max_events is not None and events >= rules.max_events:
            cuts.append((instant.at, CODES["max_events"]))
        values = [
            new[-1] if new else old for new, old in zip(instant.shown, self.values, strict=True)
        ]
        end = max(self.end, instant.end) if gap_us is None else instant.at + gap_us
        return Piece(self.first, self.start, end, events, values, cuts)

    def is_cut_at(self, rules: SessionRules, instant: Interval) -> bool:
        """Return whether an instant belongs to another session."""
        if self.cuts or self._fired_by(instant):
            return True
        if starts_new_session(instant.at, self.end, gap_inclusive=rules.gap_inclusive):
            return True
        longest = rules.max_duration
        return longest is not None and instant.at - self.start > span_us(longest)

    def cut_by(self, instant: Interval) -> "Piece":
        """Record the rules fired by the instant that begins the next session."""
        return attrs.evolve(self, cuts=[*self.cuts, *self._fired_by(instant)])

    def closing(self, by_times: tuple[int, int], *, gap_inclusive: bool) -> tuple[int, int]:
        """Return when it closes, and by which rule, if its own times decide that."""
        at, rule = by_times
        if rule == CODES["max_duration"] or (rule == CODES["gap"] and gap_inclusive):
            # An event at that very instant still belongs to the session.
            before = [one for one in self.cuts if one[0] <= at]
            return min(before, key=_turn, default=by_times)
        return min([*self.cuts, by_times], key=_turn)

    def _fired_by(self, instant: Interval) -> list[tuple[int, int]]:
        fired: list[tuple[int, int]] = []
        if instant.starts_with:
            fired.append((instant.at, CODES["starts_with"]))
        if any(set(new) - {old} for new, old in zip(instant.shown, self.values, strict=True)):
            fired.append((instant.at, CODES["changes_of"]))
        return fired


def _turn(closing: tuple[int, int]) -> tuple[int, int]:
    """Return the sort key of closings: the earliest instant, then the priority of the rule."""
    at, code = closing
    return at, PRIORITIES[code]


GapAfter: TypeAlias = Callable[..., int | None]
"""Takes the places of an instant, `extends` and `begins`; returns the gap by the state after it."""
Gaps: TypeAlias = Callable[[Numbers, Numbers], Iterator[GapAfter]]
"""Takes the first places and sizes of parts; yields what says the gaps within each."""


def cut(rules: SessionRules, intervals: RuledIntervals, gaps: Gaps | None = None) -> Unions:
    """
    Join intervals, at least one, into sessions, and say when and why each of these closes.

    With gaps by the state, each interval has the longest gap, and `gaps` says the others.
    """
    whole = by_times(rules, intervals)
    if not rules.in_order:
        return whole
    marked = _marked(rules, intervals, whole)
    if not marked.any():
        return whole
    first, sizes = whole.first[marked], whole.sizes[marked]
    within = [None] * len(first) if gaps is None else gaps(first, sizes)
    parts = zip(first.tolist(), sizes.tolist(), within, strict=True)
    pieces = [piece for part in parts for piece in _pieces(rules, intervals, *part)]
    closes, closed_by = closed_pieces(rules, pieces)
    first = np.concatenate([whole.first[~marked], [piece.first for piece in pieces]])
    order = np.argsort(first)
    first = first[order]
    ends = np.array([piece.end for piece in pieces], np.int64)
    return Unions(
        first,
        np.diff(first, append=len(intervals.keys)),
        intervals.starts[first],
        np.concatenate([whole.end[~marked], ends])[order],
        np.concatenate([whole.closes[~marked], closes])[order],
        np.concatenate([whole.closed_by[~marked], closed_by])[order],
    )


def by_times(rules: SessionRules, intervals: RuledIntervals) -> Unions:
    """Join intervals by the gap, within a key and a day: no other rule joins more."""
    new = np.diff(intervals.keys) != 0
    if rules.midnight is not None:
        new |= np.diff(days_of(rules.midnight, intervals.starts)[0]) != 0
    groups = np.concatenate([[0], np.cumsum(new)])
    inclusive = rules.gap_inclusive
    unions = unite(groups, intervals.starts, intervals.ends, gap_inclusive=inclusive)
    closes, closed_by = closings(rules, unions.start, unions.end)
    return attrs.evolve(unions, closes=closes, closed_by=closed_by)


def closings(
    rules: SessionRules, starts: Numbers, ends: Numbers
) -> tuple[Numbers, npt.NDArray[np.int8]]:
    """Return when sessions close by their own times, and by which rule, as its code."""
    never = np.full(len(starts), END_OF_TIME_US)
    midnight = never if rules.midnight is None else days_of(rules.midnight, starts)[1]
    longest = never if rules.max_duration is None else starts + span_us(rules.max_duration)
    fired = np.stack([midnight, ends, longest])
    codes = np.array([CODES[name] for name in BY_TIMES], np.int8)
    return fired.min(axis=0), codes[fired.argmin(axis=0)]


def closed_pieces(
    rules: SessionRules, pieces: Sequence[Piece]
) -> tuple[Numbers, npt.NDArray[np.int8]]:
    starts = np.array([piece.start for piece in pieces], np.int64)
    ends = np.array([piece.end for piece in pieces], np.int64)
    closes, closed_by = closings(rules, starts, ends)
    for place, piece in enumerate(pieces):
        if piece.cuts:
            own = int(closes[place]), int(closed_by[place])
            found = piece.closing(own, gap_inclusive=rules.gap_inclusive)
            closes[place], closed_by[place] = found
    return closes, closed_by


def instants_of(intervals: Sequence[Interval]) -> list[list[Interval]]:
    """Return the intervals of a key by the instants at which they start."""
    return [list(together) for _, together in groupby(intervals, key=attrgetter("moment"))]


def _marked(rules: SessionRules, intervals: RuledIntervals, whole: Unions) -> Mask:
    """Mark the sessions in which a rule fires that depends on the order of events."""
    starts, moments = intervals.starts, intervals.moments
    later = moments > whole.spread(moments[whole.first])
    marked: Mask = whole.reduced(np.logical_or, intervals.until | (intervals.starts_with & later))
    if rules.state_gap is not None:
        marked |= whole.reduced(np.logical_or, intervals.extends)
    if rules.max_events is not None:
        marked |= whole.reduced(np.add, intervals.events) >= rules.max_events
    if rules.max_duration is not None:
        lasted = whole.reduced(np.maximum, starts) - whole.start
        marked |= lasted > span_us(rules.max_duration)
    for values in intervals.values:
        marked |= whole.reduced(np.minimum, values) != whole.reduced(np.maximum, values)
    return marked


def _pieces(
    rules: SessionRules, intervals: RuledIntervals, first: int, size: int, gap: GapAfter | None
) -> Iterator[Piece]:
    """Yield the sessions of intervals that the gap joins, one instant after another."""
    piece: Piece | None = None
    for together in instants_of(intervals.part(rules, first, size)):
        instant, before = instant_of(together), piece
        begins = before is None or before.is_cut_at(rules, instant)
        if begins and before is not None:
            yield before.cut_by(instant)
        piece = Piece.at(instant) if before is None or begins else before
        gap_us = None
        if gap is not None:
            places = [one.place for one in together]
            gap_us = gap(places, extends=instant.extends, begins=begins)
        piece = piece.after(rules, instant, gap_us)
    if piece is not None:
        yield piece
