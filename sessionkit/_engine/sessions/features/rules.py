"""
What cuts a session before its gap: `SessionRules`.

    events     rule.until, rule.starts_with     whether it holds for an event
    sessions   closes, closed_by                when an open session is over, and by which rule
               last.*                           its last value of each field of `changes_of`
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import INSTANT, Mask, instants, micros, whole, with_column
from sessionkit._engine.boundaries import event_that_moves_to
from sessionkit._engine.sessions.cutting import CODES, NAMES, closings, field_values
from sessionkit._engine.sessions.emission import Emission
from sessionkit._engine.sessions.feature import Feature
from sessionkit._engine.sessions.plan import Plan
from sessionkit._instants import duration_text, instant_of, micros_of, span_us
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import Field, forms_of
from sessionkit.timeouts import ClosedBy, SessionRules

CLOSING: Final = (pa.field("closes", INSTANT), pa.field("closed_by", pa.int8()))


@attrs.frozen(eq=False)
class Rules(Feature):
    """The rules of a spec, and the fields whose changes cut a session."""

    spec: AnySessionSpec
    rules: SessionRules
    changing: Sequence[Field]

    @classmethod
    def of(cls, spec: AnySessionSpec) -> "Rules | None":
        if (rules := spec.rules) is None:
            return None
        fields = {field.name: field for field in codec_of(spec.event).type.fields}
        return cls(spec, rules, [fields[name] for name in rules.changes_of])

    @property
    def fields(self) -> Sequence[pa.Field]:
        last = (pa.field(f"last.{one.name}", one.type.arrow) for one in self.changing)
        return [*CLOSING, *last]

    @property
    def identity(self) -> dict[str, Any]:
        # Not the predicates: they are code.
        longest = self.rules.max_duration
        entries = {
            "max_duration_us": None if longest is None else span_us(longest),
            "max_events": self.rules.max_events,
            "midnight": self.rules.midnight,
            "changes_of": forms_of(self.changing),
            "closes_idle": self.rules.close_idle_after is not None,
        }
        return {"rules": entries}

    def columns(self, plan: Plan, chosen: Mask) -> list[pa.Array]:
        closes, closed_by = plan.unions.closes[chosen], plan.unions.closed_by[chosen]
        values = [_last(one.name, plan).filter(pa.array(chosen)) for one in self.changing]
        return [instants(closes), pa.array(closed_by), *values]

    def passed(self, plan: Plan, sessions: pa.Table) -> pa.Table:
        """Return the sessions of a plan that have no events: a rule may have cut them."""
        for field, column in zip(CLOSING, self.columns(plan, ~plan.active), strict=False):
            sessions = with_column(sessions, field, column)
        return sessions

    def context(self, emission: Emission) -> Emission:
        """Say of sessions that are over that `idle` closed them where no event has ended them."""
        by_events_us, given = emission.clocks.by_events_us, emission.given
        if by_events_us is None:
            return emission
        idle = micros(given["closes"]) > by_events_us
        codes = np.where(idle, CODES["idle"], given["closed_by"].to_numpy())
        closed_by = pa.array(codes, pa.int8())
        return attrs.evolve(emission, given=with_column(given, CLOSING[1], closed_by))

    def row_columns(self, given: pa.Table) -> Mapping[str, pa.Array]:
        reasons = pa.array(NAMES, pa.string()).take(whole(given["closed_by"]))
        if self.spec.early is not None:
            # A session that gives an early row isn't over.
            reasons = pc.if_else(whole(given["is_final"]), reasons, None)
        return {"closed_by": reasons}

    def incompatibilities(self, old: AnySessionSpec) -> list[str]:
        """Report that an event may arrive that is older than others of its session."""
        if self.rules.state_gap is None or old.order == "event_time":
            return []
        return ['`state_gap` needs sessions whose events came in order, and `order` was "arrival"']

    def migrated(self, sessions: pa.Table, old: AnySessionSpec) -> pa.Table:
        """
        Return sessions of another spec with what is stored here.

        A field of `changes_of` goes on with its last value if the other spec had it too.
        """
        starts, ends = micros(sessions["start"]), micros(sessions["end"])
        closes, closed_by = closings(self.rules, starts, ends)
        for field, column in zip(CLOSING, (instants(closes), pa.array(closed_by)), strict=True):
            sessions = with_column(sessions, field, column)
        for field in self.fields[len(CLOSING) :]:
            known = field.name in sessions.column_names and sessions[field.name].type == field.type
            if not known:
                sessions = with_column(sessions, field, pa.nulls(sessions.num_rows, field.type))
        return sessions


def _last(name: str, plan: Plan) -> pa.Array:
    """Return the last value of each session that isn't null."""
    values = field_values(plan, name)
    there = values.is_valid().to_numpy(zero_copy_only=False)[plan.order]
    latest = plan.unions.reduced(np.maximum, np.where(there, np.arange(len(there)), -1))
    return values.take(pa.array(plan.order[latest], mask=latest < 0))


# -- for people ---------------------------------------------------------------------------------


def event_that_closes(spec: AnySessionSpec, closes: datetime) -> datetime:
    """Return the earliest event time that moves the watermark to where a session closes."""
    return instant_of(event_that_moves_to(micros_of(closes), spec.delay_ms or 0))


def rule_text(spec: AnySessionSpec, rule: ClosedBy) -> str:
    """Describe in words when a rule of a spec closes a session."""
    rules, longest = spec.rules, duration_text(spec.timeout.longest)
    if rules is not None and rule != "gap":
        return _cut_text(rules, rule)
    event = "no event" if rules is None or rules.extends is None else "no event that extends it"
    if rules is not None and rules.state_gap is not None:
        return f"{event} within the gap by its state, of at most {longest}"
    if callable(spec.timeout.gap):
        return f"{event} within the gaps of its events"
    return f"{event} for {longest}"


def _cut_text(rules: SessionRules, rule: ClosedBy) -> str:
    if rule == "midnight":
        return f"midnight in {rules.midnight}"
    if rule == "max_duration":
        return f"it has lasted {duration_text(rules.max_duration or timedelta(0))}"
    if rule == "max_events":
        return f"it has {rules.max_events:,} event{'s' if rules.max_events != 1 else ''}"
    if rule == "idle":
        span = duration_text(rules.close_idle_after or timedelta(0))
        return f"nothing has moved the watermark for {span} of processing time"
    if rule == "changes_of":
        return f"an event has another {' or '.join(f'`{name}`' for name in rules.changes_of)}"
    return "an event ends it" if rule == "until" else "an event starts the next session"
