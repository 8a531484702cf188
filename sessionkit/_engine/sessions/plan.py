"""Which sessions and events of a group go together, for all keys at once, by times alone."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.marks import has_state, is_trace, marks_of
from sessionkit._engine.rows.order import in_total_order, key_numbers
from sessionkit._engine.rows.table import instants, key_columns, micros, parted, stacked
from sessionkit._engine.sessions.behind import Horizon
from sessionkit._engine.sessions.cutting import cut
from sessionkit._engine.sessions.duplicates import all_open
from sessionkit._engine.sessions.events import WindowedEvents
from sessionkit._engine.sessions.gathered import gathered, gathered_fields
from sessionkit._engine.sessions.intervals import Unions, unite
from sessionkit._engine.sessions.revisions import joined_revisions
from sessionkit._engine.sessions.ruled import CLOSING, RuledRows, with_column
from sessionkit._engine.sessions.state_gaps import StateGaps
from sessionkit._engine.sessions.traces import told_apart
from sessionkit._engine.sessions.trial import Trial
from sessionkit.spec.functions import Failure
from sessionkit.spec.session import AnySessionSpec

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
        untouched: The rows of all others, and of what remembers closed and dropped ones.
        order: The numbers of the intervals, by (key, start, content).
        is_event: Which of these, in order, are events.
        unions: The sessions that they make.
        counts: How many events each of them has.
        horizon: What the watermark has passed.
        failures: Why events fail, by their places, where that showed while it was planned.
    """

    spec: AnySessionSpec
    events: WindowedEvents
    touched: pa.Table
    untouched: pa.Table
    order: Numbers
    is_event: Mask
    unions: Unions
    counts: Numbers
    horizon: Horizon
    failures: Mapping[int, Failure] = attrs.field(factory=dict)

    @classmethod
    def of(
        cls,
        spec: AnySessionSpec,
        sessions: pa.Table,
        events: WindowedEvents,
        horizon: Horizon,
    ) -> "Plan":
        """Find out what belongs together, by times alone."""
        numbers, found = key_numbers(key_columns(events.table), key_columns(sessions))
        concerned = (found >= 0) & has_state(sessions)
        touched, untouched = parted(sessions, concerned)
        keys = np.concatenate([found[concerned], numbers])
        starts = np.concatenate([micros(touched["start"]), events.starts])
        ends = np.concatenate([micros(touched["end"]), events.ends])
        order = in_total_order(keys, starts, events.table, touched.num_rows)
        is_event = order >= touched.num_rows
        gaps: StateGaps | None = None
        if spec.rules is None:
            inclusive = spec.timeout.gap_inclusive
            unions = unite(keys[order], starts[order], ends[order], gap_inclusive=inclusive)
        else:
            if spec.rules.state_gap is not None:
                gaps = StateGaps(Trial.of(spec, touched, events, order))
            ruled = RuledRows(spec, touched, events, order)
            unions = cut(spec.rules, ruled.intervals(spec.rules, keys, starts, ends), gaps)
        counts = unions.sums(is_event.astype(np.int64))
        failures = {} if gaps is None else gaps.failures
        parts = spec, events, touched, untouched, order, is_event, unions, counts, horizon
        return cls(*parts, failures)

    def only(self, chosen: Mask) -> "Plan":
        """Return the plan of some of the sessions, which stay as they are planned here."""
        opened, is_event = self.opened_of(chosen), self.is_event[self.unions.spread(chosen)]
        after_opened = opened.num_rows + np.cumsum(is_event)
        return attrs.evolve(
            self,
            events=self.events.at(self.places_of(chosen)),
            touched=opened,
            order=np.where(is_event, after_opened, np.cumsum(~is_event)) - 1,
            is_event=is_event,
            unions=self.unions.only(chosen),
            counts=self.counts[chosen],
            failures={},
        )

    @cached_property
    def active(self) -> Mask:
        """Mark the sessions that have events."""
        active: Mask = self.counts > 0
        return active

    @property
    def failed(self) -> Mask:
        """Mark the sessions in which events fail, as far as that showed while it was planned."""
        fails = np.isin(self.event_places, list(self.failures))
        owners = np.repeat(np.arange(len(self.counts)), self.counts)
        failed = np.zeros(len(self.counts), np.bool_)
        failed[owners[fails]] = True
        return failed

    @cached_property
    def event_places(self) -> Numbers:
        """The places of all events, by session, time and content."""
        places: Numbers = self.order[self.is_event] - self.touched.num_rows
        return places

    @cached_property
    def counts_before(self) -> Numbers:
        """How many events the open sessions had that became part of each session."""
        number = self.touched.num_rows
        before = np.append(self.touched["events"].to_numpy(), 0)
        return self.unions.sums(before[np.minimum(self.order, number)])

    @cached_property
    def opened_counts(self) -> Numbers:
        """How many open sessions became part of each session."""
        counts: Numbers = self.unions.sizes - self.counts
        return counts

    def places_of(self, chosen: Mask) -> Numbers:
        """Return the places of the events of the chosen sessions, in order."""
        members = self.order[self.unions.spread(chosen) & self.is_event]
        places: Numbers = members - self.touched.num_rows
        return places

    def opened_of(self, chosen: Mask) -> pa.Table:
        """Return the rows of the open sessions that became part of the chosen ones, in order."""
        members = self.order[self.unions.spread(chosen) & ~self.is_event]
        return self.touched.take(pa.array(members))

    @cached_property
    def traces(self) -> pa.Table:
        """What remembers dropped sessions."""
        return parted(self.untouched, is_trace(self.untouched))[0]

    def marks_of(self, chosen: Mask) -> Numbers:
        """Return the marks of the chosen sessions: of the open one that begins each, or new."""
        first, unions = self.unions.first[chosen], self.unions
        marks = self.horizon.marks(unions.start[chosen])
        if self.traces.num_rows:
            marks = told_apart(self.traces, self.keys_of(chosen), unions.start[chosen], marks)
        # At one start, an open session goes before the events.
        goes_on = ~self.is_event[first]
        marks[goes_on] = marks_of(self.touched)[self.order[first[goes_on]]]
        return marks

    def held_of(self, chosen: Mask) -> tuple[pa.Table, Numbers]:
        """
        Return the open sessions that became part of the chosen ones, and how many each has.

        Those whose events are all in rows that discard them have a place and an id, but no state.
        """
        opened, counts = self.opened_of(chosen), self.opened_counts[chosen]
        if not self.spec.discards:
            return opened, counts
        held = opened["events"].to_numpy() > 0
        owners = np.repeat(np.arange(len(counts)), counts)[held]
        return opened.filter(pa.array(held)), np.bincount(owners, minlength=len(counts))

    @property
    def with_states(self) -> "Plan":
        """The plan of the sessions that have events, without the open ones that have no state."""
        plan = self.only(self.active)
        held = plan.touched["events"].to_numpy() > 0
        stays = plan.is_event.copy()
        stays[~plan.is_event] = held
        is_event, sizes = (
            plan.is_event[stays],
            np.add.reduceat(stays, plan.unions.first, dtype=np.intp),
        )
        after_held = int(held.sum()) + np.cumsum(is_event)
        return attrs.evolve(
            plan,
            touched=plan.touched.filter(pa.array(held)),
            order=np.where(is_event, after_held, np.cumsum(~is_event)) - 1,
            is_event=is_event,
            unions=attrs.evolve(plan.unions, first=np.cumsum(sizes) - sizes, sizes=sizes),
        )

    def keys_of(self, chosen: Mask) -> pa.Table:
        """Return the key columns of the chosen sessions, each of which has events."""
        first_event = np.cumsum(self.counts) - self.counts
        names = [name for name in self.events.table.column_names if name.startswith("key.")]
        places = self.event_places[first_event[chosen]]
        return self.events.table.select(names).take(pa.array(places))

    def sessions(self, good: Mask, states: Sequence[pa.Array]) -> pa.Table:
        """
        Return the table of open sessions: those without events as they were, and the folded ones.

        Args:
            good: The sessions with events that have a new state.
            states: The columns of their states.
        """
        folded = [
            *self.keys_of(good).columns,
            instants(self.unions.start[good]),
            instants(self.unions.end[good]),
            pa.array((self.counts + self.counts_before)[good]),
            pa.array(self.marks_of(good)),
            *self._gathered(good),
            *all_open(self.spec, int(good.sum())),
            *self._ruled(good),
            *self._revised(good),
            *states,
        ]
        schema = self.touched.schema
        return stacked([self.untouched, self._passed, pa.Table.from_arrays(folded, schema=schema)])

    @property
    def _passed(self) -> pa.Table:
        """The open sessions without events of keys that have some: only a rule may touch them."""
        passed = self.touched.take(pa.array(self.order[self.unions.first[~self.active]]))
        if self.spec.rules is None:
            return passed
        for field, column in zip(CLOSING, self._closing(~self.active), strict=True):
            passed = with_column(passed, field, column)
        return passed

    def _gathered(self, chosen: Mask) -> list[pa.Array]:
        """Return what the chosen sessions keep of all of their events."""
        if not gathered_fields(self.spec):
            return []
        owners = np.empty(len(self.order), np.int64)
        owners[self.order] = self.unions.spread(np.arange(len(self.counts)))
        return gathered(self.spec, self.touched, self.events.table, owners, chosen)

    def _ruled(self, chosen: Mask) -> list[pa.Array]:
        """Return what is stored of the chosen sessions for rules; nothing where there are none."""
        if self.spec.rules is None:
            return []
        ruled = RuledRows(self.spec, self.touched, self.events, self.order)
        return self._closing(chosen) + ruled.last_values(self.unions, chosen)

    def _revised(self, chosen: Mask) -> list[pa.Array]:
        """Return what is stored for the revisions of the chosen sessions."""
        if not self.spec.revises:
            return []
        parts, came = self.opened_counts[chosen], self.counts[chosen]
        owners = np.repeat(np.arange(len(came)), parts)
        return joined_revisions(self.spec, self.opened_of(chosen), owners, came)

    def _closing(self, chosen: Mask) -> list[pa.Array]:
        unions = self.unions
        return [instants(unions.closes[chosen]), pa.array(unions.closed_by[chosen])]
