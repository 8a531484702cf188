"""Which sessions and events of a group go together, for all keys at once."""

from collections.abc import Mapping
from functools import cached_property
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.table import marks_of
from sessionkit._engine.sessions.behind import Horizon
from sessionkit._engine.sessions.events import WindowedEvents
from sessionkit._engine.sessions.intervals import Unions
from sessionkit._engine.sessions.traces import told_apart
from sessionkit.spec.functions import Failure
from sessionkit.spec.session import AnySessionSpec

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
        traces: The rows that remember dropped sessions; None where there is none.
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
    traces: pa.Table | None = None

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

    def marks_of(self, chosen: Mask) -> Numbers:
        """Return the marks of the chosen sessions: of the open one that begins each, or new."""
        first, unions = self.unions.first[chosen], self.unions
        marks = self.horizon.marks(unions.start[chosen])
        if self.traces is not None:
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
        places = self.event_places[first_event[chosen]]
        return self.events.table.select(range(len(self.spec.keys))).take(pa.array(places))
