"""
Sessions in pieces: what the rules that need an order make of the instants of a key.

Events of one instant have no order, so they always stay together.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from sessionkit._engine.sessions.closings import CODES, PRIORITIES, closing_of
from sessionkit._instants import span_us
from sessionkit.timeouts import ClosedBy, SessionRules, starts_new_session

__all__ = ["Instant", "Instants", "Piece", "RuledIntervals"]

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@attrs.frozen
class RuledIntervals:
    """
    Open sessions and events, by key and start, and what the rules need to know of them.

    Attributes:
        keys: The number of the key of each.
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
    starts: Numbers
    ends: Numbers
    least: Numbers
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

    def without_gaps(self) -> "RuledIntervals":
        """Return the same with no gap after an event: the state says how long that is."""
        return attrs.evolve(self, ends=self.least)


@attrs.frozen
class Instant:
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

    places: Sequence[int]
    at: int
    end: int
    events: int
    extends: bool
    until: bool
    starts_with: bool
    shown: Sequence[Sequence[int]]


@attrs.frozen
class Instants:
    """
    A part of the intervals, all of one key, as lists; see `RuledIntervals`.

    Attributes:
        first: The place at which the part begins.
        at: Their starts.
        ends: The ends of their gaps.
        events: How many events each stands for.
        extends: Which keep a session open.
        until: Which end their session.
        starts_with: Which start one.
        values: For each field of `changes_of`, their values.
    """

    first: int
    at: list[int]
    ends: list[int]
    events: list[int]
    extends: list[bool]
    until: list[bool]
    starts_with: list[bool]
    values: list[list[int]]

    @classmethod
    def of(cls, intervals: RuledIntervals, first: int, size: int) -> "Instants":
        """Return so many intervals from a place on."""
        part = intervals.part(slice(first, first + size))
        return cls(
            first,
            part.starts.tolist(),
            part.ends.tolist(),
            part.events.tolist(),
            part.extends.tolist(),
            part.until.tolist(),
            part.starts_with.tolist(),
            [values.tolist() for values in part.values],
        )

    def places(self) -> Iterator[range]:
        """Yield the places of each instant, one after the other."""
        new = 1 + np.flatnonzero(np.diff(self.at))
        for low, high in pairwise([0, *new.tolist(), len(self.at)]):
            yield range(self.first + low, self.first + high)

    def at_place(self, place: int) -> int:
        """Return where the interval at a place starts."""
        return self.at[place - self.first]

    def end_at(self, place: int) -> int:
        """Return the end of its gap."""
        return self.ends[place - self.first]

    def extends_at(self, place: int) -> bool:
        """Return whether it keeps a session open."""
        return self.extends[place - self.first]

    def instant(self, places: Sequence[int]) -> Instant:
        """Return what's at some places, all of one instant."""
        own = [place - self.first for place in places]
        return Instant(
            places=places,
            at=self.at[own[0]],
            end=max(self.ends[n] for n in own),
            events=sum(self.events[n] for n in own),
            extends=any(self.extends[n] for n in own),
            until=any(self.until[n] for n in own),
            starts_with=any(self.starts_with[n] for n in own),
            shown=[[values[n] for n in own if values[n] >= 0] for values in self.values],
        )


@attrs.define
class Piece:
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
    def of(cls, instant: Instant) -> "Piece":
        """Return a part that begins at an instant, before it takes this."""
        return cls(instant.places[0], instant.at, instant.at, 0, [-1] * len(instant.shown))

    def take(self, rules: SessionRules, instant: Instant, gap_us: int | None) -> None:
        """Take the events of an instant, and the gap by the state after them, where it's known."""
        if gap_us is None:
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

    def is_cut_at(self, rules: SessionRules, instant: Instant) -> bool:
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
            before = [one for one in self.cuts if one[0] <= at]
            return min(before, key=_turn, default=by_times)
        return min([*self.cuts, by_times], key=_turn)

    def _fires(self, at: int, rule: ClosedBy) -> None:
        self.cuts.append((at, CODES[rule]))


def _turn(closing: tuple[int, int]) -> tuple[int, int]:
    """Return by what closings are compared: the first instant, then the rule that goes first."""
    at, code = closing
    return at, PRIORITIES[code]
