"""The events: made from a seed, and written to files before any time is measured."""

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.nexmark import COLUMNS, bids, closing_bid
from benchmarks.workloads import Workload

__all__ = [
    "CLOSING",
    "FILES_A_BATCH",
    "FIRST_US",
    "batch_of_events",
    "closing_event",
    "linked",
    "schema_of",
    "write_batches",
]

SEED: Final = 20_260_101
FIRST_US: Final = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
FILES_A_BATCH: Final = 2
"""One for each core."""
PAGES: Final = 1_000
TIME: Final = pa.timestamp("us", tz="UTC")
SIX: Final = {
    "site": ["de", "de", "fr", "fr", "it", "it"],
    "device": ["phone", "laptop"] * 3,
}
"""The six pairs of further columns of a key."""
CLOSING: Final = "~close"
"""The user of the event that moves the watermark past the end of every session."""


def batch_of_events(workload: Workload, batch: int) -> pa.Table:
    """
    Return the events of one batch, in the order in which they come.

    They come evenly over the span of the batch, each after its event time by at most the disorder;
    bids come in the order of their times.
    """
    dice = np.random.default_rng([SEED, batch])
    if workload.task == "bids":
        return bids(workload, batch, FIRST_US, dice)
    span_us = _us(workload.span)
    users = _users(workload, batch, dice)
    arrival_us = dice.integers(batch * span_us, (batch + 1) * span_us, len(users))
    late_us = dice.integers(0, _us(workload.disorder) + 1, len(users))
    # Whole milliseconds, because Flink knows no others.
    times_us = (FIRST_US + arrival_us - late_us) // 1000 * 1000
    return _table(workload, users, times_us, dice)


def closing_event(workload: Workload) -> pa.Table:
    """Return one event, so far ahead that every session is over once it has been read."""
    span_us, gap_us, disorder_us = map(_us, (workload.span, workload.gap, workload.disorder))
    at_us = FIRST_US + (workload.batches + 1) * span_us + 2 * gap_us + disorder_us
    if workload.task == "bids":
        return closing_bid(at_us)
    table = _table(workload, np.array([0]), np.array([at_us]), np.random.default_rng())
    return table.set_column(0, "user_id", pa.array([CLOSING]))


def write_batches(workload: Workload, folder: Path) -> None:
    """Write every batch as some files of one age each, which is how Spark orders them."""
    folder.mkdir(parents=True)
    for batch in range(workload.batches):
        _write(batch_of_events(workload, batch), folder, batch)
    _write(closing_event(workload), folder, workload.batches)


def linked(files: Path, batches: Iterable[int], folder: Path) -> Path:
    """Make a folder with the files of these batches; the closing event follows the last batch."""
    folder.mkdir(parents=True)
    for batch in batches:
        for path in files.glob(f"batch-{batch:02d}-*.parquet"):
            (folder / path.name).hardlink_to(path)
    return folder


def schema_of(workload: Workload) -> str:
    """Return the columns of the files as Spark names them."""
    if workload.task == "bids":
        return COLUMNS
    others = [f"{name} string" for name in workload.key_columns if name in SIX]
    return ", ".join(["user_id string, ts timestamp, page string, seconds double", *others])


def _us(span: timedelta) -> int:
    return span // timedelta(microseconds=1)


def _users(workload: Workload, batch: int, dice: np.random.Generator) -> Any:
    if workload.opened and batch == 0:
        return dice.permutation(workload.opened)
    if workload.one_each:
        return dice.permutation(workload.keys)
    return dice.integers(0, workload.keys, workload.events)


def _table(workload: Workload, users: Any, times_us: Any, dice: np.random.Generator) -> pa.Table:
    pages = pa.array([f"/page/{number}" for number in range(PAGES)])
    some_pages = pages.take(pa.array(dice.integers(0, PAGES, len(users))))
    others = [name for name in workload.key_columns if name in SIX]
    # With three columns, six keys have one user.
    numbers, place = np.divmod(users, 6) if others else (users, 0)
    return pa.table(
        {
            "user_id": _names(max(workload.keys, workload.opened)).take(pa.array(numbers)),
            "ts": pa.array(times_us).cast(TIME),
            "page": some_pages,
            "seconds": pa.array(dice.exponential(30.0, len(users))),
            **{name: pa.array(SIX[name]).take(pa.array(place)) for name in others},
        }
    )


@cache
def _names(count: int) -> pa.Array:
    # Eight bytes each: the size of a state is counted for keys of that length.
    return pa.array([f"u{number:07d}" for number in range(count)])


def _write(events: pa.Table, folder: Path, batch: int) -> None:
    age = FIRST_US // 1_000_000 + batch
    bounds = np.linspace(0, events.num_rows, FILES_A_BATCH + 1, dtype=int).tolist()
    for part, (start, stop) in enumerate(pairwise(bounds)):
        path = folder / f"batch-{batch:02d}-{part}.parquet"
        pq.write_table(events.slice(start, stop - start), path, compression="snappy")
        os.utime(path, (age, age))
