"""
The tables of a group: the rows that it keeps, and the rows that aren't results.

It keeps its open sessions or keys, and what it remembers of others.

    exists              whether a row is a session; without the column, each is
    closed              whether a session is over, and only waits for late events
    behind              the salt of its id, or 0: see `rows.ids`
    start, end, closes  of a row that isn't a session: when it's forgotten itself

A row that isn't a session remembers forgotten ones, by the ids of their events or by their key's
history. It has nothing else but its key; its state is null.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Mask, Numbers, filled, instants, whole
from sessionkit.spec.functions import Failure

SALT: Final = pa.field("behind", pa.int64())
EXISTS: Final = pa.field("exists", pa.bool_())
INSTANTS: Final = ("start", "end", "closes")


def has_state(rows: pa.Table) -> Mask:
    """Mark the rows with a state: those of sessions that are remembered as such, or of keys."""
    if "exists" not in rows.schema.names:
        return np.ones(rows.num_rows, np.bool_)
    mask: Mask = whole(rows["exists"]).to_numpy(zero_copy_only=False)
    return mask


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


@attrs.frozen
class Rejected:
    """
    Rows of other kinds than results: those that became no part of one, and others.

    Attributes:
        kind: `late`, `duplicate`, `quarantined` or `failed` for events, `failed_output` for a
            session or a timer whose function failed, `event` for one of a closed session, `erased`
            for a key that was erased.
        reasons: Why, one for each row; None for `event`.
        rows: The events or sessions. Keys, times and carried columns of events may be null here.
        tracebacks: Of functions that raised, one for each row; None where no function did.
    """

    kind: str
    reasons: Sequence[str | None]
    rows: pa.Table
    tracebacks: Sequence[str | None] | None = None

    @classmethod
    def chosen(cls, kind: str, reason: str, rows: pa.Table, mask: Mask) -> "list[Rejected]":
        """Return the rows that a mask chooses, all for one reason; nothing where there is none."""
        if not mask.any():
            return []
        chosen = rows.filter(pa.array(mask))
        return [cls(kind, [reason] * chosen.num_rows, chosen)]

    @classmethod
    def with_reasons(cls, kind: str, reasons: dict[int, str], rows: pa.Table) -> "list[Rejected]":
        """Return the rows at some places, each for its reason; nothing where there is none."""
        if not reasons:
            return []
        places = sorted(reasons)
        return [cls(kind, [reasons[place] for place in places], rows.take(places))]

    @classmethod
    def with_failures(
        cls, kind: str, failures: Mapping[int, Failure], rows: pa.Table
    ) -> "list[Rejected]":
        """Return the rows at some places, each with why a function failed."""
        if not failures:
            return []
        places = sorted(failures)
        in_order = [failures[place] for place in places]
        reasons, tracebacks = [one.reason for one in in_order], [one.traceback for one in in_order]
        return [cls(kind, reasons, rows.take(places), tracebacks)]
