"""
The rows from which the aggregates of one micro-batch are computed.

Each open session and each event is a row with a number: first the open sessions, then the events.
`order` has these numbers session by session, so that NumPy's `reduceat` folds all of them at once.
Take two open sessions (0, 1) and three events (2, 3, 4), of which the first joins session 0, and
the others session 1:

    order    0 2 1 3 4      the rows of each session follow each other
    first    0   2          where in that order each session begins
    sizes    2   3          how many rows it has
    owners   0 1 0 1 1      the session of each row, by the row's own number
"""

from collections.abc import Mapping
from functools import cached_property

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Array, Mask, Numbers, mask_of, micros, owners_of, whole
from sessionkit.aggregates._conditions import Condition


@attrs.frozen
class EventRows:
    """
    The open sessions and the events of a micro-batch, at least one event for each session.

    Attributes:
        opened: The open sessions: `start`, and what is stored of each as `state.NAME`.
        events: The events: their fields as `event.NAME`.
        times: The times of the events, in microseconds.
        order: The numbers of all rows, in order.
        first: For each session, the place of its first row in that order.
        sizes: For each session, how many rows it has.
        conditions: For which events a condition holds, by its text.
    """

    opened: pa.Table
    events: pa.Table
    times: Numbers
    order: Numbers
    first: Numbers
    sizes: Numbers
    conditions: Mapping[str, pa.Array]

    def __len__(self) -> int:
        """Return how many sessions there are."""
        return len(self.first)

    @cached_property
    def sessions(self) -> Numbers:
        """The session of each row, in order."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @cached_property
    def owners(self) -> Numbers:
        """The session of each row, by the row's own number."""
        owners = np.empty(len(self.order), np.int64)
        owners[self.order] = self.sessions
        return owners

    @property
    def starts(self) -> Numbers:
        """The starts of the open sessions, in microseconds."""
        return micros(self.opened["start"])

    def field(self, name: str | None) -> pa.Array:
        return whole(self.events[f"event.{name}"])

    def met(self, condition: Condition | None) -> pa.Array:
        return self.conditions[repr(condition)]

    def stored(self, name: str) -> pa.Array:
        return whole(self.opened[f"state.{name}"])

    def joined(self, stored: Array, events: Array) -> Array:
        """Return the values of open sessions and events, in order."""
        both: Array = np.concatenate([stored, events])[self.order]
        return both

    def all_valid(self, stored: pa.Array, chosen: Mask | None) -> Mask:
        """Mark, in order, the open sessions that have a value, and the events that are chosen."""
        events = np.ones(len(self.times), np.bool_) if chosen is None else chosen
        return self.joined(mask_of(stored.is_valid()), events)

    def reduced(self, ufunc: np.ufunc, values: Array) -> Array:
        """Fold the values of the rows of each session into one; they are given in order."""
        found: Array = ufunc.reduceat(values, self.first)
        return found

    def listed(self, lists: pa.Array, chosen: Mask | None) -> Numbers:
        """Return the session of each value in the lists of open sessions and each chosen event."""
        of_opened, of_events = np.split(self.owners, [len(lists)])
        of_events = of_events if chosen is None else of_events[chosen]
        return np.concatenate([of_opened[owners_of(lists)], of_events])
