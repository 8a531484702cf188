"""Events join the open sessions of a group, by the functions of the user."""

from itertools import compress
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.marks import is_trace
from sessionkit._engine.rows.objects import build_events
from sessionkit._engine.rows.table import Rejected, parted, stacked
from sessionkit._engine.sessions.attempt import attempt, state_columns
from sessionkit._engine.sessions.behind import Horizon
from sessionkit._engine.sessions.dropping import dropped_sessions, over_event, traced
from sessionkit._engine.sessions.events import WindowedEvents
from sessionkit._engine.sessions.features.rules import Rules
from sessionkit._engine.sessions.fold import FoldError
from sessionkit._engine.sessions.plan import Plan
from sessionkit._engine.sessions.planning import (
    late_session,
    planned,
    read_events,
    sessions_after,
    timely,
)
from sessionkit._engine.sessions.program import Program
from sessionkit._engine.sessions.results import Joined
from sessionkit._engine.sessions.retry import first_failures, refold
from sessionkit._engine.sessions.sifting import failing_events
from sessionkit.spec.functions import Failure
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts import is_late

__all__ = ["join"]

Mask: TypeAlias = npt.NDArray[np.bool_]


def join(program: Program, sessions: pa.Table, arrived: pa.Table, horizon: Horizon) -> Joined:
    """
    Let events join the open sessions of a group.

    Args:
        program: The spec, compiled.
        sessions: The open sessions.
        arrived: The events, in any order.
        horizon: What the watermark has passed.

    Raises:
        FoldError: A function failed, and the spec says `on_error="raise"`.
        StateValueError: A function left a value in the state that does not fit its field, and the
            spec says `on_error="raise"`.
    """
    events, rejected = read_events(program, arrived)
    joined = _joined(program, sessions, events, horizon)
    return attrs.evolve(joined, rejected=rejected + joined.rejected) if rejected else joined


def _joined(
    program: Program, sessions: pa.Table, events: WindowedEvents, horizon: Horizon
) -> Joined:
    rejected: list[Rejected] = []
    while True:
        found = timely(program, sessions, events, horizon)
        plan, distinct = found.plan, found.distinct
        rejected += [part for late in found.late for part in _late(program.spec, late)]
        if plan is None:
            return Joined(sessions, 0, rejected + distinct.rejected)
        objects, refused = build_events(program.spec, plan.events.table, plan.event_places)
        if refused:
            # What belongs together depends on the other events alone.
            reasons = {int(plan.event_places[place]): why for place, why in refused.items()}
            rejected += Rejected.with_reasons("quarantined", reasons, plan.events.table)
            events = distinct.with_others(plan.events.without(reasons))
            continue
        folded = _folded(program, plan, objects)
        if not (folded.rejected or distinct.others):
            return Joined(folded.sessions, folded.events, rejected) if rejected else folded
        failed = [part for part in folded.rejected if part.kind == "failed"]
        left = distinct.without(failed) if program.spec.on_error == "reject" else None
        if left is None:
            rejected += distinct.rejected + folded.rejected
            return Joined(folded.sessions, folded.events, rejected)
        # What failed was not processed, so the next event with its id counts.
        rejected += failed
        events = left


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


def _folded(program: Program, plan: Plan, objects: list[Any]) -> Joined:
    if plan.failures and program.spec.on_error == "raise":
        raise FoldError(*plan.failures[min(plan.failures)])
    tried = attempt(plan, objects)
    if not tried.failed.any():
        return Joined(sessions_after(program, plan, tried.good, tried.states), len(objects), [])
    processed = int(plan.counts[tried.good].sum())
    if program.spec.on_error == "drop_session":
        after = sessions_after(program, plan, tried.good, tried.states)
        dropped = _dropped(plan, tried.failed)
        return Joined(traced(plan, tried.failed, after), processed, dropped)
    if program.rules is not None and program.rules.rules.in_order:
        return _without(program, plan, _failing(plan, program.rules, tried.failed))
    part = attrs.evolve(plan.only(tried.failed), untouched=plan.traces)
    again = _refolded(program, part)
    good = attrs.evolve(plan, untouched=parted(plan.untouched, is_trace(plan.untouched))[1])
    after = sessions_after(program, good, tried.good, tried.states)
    return Joined(stacked([after, again.sessions]), processed + again.events, again.rejected)


def _dropped(plan: Plan, failed: Mask) -> list[Rejected]:
    """Return the sessions that failed, with all of their events."""
    found = first_failures(plan, failed)
    failures = [over_event(plan, one.failure, one.events) for one in found]
    return dropped_sessions(plan, failed, failures)


def _refolded(program: Program, part: Plan) -> Joined:
    """Fold the sessions of a plan from what is stored, without the events that fail."""
    found, stored, horizon = refold(part), stacked([part.touched, part.untouched]), part.horizon
    rejected = Rejected.with_failures("failed", found.failures, part.events.table)
    events, states = part.events.without(found.failures), found.states
    if not states:
        return Joined(stored, 0, rejected)
    plan = planned(program, stored, events, horizon)
    if program.late_by_session and horizon.late_us is not None:
        late = plan.active & is_late(plan.unions.closes, horizon.late_us)
        if late.any():
            why = dict.fromkeys(plan.places_of(late).tolist(), late_session(program))
            rejected += Rejected.with_reasons("late", why, events.table)
            states = list(compress(states, ~late[plan.active]))
            if not states:
                return Joined(stored, 0, rejected)
            plan = planned(program, stored, events.without(why), horizon)
    after = sessions_after(program, plan, plan.active, state_columns(plan, plan.active, states))
    return Joined(after, len(plan.events.starts), rejected)


def _failing(plan: Plan, rules: Rules, failed: Mask) -> dict[int, Failure]:
    """Return why events fail where rules depend on their order, by their places."""
    failures = failing_events(plan, rules, failed)
    if failures:
        return failures
    found = first_failures(plan, failed)
    return {place: one.failure for one in found for place in one.events}


def _without(program: Program, plan: Plan, failures: dict[int, Failure]) -> Joined:
    """Plan for the events that don't fail, and fold these from what is stored."""
    stored, events = stacked([plan.touched, plan.untouched]), plan.events
    again = _joined(program, stored, events.without(failures), plan.horizon)
    failed = Rejected.with_failures("failed", failures, events.table)
    return attrs.evolve(again, rejected=[*failed, *again.rejected])
