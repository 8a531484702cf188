"""The sessions of one user as plain tuples: what the jobs written by hand share."""

import struct
from collections.abc import Iterable
from typing import Final, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

__all__ = ["COUNT_OUTPUT", "OUTPUT", "STORED", "Interval", "earliest_ms", "merged", "with_times"]

Interval: TypeAlias = tuple[int, int, int, float]
"""Start and end in microseconds of event time, the number of events, the sum of seconds."""

STORED: Final = struct.Struct("<qqqd")
OUTPUT: Final = "user_id string, start_us bigint, end_us bigint, events bigint, seconds double"
COUNT_OUTPUT: Final = "user_id string, events bigint, seconds double"


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Join the intervals that touch."""
    joined: list[Interval] = []
    for each in sorted(intervals):
        if joined and each[0] <= joined[-1][1]:
            start, end, events, seconds = joined[-1]
            joined[-1] = (start, max(end, each[1]), events + each[2], seconds + each[3])
        else:
            joined.append(each)
    return joined


def earliest_ms(intervals: Iterable[Interval]) -> int:
    """Return the first millisecond at which one of them is over."""
    return -(-min(end for _, end, _, _ in intervals) // 1000)


def with_times(rows: DataFrame) -> DataFrame:
    """Return the rows with timestamps, as every entrant does."""
    return rows.select(
        "user_id",
        F.timestamp_micros("start_us").alias("session_start"),
        F.timestamp_micros("end_us").alias("session_end"),
        "events",
        "seconds",
    )
