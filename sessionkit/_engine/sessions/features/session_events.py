"""
The events of closed sessions, each with its session: `with_events=True`.

    events     each.held   the event as it arrived, without its key
    sessions   held        its events, in no order
"""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import Mask, micros, places_in, whole
from sessionkit._engine.rows.ids import ids_of
from sessionkit._engine.rows.order import in_total_order
from sessionkit._engine.rows.tables import SideOutput
from sessionkit._engine.sessions.feature import Closed, Emission, Feature
from sessionkit._engine.sessions.plan import Plan, WindowedEvents, cuts_of
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import forms_of


@attrs.frozen(eq=False)
class SessionEvents(Feature):
    """The events that a session keeps."""

    spec: AnySessionSpec
    kind: pa.StructType

    @classmethod
    def of(cls, spec: AnySessionSpec) -> "SessionEvents | None":
        if not spec.results.with_events:
            return None
        schema = spec.events_schema
        kind = pa.struct([field for field in schema if not field.name.startswith("key.")])
        return cls(spec, kind)

    @property
    def fields(self) -> Sequence[pa.Field]:
        return [pa.field("held", pa.list_(self.kind))]

    @property
    def identity(self) -> dict[str, Any]:
        fields = codec_of(self.spec.event).type.fields
        return {"held": forms_of([*fields, *self.spec.passthrough_fields])}

    def read(self, events: WindowedEvents) -> tuple[WindowedEvents, list[SideOutput]]:
        parts = [whole(events.table[part.name]) for part in self.kind]
        held = pa.StructArray.from_arrays(parts, fields=list(self.kind))
        return attrs.evolve(events, table=events.table.append_column("each.held", held)), []

    def columns(self, plan: Plan, chosen: Mask) -> list[pa.Array]:
        return [plan.lists_of("held", chosen)]

    def emitted(self, emission: Emission, closed: Closed) -> Closed:
        """Hand out the events of sessions in order, each with columns of its session."""
        sessions = emission.emitting
        lists = whole(sessions["held"])
        owners = pc.list_parent_indices(lists).to_numpy()
        events_held = pa.Table.from_arrays(
            lists.flatten().flatten(), schema=pa.schema(list(self.kind))
        )
        # Sessions 0 0 1 of events at 30, 10, 20 have the order 1 0 2.
        order = in_total_order(
            owners, micros(events_held["time"]), events_held, 0, self.spec.sequence
        )
        # For each event, its session: the rows 0 0 1 repeat the id of the first.
        of_events = pa.array(owners[order])
        facts = {name: sessions[name] for name in sessions.column_names if name.startswith("key.")}
        facts["session_id"] = pa.array(ids_of(sessions))
        if self.spec.rules is not None:
            facts["ended_by"] = cuts_of(self.spec).reasons(sessions)
        facts |= {name: sessions[name] for name in ("start", "end", "last_event")}
        # Of two sessions with 2 and 1 events: [1, 2, 1].
        sizes = np.bincount(owners, minlength=sessions.num_rows)
        numbers = 1 + places_in(sizes, owners[order])
        rows = {
            **{name: column.take(of_events) for name, column in facts.items()},
            **{name: events_held[name].take(pa.array(order)) for name in events_held.column_names},
            "number": pa.array(numbers),
        }
        events = SideOutput("event", [None] * len(order), pa.table(rows))
        return attrs.evolve(closed, others=[*closed.others, events])
