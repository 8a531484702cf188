"""
Events whose ids were processed already: `drop_duplicates_for`.

    events     each.ids   the id of an event: a hash of 16 bytes
    sessions   ids        the ids of its events
               exists     whether it's a session

When a session closes, its row may stay without it, to remember the ids for some more time. Then
`exists` is false, the state is null, and `start`, `end` and `closes` are when it's forgotten.

Two different events of a key share a hash by chance with a probability of 1 in 2**128; n events of
a key have a pair that does with one of less than n**2 in 2**129.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import Mask, micros, whole
from sessionkit._engine.boundaries import is_over
from sessionkit._engine.rows.encoding import ID, event_digests
from sessionkit._engine.rows.order import in_total_order, key_numbers
from sessionkit._engine.rows.table import (
    Rejected,
    filled,
    has_state,
    instants,
    key_columns,
    split,
    with_column,
)
from sessionkit._engine.sessions.intervals import WindowedEvents
from sessionkit._engine.sessions.plan import Plan
from sessionkit._instants import span_us
from sessionkit.spec.session import AnySessionSpec

IDS: Final = pa.field("ids", pa.list_(ID))
EXISTS: Final = pa.field("exists", pa.bool_())
INSTANTS: Final = ("start", "end", "closes")
REASON: Final = "an event with its event_id was processed already"


@attrs.frozen(eq=False)
class Duplicates:
    """How a spec drops duplicates; ids are remembered for so many microseconds after a session."""

    spec: AnySessionSpec
    remembered_us: int
    fields: Sequence[pa.Field] = (IDS, EXISTS)

    @classmethod
    def of(cls, spec: AnySessionSpec) -> "Duplicates | None":
        span = spec.inputs.drop_duplicates_for
        return None if span is None else cls(spec, span_us(span))

    @property
    def identity(self) -> dict[str, Any]:
        return {"drop_duplicates_for_us": self.remembered_us, "event_id": self.spec.inputs.event_id}

    def read(self, events: pa.Table) -> pa.Table:
        return events.append_column("each.ids", pa.array(event_digests(self.spec, events), ID))

    def distinct(
        self, sessions: pa.Table, events: WindowedEvents
    ) -> tuple[WindowedEvents, WindowedEvents, list[Rejected]]:
        """Return events that are new, those with an id that came before, and why these are out."""
        if not len(events.starts):
            return events, events, []
        repeated = _repeated(sessions, events, self.spec.sequence)
        rejected = repeats(events.table, repeated)
        return events.only(~repeated), events.only(repeated), rejected

    def are_copied(
        self, plan: Plan, gone: Collection[int], repeated: WindowedEvents | None
    ) -> bool:
        """Return whether one of the events at some places has a copy among those that repeat."""
        if not gone or repeated is None:
            return False
        names = _names(plan.events.table.take(pa.array(list(gone), pa.int64())))
        return not names.isdisjoint(_names(repeated.table))

    def columns(self, plan: Plan, chosen: Mask) -> list[pa.Array]:
        return [plan.lists_of("ids", chosen), pa.repeat(pa.scalar(value=True), int(chosen.sum()))]

    def remembered(self, over: pa.Table, watermark_us: int) -> pa.Table:
        """
        Return rows that remember the ids of sessions that are over, as long as the spec says.

        That counts from the end of their gap, also where a rule has cut them before.
        """
        until = micros(over["end"]) + self.remembered_us
        over, until = over.filter(pa.array(stays := ~is_over(until, watermark_us))), until[stays]
        kept = {name: over[name] for name in over.column_names if name.startswith("key.")}
        kept |= {"ids": over["ids"], "exists": pa.repeat(pa.scalar(value=False), over.num_rows)}
        kept |= dict.fromkeys(INSTANTS, instants(until))
        return filled(over.schema, kept, over.num_rows)

    def obstacles(self, old: AnySessionSpec) -> list[str]:
        """Report that the ids stored under another spec have another meaning."""
        before, now = old.inputs.event_id, self.spec.inputs.event_id
        if old.inputs.drop_duplicates_for is None or before == now:
            return []
        was, own = (None if ids is None else list(ids) for ids in (before, now))
        return [f"`event_id` was {was}, and is {own}: stored ids mean something else"]

    def migrated(self, sessions: pa.Table) -> pa.Table:
        if "ids" in sessions.column_names:
            return sessions
        none = pa.array([[]] * sessions.num_rows, IDS.type)
        sessions = with_column(sessions, IDS, none)
        return with_column(sessions, EXISTS, pa.array(has_state(sessions)))


def repeats(events: pa.Table, chosen: Mask) -> list[Rejected]:
    """Return the chosen events as ones whose ids came before."""
    return Rejected.chosen("duplicate", REASON, events, chosen)


def forget_ids(sessions: pa.Table) -> pa.Table:
    """Return sessions without the rows that only remember ids."""
    return split(sessions, has_state(sessions))[0]


def _names(events: pa.Table) -> set[tuple[Any, ...]]:
    """Return the key and the id of each event."""
    columns = [*key_columns(events), events["each.ids"]]
    return set(zip(*(column.to_pylist() for column in columns), strict=True))


def _repeated(sessions: pa.Table, events: WindowedEvents, sequence: str | None) -> Mask:
    """Mark the events whose key and id come before them, in what is stored or among them."""
    numbers, found = key_numbers(key_columns(events.table), key_columns(sessions))
    stored = whole(sessions["ids"]).filter(pa.array(found >= 0))
    keys = np.concatenate([found[found >= 0][pc.list_parent_indices(stored)], numbers])
    ids = _words(pa.concat_arrays([stored.flatten(), whole(events.table["each.ids"])]))
    first_event = len(keys) - len(numbers)
    turns = np.zeros(len(keys), np.int64)
    in_turn = in_total_order(numbers, events.starts, events.table, 0, sequence)
    turns[first_event + in_turn] = 1 + np.arange(len(numbers))
    order = np.lexsort((turns, *ids, keys))
    same = np.all([np.diff(column[order]) == 0 for column in (*ids, keys)], axis=0)
    repeated = np.zeros(len(keys), np.bool_)
    repeated[order[1:]] = same
    return repeated[first_event:]


def _words(ids: pa.Array) -> npt.NDArray[np.uint64]:
    """Return the two halves of each id, as numbers."""
    words = np.frombuffer(ids.buffers()[1], np.uint64)[2 * ids.offset :]
    return words[: 2 * len(ids)].reshape(-1, 2).T
