"""The events of one micro-batch with their windows: from their time to the end of their gap."""

from collections.abc import Collection, Sequence
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.table import Rejected

Instants: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@attrs.frozen
class WindowedEvents:
    """
    Events with their windows. They're rows here: what belongs together depends on times alone.

    Attributes:
        table: Their rows, as they came.
        starts: Their times, in microseconds.
        ends: The ends of their own windows, in microseconds.
    """

    table: pa.Table
    starts: Instants
    ends: Instants

    def only(self, chosen: Mask) -> "WindowedEvents":
        """Return the events that a mask chooses."""
        if chosen.all():
            return self
        table = self.table.filter(pa.array(chosen))
        return WindowedEvents(table, self.starts[chosen], self.ends[chosen])

    def at(self, places: npt.NDArray[np.int64]) -> "WindowedEvents":
        """Return the events at some places."""
        return WindowedEvents(
            self.table.take(pa.array(places)), self.starts[places], self.ends[places]
        )

    def joined(self, others: "WindowedEvents") -> "WindowedEvents":
        """Return these events and others."""
        if not len(others.starts):
            return self
        return WindowedEvents(
            pa.concat_tables([self.table, others.table]),
            np.concatenate([self.starts, others.starts]),
            np.concatenate([self.ends, others.ends]),
        )

    def without(self, places: Collection[int]) -> "WindowedEvents":
        """Return the events but for those at some places."""
        good = np.ones(len(self.starts), np.bool_)
        good[list(places)] = False
        return self.only(good)


@attrs.frozen
class Distinct:
    """Events told apart by their ids: those that may be processed, their duplicates, and why."""

    first: WindowedEvents
    others: WindowedEvents | None = None
    rejected: Sequence[Rejected] = ()

    def with_others(self, events: WindowedEvents) -> WindowedEvents:
        """Return some of the first ones, and all others."""
        return events if self.others is None else events.joined(self.others)
