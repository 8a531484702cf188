"""
How events become states, and states results: by functions, by aggregates, or one row for each.

A session with a row for each event holds its events until it's over.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import lists_of, micros, whole
from sessionkit._engine.rows.objects import build_events, conditions_met, decode_keys, decode_states
from sessionkit._engine.rows.order import in_total_order
from sessionkit._engine.rows.tables import Rejected
from sessionkit._engine.sessions.by_functions import finish_by_functions, fold_by_functions
from sessionkit._engine.sessions.careful_fold import SessionFold
from sessionkit._engine.sessions.feature import Finish, Finished, Tell
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
    How events become states, and states results. Every fold groups events alike.

    Attributes:
        kind: What the identity of a spec calls it.
        fields: The fields of the state as they're stored.
        fold: Makes the states of a plan.
        finish: Makes the results of the rows of sessions.
        states: Returns the states of open sessions as objects.
        columns: Returns them as columns.
        refuse_first: Returns late events, without those that their class refuses: these are
            quarantined.
    """

    kind: str
    fields: Sequence[Field]
    fold: Callable[[Plan], Folded]
    finish: Finish
    states: Callable[[pa.Table], list[Any]]
    columns: Callable[[pa.Table], list[pa.Array]]
    refuse_first: Callable[[Rejected], list[Rejected]]


def fold_of(spec: AnySessionSpec) -> Fold:
    match spec.logic:
        case Functions():
            return Fold(
                kind="session",
                fields=codec_of(spec.state).type.fields,
                fold=partial(fold_by_functions, SessionFold.of(spec)),
                finish=finish_by_functions,
                states=partial(decode_states, spec.state),
                columns=_stored,
                refuse_first=partial(_refused_first, spec),
            )
        case Aggregates():
            return Fold(
                kind="session of aggregates",
                fields=stored_fields(spec),
                fold=fold_by_aggregates,
                finish=finish_by_aggregates,
                states=partial(states_by_aggregates, spec),
                columns=partial(results_by_aggregates, spec),
                refuse_first=_as_they_are,
            )
        case _:
            return Fold(
                kind="session of events",
                fields=codec_of(spec.state).type.fields,
                fold=fold_per_event,
                finish=finish_per_event,
                states=partial(decode_states, spec.state),
                columns=_stored,
                refuse_first=_as_they_are,
            )


def _stored(sessions: pa.Table) -> list[pa.Array]:
    return [sessions[name] for name in sessions.column_names if name.startswith("state.")]


def _as_they_are(late: Rejected) -> list[Rejected]:
    return [late]


def _refused_first(spec: AnySessionSpec, late: Rejected) -> list[Rejected]:
    _, refused = build_events(spec, late.rows)
    if not refused:
        return [late]
    late_places = [place for place in range(late.rows.num_rows) if place not in refused]
    reasons = [late.reasons[place] for place in late_places]
    return [
        *Rejected.with_reasons("quarantined", refused, late.rows),
        Rejected("late", reasons, late.rows.take(pa.array(late_places, pa.int64()))),
    ]


COLUMN = f"state.{HELD}"


def fold_per_event(plan: Plan) -> Folded:
    return Folded(plan, plan.active, [_held(plan).filter(pa.array(plan.active))])


def _held(plan: Plan) -> pa.ListArray:
    """Return the stored events of each session, in their order."""
    before, came = whole(plan.touched[COLUMN]), _came(plan)
    # The session of each open one, and of each event; then of each event that one already holds.
    of_stored, of_event = np.split(plan.owners, [len(before)])
    events = pa.concat_arrays([before.flatten(), came])
    owners = np.concatenate([of_stored[pc.list_parent_indices(before).to_numpy()], of_event])
    content = pa.table(events.flatten(), [f"event.{field.name}" for field in events.type])
    times = micros(events.field(plan.spec.event_time))
    # Sessions 0 1 0 of events at 30, 20, 10 have the order 2 0 1: session by session, by time.
    order = in_total_order(owners, times, content, 0, plan.spec.sequence)
    # Their sizes are 2 and 1.
    sizes = np.bincount(owners, minlength=len(plan.counts))
    return lists_of(events.take(pa.array(order)), sizes)


def _came(plan: Plan) -> pa.StructArray:
    """Return the events that arrived as they are stored."""
    kind = plan.touched.schema.field(COLUMN).type.value_type
    table, names = plan.events.table, set(codec_of(plan.spec.event).schema.names)
    parts = [table[f"event.{one.name}" if one.name in names else "time"] for one in kind]
    return pa.StructArray.from_arrays([whole(part) for part in parts], fields=list(kind))


def finish_per_event(spec: AnySessionSpec, given: pa.Table, _: Tell) -> Finished:
    """Return a row for each event of the sessions."""
    lists = whole(given[COLUMN])
    sizes, events = pc.list_value_length(lists).to_numpy(), lists.flatten()
    # Of two sessions with 2 and 1 events, the first are at [0, 2], and the numbers [1, 2, 1].
    first = np.cumsum(sizes) - sizes
    numbers = pa.array(1 + np.arange(len(events)) - np.repeat(first, sizes))
    columns = [
        numbers if field.name == NUMBER else events.field(field.name)
        for field in codec_of(spec.result).type.fields
    ]
    return Finished(columns, np.repeat(np.arange(len(sizes)), sizes))


def stored_fields(spec: AnySessionSpec) -> Sequence[Field]:
    return [field for bound in spec.bound for field in bound.stored]


def results_by_aggregates(spec: AnySessionSpec, sessions: pa.Table) -> list[pa.Array]:
    """Return the columns of the results, in the order of the fields of their class."""
    results = {bound.name: bound.result(sessions) for bound in spec.bound}
    names = map(attrgetter("name"), codec_of(spec.result).type.fields)
    return list(map(results.__getitem__, names))


def fold_by_aggregates(plan: Plan) -> Folded:
    """Fold the sessions of a plan that have events."""
    spec, events, unions, active = plan.spec, plan.events, plan.unions, plan.active
    if not active.any():
        none = [pa.array([], field.type.arrow) for field in stored_fields(spec)]
        return Folded(plan, active, none)
    met: Mapping[Condition, pa.Array] = {}
    if asked := spec.conditions:
        met = dict(zip(asked, conditions_met(spec, events.table, asked.values()), strict=True))
    rows = EventRows(
        plan.touched, events.table, events.starts, plan.order, unions.first, unions.sizes, met
    )
    columns = list[pa.Array]()
    try:
        for bound in spec.bound:
            columns += bound.fold(rows)
    except SumTooLargeError as error:
        failed = plan.places_of(error.sessions).tolist()
        failures = dict.fromkeys(failed, _too_large(plan, error))
        rejected = Rejected.with_failures("failed", failures, events.table)
        # A plan without these events is made again: they may have held sessions together.
        return Folded(None, active, [], rejected, failures)
    if not active.all():
        # An aggregate folds all sessions; those without events stay as they're stored.
        columns = [column.filter(pa.array(active)) for column in columns]
    return Folded(plan, active, columns)


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
