"""
Which events fail, where rules depend on the order of events.

Without an event that fails, every session of its key after it may be another one. So the instants
of a key are taken one after the other, as in `cutting`, and folded at once. Where an event fails,
what stands at its instant is judged again without it. For a state of bounded size, that takes time
linear in the events.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from sessionkit._engine.rows.objects import build_events, decode_keys, decode_states
from sessionkit._engine.rows.order import key_numbers
from sessionkit._engine.rows.table import key_columns, micros
from sessionkit._engine.sessions.cutting import groups_of
from sessionkit._engine.sessions.fold import FoldError, SessionFold, gap_by_state, timed
from sessionkit._engine.sessions.pieces import Instants, Piece, RuledIntervals
from sessionkit._engine.sessions.plan import Plan
from sessionkit._engine.sessions.retry import joined, taken
from sessionkit._engine.sessions.ruled import RuledRows
from sessionkit._functions import Failure
from sessionkit._instants import span_us
from sessionkit.timeouts import SessionRules

__all__ = ["failing_events"]

Mask: TypeAlias = npt.NDArray[np.bool_]


def failing_events(plan: Plan, rules: SessionRules, failed: Mask) -> dict[int, Failure]:
    """
    Return why events fail, by their places, for all keys with sessions that can't be folded.

    Args:
        plan: Which events and open sessions go together.
        rules: Its rules.
        failed: These sessions.
    """
    intervals = _intervals(plan, rules)
    groups = groups_of(rules, intervals)
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    sizes = np.diff(first, append=len(groups))
    concerned = np.isin(intervals.keys[first], intervals.keys[plan.unions.first[failed]])
    sieve = _Sieve.of(plan, rules)
    for low, size in zip(first[concerned].tolist(), sizes[concerned].tolist(), strict=True):
        sieve.take(Instants.of(intervals, low, size))
    return sieve.failures


def _intervals(plan: Plan, rules: SessionRules) -> RuledIntervals:
    events, touched = plan.events, plan.touched
    numbers, found = key_numbers(key_columns(events.table), key_columns(touched))
    return RuledRows(plan.spec, touched, events, plan.order).intervals(
        rules,
        np.concatenate([found, numbers]),
        np.concatenate([micros(touched["start"]), events.starts]),
        np.concatenate([micros(touched["end"]), events.ends]),
    )


class _EventFailsError(Exception):
    """Raised over the first event of an instant that fails, with its place."""


@attrs.define
class _Sieve:
    """
    Folds sessions while it is decided where they're cut, and leaves out the events that fail.

    Attributes:
        rules: The rules.
        fold: The functions.
        order: The numbers of open sessions and events, by key and start.
        opened: The states of the open sessions; None where all of its events are discarded.
        keys: The keys of the events.
        events: The events, as they are folded.
        failures: Why events fail, by their places.
        state: The state of the session so far.
    """

    rules: SessionRules
    fold: SessionFold
    order: Sequence[int]
    opened: Sequence[Any]
    keys: Sequence[Any]
    events: Sequence[Any]
    failures: dict[int, Failure] = attrs.field(factory=dict)
    state: Any = None

    @classmethod
    def of(cls, plan: Plan, rules: SessionRules) -> "_Sieve":
        """Decode what is folded."""
        spec, events = plan.spec, plan.events
        held = plan.touched["events"].to_pylist()
        states = decode_states(spec.state, plan.touched)
        return cls(
            rules,
            SessionFold.of(spec),
            plan.order.tolist(),
            [state if count else None for state, count in zip(states, held, strict=True)],
            decode_keys(spec, events.table),
            timed(spec, build_events(spec, events.table)[0], events.starts),
        )

    def take(self, instants: Instants) -> None:
        """Take the instants of a key, up to an open session that can't be merged."""
        piece: Piece | None = None
        try:
            for places in instants.places():
                piece = self._next(piece, instants, [*places])
        except FoldError:
            return

    def _next(self, piece: Piece | None, instants: Instants, places: list[int]) -> Piece | None:
        """Take an instant, without the events that fail; return the session that it belongs to."""
        while places:
            instant = instants.instant(places)
            after = None if piece is None else attrs.evolve(piece, cuts=[*piece.cuts])
            if after is None or after.is_cut_at(self.rules, instant):
                after, state = Piece.of(instant), None
            else:
                state = self.state
            try:
                self.state = self._folded(state, places)
            except _EventFailsError as failure:
                places.remove(failure.args[0])
                continue
            after.take(self.rules, instant, self._gap_us() if instant.extends else None)
            return after
        return piece

    def _folded(self, state: Any, places: Sequence[int]) -> Any:
        """Return a state with what stands at some places; the given one stays as it is."""
        for place in places:
            number = self.order[place]
            event = number - len(self.opened)
            if event < 0:
                state = self._merged(state, self.opened[number])
                continue
            try:
                state = taken(self.fold, self.keys[event], state, self.events[event])
            except FoldError as error:
                self.failures[event] = Failure.of(error)
                raise _EventFailsError(place) from None
        return state

    def _merged(self, state: Any, opened: Any) -> Any:
        if state is None or opened is None:
            return opened if state is None else state
        return joined(self.fold, None, state, opened)

    def _gap_us(self) -> int | None:
        state_gap = self.rules.state_gap
        if state_gap is None:
            return None
        return span_us(gap_by_state(self.fold.spec, state_gap, self.state))
