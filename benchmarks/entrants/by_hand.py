"""
The job that an expert would write with `applyInPandasWithState`, one group a user.

It knows what costs: no pandas where plain Python does, times as whole microseconds, a state of one
binary column, a frame only where a session is over, and the timer at the earliest end.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks.entrants.entrant import Entrant
from benchmarks.entrants.intervals import (
    COUNT_OUTPUT,
    OUTPUT,
    STORED,
    Interval,
    earliest_ms,
    merged,
    with_times,
)
from benchmarks.entrants.spark_sql import seconds_of
from benchmarks.workloads import Workload

__all__ = ["BY_HAND"]

COLUMNS: Final = ["user_id", "start_us", "end_us", "events", "seconds"]


def sessions(events: DataFrame, workload: Workload) -> DataFrame:
    """Find the sessions."""
    rows = (
        events.withWatermark("ts", seconds_of(workload.disorder))
        .select("user_id", "ts", F.unix_micros("ts").alias("time_us"), "seconds")
        .groupBy("user_id")
        .applyInPandasWithState(
            run_user(workload.gap // timedelta(microseconds=1)),
            OUTPUT,
            "sessions binary",
            "append",
            GroupStateTimeout.EventTimeTimeout,
        )
    )
    return with_times(rows)


def run_user(gap_us: int) -> Callable[..., Iterator[pd.DataFrame]]:
    """Return the function for a group."""
    return partial(_run_user, gap_us)


def _run_user(
    gap_us: int, key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    watermark_ms = state.getCurrentWatermarkMs()
    found: list[Interval] = []
    if state.exists:
        found += STORED.iter_unpack(state.get[0])
    if not state.hasTimedOut:
        found = merged(found + list(_own_windows(frames, gap_us)))
    still_open = [each for each in found if each[1] > watermark_ms * 1000]
    if still_open:
        state.update((b"".join(STORED.pack(*each) for each in still_open),))
        # Spark fires a timer once the watermark is past it; a session is already over at its end.
        state.setTimeoutTimestamp(max(earliest_ms(still_open) - 1, watermark_ms, 1))
    else:
        state.remove()
    over = [(key[0], *each) for each in found if each[1] <= watermark_ms * 1000]
    if over:
        yield pd.DataFrame(over, columns=COLUMNS)


def _own_windows(frames: Iterable[pd.DataFrame], gap_us: int) -> Iterator[Interval]:
    for frame in frames:
        times_us = frame["time_us"].to_numpy().tolist()
        seconds = frame["seconds"].to_numpy().tolist()
        for time_us, spent in zip(times_us, seconds, strict=True):
            yield time_us, time_us + gap_us, 1, spent


def counts(events: DataFrame, workload: Workload) -> DataFrame:
    """Count each user's events."""
    return (
        events.select("user_id", "seconds")
        .groupBy("user_id")
        .applyInPandasWithState(
            count_user,
            COUNT_OUTPUT,
            "events bigint, seconds double",
            "append",
            GroupStateTimeout.NoTimeout,
        )
    )


def count_user(
    key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Count the events of one user, and return the count."""
    events, seconds = state.get if state.exists else (0, 0.0)
    for frame in frames:
        events += len(frame)
        seconds += sum(frame["seconds"].to_numpy().tolist())
    state.update((events, seconds))
    yield pd.DataFrame([(key[0], events, seconds)], columns=["user_id", "events", "seconds"])


BY_HAND: Final = Entrant(
    name="by hand",
    about="`applyInPandasWithState` as an expert writes it, one group a key",
    ways={"sessions": sessions, "counts": counts},
)
