"""
The marks of sessions (see `sessions.behind`): in memory a column, and stored only where one is.

    sessions   behind          the mark of each; 0 for none; negative for the trace of a dropped one
    stored     place, behind   those that have one, by their places in the table of sessions; in
                               pages as plain bytes, which cost less than a table
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.table import whole

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

BEHIND: Final = pa.field("behind", pa.int64())
MARKS: Final = pa.schema([pa.field("place", pa.int32()), BEHIND])
PLAIN: Final = np.dtype([("place", "<u4"), ("behind", "<i8")])


def marks_of(sessions: pa.Table) -> Numbers:
    """Return the marks of sessions; 0 for what only remembers the ids of one."""
    column = whole(sessions[BEHIND.name])
    found: Numbers = (column.fill_null(0) if column.null_count else column).to_numpy()
    return found


def is_trace(sessions: pa.Table) -> Mask:
    """Mark what only remembers that a session was dropped."""
    mask: Mask = marks_of(sessions) < 0
    return mask


def has_state(rows: pa.Table) -> Mask:
    """Mark the rows with a state: those of sessions that are remembered as such, or of keys."""
    mask, names = np.ones(rows.num_rows, np.bool_), rows.schema.names
    if "exists" in names:
        mask = whole(rows["exists"]).to_numpy(zero_copy_only=False)
    return mask & (marks_of(rows) >= 0) if BEHIND.name in names else mask


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


def marks_stored(stored: pa.Table, number: int) -> Numbers:
    """Return the marks of so many rows from what is stored of them."""
    marks = np.zeros(number, np.int64)
    marks[stored["place"].to_numpy()] = stored[BEHIND.name].to_numpy()
    return marks


def marks_as_bytes(marks: Numbers) -> bytes:
    """Return what is stored of the marks of the rows of a page; nothing where none has one."""
    places = np.flatnonzero(marks)
    found = np.empty(len(places), PLAIN)
    found["place"], found["behind"] = places, marks[places]
    return found.tobytes()


def marks_in(pages: Sequence[tuple[Any, ...]]) -> Numbers:
    """Return the marks in pages, from how many rows each has and what is stored of its marks."""
    marks = np.zeros(sum(number for number, *_ in pages), np.int64)
    before = 0
    for number, *stored in pages:
        for plain in stored:
            found = np.frombuffer(plain, PLAIN)
            marks[before + found["place"].astype(np.int64)] = found["behind"]
        before += number
    return marks


def marked(rows: pa.Table, schema: pa.Schema, marks: Numbers | None = None) -> pa.Table:
    """
    Return stored rows with the marks that a schema has, in memory.

    Args:
        rows: The rows, with or without marks.
        schema: The schema of what is remembered.
        marks: The marks that were stored with them.
    """
    if BEHIND.name not in schema.names or BEHIND.name in rows.column_names:
        return rows
    marks = np.zeros(rows.num_rows, np.int64) if marks is None else marks
    return rows.append_column(BEHIND, pa.array(marks))
