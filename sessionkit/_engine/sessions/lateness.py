"""Which events of a micro-batch are late, and what the others belong to."""

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._engine.rows.table import Rejected
from sessionkit._engine.sessions.events import WindowedEvents
from sessionkit._engine.sessions.plan import Plan
from sessionkit.session import AnySessionSpec
from sessionkit.timeouts import is_late

__all__ = ["LATE_SESSION", "Timely", "timely"]

LATE_EVENT = "its own window is over: event time + gap is at or before the watermark"
LATE_DAY = "its own window is over: event time + gap, or midnight, is at or before the watermark"
LATE_SESSION = "the session it would join is over: its end is at or before the watermark"


@attrs.frozen
class Timely:
    """
    The events that are in time, and those that aren't.

    Attributes:
        plan: What the timely ones belong to; None where there is none.
        late: The others.
    """

    plan: Plan | None
    late: list[Rejected]


def timely(
    spec: AnySessionSpec, sessions: pa.Table, events: WindowedEvents, watermark_us: int | None
) -> Timely:
    """
    Plan for the events that are not late.

    Args:
        spec: The rules.
        sessions: The open sessions.
        events: The events, in any order.
        watermark_us: By which events are late; None where that has been judged already.
    """
    if watermark_us is None:
        return Timely(_plan(spec, sessions, events), [])
    if spec.late_by == "event":
        late = is_late(events.closes(spec.rules), watermark_us)
        reason = LATE_EVENT if spec.rules is None or spec.rules.midnight is None else LATE_DAY
        rejected = Rejected.chosen("late", reason, events.table, late)
        return Timely(_plan(spec, sessions, events.only(~late)), rejected)
    plan = _plan(spec, sessions, events)
    if plan is None:
        return Timely(None, [])
    late = np.zeros(len(events.starts), np.bool_)
    late[plan.places_of(is_late(plan.unions.closes, watermark_us))] = True
    if not late.any():
        return Timely(plan, [])
    rejected = Rejected.chosen("late", LATE_SESSION, events.table, late)
    return Timely(_plan(spec, sessions, events.only(~late)), rejected)


def _plan(spec: AnySessionSpec, sessions: pa.Table, events: WindowedEvents) -> Plan | None:
    return Plan.of(spec, sessions, events) if len(events.starts) else None
