"""
The rules that cut a session before its gap is over: `SessionRules`.

    sessions   closes, closed_by     when an open session is over, and by which rule
               last.*                its last value of a field, for the rules that need it
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import INSTANT, Mask, instants, micros, whole, with_column, with_fields
from sessionkit._engine.boundaries import event_that_moves_to
from sessionkit._engine.sessions.cutting import input_of
from sessionkit._engine.sessions.feature import Emission, Feature
from sessionkit._engine.sessions.plan import Plan, closings, cuts_of, reasons_of
from sessionkit._instants import instant_of, micros_of
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts._rules import Idle
from sessionkit.timeouts._session_rules import SessionRules

CLOSING: Final = (pa.field("closes", INSTANT), pa.field("closed_by", pa.int8()))


@attrs.frozen(eq=False)
class Rules(Feature):
    """What a spec with rules stores: when and why sessions close, and last values."""

    spec: AnySessionSpec
    rules: SessionRules

    @classmethod
    def of(cls, spec: AnySessionSpec) -> "Rules | None":
        return None if spec.rules is None else cls(spec, spec.rules)

    @property
    def fields(self) -> Sequence[pa.Field]:
        stored = (field for rule in self.rules.in_use for field in rule.fields(self.spec.event))
        # Two rules may need the last value of one field.
        return [*CLOSING, *{field.name: field for field in stored}.values()]

    @property
    def identity(self) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for rule in self.rules.in_use:
            entries |= rule.identity(self.spec.event)
        return {"rules": entries}

    def columns(self, plan: Plan, chosen: Mask) -> list[pa.Array]:
        closes, closed_by = plan.unions.closes[chosen], plan.unions.closed_by[chosen]
        rows, stored = input_of(plan), dict[str, pa.Array]()
        for rule in self.rules.in_use:
            stored |= rule.stored(rows, plan.unions)
        last = (column.filter(pa.array(chosen)) for column in stored.values())
        return [instants(closes), pa.array(closed_by), *last]

    def passed(self, plan: Plan, sessions: pa.Table) -> pa.Table:
        """Update the sessions of a plan that have no events: a rule may have cut them."""
        for field, column in zip(CLOSING, self.columns(plan, ~plan.active), strict=False):
            sessions = with_column(sessions, field, column)
        return sessions

    def context(self, emission: Emission) -> Emission:
        """Set `closed_by` to `idle` for sessions that only the idle clock has ended."""
        by_events_us, emitting = emission.clocks.by_events_us, emission.emitting
        if by_events_us is None:
            return emission
        # By events alone, the watermark would be at `by_events_us`, and these would still be open:
        # at 40, sessions that close at 30 and 50 give [False, True].
        idle = micros(emitting["closes"]) > by_events_us
        codes = np.where(idle, Idle.code, emitting["closed_by"].to_numpy())
        closed_by = pa.array(codes, pa.int8())
        return attrs.evolve(emission, emitting=with_column(emitting, CLOSING[1], closed_by))

    def row_columns(self, sessions: pa.Table) -> Mapping[str, pa.Array]:
        reasons = reasons_of(self.rules, whole(sessions["closed_by"]))
        if self.spec.early is not None:
            # A session that gives an early row isn't over.
            reasons = pc.if_else(whole(sessions["is_final"]), reasons, None)
        return {"closed_by": reasons}

    def incompatibilities(self, old: AnySessionSpec) -> list[str]:
        """Report that an event may arrive that is older than others of its session."""
        if self.rules.state_gap is None or old.order == "event_time":
            return []
        return ['`state_gap` needs sessions whose events came in order, and `order` was "arrival"']

    def migrated(self, sessions: pa.Table, old: AnySessionSpec) -> pa.Table:
        """Add when and why sessions of another spec close; last values go on if it had them too."""
        starts, ends = micros(sessions["start"]), micros(sessions["end"])
        closes, closed_by = closings(self.rules, starts, ends)
        for field, column in zip(CLOSING, (instants(closes), pa.array(closed_by)), strict=True):
            sessions = with_column(sessions, field, column)
        return with_fields(sessions, self.fields[len(CLOSING) :])


# -- for people ---------------------------------------------------------------------------------


def event_that_closes(spec: AnySessionSpec, closes: datetime) -> datetime:
    """Return the earliest event time that moves the watermark to where a session closes."""
    return instant_of(event_that_moves_to(micros_of(closes), spec.delay_ms or 0))


def rule_text(spec: AnySessionSpec, name: str) -> str:
    """Describe when a rule of a spec closes a session."""
    texts = {rule.name: rule.text for rule in cuts_of(spec).rules.in_use}
    return texts.get(name, "a rule that the spec doesn't have any more")
