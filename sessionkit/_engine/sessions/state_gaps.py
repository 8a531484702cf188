"""
Where the gap of a session depends on its state: how long it is after each instant.

What belongs together can't be decided from times alone then. So the events are folded once to cut
the sessions, on states of its own, and once more as in any other plan. From an event that fails on,
nothing keeps its session open.
"""

from collections.abc import Sequence
from typing import Any

import attrs

from sessionkit._engine.sessions.fold import FoldError
from sessionkit._engine.sessions.trial import Trial
from sessionkit.spec.functions import Failure

__all__ = ["StateGaps"]


@attrs.define
class StateGaps:
    """
    The gaps of sessions, while their states and events are taken one after the other.

    Attributes:
        trial: What is folded.
        failures: The first failure of each session in which there is one, by the event's place.
        state: The state of the session so far.
        has_failed: Whether an event has failed in it.
    """

    trial: Trial
    failures: dict[int, Failure] = attrs.field(factory=dict)
    state: Any = None
    has_failed: bool = False

    def begin(self) -> None:
        """Begin a new session."""
        self.state, self.has_failed = None, False

    def after(self, places: Sequence[int], *, extends: bool) -> int | None:
        """
        Take the intervals of an instant; return the gap from there on, in microseconds.

        None where it stays as it is: none of them extends the session, or an event has failed.
        """
        gap_us = None
        for place in places:
            if self.has_failed:
                return None
            gap_us = self._take(place, asked=extends and place == places[-1])
        return gap_us

    def _take(self, place: int, *, asked: bool) -> int | None:
        """Take what stands at a place; return the gap after it, where that's asked."""
        event, trial = self.trial.event_at(place), self.trial
        if event is None:
            self.state = trial.merged(self.state, place)
            return None
        opened = [] if self.state is None else [self.state]
        try:
            self.state = trial.fold.fold(trial.keys[event], opened, [trial.events[event]])
            return trial.gap_us(event, self.state) if asked else None
        except FoldError as error:
            self.failures[event], self.has_failed = Failure.of(error), True
            return None
