"""Events join open sessions, and sessions that are over become rows, by aggregates alone."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from sessionkit._engine.rows.objects import conditions_met, decode_keys
from sessionkit._engine.rows.rejected import Rejected
from sessionkit._engine.sessions.emission import Finished, Tell
from sessionkit._engine.sessions.plan import Folded, Plan
from sessionkit.aggregates._events import EventRows
from sessionkit.aggregates._numbers import SumTooLargeError
from sessionkit.errors import StateValueError, with_hint
from sessionkit.spec.functions import Failure
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import Field


def stored_fields(spec: AnySessionSpec) -> Sequence[Field]:
    return [field for bound in spec.bound for field in bound.stored]


def results_by_aggregates(spec: AnySessionSpec, sessions: pa.Table) -> list[pa.Array]:
    """Return the columns of the results, in the order of the fields of their class."""
    results = {bound.name: bound.result(sessions) for bound in spec.bound}
    return [results[field.name] for field in codec_of(spec.result).type.fields]


def fold_by_aggregates(plan: Plan) -> Folded:
    try:
        return Folded(plan, plan.active, _states(plan))
    except SumTooLargeError as error:
        failed = plan.places_of(error.sessions).tolist()
        failures = dict.fromkeys(failed, _too_large(plan, error))
        rejected = Rejected.with_failures("failed", failures, plan.events.table)
        return Folded(None, plan.active, [], rejected, failures)


def _states(plan: Plan) -> list[pa.Array]:
    """Return the columns of the states of the sessions that have events."""
    active = plan.active
    if not active.any():
        return [pa.array([], field.type.arrow) for field in stored_fields(plan.spec)]
    columns = _folded(plan)
    return columns if active.all() else [column.filter(pa.array(active)) for column in columns]


def _folded(plan: Plan) -> list[pa.Array]:
    """Return the columns of the states, a row for each session of a plan."""
    spec, events, unions = plan.spec, plan.events, plan.unions
    asked = spec.conditions
    met = dict(zip(asked, conditions_met(spec, events.table, asked.values()), strict=True))
    rows = EventRows(
        plan.touched, events.table, events.starts, plan.order, unions.first, unions.sizes, met
    )
    return [column for bound in spec.bound for column in bound.fold(rows)]


def _too_large(plan: Plan, error: SumTooLargeError) -> Failure:
    """Return why sessions whose sums do not fit have failed."""
    bound = error.bound
    key = decode_keys(plan.spec, plan.keys_of(error.sessions).slice(0, 1))[0]
    text = f"`{bound.name}`, `{bound.aggregate}`, does not fit {bound.type.arrow} for {key!r}"
    hint = "sum a float or a Decimal column, or count such events as failed with on_error='reject'"
    message = with_hint(text, hint)
    if plan.spec.on_error == "raise":
        raise StateValueError(message) from error
    return Failure(f"`{bound.name}`, `{bound.aggregate}`, would not fit its type")


def finish_by_aggregates(spec: AnySessionSpec, given: pa.Table, _: Tell) -> Finished:
    return Finished(results_by_aggregates(spec, given), range(given.num_rows))


def states_by_aggregates(spec: AnySessionSpec, sessions: pa.Table) -> list[Any]:
    """Return the rows that sessions would give if they were over now, as objects."""
    if not sessions.num_rows:
        return []
    return codec_of(spec.result).decode(results_by_aggregates(spec, sessions))
