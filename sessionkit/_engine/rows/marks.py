"""
The marks of sessions (see `sessions.behind`): in memory a column, and stored only where one is.

    sessions   behind          the mark of each; 0 for none
    stored     place, behind   those that have one, by their places in the table of sessions
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.table import whole

__all__ = ["BEHIND", "MARKS", "joined_marks", "marked", "marks_of", "stored_marks", "unmarked"]

Numbers: TypeAlias = npt.NDArray[np.int64]

BEHIND: Final = pa.field("behind", pa.int64())
MARKS: Final = pa.schema([pa.field("place", pa.int32()), BEHIND])


def marks_of(sessions: pa.Table) -> Numbers:
    """Return the marks of sessions; 0 for what only remembers the ids of one."""
    found: Numbers = whole(sessions[BEHIND.name]).fill_null(0).to_numpy()
    return found


def unmarked(rows: pa.Table) -> tuple[pa.Table, Numbers]:
    """Return rows without their marks, and these."""
    if BEHIND.name not in rows.column_names:
        return rows, np.zeros(rows.num_rows, np.int64)
    return rows.drop_columns(BEHIND.name), marks_of(rows)


def stored_marks(marks: Numbers) -> pa.Table:
    """Return what is stored of the marks of some rows."""
    places = np.flatnonzero(marks)
    columns = [pa.array(places, pa.int32()), pa.array(marks[places])]
    return pa.Table.from_arrays(columns, schema=MARKS)


def joined_marks(parts: Sequence[tuple[int, Sequence[pa.RecordBatch]]]) -> pa.Table:
    """Return the stored marks of parts one after the other: how many rows each has, and its own."""
    before, found = 0, [MARKS.empty_table()]
    for number, batches in parts:
        for batch in batches:
            places = pa.array(batch["place"].to_numpy() + before, pa.int32())
            found.append(pa.Table.from_arrays([places, batch[BEHIND.name]], schema=MARKS))
        before += number
    return pa.concat_tables(found)


def marked(rows: pa.Table, schema: pa.Schema, stored: pa.Table | None = None) -> pa.Table:
    """
    Return stored rows with the marks that a schema has, in memory.

    Args:
        rows: The rows, with or without marks.
        schema: The schema of what is remembered.
        stored: The marks that were stored with them.
    """
    if BEHIND.name not in schema.names or BEHIND.name in rows.column_names:
        return rows
    marks = np.zeros(rows.num_rows, np.int64)
    if stored is not None:
        marks[stored["place"].to_numpy()] = stored[BEHIND.name].to_numpy()
    return rows.append_column(BEHIND, pa.array(marks))
