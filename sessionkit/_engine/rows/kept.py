"""
The rows that a group keeps: its open sessions or keys, and what it remembers of others.

    exists              whether a row is a session; without the column, each is
    closed              whether a session is over, and only waits for late events
    behind              the salt of its id, or 0: see `sessions.ids`
    start, end, closes  of a row that isn't a session: when it's forgotten itself

A row that isn't a session remembers forgotten ones, by the ids of their events or by their key's
history. It has nothing else but its key; its state is null.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from sessionkit._arrays import Mask, Numbers, filled, instants, numbers_in, whole

SALT: Final = pa.field("behind", pa.int64())
EXISTS: Final = pa.field("exists", pa.bool_())
INSTANTS: Final = ("start", "end", "closes")


def has_state(rows: pa.Table) -> Mask:
    """Mark the rows with a state: those of sessions that are remembered as such, or of keys."""
    if "exists" not in rows.schema.names:
        return np.ones(rows.num_rows, np.bool_)
    mask: Mask = whole(rows["exists"]).to_numpy(zero_copy_only=False)
    return mask


def has_closed(sessions: pa.Table) -> Mask:
    """Mark the sessions that are over, and only wait for late events."""
    if "closed" not in sessions.schema.names:
        return np.zeros(sessions.num_rows, np.bool_)
    closed = whole(sessions["closed"])
    if closed.null_count:
        closed = closed.fill_null(fill_value=False)
    mask: Mask = closed.to_numpy(zero_copy_only=False)
    return mask


def salts_of(sessions: pa.Table) -> Numbers:
    """Return the salts of sessions; 0 for rows that only remember ids."""
    return numbers_in(sessions, SALT.name)


def without_salts(rows: pa.Table) -> tuple[pa.Table, Numbers]:
    """Return rows without their salts, and these."""
    place = rows.schema.get_field_index(SALT.name)
    if place < 0:
        return rows, np.zeros(rows.num_rows, np.int64)
    return rows.remove_column(place), salts_of(rows)


def memories_until(
    sessions: pa.Table, until: Numbers, remembered: Mapping[str, pa.Array]
) -> pa.Table:
    """Return rows that remember sessions until some instants, in microseconds."""
    keys = {name: sessions[name] for name in sessions.column_names if name.startswith("key.")}
    own = {EXISTS.name: pa.repeat(pa.scalar(value=False), sessions.num_rows)}
    # All three instants are one, so that whatever asks when a session is over finds it.
    times = dict.fromkeys(INSTANTS, instants(until))
    return filled(sessions.schema, {**keys, **own, **times, **remembered}, sessions.num_rows)


def as_memories(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of another spec that remember sessions, with the columns of this one."""
    stored = {
        field.name: rows[field.name]
        for field in schema
        if field.name in rows.column_names and rows[field.name].type == field.type
    }
    return filled(schema, stored | dict.fromkeys(INSTANTS, rows["end"]), rows.num_rows)
