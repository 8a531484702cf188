"""
Which events fail, where rules depend on the order of events.

Without an event that fails, every session of its key after it may be another one. So the instants
of a key are taken one after the other, as in `cutting`, and folded at once. Where an event fails,
what stands at its instant is judged again without it. For a state of bounded size, that takes time
linear in the events.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from sessionkit._engine.rows.order import key_numbers
from sessionkit._engine.rows.table import key_columns, micros
from sessionkit._engine.sessions.cutting import groups_of
from sessionkit._engine.sessions.fold import FoldError
from sessionkit._engine.sessions.pieces import Instant, Instants, Piece, RuledIntervals
from sessionkit._engine.sessions.plan import Plan
from sessionkit._engine.sessions.retry import check_fit, taken
from sessionkit._engine.sessions.ruled import RuledRows
from sessionkit._engine.sessions.trial import Trial
from sessionkit._functions import Failure
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
    if rules.state_gap is not None:
        intervals = intervals.without_gaps()
    groups = groups_of(rules, intervals)
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    sizes = np.diff(first, append=len(groups))
    concerned = np.isin(intervals.keys[first], intervals.keys[plan.unions.first[failed]])
    sieve = _Sieve(rules, Trial.of(plan.spec, plan.touched, plan.events, plan.order))
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


@attrs.define
class _Sieve:
    """
    Folds sessions while it is decided where they're cut, and leaves out the events that fail.

    Attributes:
        rules: The rules.
        trial: What is folded.
        failures: Why events fail, by their places.
        state: The state of the session so far.
    """

    rules: SessionRules
    trial: Trial
    failures: dict[int, Failure] = attrs.field(factory=dict)
    state: Any = None

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
            is_new = after is None or after.is_cut_at(self.rules, instant)
            # Without the first that fails, it may belong to the session before.
            at_once = is_new and _may_cut(instant)
            good, state = self._sifted(None if is_new else self.state, places, at_once=at_once)
            if at_once and len(good) < len(places):
                places = good
                continue
            if not good:
                break
            instant = instants.instant(good)
            gap_us, failing = self._gap(instant, state)
            if failing is not None:
                places = [place for place in good if place != failing]
                continue
            self.state = state
            after = Piece.of(instant) if is_new or after is None else after
            after.take(self.rules, instant, gap_us)
            return after
        return piece

    def _sifted(self, state: Any, places: Sequence[int], *, at_once: bool) -> tuple[list[int], Any]:
        """
        Return the places that don't fail, and a state with what stands there.

        Args:
            state: The state before.
            places: The places.
            at_once: Whether to return where the first one fails, without having tried the others.
        """
        fold, good = self.trial.fold, list[int]()
        for number, place in enumerate(places):
            event = self.trial.event_at(place)
            if event is None:
                state = self.trial.merged(deepcopy(state), place)
                check_fit(fold, "merge", None, state)
            else:
                try:
                    state = taken(fold, self.trial.keys[event], state, self.trial.events[event])
                except FoldError as error:
                    self.failures[event] = Failure.of(error)
                    if at_once:
                        return [*good, *places[number + 1 :]], state
                    continue
            good.append(place)
        return good, state

    def _gap(self, instant: Instant, state: Any) -> tuple[int | None, int | None]:
        """Return the gap by the state after an instant, or the place of the event that fails."""
        place = instant.places[-1]
        event = self.trial.event_at(place)
        if self.rules.state_gap is None or event is None or not instant.extends:
            return None, None
        try:
            return self.trial.gap_us(event, state), None
        except FoldError as error:
            self.failures[event] = Failure.of(error)
            return None, place


def _may_cut(instant: Instant) -> bool:
    """Return whether what stands at an instant may be why it begins a session."""
    return instant.starts_with or any(instant.shown)
