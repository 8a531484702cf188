"""
Where the gap of a session depends on its state: how long it is after each instant.

What belongs together can't be decided from times alone then. So the events are folded once to cut
the sessions, on states of its own, and once more as in any other plan. A session in which a
function fails goes on with the longest gap; the other fold finds the same failure, and says why.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.objects import build_events, decode_keys, decode_states
from sessionkit._engine.sessions.events import WindowedEvents
from sessionkit._engine.sessions.fold import SessionFold, gap_by_state, timed
from sessionkit._instants import span_us
from sessionkit.session import AnySessionSpec

__all__ = ["StateGaps"]


@attrs.define
class StateGaps:
    """
    The gaps of sessions, while their states and events are taken one after the other.

    Attributes:
        fold: The functions.
        state_gap: The function from the state to the gap.
        opened: The states of the open sessions.
        events: The events, as they are folded.
        keys: The keys of the events, where a function takes them.
        order: The numbers of both, first those of sessions, by key and start.
        state: The state of the session so far.
        has_failed: Whether a function has failed in it.
    """

    fold: SessionFold
    state_gap: Callable[[Any], timedelta]
    opened: Sequence[Any]
    events: Sequence[Any]
    keys: Sequence[Any]
    order: Sequence[int]
    state: Any = None
    has_failed: bool = False

    @classmethod
    def of(
        cls,
        spec: AnySessionSpec,
        state_gap: Callable[[Any], timedelta],
        touched: pa.Table,
        events: WindowedEvents,
        order: npt.NDArray[np.int64],
    ) -> "StateGaps":
        """
        Decode what is folded.

        Args:
            spec: Whose functions.
            state_gap: The function from the state to the gap.
            touched: The rows of the open sessions.
            events: The events, which their class takes.
            order: The numbers of both, first those of sessions, by key and start.
        """
        fold, objects = SessionFold.of(spec), build_events(spec, events.table)[0]
        keys = [] if fold.create is None else decode_keys(spec, events.table)
        opened, came = decode_states(spec.state, touched), timed(spec, objects, events.starts)
        return cls(fold, state_gap, opened, came, keys, order.tolist())

    def begin(self) -> None:
        """Begin a new session."""
        self.state, self.has_failed = None, False

    def after(self, places: Sequence[int]) -> int | None:
        """Take the intervals at some places; return the gap from there on, in microseconds."""
        if self.has_failed:
            return None
        try:
            for place in places:
                self._take(self.order[place])
            return span_us(gap_by_state(self.fold.spec, self.state_gap, self.state))
        except Exception:  # noqa: BLE001 (the functions of the user)
            self.has_failed = True
            return None

    def _take(self, number: int) -> None:
        before = [] if self.state is None else [self.state]
        if number < len(self.opened):
            self.state = self.fold.fold(None, [*before, self.opened[number]], [])
            return
        place = number - len(self.opened)
        key = self.keys[place] if self.keys else None
        self.state = self.fold.fold(key, before, [self.events[place]])
