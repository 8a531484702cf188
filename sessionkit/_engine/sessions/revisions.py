"""
What is stored of a session that may give several rows.

    sessions   revision    how many rows it has given
               shown       the starts, each with its mark after it if it has one, and so the ids,
                           under which rows of it are out
               pending     how many events it has taken since its last row
               closed      whether it's over, and only waits for late events; or was dropped
               next_row    under `every duration`, from when on it may give a row, in microseconds

The id of a session depends on its start and its mark. So one whose start moves back has another id
from then on, and its next row supersedes the one that is out, as it does those of the sessions that
it has swallowed.
"""

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.logic import NEVER_US
from sessionkit._engine.rows.marks import is_trace
from sessionkit._engine.rows.table import INSTANT, micros, parted, stacked, whole
from sessionkit._engine.sessions.aggregates.values import lists_of
from sessionkit._engine.sessions.behind import FIRST_MARK
from sessionkit._engine.sessions.duplicates import closed_ids
from sessionkit._engine.sessions.ruled import with_column
from sessionkit._instants import BEGINNING_US, span_us
from sessionkit.spec.session import AnySessionSpec

__all__ = [
    "closed_ones",
    "joined_revisions",
    "numbers_of",
    "revised_schema",
    "revisions_identity",
    "shown_of",
    "under_revisions",
]

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

REVISED: Final = (
    pa.field("revision", pa.int64()),
    pa.field("shown", pa.list_(INSTANT)),
    pa.field("pending", pa.int64()),
    pa.field("closed", pa.bool_()),
)
NEXT_ROW: Final = pa.field("next_row", pa.int64())


def revised_schema(spec: AnySessionSpec) -> list[pa.Field]:
    """Return what is stored of a session for its revisions; nothing where it gives one row."""
    if not spec.revises:
        return []
    waits = spec.early is not None and spec.early.duration is not None
    return [*REVISED, *([NEXT_ROW] if waits else [])]


def revisions_identity(spec: AnySessionSpec) -> dict[str, Any]:
    """Return what must not change while a checkpoint lives."""
    spans = {"allowed_lateness": spec.allowed_lateness, "reopen_within": spec.reopen_within}
    return {
        "emit": str(spec.emit),
        **{f"{name}_us": span and span_us(span) for name, span in spans.items()},
    }


def numbers_of(sessions: pa.Table, name: str) -> Numbers:
    """Return a column of numbers; 0 for what only remembers the ids of a session."""
    numbers: Numbers = whole(sessions[name]).fill_null(0).to_numpy()
    return numbers


def closed_ones(sessions: pa.Table) -> Mask:
    """Mark the sessions that are over, and only wait for late events."""
    if "closed" not in sessions.column_names:
        return np.zeros(sessions.num_rows, np.bool_)
    mask: Mask = (
        whole(sessions["closed"]).fill_null(fill_value=False).to_numpy(zero_copy_only=False)
    )
    return mask


def shown_of(sessions: pa.Table) -> tuple[Numbers, Numbers, Numbers]:
    """Return under what rows are out: the places of their sessions, their starts and marks."""
    shown = whole(sessions["shown"])
    out, owners = micros(shown.flatten()), shown.value_parent_indices().to_numpy()
    is_mark = out >= FIRST_MARK
    after = np.append(np.where(is_mark, out, 0)[1:], np.int64(0))
    return owners[~is_mark], out[~is_mark], after[~is_mark]


def joined_revisions(
    spec: AnySessionSpec, parts: pa.Table, owners: Numbers, came: Numbers
) -> list[pa.Array]:
    """
    Return what is stored of sessions that have taken events; nothing where each gives one row.

    Args:
        spec: The spec.
        parts: The sessions that became part of them, those of one after those of another.
        owners: For each part, the place of the session that it became part of.
        came: How many events each session has taken.
    """
    if not spec.revises:
        return []
    number = len(came)
    revision, next_row = np.zeros(number, np.int64), np.full(number, NEVER_US)
    np.maximum.at(revision, owners, numbers_of(parts, "revision"))
    pending = came.copy()
    np.add.at(pending, owners, numbers_of(parts, "pending"))
    shown, sizes = whole(parts["shown"]), np.zeros(number, np.int64)
    np.add.at(sizes, owners, shown.value_lengths().to_numpy(zero_copy_only=False))
    # A failed event may leave a closed session as it was.
    closed = np.zeros(number, np.bool_)
    np.logical_or.at(closed, owners, closed_ones(parts))
    columns = [
        pa.array(revision),
        lists_of(shown.flatten(), sizes),
        pa.array(pending),
        pa.array(closed & (came == 0)),
    ]
    if NEXT_ROW.name in parts.column_names:
        np.minimum.at(next_row, owners, numbers_of(parts, NEXT_ROW.name))
        columns.append(pa.array(next_row))
    return columns


def under_revisions(old: AnySessionSpec, spec: AnySessionSpec, sessions: pa.Table) -> pa.Table:
    """
    Return sessions of another spec with what is stored for the revisions of this one.

    Those that are over, and only wait for late events, stay where this spec waits for them too;
    otherwise their ids do. Of those that have given no rows, all events are new. When a session may
    give its next row is up to this spec.

    Args:
        old: The other spec.
        spec: This one.
        sessions: The sessions.
    """
    if spec.mergeable is None:
        over, others = parted(sessions, closed_ones(sessions) & ~is_trace(sessions))
        sessions = stacked([others, closed_ids(spec, over, BEGINNING_US)])
    if NEXT_ROW.name in sessions.column_names and old.emit != spec.emit:
        sessions = sessions.drop_columns(NEXT_ROW.name)
    number = sessions.num_rows
    none = np.zeros(number, np.int64)
    fresh = {
        "revision": pa.array(none),
        "shown": lists_of(pa.array([], INSTANT), none),
        "pending": pa.array(numbers_of(sessions, "events")),
        "closed": pa.array(is_trace(sessions)),
        NEXT_ROW.name: pa.array(np.full(number, NEVER_US)),
    }
    for field in revised_schema(spec):
        if field.name not in sessions.column_names:
            sessions = with_column(sessions, field, fresh[field.name])
    return sessions
