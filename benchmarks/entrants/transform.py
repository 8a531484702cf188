"""The job that an expert would write with `transformWithState`, one group a user."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, DoubleType, LongType, StructField, StructType

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

__all__ = ["TRANSFORM"]

STORED_SESSIONS: Final = StructType([StructField("sessions", BinaryType())])
STORED_COUNT: Final = StructType(
    [StructField("events", LongType()), StructField("seconds", DoubleType())]
)
COLUMNS: Final = ["user_id", "start_us", "end_us", "events", "seconds"]


class Sessions(StatefulProcessor):
    """Sessions of one user: one binary value, one timer."""

    def __init__(self, gap_us: int) -> None:
        self.gap_us = gap_us

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self.handle = handle
        self.stored = handle.getValueState("sessions", STORED_SESSIONS)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803 - Spark's names
        """Fold the events; return the sessions that are over."""
        before = self.stored.get()
        found = list(STORED.iter_unpack(before[0])) if before else []
        armed_ms = earliest_ms(found) if found else None
        found = merged([*found, *self.own_windows(rows)])
        return self.rows(self.keep(key, found, armed_ms, timerValues))

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: Any,  # noqa: N803 - Spark's name
        expiredTimerInfo: Any,  # noqa: N803 - Spark's name
    ) -> Iterator[Any]:
        """Return the sessions that are over."""
        before = self.stored.get()
        found = list(STORED.iter_unpack(before[0])) if before else []
        return self.rows(self.keep(key, found, None, timerValues))

    def close(self) -> None:
        """Nothing to close."""

    def keep(
        self, key: Any, found: list[Interval], armed_ms: int | None, times: Any
    ) -> list[tuple[Any, ...]]:
        """Store what stays open, move the timer, and return what is over."""
        watermark_us = times.getCurrentWatermarkInMs() * 1000
        still_open = [each for each in found if each[1] > watermark_us]
        due_ms = earliest_ms(still_open) if still_open else None
        if due_ms != armed_ms:
            if armed_ms is not None:
                self.handle.deleteTimer(armed_ms)
            if due_ms is not None:
                self.handle.registerTimer(due_ms)
        if still_open:
            self.stored.update((b"".join(STORED.pack(*each) for each in still_open),))
        else:
            self.stored.clear()
        return [(key[0], *each) for each in found if each[1] <= watermark_us]

    def own_windows(self, rows: Iterator[Any]) -> Iterator[Interval]:
        """Return the window of each row."""
        for row in rows:
            yield row.time_us, row.time_us + self.gap_us, 1, row.seconds

    def rows(self, over: list[tuple[Any, ...]]) -> Iterator[Any]:
        """Return what is over as Spark wants it."""
        return (Row(**dict(zip(COLUMNS, each, strict=True))) for each in over)


class Counts(StatefulProcessor):
    """A running count of one user's events."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self.stored = handle.getValueState("count", STORED_COUNT)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803 - Spark's names
        """Count the rows, and return the count."""
        events, seconds = self.stored.get() or (0, 0.0)
        for row in rows:
            events += 1
            seconds += row.seconds
        self.stored.update((events, seconds))
        yield Row(user_id=key[0], events=events, seconds=seconds)

    def close(self) -> None:
        """Nothing to close."""


def _events(events: DataFrame, workload: Workload) -> Any:
    return (
        events.withWatermark("ts", seconds_of(workload.disorder))
        .select("user_id", "ts", F.unix_micros("ts").alias("time_us"), "seconds")
        .groupBy("user_id")
    )


def _gap_us(workload: Workload) -> int:
    return workload.gap // timedelta(microseconds=1)


def sessions(events: DataFrame, workload: Workload) -> DataFrame:
    """Find the sessions, row by row."""
    processor = Sessions(_gap_us(workload))
    grouped = _events(events, workload)
    return with_times(grouped.transformWithState(processor, OUTPUT, "append", "EventTime"))


def counts(events: DataFrame, workload: Workload) -> DataFrame:
    """Count each user's events, row by row."""
    grouped = events.select("user_id", "seconds").groupBy("user_id")
    return grouped.transformWithState(Counts(), COUNT_OUTPUT, "append", "None")


TRANSFORM: Final = Entrant(
    name="transformWithState",
    about="`transformWithState` in Python, rows, one group a key",
    ways={"sessions": sessions, "counts": counts},
    environment="protobuf",
)
