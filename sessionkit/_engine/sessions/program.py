"""
The compiled form of a session spec: how events are folded, and what its features add to that.

What follows from a spec is computed once, and read here by the stages of a micro-batch.
"""

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import INSTANT, concat, flags_in, instants, left_over, numbers_in, split
from sessionkit._engine.micro_batch import BatchClocks, shared_identity
from sessionkit._engine.rows.tables import CLOSED, EXISTS, LAST_EVENT, SALT, as_memories, has_state
from sessionkit._engine.sessions.feature import Closed, Feature, Finisher
from sessionkit._engine.sessions.features.duplicates import Duplicates
from sessionkit._engine.sessions.features.event_functions import EventFunctions
from sessionkit._engine.sessions.features.last_event import LastEvent
from sessionkit._engine.sessions.features.memory import KeyMemory
from sessionkit._engine.sessions.features.revisions import Revisions
from sessionkit._engine.sessions.features.rules import Rules
from sessionkit._engine.sessions.features.session_events import SessionEvents
from sessionkit._engine.sessions.folds import Fold, fold_of
from sessionkit._engine.sessions.plan import Cuts, Folded, Horizon, Plan, cuts_of, with_last_event
from sessionkit._instants import BEGINNING_US, span_us
from sessionkit.spec.logic import Aggregates
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._collections import Field
from sessionkit.timeouts._policies import EventTimeGap

FEATURES: Final[Sequence[Callable[[AnySessionSpec], Feature | None]]] = (
    EventFunctions.of,
    Duplicates.of,
    SessionEvents.of,
    LastEvent.of,
    Rules.of,
    Revisions.of,
    KeyMemory.of,
)
"""The features, in the order of the calls of a stage and of their stored columns."""
OF_ALL: Final = (
    pa.field("start", INSTANT),
    pa.field("end", INSTANT),
    pa.field("events", pa.int64()),
    SALT,
)
"""The stored fields of every session; `end` is exclusive."""


@attrs.frozen(eq=False, slots=False, kw_only=True)
class Program:
    """
    A session spec, compiled.

    Attributes:
        fold: How events become states, and states results.
        features: What the options of the spec add.
        cuts: What ends sessions.
        gap_us: The gap of each event in microseconds, unless functions of events say it.
        stays_us: How long after its close a session can still become part of another.
        in_time_order: Whether events wait for the watermark: then none is late in the fold.
    """

    spec: AnySessionSpec
    fold: Fold
    features: Sequence[Feature]
    cuts: Cuts
    finish: Finisher
    gap_us: int
    stays_us: int
    in_time_order: bool

    @classmethod
    def of(cls, spec: AnySessionSpec) -> "Program":
        fold, cuts = fold_of(spec), cuts_of(spec)
        features = [feature for feature in (make(spec) for make in FEATURES) if feature is not None]
        finish = fold.finish
        for feature in features:
            finish = feature.finishing(finish)
        return cls(
            spec=spec,
            fold=fold,
            features=features,
            cuts=cuts,
            finish=finish,
            gap_us=span_us(spec.timeout.longest),
            stays_us=span_us(spec.mergeable or timedelta(0)),
            in_time_order=spec.order == "event_time",
        )

    @property
    def state_fields(self) -> Sequence[Field]:
        return self.fold.fields

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of sessions: `key.*`, `OF_ALL`, the fields of features, `state.*`."""
        stored = {field.name: field for feature in self.features for field in feature.fields}
        state = (pa.field(f"state.{field.name}", field.type.arrow) for field in self.state_fields)
        return pa.schema([*self.spec.key_schema, *OF_ALL, *stored.values(), *state])

    @cached_property
    def none_closed(self) -> Closed:
        return Closed(self.spec.result_schema.empty_table())

    @cached_property
    def has_memories(self) -> bool:
        """Whether there are rows that only remember sessions."""
        return EXISTS.name in self.schema.names

    @cached_property
    def identity(self) -> bytes:
        spec, rules = self.spec, self.cuts.rules
        entries: dict[str, Any] = {
            **shared_identity(spec, self.state_fields),
            "kind": self.fold.kind,
            "gap_us": None if callable(spec.timeout.gap) else self.gap_us,
            "longest_gap_us": self.gap_us,
            "gap_inclusive": rules.gap_inclusive,
        }
        for feature in self.features:
            entries |= feature.identity
        if spec.sequence is not None:
            entries["sequence"] = spec.sequence
        if spec.results.carries_watermark:
            entries["carries_watermark"] = True
        if isinstance(spec.logic, Aggregates):
            entries["aggregates"] = {bound.name: bound.text for bound in spec.bound}
        return json.dumps(entries, sort_keys=True).encode()

    def horizon(self, clocks: BatchClocks) -> Horizon:
        """Return what the watermark of a micro-batch has passed, by the rules of a spec."""
        spec, watermark_us, since_us = self.spec, clocks.watermark_us, clocks.since_us
        late_us: int | None = watermark_us
        forgotten_us = watermark_us - self.stays_us
        if spec.lateness.allowed is not None:
            late_us = watermark_us - span_us(spec.lateness.allowed)
        if watermark_us == BEGINNING_US:
            late_us = forgotten_us = BEGINNING_US
        if self.in_time_order:
            # Events of an instant are folded in one micro-batch, and later arrivals are late.
            late_us, forgotten_us = None, BEGINNING_US
        # A restart may change functions, and rules that are code.
        is_fixed = isinstance(spec.timeout, EventTimeGap) and not callable(spec.timeout.gap)
        lasts_us, from_us = self.gap_us if is_fixed else 0, BEGINNING_US
        if since_us is not None:
            # Sessions of a seed may have had other rules.
            if not self.in_time_order:
                forgotten_us = max(forgotten_us, since_us)
            forgotten_us, lasts_us, from_us = max(forgotten_us, clocks.idle_us), 0, since_us
        by_event = spec.lateness.judged_by == "event"
        # The window of an event that keeps no session open is over as soon as it happens.
        by_session = not by_event or self.cuts.rules.extends is not None
        return Horizon(
            late_event_us=late_us if by_event else None,
            late_session_us=late_us if by_session else None,
            forgotten_us=forgotten_us,
            lasts_us=lasts_us,
            salted=(watermark_us, self.stays_us, from_us),
        )

    def stored(self, plan: Plan, folded: Folded) -> pa.Table:
        """Return the rows of all sessions: unchanged ones without events, and folded ones."""
        active, unions = plan.active, plan.unions
        # Sessions with 2 and 1 new events, and open ones with 5 and none before, have 7 and 1.
        counts = plan.counts + plan.of_opened(
            np.add, numbers_in(plan.sessions, "events")[plan.rows]
        )
        keys, salts = plan.keys_of(active), plan.salts_of(active)
        columns: dict[str, pa.Array] = {
            **dict(zip(self.schema.names, keys.columns, strict=False)),
            "start": instants(unions.start[active]),
            "end": instants(unions.end[active]),
            "events": pa.array(counts[active]),
            SALT.name: pa.array(salts),
        }
        for feature in self.features:
            for field, column in zip(feature.fields, feature.columns(plan, active), strict=True):
                columns[field.name] = column
        arrays = [*columns.values(), *folded.states]
        parts = [
            left_over(plan.sessions, plan.rows),
            pa.Table.from_arrays(arrays, schema=self.schema),
        ]
        if not active.all():
            # A session without events is one open session, its only interval.
            passed = plan.touched.take(pa.array(plan.order[unions.first[~active]]))
            for feature in self.features:
                passed = feature.passed(plan, passed)
            parts.append(passed)
        return concat(parts)

    def completed(self, kept: pa.Table) -> pa.Table:
        # A spec without `extends` stores no last event, since the end implies it.
        needs_last = LAST_EVENT.name in self.schema.names
        return with_last_event(kept, self.gap_us) if needs_last else kept

    def incompatibilities(self, old: Any) -> list[str]:
        return [line for feature in self.features for line in feature.incompatibilities(old)]

    def migrated(self, old: Any, rows: pa.Table) -> pa.Table:
        """
        Convert the rows of another spec to the rows of this one.

        Closed sessions that wait for late events stay where this spec waits for them too; otherwise
        only their memories do.
        """
        sessions, memories = split(rows, has_state(rows))
        if EXISTS.name in self.schema.names and EXISTS.name not in sessions.column_names:
            exists = pa.repeat(pa.scalar(value=True), sessions.num_rows)
            sessions = sessions.append_column(EXISTS, exists)
        for feature in self.features:
            sessions = feature.migrated(sessions, old)
        forgotten = sessions.slice(0, 0)
        if not self.stays_us:
            forgotten, sessions = split(sessions, flags_in(sessions, CLOSED.name))
        forgotten, sessions = (table.select(self.schema.names) for table in (forgotten, sessions))
        memories, parts = as_memories(memories, self.schema), [sessions]
        for feature in self.features:
            parts += feature.remembered(memories, sessions, forgotten, BEGINNING_US)
        return concat(parts)
