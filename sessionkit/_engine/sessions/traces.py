"""
What stays of dropped sessions, so that no session after them has an id of theirs.

    sessions   start, end   when one may have begun that was dropped; `end` is exclusive
               closes       the same as `end`
               behind       minus a hash of its id; where several meet, of these

A dropped session leaves such a row, a *trace*, without a state. Its id may be in rejected rows, and
in result rows from before the state was carried over; others of its ids, or of sessions that it has
swallowed, were those of a later start. A session that gets its start within a trace gets a mark
that hashes this too. A trace goes when the session would have been forgotten: from then on, what
gets its start there is behind the watermark.
"""

from collections import defaultdict
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.order import key_numbers
from sessionkit._engine.rows.table import (
    filled,
    instants,
    is_trace,
    key_columns,
    marks_of,
    micros,
    parted,
    stacked,
)
from sessionkit._engine.sessions.behind import mark_of
from sessionkit._engine.sessions.intervals import unite

Numbers: TypeAlias = npt.NDArray[np.int64]


def with_traces(
    sessions: pa.Table, keys: pa.Table, starts: Numbers, ends: Numbers, marks: Numbers
) -> pa.Table:
    """
    Return sessions with the traces of others that are dropped.

    Args:
        sessions: The sessions, without those.
        keys: The key columns of the dropped ones.
        starts: Their starts, in microseconds.
        ends: From when on none of them can have begun.
        marks: Their marks.
    """
    before, others = parted(sessions, is_trace(sessions))
    keys = stacked([before.select(keys.column_names), keys])
    hashes = [-mark_of(*one) for one in zip(starts.tolist(), marks.tolist(), strict=True)]
    starts = np.concatenate([micros(before["start"]), starts])
    ends = np.concatenate([micros(before["end"]), ends])
    hashed = np.concatenate([marks_of(before), np.array(hashes, np.int64)])
    numbers, _ = key_numbers(key_columns(keys), key_columns(keys))
    order = np.lexsort((starts, numbers))
    # Those that meet become one: a key that always fails has one trace, not one a micro-batch.
    unions = unite(numbers[order], starts[order], ends[order], gap_inclusive=False)
    parts = np.split(hashed[order], unions.first[1:])
    own = keys.take(pa.array(order[unions.first]))
    columns = dict(zip(own.column_names, own.columns, strict=True))
    columns |= {"start": instants(unions.start)}
    columns |= dict.fromkeys(("end", "closes"), instants(unions.end))
    columns |= {"behind": pa.array([_together(part.tolist()) for part in parts], pa.int64())}
    columns |= {"exists": pa.array(np.zeros(len(parts), np.bool_))}
    return stacked([others, filled(sessions.schema, columns, len(parts))])


def _together(hashes: list[int]) -> int:
    return hashes[0] if len(hashes) == 1 else -mark_of(*sorted(hashes))


def told_apart(traces: pa.Table, keys: pa.Table, starts: Numbers, marks: Numbers) -> Numbers:
    """
    Return the marks of new sessions: others for those that get their starts within traces.

    Args:
        traces: The traces.
        keys: The key columns of the new sessions.
        starts: Their starts, in microseconds.
        marks: The marks that they would have without traces.
    """
    numbers, found = key_numbers(key_columns(keys), key_columns(traces))
    left = defaultdict(list)
    columns = found, micros(traces["start"]), micros(traces["end"]), marks_of(traces)
    for number, start, end, mark in zip(*(one.tolist() for one in columns), strict=True):
        left[number].append((start, end, mark))
    told = [
        next((mark_of(own, mark) for low, high, mark in left[number] if low <= start < high), own)
        for number, start, own in zip(
            numbers.tolist(), starts.tolist(), marks.tolist(), strict=True
        )
    ]
    return np.array(told, np.int64)
