"""Events that wait for the watermark to pass them, so that each takes its turn in time order."""

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Mask, key_columns, micros
from sessionkit._engine.boundaries import is_late_in_order
from sessionkit._engine.rows.order import in_total_order, key_numbers
from sessionkit._engine.rows.rejected import Rejected


@attrs.frozen
class Turns:
    """The events of a group at a watermark: those whose turn has come, and others."""

    due: pa.Table
    waiting: pa.Table
    rejected: list[Rejected]


def take_turns(
    buffered: pa.Table,
    arrived: pa.Table,
    watermark_us: int,
    most: int,
    sequence: str | None = None,
) -> Turns:
    """
    Split the waiting and the new events of a group at a watermark.

    Rejected are those that came too late, or of which more than `most` of a key would wait.
    """
    late = is_late_in_order(micros(arrived["time"]), watermark_us)
    rejected = Rejected.chosen("late", "it is at or before the watermark", arrived, late)
    turn = is_late_in_order(micros(buffered["time"]), watermark_us)
    waiting = pa.concat_tables([buffered.filter(pa.array(~turn)), arrived.filter(pa.array(~late))])
    crowded = _crowded(waiting, most, sequence)
    reason = f"its key has more than max_buffered_per_key={most} events that wait"
    rejected += Rejected.chosen("quarantined", reason, waiting, crowded)
    return Turns(buffered.filter(pa.array(turn)), waiting.filter(pa.array(~crowded)), rejected)


def _crowded(waiting: pa.Table, most: int, sequence: str | None) -> Mask:
    """Mark, for each key, the events beyond the limit in time order."""
    crowded = np.zeros(waiting.num_rows, np.bool_)
    if waiting.num_rows <= most:
        return crowded
    columns = key_columns(waiting)
    codes, _ = key_numbers(columns, columns)
    order = in_total_order(codes, micros(waiting["time"]), waiting, 0, sequence)
    # In order, codes 0 0 0 1 begin at places 0 0 0 3, so they're number 0 1 2 0 of their key.
    first_of_key = np.searchsorted(codes[order], codes[order], side="left")
    crowded[order] = np.arange(len(order)) - first_of_key >= most
    return crowded
