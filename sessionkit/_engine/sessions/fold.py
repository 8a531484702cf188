"""Events of a bucket into its open sessions: who belongs to whom, late and failed ones aside."""

from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.objects import decode_keys, decode_states, encode_states
from sessionkit._engine.rows.order import in_total_order, key_codes
from sessionkit._engine.rows.table import Rejected, instants, key_columns, micros
from sessionkit._engine.sessions.events import Events, read_events
from sessionkit._engine.sessions.intervals import FoldError, Unions, fold, unite
from sessionkit._engine.sessions.table import sessions_schema
from sessionkit.session import SessionSpec
from sessionkit.timeouts import is_late

__all__ = ["Folded", "fold_into"]

AnySpec: TypeAlias = SessionSpec[Any, Any, Any]
Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@attrs.frozen
class Folded:
    """
    The open sessions after a fold.

    Attributes:
        sessions: The table of them.
        events: How many events became part of a session.
        rejected: Those that did not.
    """

    sessions: pa.Table
    events: int
    rejected: list[Rejected]


def fold_into(
    spec: AnySpec, sessions: pa.Table, arrived: pa.Table, watermark_us: int | None
) -> Folded:
    """
    Fold events into the open sessions of a bucket.

    Args:
        spec: The rules and functions.
        sessions: The open sessions.
        arrived: The events, in any order.
        watermark_us: By which events are late; None where that has been judged already.

    Raises:
        FoldError: A function failed, and the spec says `on_error="raise"`.
        StateValueError: A function left a value in the state that does not fit its field.
    """
    rejected: list[Rejected] = []
    while True:
        # Read anew for every attempt: a function may have changed what an event holds.
        events, refused = read_events(spec, arrived)
        rejected += refused
        if watermark_us is not None and spec.late_by == "event":
            events = _without(events, is_late(events.ends, watermark_us), rejected, late=OWN)
        if not events.objects:
            return Folded(sessions, 0, rejected)
        plan = _Plan.of(spec, sessions, events)
        if watermark_us is not None and spec.late_by == "session":
            late = plan.of_events(is_late(plan.unions.end, watermark_us))
            if late.any():
                arrived = _without(events, late, rejected, late=MERGED).table
                continue
        states, failures = plan.fold(spec)
        if not failures:
            return Folded(plan.sessions(spec, states), len(events.objects), rejected)
        failed = np.zeros(len(events.objects), np.bool_)
        failed[list(failures)] = True
        reasons = [failures[place] for place in sorted(failures)]
        rejected.append(Rejected("failed", reasons, events.table.filter(pa.array(failed))))
        others, again = _by_keys_of(events.table, failed, sessions)
        arrived = again.events.filter(pa.array(~failed[again.places]))
        if others.events.num_rows:
            # Only the keys of events that failed need be tried again, however often.
            folded = [
                fold_into(spec, others.sessions, others.events, watermark_us),
                fold_into(spec, again.sessions, arrived, watermark_us),
            ]
            return _joined(folded, rejected)


@attrs.frozen
class _Part:
    """The open sessions and the events of some keys, and the places that the events had."""

    sessions: pa.Table
    events: pa.Table
    places: npt.NDArray[np.intp]


def _by_keys_of(events: pa.Table, chosen: Mask, sessions: pa.Table) -> tuple[_Part, _Part]:
    """Part sessions and events: those of all other keys, and those of the chosen events' keys."""
    codes, event_codes = key_codes([key_columns(sessions), key_columns(events)])
    keys = event_codes[chosen]
    own, own_events = np.isin(codes, keys), np.isin(event_codes, keys)
    others, again = (
        _Part(
            sessions.filter(pa.array(of_sessions)),
            events.filter(pa.array(of_events)),
            np.flatnonzero(of_events),
        )
        for of_sessions, of_events in ((~own, ~own_events), (own, own_events))
    )
    return others, again


def _joined(parts: list[Folded], rejected: list[Rejected]) -> Folded:
    return Folded(
        pa.concat_tables([part.sessions for part in parts]),
        sum(part.events for part in parts),
        rejected + [found for part in parts for found in part.rejected],
    )


OWN = "its own window is over: event time + gap is at or behind the watermark"
MERGED = "the session it would join is over: its end is at or behind the watermark"


def _without(events: Events, chosen: Mask, rejected: list[Rejected], *, late: str) -> Events:
    rejected += Rejected.chosen("late", late, events.table, chosen)
    return events.only(~chosen)


@attrs.frozen
class _Plan:
    """
    Which sessions and events go together.

    Intervals are numbered: first the open sessions of keys that have events, then the events.

    Attributes:
        events: The events.
        touched: The rows of the open sessions of their keys.
        untouched: The rows of all others.
        order: The numbers of the intervals, by (key, start, content).
        unions: The sessions that they make.
    """

    events: Events
    touched: pa.Table
    untouched: pa.Table
    order: Numbers
    unions: Unions

    @classmethod
    def of(cls, spec: AnySpec, sessions: pa.Table, events: Events) -> "_Plan":
        codes, event_codes = key_codes([key_columns(sessions), key_columns(events.table)])
        with_events = np.zeros(1 + max(codes.max(initial=0), event_codes.max()), np.bool_)
        with_events[event_codes] = True
        is_touched = with_events[codes]
        touched = sessions.filter(pa.array(is_touched))
        keys = np.concatenate([codes[is_touched], event_codes])
        starts = np.concatenate([micros(touched["start"]), events.starts])
        ends = np.concatenate([micros(touched["end"]), events.ends])
        order = in_total_order(keys, starts, events.table, touched.num_rows)
        unions = unite(
            keys[order], starts[order], ends[order], gap_inclusive=spec.timeout.gap_inclusive
        )
        untouched = sessions.filter(pa.array(~is_touched))
        return cls(events, touched, untouched, order, unions)

    @property
    def is_event(self) -> Mask:
        """Mark the intervals, in order, that are events."""
        marked: Mask = self.order >= self.touched.num_rows
        return marked

    @property
    def counts(self) -> Numbers:
        """How many events each union has."""
        return self.unions.sums(self.is_event.astype(np.int64))

    def of_events(self, chosen: Mask) -> Mask:
        """Mark the events of the chosen unions."""
        sizes = np.diff(self.unions.first, append=len(self.order))
        members = self.order[np.repeat(chosen, sizes) & self.is_event]
        marked = np.zeros(len(self.events.objects), np.bool_)
        marked[members - self.touched.num_rows] = True
        return marked

    def fold(self, spec: AnySpec) -> tuple[list[Any], dict[int, str]]:
        """Fold every union that has events; return the states, and why events failed."""
        counts = self.counts
        active = counts > 0
        sizes = np.diff(self.unions.first, append=len(self.order))
        members = self.order[np.repeat(active, sizes)]
        is_event = members >= self.touched.num_rows
        places = (members[is_event] - self.touched.num_rows).tolist()
        opened = self.touched.take(pa.array(members[~is_event]))
        folds = _Folds(spec, self._keys(spec, active), opened, self.events, places)
        return folds.run(counts[active].tolist(), (sizes - counts)[active].tolist())

    def _keys(self, spec: AnySpec, active: Mask) -> list[Any]:
        return decode_keys(spec, self._key_rows(active))

    def _key_rows(self, active: Mask) -> pa.Table:
        names = [f.name for f in self.touched.schema if f.name.startswith("key.")]
        both = pa.concat_tables([self.touched.select(names), self.events.table.select(names)])
        return both.take(pa.array(self.order[self.unions.first[active]]))

    def sessions(self, spec: AnySpec, states: list[Any]) -> pa.Table:
        """Return the table of open sessions: the folded ones, and those that pass as they are."""
        counts = self.counts
        active = counts > 0
        before = np.zeros(len(self.order), np.int64)
        before[~self.is_event] = self.touched["events"].to_numpy()[self.order[~self.is_event]]
        folded = pa.Table.from_arrays(
            [
                *key_columns(self._key_rows(active)),
                instants(self.unions.start[active]),
                instants(self.unions.end[active]),
                pa.array((counts + self.unions.sums(before))[active]),
                *encode_states(spec.state, states, lambda place: self._keys(spec, active)[place]),
            ],
            schema=sessions_schema(spec),
        )
        passed = self.touched.take(pa.array(self.order[self.unions.first[~active]]))
        return pa.concat_tables([self.untouched, passed, folded])


@attrs.frozen
class _Folds:
    """The folds of a bucket, one session after the other."""

    spec: AnySpec
    keys: list[Any]
    opened: pa.Table
    events: Events
    places: list[int]

    def run(
        self, event_counts: list[int], open_counts: list[int]
    ) -> tuple[list[Any], dict[int, str]]:
        """Fold; sizes say how many events and open sessions each takes, in order."""
        objects = self.events.objects
        events = [objects[place] for place in self.places]
        opened = decode_states(self.spec.state, self.opened)
        states, failures = [], dict[int, str]()
        event, session = 0, 0
        for key, n_events, n_open in zip(self.keys, event_counts, open_counts, strict=True):
            stop, end = event + n_events, session + n_open
            try:
                states.append(fold(self.spec, key, opened[session:end], events[event:stop]))
            except FoldError as error:
                if self.spec.on_error == "raise":
                    raise
                places = self.places[event:stop]
                failures[self._blamed(places, session, error)] = str(error)
            event, session = stop, end
        return states, failures

    def _blamed(self, places: list[int], first_session: int, error: FoldError) -> int:
        """Return the event that failed; for a merge the one that leads up to the right session."""
        if error.event is not None:
            return places[error.event]
        right = self.opened["start"][first_session + (error.merged or 0)].value
        starts, ends = self.events.starts, self.events.ends
        before = [place for place in places if starts[place] < right]
        return max(before, key=lambda place: ends[place])
