"""
Many keys in one Spark group.

Spark's Python worker pays about a millisecond for every group, so keys are hashed into buckets and
a bucket is one group. Its sessions lie in one Arrow table, a row a session. Rules of this file:

1. *Only what is touched is decoded.* Sessions of keys without events pass as Arrow rows.
2. *Overdue sessions close first*, those of all keys, so that a result does not depend on whether a
   batch without data slipped in before. Under `order="event_time"` the events whose turn has come
   are folded before that: they belong to the sessions that close.
3. *The watermark is that of the batch's start*, the same for every row of it.
4. *Each event is counted once*: folded, late, quarantined, failed, or buffered.
5. *A failed event leaves no trace*: the bucket is folded again, from what is stored, without it.
6. *Nothing depends on the bucket.* Which keys share one, and how many there are, changes no row.
"""

from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.order import in_total_order, key_codes
from sessionkit._engine.rows.table import Rejected, key_columns, micros
from sessionkit._engine.sessions.close import close
from sessionkit._engine.sessions.fold import fold_into
from sessionkit._engine.sessions.table import BucketState
from sessionkit.session import SessionSpec
from sessionkit.timeouts import is_late_in_order, is_over

__all__ = ["Outcome", "step"]

AnySpec: TypeAlias = SessionSpec[Any, Any, Any]
Mask: TypeAlias = npt.NDArray[np.bool_]


@attrs.frozen
class Outcome:
    """
    What one micro-batch does to a bucket.

    Attributes:
        state: What it remembers from now on.
        rows: The result rows of the sessions that closed.
        closed: How many sessions closed.
        processed: How many events became part of a session.
        buffered: By how many the events that wait for their turn have grown.
        rejected: The events that were not folded.
        failed_output: The sessions whose `finish` failed.
    """

    state: BucketState
    rows: pa.Table
    closed: int
    processed: int
    buffered: int
    rejected: list[Rejected]
    failed_output: list[Rejected]


def step(spec: AnySpec, state: BucketState, arrived: pa.Table, watermark_us: int) -> Outcome:
    """
    Run one micro-batch of a bucket.

    Args:
        spec: The rules and functions.
        state: What the bucket remembers.
        arrived: The events that came, in any order.
        watermark_us: The watermark in force at the start of the batch.

    Raises:
        UserFunctionError: A function of the user failed, and the spec says `on_error="raise"`.
        StateValueError: A function left a value in the state that does not fit its field.
    """
    if spec.order == "event_time":
        due, buffered, rejected = _take_turns(spec, state.buffered, arrived, watermark_us)
        folded = fold_into(spec, state.sessions, due, None)
        over, still_open = _split(folded.sessions, watermark_us)
    else:
        buffered, rejected = state.buffered, []
        over, still_open = _split(state.sessions, watermark_us)
        folded = fold_into(spec, still_open, arrived, watermark_us)
        still_open = folded.sessions
    closed = close(spec, over)
    return Outcome(
        state=BucketState(still_open, buffered),
        rows=closed.rows,
        closed=over.num_rows - len(closed.failed),
        processed=folded.events,
        buffered=buffered.num_rows - state.buffered.num_rows,
        rejected=rejected + folded.rejected,
        failed_output=_failed_output(over, closed.failed),
    )


def _split(sessions: pa.Table, watermark_us: int) -> tuple[pa.Table, pa.Table]:
    """Part the sessions that are over from those that stay open."""
    over = is_over(micros(sessions["end"]), watermark_us)
    if not over.any():
        return sessions.slice(0, 0), sessions
    return sessions.filter(pa.array(over)), sessions.filter(pa.array(~over))


def _take_turns(
    spec: AnySpec, buffered: pa.Table, arrived: pa.Table, watermark_us: int
) -> tuple[pa.Table, pa.Table, list[Rejected]]:
    """Return the events whose turn has come, those that wait, and those that came too late."""
    late = is_late_in_order(micros(arrived["time"]), watermark_us)
    rejected = Rejected.chosen("late", "it is at or behind the watermark", arrived, late)
    turn = is_late_in_order(micros(buffered["time"]), watermark_us)
    waiting = pa.concat_tables([buffered.filter(pa.array(~turn)), arrived.filter(pa.array(~late))])
    crowded = _crowded(spec, waiting)
    reason = f"its key holds more than max_buffered_per_key={spec.max_buffered_per_key} events"
    rejected += Rejected.chosen("quarantined", reason, waiting, crowded)
    return buffered.filter(pa.array(turn)), waiting.filter(pa.array(~crowded)), rejected


def _crowded(spec: AnySpec, waiting: pa.Table) -> Mask:
    """Mark, for each key, the events beyond the limit in time order."""
    crowded = np.zeros(waiting.num_rows, np.bool_)
    if waiting.num_rows <= spec.max_buffered_per_key:
        return crowded
    (codes,) = key_codes([key_columns(waiting)])
    order = in_total_order(codes, micros(waiting["time"]), waiting, 0)
    first_of_key = np.searchsorted(codes[order], codes[order], side="left")
    crowded[order] = np.arange(len(order)) - first_of_key >= spec.max_buffered_per_key
    return crowded


def _failed_output(over: pa.Table, failed: dict[int, str]) -> list[Rejected]:
    """Return the sessions whose `finish` failed."""
    if not failed:
        return []
    rows = over.take(pa.array(sorted(failed), pa.int64()))
    return [Rejected("failed_output", [failed[place] for place in sorted(failed)], rows)]
