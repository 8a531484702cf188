"""The events: made from a seed, and written to files before any time is measured."""

import os
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["DELAY", "FILES_A_BATCH", "GAP", "Load", "batch_of_events", "write_batches"]

SEED: Final = 20_260_101
FIRST_US: Final = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
SPAN_US: Final = 10 * 60 * 1_000_000
"""The event time that a batch covers: twice the gap, so that sessions close in later batches."""
GAP: Final = timedelta(minutes=5)
DELAY: Final = timedelta(minutes=2)
"""By how much the watermark trails; events are out of order by less, so that none is late."""
PAGES: Final = 1_000
FILES_A_BATCH: Final = 2


@attrs.frozen
class Load:
    """
    How much comes in.

    Attributes:
        events: How many events a batch has.
        keys: Over how many users they are spread, evenly by chance.
        batches: How many batches there are.
        one_each: Whether every user has exactly one event a batch instead; there are as many
            events as keys.
    """

    events: int
    keys: int
    batches: int = 6
    one_each: bool = False

    def scaled(self, factor: float) -> "Load":
        """Return the same with so many times the events and keys, at least one of each."""
        events, keys = (max(1, round(n * factor)) for n in (self.events, self.keys))
        return attrs.evolve(self, events=events, keys=keys)


def batch_of_events(load: Load, batch: int) -> pa.Table:
    """
    Return the events of one batch, in the order in which they come.

    They come evenly over the span of the batch, each after its event time by less than the delay.
    """
    dice = np.random.default_rng([SEED, batch])
    arrival_us = np.sort(dice.integers(batch * SPAN_US, (batch + 1) * SPAN_US, load.events))
    delay_us = DELAY // timedelta(microseconds=1)
    times_us = FIRST_US + arrival_us - dice.integers(0, delay_us, load.events)
    users = pa.array([f"user-{number:07d}" for number in range(load.keys)])
    chosen = (
        dice.permutation(load.keys) if load.one_each else dice.integers(0, load.keys, load.events)
    )
    pages = pa.array([f"/page/{number}" for number in range(PAGES)])
    return pa.table(
        {
            "user_id": users.take(pa.array(chosen)),
            "ts": pa.array(times_us).cast(pa.timestamp("us", tz="UTC")),
            "page": pages.take(pa.array(dice.integers(0, PAGES, load.events))),
            "seconds": pa.array(dice.exponential(30.0, load.events)),
        }
    )


def write_batches(load: Load, folder: Path) -> None:
    """Write every batch as some files of one age each, which is how Spark orders them."""
    folder.mkdir(parents=True)
    oldest = FIRST_US // 1_000_000
    for batch in range(load.batches):
        events = batch_of_events(load, batch)
        bounds = np.linspace(0, load.events, FILES_A_BATCH + 1, dtype=int).tolist()
        for part, (start, stop) in enumerate(pairwise(bounds)):
            path = folder / f"batch-{batch:02d}-{part}.parquet"
            pq.write_table(events.slice(start, stop - start), path, compression="snappy")
            os.utime(path, (oldest + batch, oldest + batch))
