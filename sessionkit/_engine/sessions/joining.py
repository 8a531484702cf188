"""Events join the open sessions of a group: who belongs to whom, late and failed ones aside."""

from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.table import Rejected
from sessionkit._engine.sessions.events import WindowedEvents, read_events
from sessionkit._engine.sessions.plan import Attempt, Plan
from sessionkit._engine.sessions.retry import refold
from sessionkit.session import AnySessionSpec
from sessionkit.timeouts import is_late

__all__ = ["Joined", "join"]

Mask: TypeAlias = npt.NDArray[np.bool_]

LATE_EVENT = "its own window is over: event time + gap is at or before the watermark"
LATE_SESSION = "the session it would join is over: its end is at or before the watermark"


@attrs.frozen
class Joined:
    """
    The open sessions after events have joined them.

    Attributes:
        sessions: The table of them.
        events: How many events became part of a session.
        rejected: Those that did not.
    """

    sessions: pa.Table
    events: int
    rejected: list[Rejected]


def join(
    spec: AnySessionSpec, sessions: pa.Table, arrived: pa.Table, watermark_us: int | None
) -> Joined:
    """
    Let events join the open sessions of a group.

    Args:
        spec: The rules and functions.
        sessions: The open sessions.
        arrived: The events, in any order.
        watermark_us: By which events are late; None where that has been judged already.

    Raises:
        FoldError: A function failed, and the spec says `on_error="raise"`.
        StateValueError: A function left a value in the state that does not fit its field, and the
            spec says `on_error="raise"`.
    """
    events, rejected = read_events(spec, arrived)
    plan, late = _timely(spec, sessions, events, watermark_us)
    rejected += late
    if plan is None:
        return Joined(sessions, 0, rejected)
    attempt = plan.fold()
    joined = plan.sessions(attempt)
    number = len(plan.events.objects)
    if not attempt.failures:
        return Joined(joined, number, rejected)
    again = _again(plan, attempt, watermark_us)
    return Joined(
        pa.concat_tables([joined, again.sessions]),
        number - sum(part.rows.num_rows for part in again.rejected),
        rejected + again.rejected,
    )


def _timely(
    spec: AnySessionSpec, sessions: pa.Table, events: WindowedEvents, watermark_us: int | None
) -> tuple[Plan | None, list[Rejected]]:
    """Plan for the events that are not late; no plan where none is left."""
    late: list[Rejected] = []
    if watermark_us is not None and spec.late_by == "event":
        events, late = _without(events, is_late(events.ends, watermark_us), LATE_EVENT)
    if not events.objects:
        return None, late
    plan = Plan.of(spec, sessions, events)
    if watermark_us is None or spec.late_by == "event":
        return plan, late
    chosen = np.zeros(len(events.objects), np.bool_)
    chosen[plan.places_of(is_late(plan.unions.end, watermark_us))] = True
    if not chosen.any():
        return plan, late
    events, late = _without(events, chosen, LATE_SESSION)
    return (Plan.of(spec, sessions, events) if events.objects else None), late


def _without(
    events: WindowedEvents, chosen: Mask, reason: str
) -> tuple[WindowedEvents, list[Rejected]]:
    return events.only(~chosen), Rejected.chosen("late", reason, events.table, chosen)


def _again(plan: Plan, attempt: Attempt, watermark_us: int | None) -> Joined:
    """Fold the sessions that failed from what is stored, without the events that fail."""
    spec, chosen = plan.spec, np.zeros(len(plan.counts), np.bool_)
    chosen[np.flatnonzero(plan.active)[list(attempt.failures)]] = True
    events = plan.events.made_anew(spec, plan.places_of(chosen))
    part = Plan.of(spec, plan.opened_of(chosen), events)
    again = refold(part, watermark_us)
    rejected = Rejected.with_reasons("failed", again.failures, events.table)
    rejected += Rejected.with_reasons("late", dict.fromkeys(again.late, LATE_SESSION), events.table)
    processed = events.table.num_rows - len(again.failures) - len(again.late)
    return Joined(again.table(part), processed, rejected)
