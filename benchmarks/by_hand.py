"""
The job that an expert would write with `applyInPandasWithState`, one group a user.

It knows what costs: no pandas where plain Python does, times as whole microseconds, a state of one
binary column, a frame only where a session is over, and the timer at the earliest end.
"""

import struct
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, Final, TypeAlias

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks.events import DELAY, GAP

__all__ = ["by_hand", "merged"]

Session: TypeAlias = tuple[int, int, int, float]
"""Start and end in microseconds of event time, the number of events, the sum of seconds."""

GAP_US: Final = GAP // timedelta(microseconds=1)
STORED: Final = struct.Struct("<qqqd")
COLUMNS: Final = ["user_id", "start_us", "end_us", "events", "seconds"]
OUTPUT: Final = "user_id string, start_us bigint, end_us bigint, events bigint, seconds double"


def by_hand(events: DataFrame) -> DataFrame:
    """Return the sessions of a stream of events."""
    rows = (
        events.withWatermark("ts", f"{DELAY.total_seconds():.0f} seconds")
        .select("user_id", "ts", f.unix_micros("ts").alias("time_us"), "seconds")
        .groupBy("user_id")
        .applyInPandasWithState(
            run_user, OUTPUT, "sessions binary", "append", GroupStateTimeout.EventTimeTimeout
        )
    )
    return rows.select(
        "user_id",
        f.timestamp_micros("start_us").alias("session_start"),
        f.timestamp_micros("end_us").alias("session_end"),
        "events",
        "seconds",
    )


def run_user(
    key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Fold the events of one user; return the sessions that are over."""
    watermark_ms = state.getCurrentWatermarkMs()
    sessions: list[Session] = []
    if state.exists:
        sessions += STORED.iter_unpack(state.get[0])
    if not state.hasTimedOut:
        sessions = merged(sessions + list(_own_windows(frames)))
    still_open = [session for session in sessions if session[1] > watermark_ms * 1000]
    if still_open:
        state.update((b"".join(STORED.pack(*session) for session in still_open),))
        earliest_us = min(end for _, end, _, _ in still_open)
        # Spark fires a timer once the watermark is past it; a session is already over at its end.
        state.setTimeoutTimestamp(max(-(-earliest_us // 1000) - 1, watermark_ms, 1))
    else:
        state.remove()
    over = [(key[0], *session) for session in sessions if session[1] <= watermark_ms * 1000]
    if over:
        yield pd.DataFrame(over, columns=COLUMNS)


def merged(sessions: list[Session]) -> list[Session]:
    """Join the sessions that touch."""
    joined: list[Session] = []
    for session in sorted(sessions):
        if joined and session[0] <= joined[-1][1]:
            start, end, events, seconds = joined[-1]
            joined[-1] = (start, max(end, session[1]), events + session[2], seconds + session[3])
        else:
            joined.append(session)
    return joined


def _own_windows(frames: Iterable[pd.DataFrame]) -> Iterator[Session]:
    for frame in frames:
        times_us = frame["time_us"].to_numpy().tolist()
        seconds = frame["seconds"].to_numpy().tolist()
        for time_us, spent in zip(times_us, seconds, strict=True):
            yield time_us, time_us + GAP_US, 1, spent
