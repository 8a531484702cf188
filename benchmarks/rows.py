"""The rows that every entrant has to return, worked out with NumPy, and how two tables differ."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.workloads import Workload

__all__ = ["COLUMNS", "difference", "expected", "in_order"]

COLUMNS: Final = {
    "sessions": ("user_id", "start_us", "end_us", "events", "seconds"),
    "counts": ("user_id", "events", "seconds"),
}
ROUNDING: Final = 1e-9
"""Sums of floats differ by the order of their parts, relative to their size."""


def expected(workload: Workload, batches: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of these batches, in order."""
    if workload.task == "counts":
        return in_order(pa.concat_tables(_counts(batches)))
    return in_order(_sessions(pa.concat_tables(batches), workload.gap))


def in_order(rows: pa.Table) -> pa.Table:
    """Return the rows sorted by all their columns but the sum."""
    order = [(name, "ascending") for name in rows.column_names if name != "seconds"]
    return rows.sort_by(order)


def difference(left: pa.Table, right: pa.Table) -> str | None:
    """Say where two tables of rows differ, both sorted; floats may, within rounding."""
    if left.num_rows != right.num_rows:
        return f"{left.num_rows:,} rows and {right.num_rows:,}"
    for name in left.column_names:
        one, other = left[name].to_numpy(), right[name].to_numpy()
        is_float = np.issubdtype(one.dtype, np.floating)
        equal = np.isclose(one, other, rtol=ROUNDING, atol=0) if is_float else one == other
        if not equal.all():
            row = int(np.argmin(equal))
            return f"`{name}` in row {row}: {one[row]} and {other[row]}"
    return None


def _sessions(events: pa.Table, gap: timedelta) -> pa.Table:
    gap_us = gap // timedelta(microseconds=1)
    users = events["user_id"].combine_chunks().dictionary_encode()
    codes, times = users.indices.to_numpy(), events["ts"].cast(pa.int64()).to_numpy()
    order = np.lexsort((times, codes))
    codes, times = codes[order], times[order]
    begins = np.r_[True, (codes[1:] != codes[:-1]) | (np.diff(times) > gap_us)]
    first = np.flatnonzero(begins)
    last = np.r_[first[1:], len(codes)] - 1
    return pa.table(
        {
            "user_id": users.dictionary.take(pa.array(codes[first])),
            "start_us": times[first],
            "end_us": times[last] + gap_us,
            "events": last - first + 1,
            "seconds": np.add.reduceat(_seconds(events)[order], first),
        }
    )


def _counts(batches: Sequence[pa.Table]) -> list[pa.Table]:
    tables = []
    for number in range(len(batches)):
        events = pa.concat_tables(batches[: number + 1])
        sums = events.group_by("user_id").aggregate([("seconds", "count"), ("seconds", "sum")])
        sums = sums.rename_columns(["user_id", "events", "seconds"])
        now = batches[number].select(["user_id"]).group_by("user_id").aggregate([])
        tables.append(sums.join(now, "user_id", join_type="left semi").combine_chunks())
    return tables


def _seconds(events: pa.Table) -> Any:
    return events["seconds"].to_numpy()
