"""Sessions with a row for each event: a session holds its events until it is over."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import lists_of, micros, whole
from sessionkit._engine.rows.order import in_total_order
from sessionkit._engine.sessions.close import result_rows
from sessionkit._engine.sessions.ids import ids_of
from sessionkit._engine.sessions.plan import Closed, Folded, Plan
from sessionkit._engine.sessions.program import Program
from sessionkit.spec.logic import HELD, NUMBER
from sessionkit.state._codec import codec_of

COLUMN = f"state.{HELD}"


def fold_per_event(program: Program, plan: Plan) -> Folded:
    held = _held(plan).filter(pa.array(plan.active))
    sessions = program.sessions_after(plan, plan.active, [held])
    return Folded(sessions, len(plan.events.starts), [])


def _held(plan: Plan) -> pa.ListArray:
    """Return the stored events of each session, in their order."""
    before, came = whole(plan.touched[COLUMN]), _came(plan)
    of_stored, of_event = np.split(plan.owners, [len(before)])
    held = pa.concat_arrays([before.flatten(), came])
    owners = np.concatenate([of_stored[pc.list_parent_indices(before).to_numpy()], of_event])
    content = pa.table(held.flatten(), [f"event.{field.name}" for field in held.type])
    times = micros(held.field(plan.spec.event_time))
    order = in_total_order(owners, times, content, 0, plan.spec.sequence)
    sizes = np.bincount(owners, minlength=len(plan.counts))
    return lists_of(held.take(pa.array(order)), sizes)


def _came(plan: Plan) -> pa.StructArray:
    """Return the events that arrived as they are stored."""
    kind = plan.touched.schema.field(COLUMN).type.value_type
    table, names = plan.events.table, set(codec_of(plan.spec.event).schema.names)
    parts = [table[f"event.{one.name}" if one.name in names else "time"] for one in kind]
    return pa.StructArray.from_arrays([whole(part) for part in parts], fields=list(kind))


def close_per_event(program: Program, over: pa.Table) -> Closed:
    """Return a row for each event of the sessions that are over."""
    lists = whole(over[COLUMN])
    sizes, held = pc.list_value_length(lists).to_numpy(), lists.flatten()
    first = np.cumsum(sizes) - sizes
    numbers = pa.array(1 + np.arange(len(held)) - np.repeat(first, sizes))
    places = np.repeat(np.arange(len(sizes)), sizes)
    columns = [
        numbers if field.name == NUMBER else held.field(field.name)
        for field in codec_of(program.spec.result).type.fields
    ]
    rows = result_rows(program, over, ids_of(over), places, columns)
    return Closed(rows, [], over.num_rows, places)
