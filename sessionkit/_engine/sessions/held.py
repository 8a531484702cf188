"""The events of sessions that are over, each with its session, where `per="both"` asks for them."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.rows.order import in_total_order
from sessionkit._engine.rows.table import Rejected, micros, whole
from sessionkit._engine.sessions.close import ids_of
from sessionkit._engine.sessions.ruled import reasons_of
from sessionkit.spec.session import AnySessionSpec

__all__ = ["held_events"]


def held_events(spec: AnySessionSpec, over: pa.Table) -> list[Rejected]:
    """Return the events of sessions that are over, by session, time and content."""
    if spec.per != "both" or not over.num_rows:
        return []
    lists = whole(over["held"])
    owners = pc.list_parent_indices(lists).to_numpy()
    held = pa.Table.from_arrays(
        lists.flatten().flatten(), schema=pa.schema(list(lists.type.value_type))
    )
    order = in_total_order(owners, micros(held["time"]), held, 0)
    places = pa.array(owners[order])
    own = {name: over[name] for name in over.column_names if name.startswith("key.")}
    own |= {"session_id": pa.array(ids_of(over)), "start": over["start"], "end": over["end"]}
    own |= {} if spec.rules is None else {"ended_by": reasons_of(over)}
    sizes = np.bincount(owners, minlength=over.num_rows)
    numbers = 1 + np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows = {
        **{name: column.take(places) for name, column in own.items()},
        **{name: held[name].take(pa.array(order)) for name in held.column_names},
        "number": pa.array(numbers),
    }
    return [Rejected("event", [None] * len(order), pa.table(rows))]
