"""The rows that every entrant has to return, worked out with NumPy, and how two tables differ."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.workloads import Workload

__all__ = ["COLUMNS", "difference", "expected", "in_order", "with_one_key"]

COLUMNS: Final = {
    "sessions": ("user_id", "start_us", "end_us", "events", "seconds"),
    "counts": ("user_id", "events", "seconds"),
    "bids": ("bidder", "start_us", "end_us", "bids"),
}
ROUNDING: Final = 1e-9
"""Sums of floats differ by the order of their parts, relative to their size."""


def expected(workload: Workload, batches: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of these batches, in order."""
    match workload.task:
        case "counts":
            rows = pa.concat_tables(_counts(batches))
        case "bids":
            rows = _bids(pa.concat_tables(batches), workload.gap)
        case "sessions":
            events = with_one_key(pa.concat_tables(batches), workload)
            rows = _sessions(events, workload.gap)
    return in_order(rows)


def with_one_key(rows: pa.Table, workload: Workload) -> pa.Table:
    """Return rows whose `user_id` has all columns of the key."""
    if len(workload.key_columns) == 1:
        return rows
    parts = [rows[name].cast(pa.string()) for name in workload.key_columns]
    key = pc.binary_join_element_wise(*parts, "|")
    return rows.set_column(rows.column_names.index("user_id"), "user_id", key)


def in_order(rows: pa.Table) -> pa.Table:
    """Return the rows sorted by all their columns but the sum."""
    order = [(name, "ascending") for name in rows.column_names if name != "seconds"]
    return rows.sort_by(order)


def difference(left: pa.Table, right: pa.Table) -> str | None:
    """Say where two tables of rows differ, both sorted; floats may, within rounding."""
    if left.num_rows != right.num_rows:
        return f"{left.num_rows:,} rows and {right.num_rows:,}"
    for name in left.column_names:
        value, other = left[name].to_numpy(), right[name].to_numpy()
        is_float = np.issubdtype(value.dtype, np.floating)
        equal = np.isclose(value, other, rtol=ROUNDING, atol=0) if is_float else value == other
        if not equal.all():
            row = int(np.argmin(equal))
            return f"`{name}` in row {row}: {value[row]} and {other[row]}"
    return None


def _sessions(events: pa.Table, gap: timedelta) -> pa.Table:
    users = events["user_id"].combine_chunks().dictionary_encode()
    found = _runs(users.indices.to_numpy(), events["ts"], gap)
    return pa.table(
        {
            "user_id": users.dictionary.take(pa.array(found.keys)),
            "start_us": found.start_us,
            "end_us": found.end_us,
            "events": found.counts,
            "seconds": np.add.reduceat(_seconds(events)[found.order], found.first),
        }
    )


def _bids(events: pa.Table, gap: timedelta) -> pa.Table:
    found = _runs(events["bidder"].to_numpy(), events["dateTime"], gap)
    columns = (found.keys, found.start_us, found.end_us, found.counts)
    return pa.table(dict(zip(COLUMNS["bids"], columns, strict=True)))


class _Runs(NamedTuple):
    """The sessions of sorted events: `first` are the positions in `order` at which they begin."""

    keys: Any
    start_us: Any
    end_us: Any
    counts: Any
    order: Any
    first: Any


def _runs(keys: Any, times: pa.ChunkedArray, gap: timedelta) -> _Runs:
    gap_us, times_us = gap // timedelta(microseconds=1), times.cast(pa.int64()).to_numpy()
    order = np.lexsort((times_us, keys))
    keys, times_us = keys[order], times_us[order]
    begins = np.r_[True, (keys[1:] != keys[:-1]) | (np.diff(times_us) > gap_us)]
    first = np.flatnonzero(begins)
    last = np.r_[first[1:], len(keys)] - 1
    return _Runs(
        keys[first], times_us[first], times_us[last] + gap_us, last - first + 1, order, first
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
