"""Which sessions and events of a group go together, for all keys at once, by times alone."""

from collections.abc import Sequence
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.order import in_total_order, key_codes
from sessionkit._engine.rows.table import key_columns, micros
from sessionkit._engine.sessions.events import WindowedEvents
from sessionkit._engine.sessions.intervals import Unions, unite
from sessionkit._engine.sessions.table import SessionColumns, sessions_table
from sessionkit.session import AnySessionSpec

__all__ = ["Plan"]

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@attrs.frozen
class Plan:
    """
    Which sessions and events go together.

    Intervals are numbered: first the open sessions of keys that have events, then the events.

    Attributes:
        spec: The rules.
        events: The events, at least one.
        touched: The rows of the open sessions of their keys.
        untouched: The rows of all others.
        order: The numbers of the intervals, by (key, start, content).
        is_event: Which of these, in order, are events.
        unions: The sessions that they make.
        counts: How many events each of them has.
    """

    spec: AnySessionSpec
    events: WindowedEvents
    touched: pa.Table
    untouched: pa.Table
    order: Numbers
    is_event: Mask
    unions: Unions
    counts: Numbers

    @classmethod
    def of(cls, spec: AnySessionSpec, sessions: pa.Table, events: WindowedEvents) -> "Plan":
        """Find out what belongs together, by times alone."""
        codes, event_codes = key_codes([key_columns(sessions), key_columns(events.table)])
        with_events = np.zeros(1 + max(codes.max(initial=0), event_codes.max()), np.bool_)
        with_events[event_codes] = True
        is_touched = with_events[codes]
        touched = sessions.filter(pa.array(is_touched))
        keys = np.concatenate([codes[is_touched], event_codes])
        starts = np.concatenate([micros(touched["start"]), events.starts])
        ends = np.concatenate([micros(touched["end"]), events.ends])
        order = in_total_order(keys, starts, events.table, touched.num_rows)
        inclusive = spec.timeout.gap_inclusive
        unions = unite(keys[order], starts[order], ends[order], gap_inclusive=inclusive)
        is_event = order >= touched.num_rows
        counts = unions.sums(is_event.astype(np.int64))
        untouched = sessions.filter(pa.array(~is_touched))
        return cls(spec, events, touched, untouched, order, is_event, unions, counts)

    @property
    def active(self) -> Mask:
        """Mark the sessions that have events."""
        active: Mask = self.counts > 0
        return active

    def places_of(self, chosen: Mask) -> Numbers:
        """Return the places of the events of the chosen sessions, in order."""
        members = self.order[self.unions.spread(chosen) & self.is_event]
        places: Numbers = members - self.touched.num_rows
        return places

    def opened_of(self, chosen: Mask) -> pa.Table:
        """Return the rows of the open sessions that became part of the chosen ones, in order."""
        members = self.order[self.unions.spread(chosen) & ~self.is_event]
        return self.touched.take(pa.array(members))

    def keys_of(self, chosen: Mask) -> pa.Table:
        """Return the key columns of the chosen sessions."""
        names = [f.name for f in self.touched.schema if f.name.startswith("key.")]
        both = pa.concat_tables([self.touched.select(names), self.events.table.select(names)])
        return both.take(pa.array(self.order[self.unions.first[chosen]]))

    @property
    def event_places(self) -> Numbers:
        """The places of all events, by session, time and content."""
        places: Numbers = self.order[self.is_event] - self.touched.num_rows
        return places

    def sessions(self, good: Mask, keys: pa.Table, states: Sequence[pa.Array]) -> pa.Table:
        """
        Return the table of open sessions.

        Args:
            good: The sessions with events that have a new state.
            keys: Their key columns.
            states: The columns of their states.
        """
        passed = self.touched.take(pa.array(self.order[self.unions.first[~self.active]]))
        before = np.zeros(len(self.order), np.int64)
        before[~self.is_event] = self.touched["events"].to_numpy()[self.order[~self.is_event]]
        columns = SessionColumns(
            self.unions.start[good],
            self.unions.end[good],
            (self.counts + self.unions.sums(before))[good],
            states,
        )
        folded = sessions_table(self.spec, keys, columns)
        return pa.concat_tables([self.untouched, passed, folded])
