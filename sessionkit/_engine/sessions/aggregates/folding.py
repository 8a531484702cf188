"""Events join open sessions, and sessions that are over become rows, by aggregates alone."""

from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._engine.rows.objects import conditions_met, decode_keys
from sessionkit._engine.rows.table import Rejected
from sessionkit._engine.sessions.aggregates.kernels import (
    folded,
    results_by_aggregates,
    stored_fields,
)
from sessionkit._engine.sessions.aggregates.numbers import SumTooLargeError
from sessionkit._engine.sessions.aggregates.rows import Mask, Rows, Segments
from sessionkit._engine.sessions.behind import Horizon
from sessionkit._engine.sessions.close import result_rows
from sessionkit._engine.sessions.dropping import dropped_sessions, traced
from sessionkit._engine.sessions.ids import ids_of
from sessionkit._engine.sessions.plan import Plan
from sessionkit._engine.sessions.planning import read_events, sessions_after, timely
from sessionkit._engine.sessions.program import Program
from sessionkit._engine.sessions.results import Closed, Joined
from sessionkit.errors import StateValueError, with_hint
from sessionkit.spec.functions import Failure
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of


def join_by_aggregates(
    program: Program, sessions: pa.Table, arrived: pa.Table, horizon: Horizon
) -> Joined:
    """
    Let events join the open sessions of a group; see `join`.

    Raises:
        StateValueError: A sum does not fit its type, and the spec says `on_error="raise"`.
    """
    events, rejected = read_events(program, arrived)
    judged = timely(program, sessions, events, horizon)
    plan = judged.plan
    while plan is not None:
        try:
            joined = sessions_after(program, plan, plan.active, _states(plan))
        except SumTooLargeError as error:
            failure, failed = _too_large(plan, error), error.sessions
            if program.spec.on_error == "drop_session":
                rejected += dropped_sessions(plan, failed, [failure] * int(failed.sum()))
                untouched = traced(plan, failed, plan.untouched)
                plan = attrs.evolve(plan.only(~failed), untouched=untouched)
                continue
            failures = dict.fromkeys(plan.places_of(failed).tolist(), failure)
            rejected += Rejected.with_failures("failed", failures, plan.events.table)
            others = judged.distinct.with_others(plan.events.without(failures))
            rejected += judged.late
            judged = timely(program, sessions, others, horizon)
            plan = judged.plan
        else:
            return Joined(joined, plan.events.table.num_rows, rejected + judged.rejected)
    return Joined(sessions, 0, rejected + judged.rejected)


def _states(plan: Plan) -> list[pa.Array]:
    """Return the columns of the states of the sessions that have events."""
    if not plan.active.any():
        return [pa.array([], field.type.arrow) for field in stored_fields(plan.spec)]
    if plan.spec.discards:
        return _new_states(plan)
    columns, active = _folded(plan), plan.active
    if active.all():
        return columns
    return [column.filter(pa.array(active)) for column in columns]


def _folded(plan: Plan) -> list[pa.Array]:
    spec, events = plan.spec, plan.events
    rows = Rows(
        segments=Segments(plan.order, plan.unions.first, plan.unions.sizes),
        stored=plan.touched,
        events=events.table,
        times=events.starts,
        conditions=_conditions(spec, events.table),
    )
    return folded(spec, rows)


def _new_states(plan: Plan) -> list[pa.Array]:
    """Return the same where rows discard what they have, so that some sessions have no state."""
    try:
        return _folded(plan.with_states)
    except SumTooLargeError as error:
        sessions = plan.active.copy()
        sessions[plan.active] = error.sessions
        raise SumTooLargeError(error.bound, sessions) from error


def _conditions(spec: AnySessionSpec, events: pa.Table) -> dict[str, pa.Array]:
    """Return for which events each condition of a spec holds, by its text."""
    conditions = {repr(asked): asked for one in spec.bound for asked in one.conditions}
    return dict(zip(conditions, conditions_met(spec, events, conditions.values()), strict=True))


def _too_large(plan: Plan, error: SumTooLargeError) -> Failure:
    """Return why sessions whose sums do not fit have failed."""
    bound = error.bound
    key = decode_keys(plan.spec, plan.keys_of(_only_first(error.sessions)))[0]
    text = f"`{bound.name}`, `{bound.aggregate}`, does not fit {bound.type.arrow} for {key!r}"
    hint = "sum a float or a Decimal column, or count such events as failed with on_error='reject'"
    message = with_hint(text, hint)
    if plan.spec.on_error == "raise":
        raise StateValueError(message) from error
    return Failure(f"`{bound.name}`, `{bound.aggregate}`, would not fit its type")


def _only_first(chosen: Mask) -> Mask:
    first: Mask = np.arange(len(chosen)) == int(chosen.argmax())
    return first


def close_by_aggregates(program: Program, over: pa.Table) -> Closed:
    """Return the result rows of sessions that are over."""
    number = over.num_rows
    results = results_by_aggregates(program.spec, over)
    rows = result_rows(program, over, ids_of(over), range(number), results)
    return Closed(rows, [], number, range(number))


def states_by_aggregates(spec: AnySessionSpec, sessions: pa.Table) -> list[Any]:
    """Return the rows that sessions would give if they were over now, as objects."""
    if not sessions.num_rows:
        return []
    return codec_of(spec.result).decode(results_by_aggregates(spec, sessions))
