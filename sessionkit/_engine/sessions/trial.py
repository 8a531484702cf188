"""Sessions folded in the order of time, to learn what their events come to."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.objects import build_events, decode_keys, decode_states
from sessionkit._engine.sessions.events import WindowedEvents
from sessionkit._engine.sessions.fold import FoldError, SessionFold, timed
from sessionkit._instants import span_us
from sessionkit.errors import UserFunctionError, with_hint
from sessionkit.spec.functions import call_failed, name_of
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state import codec_of

__all__ = ["Trial"]


@attrs.frozen
class Trial:
    """
    The open sessions and events of a plan, as objects that nobody else has.

    Attributes:
        fold: The functions.
        state_gap: The function from the state to the gap; None where there is none.
        order: The numbers of open sessions and events, first those of sessions, by key and start.
        opened: The states of the open sessions; None where all events are discarded.
        owners: The keys of the open sessions.
        keys: The keys of the events.
        events: The events, as they are folded.
    """

    fold: SessionFold
    state_gap: Callable[[Any], timedelta] | None
    order: Sequence[int]
    opened: Sequence[Any]
    owners: Sequence[Any]
    keys: Sequence[Any]
    events: Sequence[Any]

    @classmethod
    def of(
        cls,
        spec: AnySessionSpec,
        touched: pa.Table,
        events: WindowedEvents,
        order: npt.NDArray[np.int64],
    ) -> "Trial":
        """
        Decode what is folded.

        Args:
            spec: Whose functions.
            touched: The rows of the open sessions.
            events: The events, which their class takes.
            order: The numbers of both, first those of sessions, by key and start.
        """
        states, held = decode_states(spec.state, touched), touched["events"].to_pylist()
        return cls(
            SessionFold.of(spec),
            None if spec.rules is None else spec.rules.state_gap,
            order.tolist(),
            [state if count else None for state, count in zip(states, held, strict=True)],
            decode_keys(spec, touched),
            decode_keys(spec, events.table),
            timed(spec, build_events(spec, events.table)[0], events.starts),
        )

    def event_at(self, place: int) -> int | None:
        """Return which event stands at a place; None where an open session does."""
        number = self.order[place] - len(self.opened)
        return None if number < 0 else number

    def owner_at(self, place: int) -> Any:
        """Return the key of the open session at a place."""
        return self.owners[self.order[place]]

    def merged(self, state: Any, place: int) -> Any:
        """
        Return a state, which may be changed, with that of the open session at a place.

        Raises:
            FoldError: They can't be merged.
        """
        number = self.order[place]
        opened = self.copied(self.opened[number])
        if state is None or opened is None:
            return opened if state is None else state
        return self.fold.merged(self.owners[number], [state, opened])

    def copied(self, state: Any) -> Any:
        """Return a copy of a state; None where there is none."""
        return None if state is None else codec_of(self.fold.spec.state).copied(state)

    def gap_us(self, event: int, state: Any) -> int:
        """
        Return the gap after an event, in microseconds, by the state that it led to.

        Raises:
            FoldError: The function raised, or returned no gap, or one longer than declared.
        """
        state_gap: Any = self.state_gap
        try:
            found = state_gap(state)
            _check_gap(state_gap, found, self.fold.spec.timeout.longest)
        except Exception as error:
            failure = call_failed("state_gap", state_gap, repr(self.keys[event]), error)
            raise FoldError(*failure) from error
        return span_us(found)


def _check_gap(state_gap: Callable[[Any], Any], found: Any, longest: timedelta) -> None:
    what = f"`state_gap` ({name_of(state_gap)}) must return"
    if not isinstance(found, timedelta):
        what = f"{what} a timedelta, found {type(found).__name__}"
        raise UserFunctionError(with_hint(what, "return timedelta(minutes=...)"))
    if span_us(found) <= 0:
        what = f"{what} a gap longer than zero, found {found}"
        raise UserFunctionError(with_hint(what, "return the shortest gap that a session may have"))
    if found > longest:
        what = f"{what} no gap longer than `gap`, {longest}, found {found}"
        raise UserFunctionError(with_hint(what, "pass the longest one as `gap`"))
