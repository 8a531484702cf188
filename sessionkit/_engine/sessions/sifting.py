"""
Which events fail, where rules depend on the order of events.

Without an event that fails, every session of its key after it may be another one. So the instants
of a key are taken one after the other, as in `cutting`, and folded at once: some on one copy of the
state, as in `retry`. Where an event fails, what stands at its instant is judged again without it.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from sessionkit._engine.rows.order import key_numbers
from sessionkit._engine.rows.table import key_columns, micros
from sessionkit._engine.sessions.cutting import groups_of
from sessionkit._engine.sessions.features.rules import Rules
from sessionkit._engine.sessions.fold import FoldError
from sessionkit._engine.sessions.pieces import Instant, Instants, Piece, RuledIntervals
from sessionkit._engine.sessions.plan import Plan
from sessionkit._engine.sessions.retry import added, check_fit
from sessionkit._engine.sessions.trial import Trial
from sessionkit.spec.functions import Failure
from sessionkit.timeouts import SessionRules, starts_new_session

__all__ = ["failing_events"]

Mask: TypeAlias = npt.NDArray[np.bool_]


def failing_events(plan: Plan, rules: Rules, failed: Mask) -> dict[int, Failure]:
    """
    Return why events fail, by their places, for all keys with sessions that can't be folded.

    Args:
        plan: Which events and open sessions go together.
        rules: Its rules.
        failed: These sessions.
    """
    intervals = _intervals(plan, rules)
    if rules.rules.state_gap is not None:
        intervals = intervals.without_gaps()
    groups = groups_of(rules.rules, intervals)
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    sizes = np.diff(first, append=len(groups))
    concerned = np.isin(intervals.keys[first], intervals.keys[plan.unions.first[failed]])
    sieve = _Sieve(rules.rules, Trial.of(plan.spec, plan.touched, plan.events, plan.order))
    doubtful = frozenset(plan.places_of(failed).tolist())
    for low, size in zip(first[concerned].tolist(), sizes[concerned].tolist(), strict=True):
        instants, known = Instants.of(intervals, low, size), len(sieve.failures)
        sieve.take(instants)
        if len(sieve.failures) == known:
            # No function fails, so a state at the end doesn't fit.
            attrs.evolve(sieve, must_fit=doubtful, state=None).take(instants)
    return sieve.failures


def _intervals(plan: Plan, rules: Rules) -> RuledIntervals:
    events, touched = plan.events, plan.touched
    numbers, found = key_numbers(key_columns(events.table), key_columns(touched))
    bounds = (
        np.concatenate([found, numbers]),
        np.concatenate([micros(touched["start"]), events.starts]),
        np.concatenate([micros(touched["end"]), events.ends]),
    )
    return rules.intervals(touched, events, plan.order, bounds)


@attrs.define
class _Sieve:
    """
    Folds sessions while it is decided where they're cut, and leaves out the events that fail.

    Attributes:
        rules: The rules.
        trial: What is folded.
        must_fit: The events that must leave a state that fits.
        failures: Why events fail, by their places.
        state: The state of the session so far.
    """

    rules: SessionRules
    trial: Trial
    must_fit: frozenset[int] = frozenset()
    failures: dict[int, Failure] = attrs.field(factory=dict)
    state: Any = None

    def take(self, instants: Instants) -> None:
        """Take the instants of a key, up to an open session that can't be merged."""
        every = list(map(list, instants.places()))
        piece: Piece | None = None
        place, most = 0, 1
        while place < len(every):
            after, number = self._tried(piece, instants, every[place : place + most])
            if number == len(every[place : place + most]):
                piece, place, most = after, place + number, 2 * most
            elif number:
                most = number
            else:
                try:
                    piece = self._next(piece, instants, every[place])
                except FoldError as error:
                    self._blame_bridge(piece, instants, every[place], error)
                    return
                place, most = place + 1, 1

    def _tried(
        self, piece: Piece | None, instants: Instants, run: Sequence[list[int]]
    ) -> tuple[Piece | None, int]:
        """Take instants; where something fails, none, and return how many come before that."""
        before, self.state = self.state, self.trial.copied(self.state)
        for number, places in enumerate(run):
            instant = instants.instant(places)
            after, is_new = self._begun(piece, instant)
            state = None if is_new else self.state
            try:
                for place in places:
                    state = self._added(state, place)
                gap_us = self._gap_us(instant, state)
            except FoldError:
                self.state = before
                return piece, number
            after.take(self.rules, instant, gap_us)
            self.state, piece = state, after
        return piece, len(run)

    def _begun(self, piece: Piece | None, instant: Instant) -> tuple[Piece, bool]:
        """Return the session that an instant belongs to, before it takes this; is it a new one."""
        after = None if piece is None else attrs.evolve(piece, cuts=[*piece.cuts])
        if after is None or after.is_cut_at(self.rules, instant):
            return Piece.of(instant), True
        return after, False

    def _next(self, piece: Piece | None, instants: Instants, places: list[int]) -> Piece | None:
        """Take an instant, without the events that fail; return the session that it belongs to."""
        while places:
            instant = instants.instant(places)
            after, is_new = self._begun(piece, instant)
            # Without the first that fails, it may belong to the session before.
            at_once = is_new and _may_cut(instant)
            good, state = self._sifted(None if is_new else self.state, places, at_once=at_once)
            if at_once and len(good) < len(places):
                places = good
                continue
            if not good:
                break
            instant = instants.instant(good)
            if is_new:
                after = Piece.of(instant)
            try:
                gap_us = self._gap_us(instant, state)
            except FoldError as error:
                self._fails(good[-1], error)
                places = good[:-1]
                continue
            self.state = state
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
        good = list[int]()
        for number, place in enumerate(places):
            try:
                state = self._added(self.trial.copied(state), place)
            except FoldError as error:
                if self.trial.event_at(place) is None:
                    raise
                self._fails(place, error)
                if at_once:
                    return [*good, *places[number + 1 :]], state
                continue
            good.append(place)
        return good, state

    def _added(self, state: Any, place: int) -> Any:
        """
        Return a state, which may be changed, with what stands at a place.

        Raises:
            FoldError: The event there fails, or the open session can't be merged.
        """
        fold, event = self.trial.fold, self.trial.event_at(place)
        if event is not None:
            must_fit, key = event in self.must_fit, self.trial.keys[event]
            return added(fold, key, state, self.trial.events[event], must_fit=must_fit)
        found = self.trial.merged(state, place)
        if self.must_fit and state is not None:
            check_fit(fold, "merge", self.trial.owner_at(place), found)
        return found

    def _gap_us(self, instant: Instant, state: Any) -> int | None:
        """
        Return the gap by the state after an instant; None where the state doesn't say it.

        Raises:
            FoldError: `state_gap` fails over the last event.
        """
        event = self.trial.event_at(instant.places[-1])
        if self.rules.state_gap is None or event is None or not instant.extends:
            return None
        return self.trial.gap_us(event, state)

    def _blame_bridge(
        self, piece: Piece | None, instants: Instants, places: Sequence[int], error: FoldError
    ) -> None:
        """Blame the events that lead up to an open session, which can't be merged."""
        first, at = places[0] if piece is None else piece.first, instants.at_place(places[0])
        before = range(first, places[0])
        if self.rules.state_gap is None:
            leading = [n for n in before if not self._is_apart(at, instants.end_at(n))]
        else:
            # The gap after the last instant that has one says how long the session is open.
            extending = [n for n in before if instants.extends_at(n)]
            leading = [
                n for n in extending if instants.at_place(n) == instants.at_place(extending[-1])
            ]
        for place in leading:
            if self.trial.event_at(place) not in {None, *self.failures}:
                self._fails(place, error)

    def _is_apart(self, at: int, end: int) -> bool:
        return starts_new_session(at, end, gap_inclusive=self.rules.gap_inclusive)

    def _fails(self, place: int, error: FoldError) -> None:
        event = self.trial.event_at(place)
        if event is not None:
            self.failures[event] = Failure.of(error)


def _may_cut(instant: Instant) -> bool:
    """Return whether what stands at an instant may be why it begins a session."""
    return instant.starts_with or any(instant.shown)
