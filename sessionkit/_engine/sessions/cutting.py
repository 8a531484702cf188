"""
Where rules cut sessions, beside the gap.

The rule that fires first in event time ends a session; where several fire at one instant, the order
of `CLOSED_BY` decides.

    midnight, gap                  depend on each session's own times: all sessions at once
    the rules that need an order   depend on where the session was cut before: one after the other;
                                   `state_gap` on its state, too

The second kind looks only at sessions in which such a rule fires at all. Events of one instant have
no order, so they always stay together.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, Protocol, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from sessionkit._engine.sessions.intervals import Unions, unite
from sessionkit._instants import END_OF_TIME_US, span_us
from sessionkit.timeouts import CLOSED_BY, ClosedBy, SessionRules, days_of, starts_new_session

__all__ = ["GapsByState", "RuledIntervals", "closing_of", "closings", "cut"]

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

CODES: Final[dict[ClosedBy, int]] = {name: code for code, name in enumerate(CLOSED_BY)}
BY_TIMES: Final[tuple[ClosedBy, ...]] = ("midnight", "gap", "max_duration")


@attrs.frozen
class RuledIntervals:
    """
    Open sessions and events, by key and start, and what the rules need to know of them.

    Attributes:
        keys: The number of the key of each.
        starts: Its start, in microseconds.
        ends: The end of its gap, exclusive.
        events: How many events it stands for.
        extends: Whether it's an event that keeps its session open.
        until: Whether it's an event that ends its session.
        starts_with: Whether it's an event that starts a session.
        values: For each field of `changes_of`, a number for its value; -1 for a null.
    """

    keys: Numbers
    starts: Numbers
    ends: Numbers
    events: Numbers
    extends: Mask
    until: Mask
    starts_with: Mask
    values: Sequence[Numbers]

    def part(self, chosen: slice) -> "RuledIntervals":
        """Return some of them, one after the other."""
        names = (field.name for field in attrs.fields(RuledIntervals) if field.name != "values")
        own: dict[str, Any] = {name: getattr(self, name)[chosen] for name in names}
        return RuledIntervals(**own, values=[values[chosen] for values in self.values])


class GapsByState(Protocol):
    """The gap of a session by its state, while its intervals are taken one after the other."""

    def begin(self) -> None:
        """Begin a new session."""

    def after(self, places: range) -> int | None:
        """
        Take the intervals at some places; return the gap from there on, in microseconds.

        None where a function fails, here or earlier in the session.
        """


def cut(rules: SessionRules, intervals: RuledIntervals, gaps: GapsByState | None = None) -> Unions:
    """
    Join intervals, at least one, into sessions, and say when and why each of these closes.

    Args:
        rules: The rules.
        intervals: The intervals; with gaps by the state, each with the longest gap.
        gaps: The gaps by the state, where they are.
    """
    whole = _by_times(rules, intervals)
    if not rules.in_order:
        return whole
    marked = np.flatnonzero(_marked(rules, intervals, whole))
    if not len(marked):
        return whole
    by_times = zip(whole.end.tolist(), whole.closes.tolist(), whole.closed_by.tolist(), strict=True)
    ended = dict(zip(whole.first.tolist(), by_times, strict=True))
    for low, size in zip(whole.first[marked].tolist(), whole.sizes[marked].tolist(), strict=True):
        instants = _instants(intervals.part(slice(low, low + size)), low)
        for piece in _pieces(rules, instants, gaps):
            ended[piece.first] = (piece.end, *piece.closing(rules))
    first = np.array(sorted(ended), np.intp)
    ends, closes, closed_by = zip(*(ended[place] for place in first.tolist()), strict=True)
    return Unions(
        first,
        np.diff(first, append=len(intervals.keys)),
        intervals.starts[first],
        np.array(ends, np.int64),
        np.array(closes, np.int64),
        np.array(closed_by, np.int8),
    )


def closings(
    rules: SessionRules, starts: Numbers, ends: Numbers
) -> tuple[Numbers, npt.NDArray[np.int8]]:
    """
    Return when sessions close by their own times, and by which rule, as a place in `CLOSED_BY`.

    Args:
        rules: The rules.
        starts: The starts of the sessions, in microseconds.
        ends: The ends of their gaps.
    """
    never = np.full(len(starts), END_OF_TIME_US)
    midnight = never if rules.midnight is None else days_of(rules.midnight, starts)[1]
    longest = never if rules.max_duration is None else starts + span_us(rules.max_duration)
    fired = np.stack([midnight, ends, longest])
    codes = np.array([CODES[name] for name in BY_TIMES], np.int8)
    return fired.min(axis=0), codes[fired.argmin(axis=0)]


def closing_of(rules: SessionRules, start_us: int, end_us: int) -> tuple[int, int]:
    """Return when one session closes by its own times, and by which rule; see `closings`."""
    closes, closed_by = closings(rules, np.array([start_us]), np.array([end_us]))
    return int(closes[0]), int(closed_by[0])


def _by_times(rules: SessionRules, intervals: RuledIntervals) -> Unions:
    """Join intervals by the gap, within a key and a day."""
    keys, starts, ends = intervals.keys, intervals.starts, intervals.ends
    new = np.diff(keys) != 0
    if rules.midnight is not None:
        new |= np.diff(days_of(rules.midnight, starts)[0]) != 0
    groups = np.concatenate([[0], np.cumsum(new)])
    unions = unite(groups, starts, ends, gap_inclusive=rules.gap_inclusive)
    closes, closed_by = closings(rules, unions.start, unions.end)
    return attrs.evolve(unions, closes=closes, closed_by=closed_by)


def _marked(rules: SessionRules, intervals: RuledIntervals, whole: Unions) -> Mask:
    """Mark the sessions in which a rule fires that depends on the order of events."""
    first, starts = whole.first, intervals.starts
    later = starts > whole.spread(whole.start)
    marked: Mask = np.logical_or.reduceat(intervals.until | (intervals.starts_with & later), first)
    if rules.state_gap is not None:
        marked |= np.logical_or.reduceat(intervals.extends, first)
    if rules.max_events is not None:
        marked |= whole.sums(intervals.events) >= rules.max_events
    if rules.max_duration is not None:
        lasted = np.maximum.reduceat(starts, first) - whole.start
        marked |= lasted > span_us(rules.max_duration)
    for values in intervals.values:
        marked |= np.minimum.reduceat(values, first) != np.maximum.reduceat(values, first)
    return marked


@attrs.frozen
class _Instant:
    """
    The intervals of a key that start at one instant.

    Attributes:
        places: Their places.
        at: The instant.
        end: The furthest end of their gaps.
        events: How many events they stand for.
        extends: Whether one of them is an event that keeps its session open.
        until: Whether one of them ends its session.
        starts_with: Whether one of them starts a session.
        shown: For each field of `changes_of`, the values that are not null, in order.
    """

    places: range
    at: int
    end: int
    events: int
    extends: bool
    until: bool
    starts_with: bool
    shown: Sequence[Sequence[int]]


def _instants(part: RuledIntervals, offset: int) -> Iterator[_Instant]:
    """Yield the instants of a part of the intervals that begins at a place."""
    bounds = [0, *(1 + np.flatnonzero(np.diff(part.starts))).tolist(), len(part.starts)]
    ends, events, at = part.ends.tolist(), part.events.tolist(), part.starts.tolist()
    until, starts_with = part.until.tolist(), part.starts_with.tolist()
    extends = part.extends.tolist()
    values = [column.tolist() for column in part.values]
    for low, high in pairwise(bounds):
        yield _Instant(
            places=range(offset + low, offset + high),
            at=at[low],
            end=max(ends[low:high]),
            events=sum(events[low:high]),
            extends=any(extends[low:high]),
            until=any(until[low:high]),
            starts_with=any(starts_with[low:high]),
            shown=[[value for value in own[low:high] if value >= 0] for own in values],
        )


@attrs.define
class _Piece:
    """
    A part of a session between two cuts.

    Attributes:
        first: The place of its first interval.
        start: Its start.
        end: The end of its gap.
        events: How many events it has.
        values: For each field of `changes_of`, its last value; -1 for none.
        cuts: When rules fired that depend on the order of events, and which.
    """

    first: int
    start: int
    end: int
    events: int
    values: list[int]
    cuts: list[tuple[int, int]] = attrs.field(factory=list)

    @classmethod
    def of(cls, instant: _Instant) -> "_Piece":
        """Return a part that begins at an instant, before it takes this."""
        return cls(instant.places[0], instant.at, instant.at, 0, [-1] * len(instant.shown))

    def take(self, rules: SessionRules, instant: _Instant, gap_us: int | None) -> None:
        """Take the events of an instant, and the gap by the state after them."""
        if gap_us is None or not instant.extends:
            self.end = max(self.end, instant.end)
        else:
            self.end = instant.at + gap_us
        self.events += instant.events
        self.values = [
            new[-1] if new else old for new, old in zip(instant.shown, self.values, strict=True)
        ]
        if instant.until:
            self._fires(instant.at, "until")
        if rules.max_events is not None and self.events >= rules.max_events:
            self._fires(instant.at, "max_events")

    def is_cut_at(self, rules: SessionRules, instant: _Instant) -> bool:
        """Return whether an instant belongs to another session; note a rule that it fires."""
        if instant.starts_with:
            self._fires(instant.at, "starts_with")
        if any(set(new) - {old} for new, old in zip(instant.shown, self.values, strict=True)):
            self._fires(instant.at, "changes_of")
        if self.cuts or starts_new_session(instant.at, self.end, gap_inclusive=rules.gap_inclusive):
            return True
        longest = rules.max_duration
        return longest is not None and instant.at - self.start > span_us(longest)

    def closing(self, rules: SessionRules) -> tuple[int, int]:
        """Return when it closes, and by which rule."""
        by_times = at, rule = closing_of(rules, self.start, self.end)
        if rule == CODES["max_duration"] or (rule == CODES["gap"] and rules.gap_inclusive):
            # An event at that very instant still belongs to the session.
            return min((one for one in self.cuts if one[0] <= at), default=by_times)
        return min([*self.cuts, by_times])

    def _fires(self, at: int, rule: ClosedBy) -> None:
        self.cuts.append((at, CODES[rule]))


def _pieces(
    rules: SessionRules, instants: Iterator[_Instant], gaps: GapsByState | None
) -> Iterator[_Piece]:
    """Yield the parts of a session that only the gap holds together, one instant after another."""
    piece: _Piece | None = None
    for instant in instants:
        if piece is None or piece.is_cut_at(rules, instant):
            if piece is not None:
                yield piece
            piece = _Piece.of(instant)
            if gaps is not None:
                gaps.begin()
        piece.take(rules, instant, None if gaps is None else gaps.after(instant.places))
    if piece is not None:
        yield piece
