"""
The events of closed sessions, each with its session: `with_events=True`.

    events     each.held   the event as it came, without its key
    sessions   held        its events, in no order
"""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import Mask, micros, whole
from sessionkit._engine.rows.order import in_total_order
from sessionkit._engine.rows.table import Rejected, events_schema
from sessionkit._engine.sessions.plan import Plan
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import forms_of


@attrs.frozen(eq=False)
class SessionEvents:
    """What a session keeps of its events."""

    spec: AnySessionSpec
    fields: Sequence[pa.Field]

    @classmethod
    def of(cls, spec: AnySessionSpec) -> "SessionEvents | None":
        if not spec.results.with_events:
            return None
        kind = pa.struct([one for one in events_schema(spec) if not one.name.startswith("key.")])
        return cls(spec, [pa.field("held", pa.list_(kind))])

    @property
    def identity(self) -> dict[str, Any]:
        fields = codec_of(self.spec.event).type.fields
        return {"held": forms_of([*fields, *self.spec.passthrough_fields])}

    def read(self, events: pa.Table) -> pa.Table:
        """Return events with what is kept of each."""
        kind = self.fields[0].type.value_type
        parts = [whole(events[part.name]) for part in kind]
        return events.append_column(
            "each.held", pa.StructArray.from_arrays(parts, fields=list(kind))
        )

    def columns(self, plan: Plan, chosen: Mask) -> list[pa.Array]:
        return [plan.lists_of("held", chosen)]

    def of_closed(self, over: pa.Table, facts: dict[str, Any]) -> list[Rejected]:
        """Return the events of sessions that are over, each session in order, with facts."""
        if not over.num_rows:
            return []
        lists = whole(over["held"])
        owners = pc.list_parent_indices(lists).to_numpy()
        held = pa.Table.from_arrays(
            lists.flatten().flatten(), schema=pa.schema(list(lists.type.value_type))
        )
        order = in_total_order(owners, micros(held["time"]), held, 0, self.spec.sequence)
        places = pa.array(owners[order])
        own = {name: over[name] for name in over.column_names if name.startswith("key.")}
        own |= {**facts, "start": over["start"], "end": over["end"]}
        sizes = np.bincount(owners, minlength=over.num_rows)
        numbers = 1 + np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows = {
            **{name: column.take(places) for name, column in own.items()},
            **{name: held[name].take(pa.array(order)) for name in held.column_names},
            "number": pa.array(numbers),
        }
        return [Rejected("event", [None] * len(order), pa.table(rows))]
