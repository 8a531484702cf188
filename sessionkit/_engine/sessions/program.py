"""
What a session spec compiles to: everything that follows from it, worked out once.

The stages of a micro-batch read the program, never the options of the spec. A feature that a spec
doesn't use is None here, so nothing of its module runs.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa

from sessionkit._engine.logic import shared_identity
from sessionkit._engine.rows.table import BEHIND, INSTANT, key_schema
from sessionkit._engine.sessions.aggregates.kernels import stored_fields
from sessionkit._engine.sessions.behind import Horizons
from sessionkit._engine.sessions.features.duplicates import Duplicates, forget_ids
from sessionkit._engine.sessions.features.event_functions import EventFunctions
from sessionkit._engine.sessions.features.revisions import Revisions, forget_revisions
from sessionkit._engine.sessions.features.rules import Rules
from sessionkit._engine.sessions.features.session_events import SessionEvents
from sessionkit._engine.sessions.fold import SessionFold
from sessionkit._instants import span_us
from sessionkit.spec.logic import Aggregates, Events, Functions
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import Field
from sessionkit.timeouts import EventTimeGap

KINDS: Final = {
    Functions: "session",
    Aggregates: "session of aggregates",
    Events: "session of events",
}
Feature: TypeAlias = Duplicates | SessionEvents | Rules | Revisions


@attrs.frozen(eq=False, kw_only=True)
class Program:
    """
    A session spec, compiled. All spans are in microseconds.

    Attributes:
        spec: The spec: its functions, and the classes of its rows.
        state_fields: The fields of the state as they are stored.
        schema: The schema of the rows of sessions: `key.*`, `start`, `end`, `events`, `behind`,
            what each feature stores, `state.*`. Instants are in UTC; `end` is exclusive.
        closes: The column that says when a session is over.
        gap_us: The gap of each event, unless functions of events say it.
        gap_inclusive: Whether an event exactly one gap after the last one joins its session.
        horizons: What the watermark has passed, as it moves.
        late_by_event: Whether an event whose own window is over is late.
        late_by_session: Whether one is whose session is over.
        event_functions: What is asked of each event.
        duplicates: What drops duplicates.
        session_events: What hands out the events of closed sessions.
        rules: What cuts sessions before their gap.
        revisions: What lets sessions give several rows.
        features: Those of these four that a spec uses, in the order of the columns they store.
        functions: The functions that fold a session; None where there are none.
    """

    spec: AnySessionSpec
    state_fields: Sequence[Field]
    schema: pa.Schema
    closes: str
    gap_us: int
    gap_inclusive: bool
    horizons: Horizons
    late_by_event: bool
    late_by_session: bool
    event_functions: EventFunctions | None
    duplicates: Duplicates | None
    session_events: SessionEvents | None
    rules: Rules | None
    revisions: Revisions | None
    features: Sequence[Feature]
    functions: SessionFold | None

    @classmethod
    def of(cls, spec: AnySessionSpec) -> "Program":
        """Compile a spec."""
        duplicates, rules = Duplicates.of(spec), Rules.of(spec)
        session_events, revisions = SessionEvents.of(spec), Revisions.of(spec, duplicates)
        every = duplicates, session_events, rules, revisions
        features = [feature for feature in every if feature is not None]
        own = [pa.field("start", INSTANT), pa.field("end", INSTANT), pa.field("events", pa.int64())]
        own += [BEHIND, *(field for feature in features for field in feature.fields)]
        codec = codec_of(spec.state).type.fields
        state = stored_fields(spec) if isinstance(spec.logic, Aggregates) else codec
        own += [pa.field(f"state.{field.name}", field.type.arrow) for field in state]
        has_functions = isinstance(spec.logic, Functions)
        extends = spec.rules is not None and spec.rules.extends is not None
        return cls(
            spec=spec,
            state_fields=state,
            schema=pa.schema([*key_schema(spec), *own]),
            closes="end" if rules is None else "closes",
            gap_us=span_us(spec.timeout.longest),
            gap_inclusive=spec.timeout.gap_inclusive,
            horizons=Horizons(
                0 if spec.lateness.allowed is None else span_us(spec.lateness.allowed),
                0 if spec.mergeable is None else span_us(spec.mergeable),
                _shortest_us(spec),
                in_time_order=spec.order == "event_time",
            ),
            late_by_event=spec.lateness.judged_by == "event",
            # The windows of events that keep no session open are over as soon as they happen.
            late_by_session=spec.lateness.judged_by == "session" or extends,
            event_functions=EventFunctions.of(spec),
            duplicates=duplicates,
            session_events=session_events,
            rules=rules,
            revisions=revisions,
            features=features,
            functions=SessionFold.of(spec) if has_functions else None,
        )

    @property
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
        if isinstance(spec.logic, Aggregates):
            entries["aggregates"] = {one.name: one.text for one in spec.bound}
        return json.dumps(entries, sort_keys=True).encode()


def _shortest_us(spec: AnySessionSpec) -> int:
    """Return how long after its start a session is over at the earliest, whatever its events."""
    # A restart may change functions, and rules that are code.
    if isinstance(spec.timeout, EventTimeGap) and not callable(spec.timeout.gap):
        return span_us(spec.timeout.longest)
    return 0


def obstacles(old: AnySessionSpec, program: Program) -> list[str]:
    """Return a line for each thing in which sessions of another spec don't fit the features."""
    features = program.duplicates, program.rules
    return [line for one in features if one is not None for line in one.obstacles(old)]


def migrated(old: AnySessionSpec, program: Program, sessions: pa.Table) -> pa.Table:
    """Return the sessions of another spec with what the features of a program store of them."""
    duplicates, rules, revisions = program.duplicates, program.rules, program.revisions
    sessions = forget_ids(sessions) if duplicates is None else duplicates.migrated(sessions)
    if rules is not None:
        sessions = rules.migrated(sessions)
    if revisions is None:
        return forget_revisions(sessions, duplicates)
    return revisions.migrated(sessions, old)
