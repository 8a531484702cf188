"""
What a session spec compiles to, and the stages of a micro-batch around the fold.

Everything that follows from a spec is worked out once. The stages read the program, never the
options of the spec. A feature that a spec doesn't use is None here, so nothing of its module runs.
"""

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Mask, micros
from sessionkit._engine.boundaries import is_late, window_end
from sessionkit._engine.logic import BatchClocks, shared_identity
from sessionkit._engine.rows.order import in_total_order, key_numbers
from sessionkit._engine.rows.table import (
    BEHIND,
    INSTANT,
    Rejected,
    concat,
    has_closed,
    has_state,
    instants,
    key_schema,
    left_over,
    marks_of,
    numbers_in,
    split,
)
from sessionkit._engine.sessions.careful_fold import SessionFold
from sessionkit._engine.sessions.features.duplicates import Duplicates, forget_ids, repeats
from sessionkit._engine.sessions.features.event_functions import EventFunctions
from sessionkit._engine.sessions.features.memory import KeyMemory, apart
from sessionkit._engine.sessions.features.revisions import Revisions
from sessionkit._engine.sessions.features.rules import Rules
from sessionkit._engine.sessions.features.session_events import SessionEvents
from sessionkit._engine.sessions.intervals import Members, WindowedEvents, unite
from sessionkit._engine.sessions.plan import Horizon, Plan
from sessionkit._instants import BEGINNING_US, span_us
from sessionkit.spec.functions import Failure
from sessionkit.spec.logic import Aggregates, Events, Functions
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._collections import Field
from sessionkit.timeouts import EventTimeGap

KINDS: Final = {
    Functions: "session",
    Aggregates: "session of aggregates",
    Events: "session of events",
}
Feature: TypeAlias = Duplicates | SessionEvents | Rules | Revisions | KeyMemory

LATE_EVENT: Final = "its own window is over: event time + gap is at or before the watermark"
LATE_DAY: Final = (
    "its own window is over: event time + gap, or midnight, is at or before the watermark"
)
LATE_SESSION: Final = "the session it would join is over: its end is at or before the watermark"
LATE_HEARTBEAT: Final = "no open session is there at its time, which is at or before the watermark"


@attrs.frozen
class Accepted:
    """
    The plan for the events that can be processed, None without one, and those that can't be.

    `repeated` are the duplicates as events, since the event that one repeats may still fail.
    """

    plan: Plan | None
    late: list[Rejected]
    duplicates: list[Rejected] = attrs.field(factory=list)
    repeated: WindowedEvents | None = None


@attrs.frozen(eq=False, kw_only=True)
class Program:
    """
    A session spec, compiled. All spans are in microseconds.

    Attributes:
        spec: The spec: its functions, and the classes of its rows.
        schema: The schema of the rows of sessions: `key.*`, `start`, `end`, `events`, `behind`,
            what each feature stores, `state.*`. Instants are in UTC; `end` is exclusive.
        closes: The column that says when a session is over.
        gap_us: The gap of each event, unless functions of events say it.
        in_time_order: Whether events wait for the watermark.
        lateness_us: How late an event may be.
        stays_us: How long after its close a session can still become part of another.
        shortest_us: How long after its start a session is over at the earliest.
        late_by_event: Whether an event whose own window is over is late.
        late_by_session: Whether one is whose session is over.
        features: Those that store something of a session, in the order of their columns.
    """

    spec: AnySessionSpec
    state_fields: Sequence[Field]
    schema: pa.Schema
    closes: str
    gap_us: int
    gap_inclusive: bool
    in_time_order: bool
    lateness_us: int
    stays_us: int
    shortest_us: int
    late_by_event: bool
    late_by_session: bool
    event_functions: EventFunctions | None
    duplicates: Duplicates | None
    session_events: SessionEvents | None
    rules: Rules | None
    revisions: Revisions | None
    memory: KeyMemory | None
    features: Sequence[Feature]
    functions: SessionFold | None

    @classmethod
    def of(cls, spec: AnySessionSpec, state_fields: Sequence[Field]) -> "Program":
        rules, lateness = Rules.of(spec), spec.lateness
        closes = "end" if rules is None else "closes"
        duplicates, session_events = Duplicates.of(spec), SessionEvents.of(spec)
        revisions = Revisions.of(spec, closes)
        memory = KeyMemory.of(spec, closes)
        every = duplicates, session_events, rules, revisions, memory
        features = [feature for feature in every if feature is not None]
        own = [pa.field("start", INSTANT), pa.field("end", INSTANT), pa.field("events", pa.int64())]
        own += [BEHIND, *(field for feature in features for field in feature.fields)]
        own += [pa.field(f"state.{field.name}", field.type.arrow) for field in state_fields]
        extends = rules is not None and rules.rules.extends is not None
        return cls(
            spec=spec,
            state_fields=state_fields,
            schema=pa.schema([*key_schema(spec), *own]),
            closes=closes,
            gap_us=span_us(spec.timeout.longest),
            gap_inclusive=spec.timeout.gap_inclusive,
            in_time_order=spec.order == "event_time",
            lateness_us=0 if lateness.allowed is None else span_us(lateness.allowed),
            stays_us=0 if revisions is None else revisions.stays_us,
            shortest_us=_shortest_us(spec),
            late_by_event=lateness.judged_by == "event",
            # The windows of events that keep no session open are over as soon as they happen.
            late_by_session=lateness.judged_by == "session" or extends,
            event_functions=EventFunctions.of(spec),
            duplicates=duplicates,
            session_events=session_events,
            rules=rules,
            revisions=revisions,
            memory=memory,
            features=features,
            functions=SessionFold.of(spec) if isinstance(spec.logic, Functions) else None,
        )

    @cached_property
    def identity(self) -> bytes:
        """The rules and the types under which sessions are stored, as JSON."""
        spec = self.spec
        entries: dict[str, Any] = {
            **shared_identity(spec, self.state_fields),
            "kind": KINDS[type(spec.logic)],
            "gap_us": None if callable(spec.timeout.gap) else self.gap_us,
            "longest_gap_us": self.gap_us,
            "gap_inclusive": self.gap_inclusive,
        }
        for feature in self.features:
            entries |= feature.identity
        if spec.sequence is not None:
            entries["sequence"] = spec.sequence
        if isinstance(spec.logic, Aggregates):
            entries["aggregates"] = {one.name: one.text for one in spec.bound}
        return json.dumps(entries, sort_keys=True).encode()

    def obstacles(self, old: AnySessionSpec) -> list[str]:
        """Return a line for each thing in which sessions of another spec don't fit the features."""
        features = self.duplicates, self.rules, self.memory
        return [line for one in features if one is not None for line in one.obstacles(old)]

    def migrated(self, old: AnySessionSpec, sessions: pa.Table) -> pa.Table:
        """
        Return the sessions of another spec with what the features store of them.

        Those that are over, and only wait for late events, stay where this spec waits for them too;
        otherwise their ids do.
        """
        known, sessions = apart(sessions)
        if self.duplicates is None:
            sessions = forget_ids(sessions)
        else:
            sessions = self.duplicates.migrated(sessions)
        if self.rules is not None:
            sessions = self.rules.migrated(sessions)
        if not self.stays_us:
            over, sessions = split(sessions, has_closed(sessions))
            if self.duplicates is not None:
                over = self.duplicates.remembered(over, BEGINNING_US)
                sessions = concat([sessions, over])
        if self.revisions is not None:
            sessions = self.revisions.migrated(sessions, old)
        return sessions if self.memory is None else self.memory.migrated(sessions, known)

    # -- before the fold ------------------------------------------------------------------------

    def horizon(self, clocks: BatchClocks) -> Horizon:
        watermark_us, since_us = clocks.watermark_us, clocks.since_us
        late_us: int | None = watermark_us - self.lateness_us
        gone_us = watermark_us - self.stays_us
        if watermark_us == BEGINNING_US:
            late_us = gone_us = BEGINNING_US
        if self.in_time_order:
            # Events of an instant are folded in one micro-batch, and later ones are late.
            late_us, gone_us = None, BEGINNING_US
        if since_us is None:
            marked = watermark_us, self.stays_us, BEGINNING_US
            return Horizon(late_us, gone_us, self.shortest_us, marked)
        # Sessions from before may have had other rules.
        if not self.in_time_order:
            gone_us = max(gone_us, since_us)
        marked = watermark_us, self.stays_us, since_us
        return Horizon(late_us, max(gone_us, clocks.idle_us), 0, marked)

    def read(self, arrived: pa.Table) -> tuple[WindowedEvents, list[Rejected]]:
        """Return the events of a table with their windows, and those that can't be processed."""
        starts, rejected = micros(arrived["time"]), list[Rejected]()
        events = WindowedEvents(arrived, starts, window_end(starts, self.gap_us))
        if self.event_functions is not None:
            events, rejected = self.event_functions.asked(events)
        for keeper in (self.duplicates, self.session_events):
            if keeper is not None:
                events = attrs.evolve(events, table=keeper.read(events.table))
        return events, rejected

    def accept(self, sessions: pa.Table, events: WindowedEvents, horizon: Horizon) -> Accepted:
        """Plan for the events that are neither late nor duplicates."""
        late_us, late = horizon.late_us, list[Rejected]()
        if late_us is not None and self.late_by_event:
            events, late = self._in_time(events, late_us)
        found = self._planned(sessions, events, late, horizon)
        if late_us is None or not self.late_by_session:
            return found
        # A duplicate joins no session, so it's found first. Where the one that it repeats is late,
        # it isn't one.
        while (plan := found.plan) is not None:
            is_over = np.zeros(len(plan.events.starts), np.bool_)
            is_over[plan.places_of(is_late(plan.unions.closes, late_us))] = True
            if not is_over.any():
                break
            why = self.late_for_session
            late = late + Rejected.chosen("late", why, plan.events.table, is_over)
            events = plan.events.only(~is_over).joined(found.repeated)
            found = self._planned(sessions, events, late, horizon)
        return self._without_late_repeats(sessions, found, horizon, late_us)

    def _in_time(
        self, events: WindowedEvents, late_us: int
    ) -> tuple[WindowedEvents, list[Rejected]]:
        """Return the events whose own windows aren't over, and the late ones."""
        late = is_late(events.ends if self.rules is None else self.rules.closes(events), late_us)
        if not late.any():
            return events, []
        if self.late_by_session and self.event_functions is not None:
            late &= self.event_functions.extend(events)
        by_day = self.rules is not None and self.rules.rules.midnight is not None
        why = self._why(LATE_DAY if by_day else LATE_EVENT)
        return events.only(~late), Rejected.chosen("late", why, events.table, late)

    def _without_late_repeats(
        self, sessions: pa.Table, found: Accepted, horizon: Horizon, late_us: int
    ) -> Accepted:
        """
        Count a repeat as late if it were so as the first of its id, where events are judged alone.

        Of an event that extends no session, that depends on which sessions the others make. It
        makes none of them another one, so it's judged after them.
        """
        repeated, extend = found.repeated, self.event_functions
        if not self.late_by_event or repeated is None or extend is None:
            return found
        behind = is_late(repeated.ends, late_us) & ~extend.extend(repeated)
        if not behind.any():
            return found
        asked, others = repeated.only(behind), found.plan.events if found.plan else None
        plan = self._united(sessions, asked.joined(others), horizon)
        is_over = np.zeros(len(plan.events.starts), np.bool_)
        is_over[plan.places_of(is_late(plan.unions.closes, late_us))] = True
        late = np.zeros(len(repeated.starts), np.bool_)
        late[behind] = is_over[: len(asked.starts)]
        rejected = Rejected.chosen("late", self.late_for_session, repeated.table, late)
        return attrs.evolve(
            found,
            late=found.late + rejected,
            duplicates=repeats(repeated.table, ~late),
            repeated=repeated.only(~late),
        )

    @property
    def late_for_session(self) -> str:
        """Why events are late for the session that they would join."""
        return self._why(LATE_HEARTBEAT if self.late_by_event else LATE_SESSION)

    def _why(self, reason: str) -> str:
        return f"{reason}, less `Lateness(allowed=...)`" if self.lateness_us else reason

    def _planned(
        self,
        sessions: pa.Table,
        events: WindowedEvents,
        late: list[Rejected],
        horizon: Horizon,
    ) -> Accepted:
        """Plan for the events that aren't duplicates."""
        repeated, rejected = None, list[Rejected]()
        if self.duplicates is not None:
            events, repeated, rejected = self.duplicates.distinct(sessions, events)
        if not len(events.starts):
            return Accepted(None, late, rejected, repeated)
        return Accepted(self._united(sessions, events, horizon), late, rejected, repeated)

    def _united(self, sessions: pa.Table, events: WindowedEvents, horizon: Horizon) -> Plan:
        """Return which sessions and events, at least one, belong together."""
        own = range(len(self.spec.keys))
        of_events, of_sessions = map(events.table.column, own), map(sessions.column, own)
        numbers, found = key_numbers(list(of_events), list(of_sessions))
        concerned = found >= 0
        if self.duplicates is not None or self.memory is not None:
            concerned &= has_state(sessions)
        places = np.flatnonzero(concerned)
        keys = np.concatenate([found[places], numbers])
        starts = np.concatenate([micros(sessions["start"])[places], events.starts])
        ends = np.concatenate([micros(sessions["end"])[places], events.ends])
        order = in_total_order(keys, starts, events.table, len(places), self.spec.sequence)
        failures = dict[int, Failure]()
        members = self.spec, events, sessions, places, order, keys, starts, ends
        if self.rules is None:
            inclusive = self.gap_inclusive
            unions = unite(keys[order], starts[order], ends[order], gap_inclusive=inclusive)
        else:
            unions, failures = self.rules.united(Members(*members))
        untouched = left_over(sessions, places)
        return Plan(*members, untouched, marks_of(sessions), unions, horizon, failures)

    # -- after the fold -------------------------------------------------------------------------

    def sessions_after(self, plan: Plan, good: Mask, states: Sequence[pa.Array]) -> pa.Table:
        """
        Return the table of sessions: those without events as they were, and the folded ones.

        `good` are the sessions with events that have a new state; `states` has the columns of
        these.
        """
        had = numbers_in(plan.sessions, "events")[plan.places]
        counts = plan.counts + plan.of_opened(np.add, had)
        folded = [
            *plan.key_columns_of(good),
            instants(plan.unions.start[good]),
            instants(plan.unions.end[good]),
            pa.array(counts[good]),
            pa.array(plan.marks_of(good)),
        ]
        for feature in self.features:
            folded += feature.columns(plan, good)
        folded += states
        parts = [plan.untouched, pa.Table.from_arrays(folded, schema=self.schema)]
        if not plan.active.all():
            passed = plan.touched.take(pa.array(plan.order[plan.unions.first[~plan.active]]))
            parts.append(passed if self.rules is None else self.rules.passed(plan, passed))
        return concat(parts)


def _shortest_us(spec: AnySessionSpec) -> int:
    """Return how long after its start a session is over at the earliest, whatever its events."""
    # A restart may change functions, and rules that are code.
    if isinstance(spec.timeout, EventTimeGap) and not callable(spec.timeout.gap):
        return span_us(spec.timeout.longest)
    return 0
