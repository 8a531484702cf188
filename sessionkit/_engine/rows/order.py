"""Sort events by key, time, sequence and content; hold back events that wait for the watermark."""

import logging
from collections.abc import Sequence
from functools import cache
from itertools import count, repeat
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import Mask, Numbers, key_columns, micros, places_in, total_order, whole
from sessionkit._engine.boundaries import is_late_in_order
from sessionkit._engine.rows.tables import SideOutput

LOG: Final = logging.getLogger("sessionkit")
CROWDED: Final = (
    "a key has more events that wait for the watermark than max_buffered_per_key=%s: those beyond "
    "are quarantined and in no session; raise it, or read fewer events in a micro-batch"
)
FEW_ROWS: Final = 256
"""Up to this number of keys, Python is faster than Arrow."""


def key_numbers(
    events: Sequence[pa.Array | pa.ChunkedArray], stored: Sequence[pa.ChunkedArray]
) -> tuple[Numbers, Numbers]:
    """
    Assign numbers from 0 to the keys of events, in order of appearance, and to stored rows.

    A stored row whose key has no events gets -1. The cost depends mainly on the number of events,
    so a small input is cheap even with much state.
    """
    # With a single key column, events of "b", "a", "b" are 0, 1, 0, and stored "a", "c" are 1, -1.
    numbers, of_stored = _numbers(events[0], stored[0])
    for event_column, stored_column in zip(events[1:], stored[1:], strict=True):
        more, more_of_stored = _numbers(event_column, stored_column)
        # Combine a pair of numbers like digits: with a width of 10, (2, 3) is 23.
        width = 1 + more.max(initial=0)
        has_none = (of_stored < 0) | (more_of_stored < 0)
        combined = np.where(has_none, -1, of_stored * width + more_of_stored)
        numbers, of_stored = _numbers(pa.array(numbers * width + more), pa.array(combined))
    return numbers, of_stored


def _numbers(
    events: pa.Array | pa.ChunkedArray, stored: pa.Array | pa.ChunkedArray
) -> tuple[Numbers, Numbers]:
    if len(events) + len(stored) <= FEW_ROWS:
        keys = events.to_pylist()
        places: dict[Any, int] = dict(zip(dict.fromkeys(keys), count()))
        numbers = list(map(places.__getitem__, keys))
        of_stored = list(map(places.get, stored.to_pylist(), repeat(-1)))
        return np.array(numbers, np.int64), np.array(of_stored, np.int64)
    # Arrow encodes b, a, b as the values b, a and the indices 0 1 0: the numbers.
    values = whole(events).dictionary_encode()
    of_stored = pc.index_in(whole(stored), value_set=values.dictionary).fill_null(-1)
    return values.indices.to_numpy().astype(np.int64), of_stored.to_numpy().astype(np.int64)


def in_total_order(
    keys: Numbers, starts: Numbers, events: pa.Table, first_event: int, sequence: str | None = None
) -> Numbers:
    """
    Return the numbers of intervals sorted by key, start, `sequence` (if any) and event content.

    Spark delivers events of equal time in any order, and a re-run in another: content breaks ties.
    Intervals before `first_event` are open sessions, which go before events of the same start.
    Events of equal content keep their order of arrival.
    """
    content = [events[name] for name in events.column_names if name.startswith("event.")]
    if sequence is not None:
        content.insert(0, events.column(f"event.{sequence}"))
    return total_order(keys, starts, content, first_event)


@attrs.frozen
class Turns:
    """The events of a group at a watermark: due, waiting and rejected."""

    due: pa.Table
    waiting: pa.Table
    rejected: list[SideOutput]


def take_turns(
    buffered: pa.Table, arrived: pa.Table, watermark_us: int, most: int, sequence: str | None = None
) -> Turns:
    """
    Split the waiting and the new events of a group at a watermark.

    Late events are rejected, and so are events beyond `most` waiting events of a key.
    """
    late = is_late_in_order(micros(arrived["time"]), watermark_us)
    rejected = SideOutput.chosen("late", "it is at or before the watermark", arrived, late)
    due = is_late_in_order(micros(buffered["time"]), watermark_us)
    waiting = pa.concat_tables([buffered.filter(pa.array(~due)), arrived.filter(pa.array(~late))])
    crowded = _crowded(waiting, most, sequence)
    if crowded.any():
        _warn_of_a_crowd(most)
    reason = f"its key has more than max_buffered_per_key={most} events that wait"
    rejected += SideOutput.chosen("quarantined", reason, waiting, crowded)
    return Turns(buffered.filter(pa.array(due)), waiting.filter(pa.array(~crowded)), rejected)


@cache
def _warn_of_a_crowd(most: int) -> None:
    """Log that events are quarantined since others wait: once in each process."""
    LOG.warning(CROWDED, most)


def _crowded(waiting: pa.Table, most: int, sequence: str | None) -> Mask:
    """Mark the events of each key beyond the limit, in time order."""
    crowded = np.zeros(waiting.num_rows, np.bool_)
    if waiting.num_rows <= most:
        return crowded
    columns = key_columns(waiting)
    codes, _ = key_numbers(columns, columns)
    order = in_total_order(codes, micros(waiting["time"]), waiting, 0, sequence)
    # In order, the codes 0 0 0 1 have the positions 0 1 2 0 within their key.
    crowded[order] = places_in(np.bincount(codes), codes[order]) >= most
    return crowded
