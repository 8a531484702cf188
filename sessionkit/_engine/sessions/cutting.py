"""
Where rules cut sessions, beside the gap.

The rule that fires first in event time ends a session; where several fire at one instant, the order
of `CLOSED_BY` decides.

    midnight, gap                  depend on each session's own times: all sessions at once
    the rules that need an order   depend on where the session was cut before: one after the other;
                                   `state_gap` on its state, too

The second kind looks only at sessions in which such a rule fires at all, and where the gap depends
on the state, at those with events.
"""

from collections.abc import Iterator
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from sessionkit._engine.sessions.closings import closings
from sessionkit._engine.sessions.intervals import Unions, unite
from sessionkit._engine.sessions.pieces import Instants, Piece, RuledIntervals
from sessionkit._engine.sessions.state_gaps import StateGaps
from sessionkit._instants import span_us
from sessionkit.timeouts import SessionRules, days_of

__all__ = ["cut", "groups_of"]

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


def cut(rules: SessionRules, intervals: RuledIntervals, gaps: StateGaps | None = None) -> Unions:
    """
    Join intervals, at least one, into sessions, and say when and why each of these closes.

    Args:
        rules: The rules.
        intervals: The intervals; with gaps by the state, each with the longest gap.
        gaps: The gaps by the state, where the rules have these.
    """
    whole = _by_times(rules, intervals)
    if not rules.in_order:
        return whole
    marked = np.flatnonzero(_marked(rules, intervals, whole))
    if not len(marked):
        return whole
    if gaps is not None:
        intervals = intervals.without_gaps()
    by_times = zip(whole.end.tolist(), whole.closes.tolist(), whole.closed_by.tolist(), strict=True)
    ended = dict(zip(whole.first.tolist(), by_times, strict=True))
    for low, size in zip(whole.first[marked].tolist(), whole.sizes[marked].tolist(), strict=True):
        for piece in _pieces(rules, Instants.of(intervals, low, size), gaps):
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


def groups_of(rules: SessionRules, intervals: RuledIntervals) -> Numbers:
    """Return, for each interval, the number of its key and day: no session is in two of them."""
    new = np.diff(intervals.keys) != 0
    if rules.midnight is not None:
        new |= np.diff(days_of(rules.midnight, intervals.starts)[0]) != 0
    return np.concatenate([[0], np.cumsum(new)])


def _by_times(rules: SessionRules, intervals: RuledIntervals) -> Unions:
    """Join intervals by the gap, within a key and a day."""
    unions = unite(
        groups_of(rules, intervals),
        intervals.starts,
        intervals.ends,
        gap_inclusive=rules.gap_inclusive,
    )
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


def _pieces(rules: SessionRules, instants: Instants, gaps: StateGaps | None) -> Iterator[Piece]:
    """Yield the parts of a session that only the gap holds together, one instant after another."""
    piece: Piece | None = None
    for instant in map(instants.instant, instants.places()):
        if piece is None or piece.is_cut_at(rules, instant):
            if piece is not None:
                yield piece
            piece = Piece.of(instant)
            if gaps is not None:
                gaps.begin()
        gap_us = None
        if gaps is not None:
            gap_us = gaps.after(instant.places, extends=instant.extends)
        piece.take(rules, instant, gap_us)
    if piece is not None:
        yield piece
