"""Events join the open sessions of a group, by the functions of the user."""

import attrs
import pyarrow as pa

from sessionkit._engine.rows.objects import build_events
from sessionkit._engine.rows.table import Rejected
from sessionkit._engine.sessions.behind import Horizon
from sessionkit._engine.sessions.events import WindowedEvents
from sessionkit._engine.sessions.folding import fold_plan
from sessionkit._engine.sessions.planning import read_events, timely
from sessionkit._engine.sessions.program import Program
from sessionkit._engine.sessions.results import Joined
from sessionkit.spec.session import AnySessionSpec

__all__ = ["join"]


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
            return Joined(sessions, 0, [*rejected, *distinct.rejected])
        objects, refused = build_events(program.spec, plan.events.table, plan.event_places)
        if refused:
            # What belongs together depends on the other events alone.
            reasons = {int(plan.event_places[place]): why for place, why in refused.items()}
            rejected += Rejected.with_reasons("quarantined", reasons, plan.events.table)
            events = distinct.with_others(plan.events.without(reasons))
            continue
        folded = fold_plan(program, plan, objects)
        if not (folded.rejected or distinct.others):
            return Joined(folded.sessions, folded.events, rejected) if rejected else folded
        failed, left = [part for part in folded.rejected if part.kind == "failed"], None
        if program.duplicates is not None and program.spec.on_error == "reject":
            left = program.duplicates.left(distinct, failed)
        if left is None:
            rejected += [*distinct.rejected, *folded.rejected]
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
