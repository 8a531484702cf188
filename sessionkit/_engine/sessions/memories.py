"""
Rows that remember sessions which are forgotten: the ids of their events, or their key's history.

    sessions   exists              whether a row is a session
               start, end, closes  of a row that isn't: when it's forgotten itself

Such a row has nothing else but its key and what it remembers; its state is null.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from sessionkit._arrays import Numbers
from sessionkit._engine.rows.table import filled, instants

EXISTS: Final = pa.field("exists", pa.bool_())
INSTANTS: Final = ("start", "end", "closes")


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
