"""Which events of a micro-batch are late or duplicates, and what the others belong to."""

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._engine.rows.table import Rejected
from sessionkit._engine.sessions.behind import Horizon
from sessionkit._engine.sessions.duplicates import Distinct, distinct
from sessionkit._engine.sessions.events import WindowedEvents
from sessionkit._engine.sessions.plan import Plan
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts import is_late

__all__ = ["Timely", "judges_sessions", "late_session", "timely"]

LATE_EVENT = "its own window is over: event time + gap is at or before the watermark"
LATE_DAY = "its own window is over: event time + gap, or midnight, is at or before the watermark"
LATE_SESSION = "the session it would join is over: its end is at or before the watermark"
LATE_HEARTBEAT = "no open session is there at its time, which is at or before the watermark"


@attrs.frozen
class Timely:
    """
    The events that can be processed, and those that can't.

    Attributes:
        plan: What the timely ones belong to; None where there is none.
        late: Those that aren't in time.
        distinct: The timely ones, told apart from their duplicates.
    """

    plan: Plan | None
    late: list[Rejected]
    distinct: Distinct

    @property
    def rejected(self) -> list[Rejected]:
        """Those that can't be processed."""
        return self.late + self.distinct.rejected


def timely(
    spec: AnySessionSpec, sessions: pa.Table, events: WindowedEvents, horizon: Horizon
) -> Timely:
    """
    Plan for the events that are neither late nor duplicates.

    Args:
        spec: The rules.
        sessions: The open sessions, and what remembers the ids of closed ones.
        events: The events, in any order.
        horizon: What the watermark has passed.
    """
    if horizon.late_us is None:
        return _planned(spec, sessions, events, [], horizon)
    if spec.late_by == "event":
        late = is_late(events.closes(spec.rules), horizon.late_us)
        if judges_sessions(spec):
            late &= events.extend(spec.timeout)
        reason = LATE_EVENT if spec.rules is None or spec.rules.midnight is None else LATE_DAY
        rejected = Rejected.chosen("late", _why(spec, reason), events.table, late)
        events = events.only(~late)
        if not judges_sessions(spec):
            return _planned(spec, sessions, events, rejected, horizon)
        found = _timely_by_session(spec, sessions, events, horizon, horizon.late_us)
        return attrs.evolve(found, late=rejected + found.late)
    return _timely_by_session(spec, sessions, events, horizon, horizon.late_us)


def judges_sessions(spec: AnySessionSpec) -> bool:
    """
    Return whether a session that's over makes its events late.

    Of events that keep no session open, that's so under `late_by="event"` too: their own windows
    are over as soon as they happen.
    """
    return spec.late_by == "session" or (spec.rules is not None and spec.rules.extends is not None)


def _timely_by_session(
    spec: AnySessionSpec,
    sessions: pa.Table,
    events: WindowedEvents,
    horizon: Horizon,
    late_us: int,
) -> Timely:
    """
    Plan for the events whose sessions are not over.

    A duplicate joins no session, so it's found first. Where the one that it repeats is late, it
    isn't one.
    """
    rejected: list[Rejected] = []
    while True:
        found = _planned(spec, sessions, events, rejected, horizon)
        if found.plan is None:
            return found
        first = found.distinct.first
        late = np.zeros(len(first.starts), np.bool_)
        over = is_late(found.plan.unions.closes, late_us)
        late[found.plan.places_of(over)] = True
        if not late.any():
            return found
        rejected = rejected + Rejected.chosen("late", late_session(spec), first.table, late)
        events = first.only(~late).joined(found.distinct.others)


def _planned(
    spec: AnySessionSpec,
    sessions: pa.Table,
    events: WindowedEvents,
    late: list[Rejected],
    horizon: Horizon,
) -> Timely:
    found = distinct(sessions, events)
    plan = Plan.of(spec, sessions, found.first, horizon) if len(found.first.starts) else None
    return Timely(plan, late, found)


def late_session(spec: AnySessionSpec) -> str:
    """Return why events are late for the session that they would join."""
    return _why(spec, LATE_SESSION if spec.late_by == "session" else LATE_HEARTBEAT)


def _why(spec: AnySessionSpec, reason: str) -> str:
    return reason if spec.allowed_lateness is None else f"{reason}, less `allowed_lateness`"
