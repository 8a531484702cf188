"""
The folds, which turn events into states, and states into results.

A spec folds by functions, by aggregates, or to a row for each event; then a session holds its
events until it's over.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import lists_of, micros, places_in, whole
from sessionkit._engine.rows.objects import conditions_met, decode_keys, decode_states
from sessionkit._engine.rows.order import in_total_order
from sessionkit._engine.rows.tables import SideOutput
from sessionkit._engine.sessions.by_functions import finish_by_functions, fold_by_functions
from sessionkit._engine.sessions.careful_fold import SessionFold
from sessionkit._engine.sessions.feature import Finished, Finisher, Tell
from sessionkit._engine.sessions.plan import Folded, Plan
from sessionkit.aggregates._events import Condition, EventRows
from sessionkit.aggregates._numbers import SumTooLargeError
from sessionkit.errors import StateValueError, with_hint
from sessionkit.spec.functions import Failure
from sessionkit.spec.logic import HELD, NUMBER, Aggregates, Functions
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import Field


@attrs.frozen(eq=False)
class Fold:
    """
    A fold, as a spec asks for it; every fold groups events alike.

    Attributes:
        kind: Its name in the identity of a spec.
        fields: The fields of the state as they're stored.
        fold: Makes the states of a plan.
        finish: Makes the results of the rows of sessions.
    """

    kind: str
    fields: Sequence[Field]
    fold: Callable[[Plan], Folded]
    finish: Finisher


def fold_of(spec: AnySessionSpec) -> Fold:
    fields = codec_of(spec.state).type.fields
    match spec.logic:
        case Functions():
            fold = partial(fold_by_functions, SessionFold.of(spec))
            return Fold("session", fields, fold, finish_by_functions)
        case Aggregates():
            stored = [field for bound in spec.bound for field in bound.stored]
            return Fold("session of aggregates", stored, fold_by_aggregates, finish_by_aggregates)
        case _:
            return Fold("session of events", fields, fold_per_event, finish_per_event)


def state_columns(spec: AnySessionSpec, sessions: pa.Table) -> list[pa.Array]:
    """Return the states of open sessions; with aggregates, the rows that they would give now."""
    if isinstance(spec.logic, Aggregates):
        return results_by_aggregates(spec, sessions)
    return [sessions[name] for name in sessions.column_names if name.startswith("state.")]


def states_of(spec: AnySessionSpec, sessions: pa.Table) -> list[Any]:
    """Return the `state_columns` as objects."""
    if not isinstance(spec.logic, Aggregates):
        return decode_states(spec.state, sessions)
    if not sessions.num_rows:
        return []
    return codec_of(spec.result).decode(results_by_aggregates(spec, sessions))


COLUMN = f"state.{HELD}"


def fold_per_event(plan: Plan) -> Folded:
    """Add the events of each session to its stored ones, in order."""
    events, owners = plan.gathered(whole(plan.touched[COLUMN]), _arrived(plan))
    content = pa.table(events.flatten(), [f"event.{field.name}" for field in events.type])
    times = micros(events.field(plan.spec.event_time))
    # Sessions 0 1 0 of events at 30, 20, 10: the order is 2 0 1, and the sizes are 2 1.
    order = in_total_order(owners, times, content, 0, plan.spec.sequence)
    sizes = np.bincount(owners, minlength=len(plan.counts))
    held = lists_of(events.take(pa.array(order)), sizes)
    return Folded([held.filter(pa.array(plan.active))])


def _arrived(plan: Plan) -> pa.StructArray:
    """Return the events that arrived, as they're stored."""
    kind = plan.touched.schema.field(COLUMN).type.value_type
    table, names = plan.events.table, set(codec_of(plan.spec.event).schema.names)
    parts = [table[f"event.{field.name}" if field.name in names else "time"] for field in kind]
    return pa.StructArray.from_arrays([whole(part) for part in parts], fields=list(kind))


def finish_per_event(spec: AnySessionSpec, sessions: pa.Table, _: Tell) -> Finished:
    lists = whole(sessions[COLUMN])
    sizes, events = pc.list_value_length(lists).to_numpy(), lists.flatten()
    owners = np.repeat(np.arange(len(sizes)), sizes)
    # Of two sessions with 2 and 1 events: [1, 2, 1].
    numbers = pa.array(1 + places_in(sizes, owners))
    columns = [
        numbers if field.name == NUMBER else events.field(field.name)
        for field in codec_of(spec.result).type.fields
    ]
    return Finished(columns, owners)


def results_by_aggregates(spec: AnySessionSpec, sessions: pa.Table) -> list[pa.Array]:
    """Return the columns of the results, in the order of the fields of their class."""
    results = {bound.name: bound.result(sessions) for bound in spec.bound}
    return [results[field.name] for field in codec_of(spec.result).type.fields]


def fold_by_aggregates(plan: Plan) -> Folded:
    spec, events, unions, active = plan.spec, plan.events, plan.unions, plan.active
    met: Mapping[Condition, pa.Array] = {}
    if needed := spec.conditions:
        met = dict(zip(needed, conditions_met(spec, events.table, needed.values()), strict=True))
    rows = EventRows(
        plan.touched, events.table, events.starts, plan.order, unions.first, unions.sizes, met
    )
    columns = list[pa.Array]()
    try:
        for bound in spec.bound:
            columns += bound.fold(rows)
    except SumTooLargeError as error:
        failed = plan.events_of(error.sessions).tolist()
        failures = dict.fromkeys(failed, _too_large(plan, error))
        rejected = SideOutput.with_failures("failed", failures, events.table)
        # The other events are judged again: these may have held sessions together.
        return Folded(left_out=failures, rejected=rejected)
    if not active.all():
        # An aggregate folds all sessions; those without events stay as they're stored.
        columns = [column.filter(pa.array(active)) for column in columns]
    return Folded(columns)


def _too_large(plan: Plan, error: SumTooLargeError) -> Failure:
    """Return the failure of sessions whose sums don't fit, or raise it."""
    bound = error.bound
    key = decode_keys(plan.spec, plan.keys_of(error.sessions).slice(0, 1))[0]
    text = f"`{bound.name}`, `{bound.aggregate}`, does not fit {bound.type.arrow} for {key!r}"
    hint = "sum a float or a Decimal column, or count such events as failed with on_error='reject'"
    message = with_hint(text, hint)
    if plan.spec.on_error == "raise":
        raise StateValueError(message) from error
    return Failure(f"`{bound.name}`, `{bound.aggregate}`, would not fit its type")


def finish_by_aggregates(spec: AnySessionSpec, sessions: pa.Table, _: Tell) -> Finished:
    return Finished(results_by_aggregates(spec, sessions), range(sessions.num_rows))
