"""
Events whose ids were processed already: `drop_duplicates_for`.

    events     each.ids   the id of an event: a hash of 16 bytes
    sessions   ids        the ids of its events
               exists     whether the row is a session

When a session is forgotten, a memory may keep its ids for some more time.

Two different events of a key share a hash with a probability of 1 in 2**128. Among n events of a
key, some pair does with a probability below n**2 in 2**129.
"""

from collections.abc import Sequence
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import Mask, key_columns, micros, whole, with_column
from sessionkit._engine.boundaries import is_over
from sessionkit._engine.rows.ids import ID, event_digests
from sessionkit._engine.rows.order import key_numbers
from sessionkit._engine.rows.tables import EXISTS, SideOutput, memories_until
from sessionkit._engine.sessions.feature import Feature
from sessionkit._engine.sessions.plan import Members, Plan, Repeats, WindowedEvents
from sessionkit._instants import span_us
from sessionkit.spec.session import AnySessionSpec

IDS: Final = pa.field("ids", pa.list_(ID))


@attrs.frozen(eq=False)
class Duplicates(Feature):
    """The removal of duplicates; ids are remembered for `remembered_us` after their session."""

    spec: AnySessionSpec
    remembered_us: int

    @classmethod
    def of(cls, spec: AnySessionSpec) -> "Duplicates | None":
        span = spec.inputs.drop_duplicates_for
        return None if span is None else cls(spec, span_us(span))

    @property
    def fields(self) -> Sequence[pa.Field]:
        return IDS, EXISTS

    @property
    def identity(self) -> dict[str, Any]:
        return {"drop_duplicates_for_us": self.remembered_us, "event_id": self.spec.inputs.event_id}

    def read(self, events: WindowedEvents) -> tuple[WindowedEvents, list[SideOutput]]:
        digests = pa.array(event_digests(self.spec, events.table), ID)
        return attrs.evolve(events, table=events.table.append_column("each.ids", digests)), []

    def repeats(self, sessions: pa.Table, members: Members) -> Repeats | None:
        repeats = _repeats(sessions, members)
        return repeats if repeats.mask.any() else None

    def columns(self, plan: Plan, chosen: Mask) -> list[pa.Array]:
        return [plan.lists_of("ids", chosen), pa.repeat(pa.scalar(value=True), int(chosen.sum()))]

    def remembered(
        self, memories: pa.Table, kept: pa.Table, forgotten: pa.Table, watermark_us: int
    ) -> list[pa.Table]:
        """
        Return the rows that remember the ids of sessions.

        Their time counts from the end of the gap, also where a rule has cut the session.
        """
        until = micros(forgotten["end"]) + self.remembered_us
        before = memories.filter(pc.is_valid(memories["ids"]))
        waits = ~is_over(micros(before["end"]), watermark_us)
        new = memories_until(forgotten, until, {"ids": forgotten["ids"]})
        return [before.filter(pa.array(waits)), new.filter(pa.array(~is_over(until, watermark_us)))]

    def incompatibilities(self, old: AnySessionSpec) -> list[str]:
        """Report that stored ids are made of other fields."""
        before, now = old.inputs.event_id, self.spec.inputs.event_id
        if old.inputs.drop_duplicates_for is None or before == now:
            return []
        was, fields = (None if ids is None else list(ids) for ids in (before, now))
        return [f"`event_id` was {was}, and is {fields}: stored ids mean something else"]

    def migrated(self, sessions: pa.Table, old: AnySessionSpec) -> pa.Table:
        if "ids" in sessions.column_names:
            return sessions
        return with_column(sessions, IDS, pa.array([[]] * sessions.num_rows, IDS.type))


def _repeats(sessions: pa.Table, members: Members) -> Repeats:
    """Find the events whose key and id are stored, or belong to an event before them."""
    events, opened = members.events.table, len(members.rows)
    numbers, of_stored = key_numbers(key_columns(events), key_columns(sessions))
    concerned = of_stored >= 0
    stored = whole(sessions["ids"]).filter(pa.array(concerned))
    # Stored ids and the ids of events, each with the number of its key. Stored ids have the turn 0,
    # then events follow: by key, id and turn, an id that equals its predecessor is a repeat.
    keys = np.concatenate([of_stored[concerned][pc.list_parent_indices(stored)], numbers])
    words = _words(pa.concat_arrays([stored.flatten(), whole(events["each.ids"])]))
    first_event = len(keys) - len(numbers)
    turns = np.zeros(len(keys), np.int64)
    in_turn = members.order[members.order >= opened] - opened
    # Two stored ids, and events whose order is 1 0, have the turns 0 0 2 1.
    turns[first_event + in_turn] = 1 + np.arange(len(numbers))
    order = np.lexsort((turns, *words, keys))
    # With the keys 0 0 1 and the ids a a a in order: [False, True, False].
    same = np.zeros(len(keys), np.bool_)
    same[1:] = np.all([np.diff(column[order]) == 0 for column in (*words, keys)], axis=0)
    repeated, ids = np.zeros(len(keys), np.bool_), np.zeros(len(keys), np.int64)
    repeated[order], ids[order] = same, np.cumsum(~same)
    is_stored = np.isin(ids[first_event:], ids[:first_event])
    return Repeats(repeated[first_event:], ids[first_event:], is_stored)


def _words(ids: pa.Array) -> npt.NDArray[np.uint64]:
    """Return the halves of each id as numbers, since NumPy has no integers of 16 bytes."""
    # Three ids are six words, as two rows of three.
    words = np.frombuffer(ids.buffers()[1], np.uint64)[2 * ids.offset :]
    return words[: 2 * len(ids)].reshape(-1, 2).T
