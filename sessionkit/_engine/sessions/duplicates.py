"""
Events whose ids were processed already, and what is stored to tell.

    sessions   ids      by what its events are known: a hash of 16 bytes each; see `gathered`
               exists   whether it's open

When a session closes, its row may stay without it, to remember the ids for some more time. Then
`exists` is false, the state is null, and `start`, `end` and `closes` are when it's forgotten.

Two different events of a key share a hash by chance with a probability of 1 in 2**128; n events of
a key have a pair that does with one of less than n**2 in 2**129.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.rows.marks import has_state, is_trace
from sessionkit._engine.rows.order import in_total_order, key_numbers
from sessionkit._engine.rows.table import (
    Rejected,
    filled,
    instants,
    key_columns,
    micros,
    parted,
    whole,
)
from sessionkit._engine.sessions.events import WindowedEvents
from sessionkit._engine.sessions.gathered import gathered_fields
from sessionkit._engine.sessions.ruled import with_column
from sessionkit._instants import span_us
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts import is_over

__all__ = [
    "Distinct",
    "all_open",
    "closed_ids",
    "distinct",
    "ids_identity",
    "ids_schema",
    "left_with_copies",
    "open_only",
    "under_ids",
]

Mask: TypeAlias = npt.NDArray[np.bool_]

EXISTS: Final = pa.field("exists", pa.bool_())
INSTANTS: Final = ("start", "end", "closes")
REASON: Final = "an event with its event_id was processed already"


def ids_schema(spec: AnySessionSpec) -> list[pa.Field]:
    """Return what is stored of a session to find duplicates."""
    return [] if spec.drop_duplicates_for is None else [EXISTS]


def ids_identity(spec: AnySessionSpec) -> dict[str, Any]:
    """Return what must not change while a checkpoint lives."""
    if spec.drop_duplicates_for is None:
        return {}
    return {"drop_duplicates_for_us": span_us(spec.drop_duplicates_for), "event_id": spec.event_id}


@attrs.frozen
class Distinct:
    """
    The events of a micro-batch, told apart by their ids.

    Attributes:
        first: Those that may be processed: of several with one id, the first by time and content.
        others: Those that are duplicates of these, or of what was processed before.
    """

    first: WindowedEvents
    others: WindowedEvents

    @property
    def rejected(self) -> list[Rejected]:
        """The duplicates."""
        number = self.others.table.num_rows
        return [Rejected("duplicate", [REASON] * number, self.others.table)] if number else []


def distinct(sessions: pa.Table, events: WindowedEvents) -> Distinct:
    """Tell events apart, beside what sessions and rows of closed ones have processed."""
    if "ids" not in sessions.column_names or not len(events.starts):
        nothing = WindowedEvents(events.table.slice(0, 0), events.starts[:0], events.ends[:0])
        return Distinct(events, nothing)
    is_first = ~_repeated(sessions, events)
    return Distinct(events.only(is_first), events.only(~is_first))


def left_with_copies(found: Distinct, failed: Sequence[Rejected]) -> WindowedEvents | None:
    """
    Return the events but those that failed, if one of these has a copy; None if none has.

    Args:
        found: The events, told apart by their ids.
        failed: Those that failed.
    """
    if not failed or not len(found.others.starts):
        return None
    tables = [part.rows for part in failed]
    known = {one for table in tables for one in _names(table)}
    if known.isdisjoint(_names(found.others.table)):
        return None
    good = np.array([one not in known for one in _names(found.first.table)], np.bool_)
    return found.first.only(good).joined(found.others)


def _names(events: pa.Table) -> list[tuple[Any, ...]]:
    """Return the key and the id of each event."""
    columns = [*key_columns(events), events["each.ids"]]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def _repeated(sessions: pa.Table, events: WindowedEvents) -> Mask:
    """Mark the events whose key and id come before them, in what is stored or among them."""
    numbers, found = key_numbers(key_columns(events.table), key_columns(sessions))
    stored = whole(sessions["ids"]).filter(pa.array(found >= 0))
    keys = np.concatenate([found[found >= 0][pc.list_parent_indices(stored)], numbers])
    ids = _words(pa.concat_arrays([stored.flatten(), whole(events.table["each.ids"])]))
    first_event = len(keys) - len(numbers)
    turns = np.zeros(len(keys), np.int64)
    in_turn = in_total_order(numbers, events.starts, events.table, 0)
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


def open_only(sessions: pa.Table) -> pa.Table:
    """Return the open sessions, without what remembers others."""
    return parted(sessions, has_state(sessions))[0]


def all_open(spec: AnySessionSpec, number: int) -> list[pa.Array]:
    """Return what says of so many sessions that they are open; nothing where none are marked."""
    if spec.drop_duplicates_for is None:
        return []
    return [pa.repeat(pa.scalar(value=True), number)]


def closed_ids(spec: AnySessionSpec, over: pa.Table, watermark_us: int) -> pa.Table:
    """
    Return rows that remember the ids of sessions that are over, for as long as the spec says.

    That counts from their end, the last event plus the gap, also where a rule has cut them before.
    """
    if spec.drop_duplicates_for is None or not over.num_rows:
        return over.slice(0, 0)
    until = micros(over["end"]) + span_us(spec.drop_duplicates_for)
    remembered = ~is_over(until, watermark_us)
    if not remembered.any():
        return over.slice(0, 0)
    over, until = over.filter(pa.array(remembered)), until[remembered]
    kept = {name: over[name] for name in over.column_names if name.startswith("key.")}
    kept |= {"ids": over["ids"], "exists": pa.repeat(pa.scalar(value=False), over.num_rows)}
    kept |= dict.fromkeys(INSTANTS, instants(until))
    return filled(over.schema, kept, over.num_rows)


def under_ids(spec: AnySessionSpec, sessions: pa.Table) -> pa.Table:
    """Return sessions of another spec with what is stored for the duplicates of this one."""
    if spec.drop_duplicates_for is None:
        return parted(sessions, has_state(sessions) | is_trace(sessions))[0]
    if "ids" not in sessions.column_names:
        number = sessions.num_rows
        (ids, *_) = gathered_fields(spec)
        sessions = with_column(sessions, ids, pa.array([[]] * number, ids.type))
        sessions = with_column(sessions, EXISTS, pa.array(has_state(sessions)))
    return sessions
