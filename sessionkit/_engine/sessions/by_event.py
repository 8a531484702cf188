"""Sessions with a row for each event: a session holds its events until it is over."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import lists_of, micros, whole
from sessionkit._engine.rows.order import in_total_order
from sessionkit._engine.sessions.emission import Finished, Tell
from sessionkit._engine.sessions.plan import Folded, Plan
from sessionkit.spec.logic import HELD, NUMBER
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of

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
    order = in_total_order(owners, times, content, 0, plan.spec.sequence)
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
