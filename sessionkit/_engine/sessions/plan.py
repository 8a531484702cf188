"""Which sessions and events of a group go together, and their fold, for all keys at once."""

from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.objects import decode_keys, decode_states
from sessionkit._engine.rows.order import in_total_order, key_codes
from sessionkit._engine.rows.table import key_columns, micros
from sessionkit._engine.sessions.events import WindowedEvents
from sessionkit._engine.sessions.fold import FoldError, SessionFold
from sessionkit._engine.sessions.intervals import Unions, unite
from sessionkit._engine.sessions.table import SessionColumns, sessions_table
from sessionkit._instants import instant_of
from sessionkit.errors import StateValueError
from sessionkit.session import AnySessionSpec
from sessionkit.state import codec_of

__all__ = ["Attempt", "Plan"]

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@attrs.frozen
class Attempt:
    """
    What the functions made of the sessions of a plan that have events.

    Attributes:
        states: Their states; None where a function failed.
        failures: Why, by the place of the session.
    """

    states: list[Any]
    failures: dict[int, str]


@attrs.frozen
class Plan:
    """
    Which sessions and events go together.

    Intervals are numbered: first the open sessions of keys that have events, then the events.

    Attributes:
        spec: The rules and functions.
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

    def folded_events(self) -> list[Any]:
        """Return the events as they are folded: with their times where a function takes these."""
        if not (self.spec.create_takes_time or self.spec.update_takes_time):
            return self.events.objects
        times = map(instant_of, self.events.starts.tolist())
        return list(zip(self.events.objects, times, strict=True))

    def fold(self) -> Attempt:
        """
        Fold every session that has events, one after the other.

        Raises:
            FoldError: A function failed, and the spec says `on_error="raise"`.
        """
        active = self.active
        keys = decode_keys(self.spec, self.keys_of(active))
        opened = decode_states(self.spec.state, self.opened_of(active))
        folded = self.folded_events()
        events = [folded[place] for place in self.places_of(active).tolist()]
        event_counts, sizes = self.counts[active].tolist(), self.unions.sizes[active].tolist()
        fold = SessionFold.of(self.spec).fold
        states, failures = [], dict[int, str]()
        event, session = 0, 0
        for place, (key, count, size) in enumerate(zip(keys, event_counts, sizes, strict=True)):
            stop, end = event + count, session + size - count
            try:
                states.append(fold(key, opened[session:end], events[event:stop]))
            except FoldError as error:
                if self.spec.on_error == "raise":
                    raise
                states.append(None)
                failures[place] = str(error)
            event, session = stop, end
        return Attempt(states, failures | self._misfits(states, failures))

    def _misfits(self, states: list[Any], failures: dict[int, str]) -> dict[int, str]:
        """Return the states that can't be stored, where that fails events rather than the query."""
        if self.spec.on_error == "raise":
            return {}
        codec = codec_of(self.spec.state)
        try:
            codec.encode([state for state in states if state is not None])
        except StateValueError:
            return {
                place: str(misfit)
                for place, state in enumerate(states)
                if place not in failures and (misfit := codec.misfit(state))
            }
        return {}

    def sessions(self, attempt: Attempt) -> pa.Table:
        """Return the table of open sessions, without those that failed."""
        active = self.active
        passed = self.touched.take(pa.array(self.order[self.unions.first[~active]]))
        good = active.copy()
        good[np.flatnonzero(active)[list(attempt.failures)]] = False
        before = np.zeros(len(self.order), np.int64)
        before[~self.is_event] = self.touched["events"].to_numpy()[self.order[~self.is_event]]
        states = [s for place, s in enumerate(attempt.states) if place not in attempt.failures]
        columns = SessionColumns(
            self.unions.start[good],
            self.unions.end[good],
            (self.counts + self.unions.sums(before))[good],
            states,
        )
        folded = sessions_table(self.spec, self.keys_of(good), columns)
        return pa.concat_tables([self.untouched, passed, folded])
