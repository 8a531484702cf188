"""
The tables of a group: stored rows and rejected rows.

A group stores its open sessions or keys, and memories of forgotten sessions.

    exists              whether a row is a session; without this column, all rows are
    closed              whether a session is over, and only waits for late events; without this
                        column, none is
    last_event          when its last event was; without this column, its end less the gap
    salt                the salt of its id, or 0: see `rows.ids`
    start, end, closes  for a memory: when the row itself is forgotten

A memory holds the ids of events, or the history, of a key's forgotten sessions. All its other
columns but the key are null.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import INSTANT, Mask, Numbers, filled, instants, whole
from sessionkit.spec.functions import Failure

SALT: Final = pa.field("salt", pa.int64())
EXISTS: Final = pa.field("exists", pa.bool_())
CLOSED: Final = pa.field("closed", pa.bool_())
LAST_EVENT: Final = pa.field("last_event", INSTANT)
INSTANTS: Final = ("start", "end", "closes")


def has_state(rows: pa.Table) -> Mask:
    """Mark the rows of sessions and keys; memories have no state."""
    if "exists" not in rows.schema.names:
        return np.ones(rows.num_rows, np.bool_)
    mask: Mask = whole(rows["exists"]).to_numpy(zero_copy_only=False)
    return mask


def memories_until(
    sessions: pa.Table, until: Numbers, remembered: Mapping[str, pa.Array]
) -> pa.Table:
    """Return memories of sessions that last until the given instants, in microseconds."""
    keys = {name: sessions[name] for name in sessions.column_names if name.startswith("key.")}
    exists = {EXISTS.name: pa.repeat(pa.scalar(value=False), sessions.num_rows)}
    # All three instants are the same, so code that asks when any row is over works for memories.
    times = dict.fromkeys(INSTANTS, instants(until))
    return filled(sessions.schema, {**keys, **exists, **times, **remembered}, sessions.num_rows)


def as_memories(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return memories that another spec stored, in the columns of `schema`."""
    stored = {
        field.name: rows[field.name]
        for field in schema
        if field.name in rows.column_names and rows[field.name].type == field.type
    }
    return filled(schema, stored | dict.fromkeys(INSTANTS, rows["end"]), rows.num_rows)


@attrs.frozen
class SideOutput:
    """
    Output rows that aren't results: rejected rows, erased keys, and the events of closed sessions.

    Attributes:
        kind: `late`, `duplicate`, `outside`, `quarantined` or `failed` for events, `failed_output`
            for a session or a timer whose function failed, `event` for an event of a closed
            session, `erased` for an erased key.
        reasons: The reason for each row; None for `event`.
        rows: The events or sessions. Keys, times and passthrough columns may be null here.
        tracebacks: The traceback of the function that raised, for each row; None without one.
    """

    kind: str
    reasons: Sequence[str | None]
    rows: pa.Table
    tracebacks: Sequence[str | None] | None = None

    @classmethod
    def chosen(cls, kind: str, reason: str, rows: pa.Table, mask: Mask) -> "list[SideOutput]":
        """Return the masked rows, all for the same reason; empty if there are none."""
        if not mask.any():
            return []
        chosen = rows.filter(pa.array(mask))
        return [cls(kind, [reason] * chosen.num_rows, chosen)]

    @classmethod
    def with_reasons(cls, kind: str, reasons: dict[int, str], rows: pa.Table) -> "list[SideOutput]":
        """Return the rows at the positions in `reasons`; empty if there are none."""
        if not reasons:
            return []
        places = sorted(reasons)
        return [cls(kind, [reasons[place] for place in places], rows.take(places))]

    @classmethod
    def with_failures(
        cls, kind: str, failures: Mapping[int, Failure], rows: pa.Table
    ) -> "list[SideOutput]":
        """Return the rows at the positions in `failures`; empty if there are none."""
        if not failures:
            return []
        places = sorted(failures)
        reasons = [failures[place].reason for place in places]
        tracebacks = [failures[place].traceback for place in places]
        return [cls(kind, reasons, rows.take(places), tracebacks)]
