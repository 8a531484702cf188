"""Events join the open sessions of a group, by the functions of the user."""

from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.marks import is_trace
from sessionkit._engine.rows.objects import build_events
from sessionkit._engine.rows.order import key_numbers
from sessionkit._engine.rows.table import Rejected, key_columns, parted, stacked
from sessionkit._engine.sessions.attempt import attempt
from sessionkit._engine.sessions.behind import Horizon
from sessionkit._engine.sessions.dropping import dropped_sessions, over_event, traced
from sessionkit._engine.sessions.duplicates import Distinct, left_with_copies
from sessionkit._engine.sessions.events import WindowedEvents, read_events
from sessionkit._engine.sessions.fold import FoldError
from sessionkit._engine.sessions.lateness import late_session, timely
from sessionkit._engine.sessions.plan import Plan
from sessionkit._engine.sessions.retry import first_failures, refold
from sessionkit._engine.sessions.sifting import failing_events
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts import SessionRules

__all__ = ["Joined", "join"]

Mask: TypeAlias = npt.NDArray[np.bool_]


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


def join(spec: AnySessionSpec, sessions: pa.Table, arrived: pa.Table, horizon: Horizon) -> Joined:
    """
    Let events join the open sessions of a group.

    Args:
        spec: The rules and functions.
        sessions: The open sessions.
        arrived: The events, in any order.
        horizon: What the watermark has passed.

    Raises:
        FoldError: A function failed, and the spec says `on_error="raise"`.
        StateValueError: A function left a value in the state that does not fit its field, and the
            spec says `on_error="raise"`.
    """
    events, rejected = read_events(spec, arrived)
    joined = _joined(spec, sessions, events, horizon)
    return attrs.evolve(joined, rejected=rejected + joined.rejected)


def _joined(
    spec: AnySessionSpec, sessions: pa.Table, events: WindowedEvents, horizon: Horizon
) -> Joined:
    rejected: list[Rejected] = []
    while True:
        taken = _take(spec, sessions, events, horizon)
        rejected += taken.rejected
        if taken.plan is None:
            return Joined(sessions, 0, rejected + taken.distinct.rejected)
        folded = _folded(taken.plan, taken.objects)
        failed = [part for part in folded.rejected if part.kind == "failed"]
        left = left_with_copies(taken.distinct, failed) if spec.on_error == "reject" else None
        if left is None:
            rejected += taken.distinct.rejected + folded.rejected
            return attrs.evolve(folded, rejected=rejected)
        # What failed was not processed, so the next event with its id counts.
        rejected += failed
        events = left


@attrs.frozen
class _Taken:
    """
    The events that can be folded, as objects in the order of their plan; the others aside.

    Duplicates are in `distinct` alone, and not among those rejected.
    """

    plan: Plan | None
    objects: list[Any]
    rejected: list[Rejected]
    distinct: Distinct


def _take(
    spec: AnySessionSpec, sessions: pa.Table, events: WindowedEvents, horizon: Horizon
) -> _Taken:
    """Plan from times alone; where the class of the event refuses one, plan again without it."""
    judged = timely(spec, sessions, events, horizon)
    rejected = [part for late in judged.late for part in _late(spec, late)]
    plan = judged.plan
    if plan is None:
        return _Taken(None, [], rejected, judged.distinct)
    objects, refused = build_events(spec, plan.events.table, plan.event_places)
    if not refused:
        return _Taken(plan, objects, rejected, judged.distinct)
    reasons = {int(plan.event_places[place]): reason for place, reason in refused.items()}
    rejected += Rejected.with_reasons("quarantined", reasons, plan.events.table)
    others = plan.events.without(reasons).joined(judged.distinct.others)
    again = _take(spec, sessions, others, horizon)
    return attrs.evolve(again, rejected=rejected + again.rejected)


def _late(spec: AnySessionSpec, late: Rejected) -> list[Rejected]:
    """Quarantine the late events that their class refuses."""
    _, refused = build_events(spec, late.rows)
    if not refused:
        return [late]
    others = [place for place in range(late.rows.num_rows) if place not in refused]
    reasons = [late.reasons[place] for place in others]
    return [
        *Rejected.with_reasons("quarantined", refused, late.rows),
        Rejected("late", reasons, late.rows.take(pa.array(others, pa.int64()))),
    ]


def _folded(plan: Plan, objects: list[Any]) -> Joined:
    if plan.failures and plan.spec.on_error == "raise":
        raise FoldError(*plan.failures[min(plan.failures)])
    tried = attempt(plan, objects)
    if not tried.failed.any():
        return Joined(plan.sessions(tried.good, tried.states), len(objects), [])
    if plan.spec.on_error == "drop_session":
        processed = int(plan.counts[tried.good].sum())
        sessions = traced(plan, tried.failed, plan.sessions(tried.good, tried.states))
        return Joined(sessions, processed, _dropped(plan, tried.failed))
    if plan.spec.rules is not None and plan.spec.rules.in_order:
        return _planned_again(plan, plan.spec.rules, tried.failed)
    again = _again(plan.only(tried.failed))
    return Joined(
        stacked([plan.sessions(tried.good, tried.states), again.sessions]),
        len(objects) - sum(part.rows.num_rows for part in again.rejected),
        again.rejected,
    )


def _dropped(plan: Plan, failed: Mask) -> list[Rejected]:
    """Return the sessions that failed, with all of their events."""
    found = first_failures(plan, failed)
    failures = [over_event(plan, one.failure, one.events) for one in found]
    return dropped_sessions(plan, failed, failures)


def _again(part: Plan) -> Joined:
    """Fold the sessions that failed from what is stored, without the events that fail."""
    events, again = part.events, refold(part)
    rejected = Rejected.with_failures("failed", again.failures, events.table)
    late = dict.fromkeys(again.late, late_session(part.spec))
    rejected += Rejected.with_reasons("late", late, events.table)
    processed = events.table.num_rows - len(again.failures) - len(again.late)
    return Joined(again.table(part), processed, rejected)


def _planned_again(plan: Plan, rules: SessionRules, failed: Mask) -> Joined:
    """Plan again without the events that fail, for all sessions of their keys."""
    spec, events = plan.spec, plan.events
    failures = failing_events(plan, rules, failed)
    if not failures:
        found = first_failures(plan, failed)
        failures = {place: one.failure for one in found for place in one.events}
    concerned = key_columns(plan.keys_of(failed))
    traces, untouched = parted(plan.untouched, is_trace(plan.untouched))
    stored = stacked([plan.touched, traces])
    ours, theirs = parted(stored, key_numbers(concerned, key_columns(stored))[1] >= 0)
    is_ours = key_numbers(concerned, key_columns(events.table))[1] >= 0
    good = is_ours.copy()
    good[list(failures)] = False
    parts = [
        _joined(spec, ours, events.only(good), plan.horizon.judged),
        _joined(spec, theirs, events.only(~is_ours), plan.horizon.judged),
    ]
    return Joined(
        stacked([untouched, *(part.sessions for part in parts)]),
        sum(part.events for part in parts),
        Rejected.with_failures("failed", failures, events.table)
        + [one for part in parts for one in part.rejected],
    )
