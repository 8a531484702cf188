"""What Spark has itself, all in the JVM: its session window."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.entrants.entrant import Entrant, Way
from benchmarks.workloads import Task, Workload

__all__ = ["SESSION_WINDOW", "SESSION_WINDOW_DEFAULT_STORE", "seconds_of"]

DEFAULT_STORE: Final = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def seconds_of(span: timedelta) -> str:
    """Return a span as Spark reads it."""
    return f"{span.total_seconds():.0f} seconds"


def by_session_window(events: DataFrame, workload: Workload) -> DataFrame:
    """Find the sessions with Spark's own operator."""
    window = F.session_window("ts", seconds_of(workload.gap)).alias("window")
    sessions = (
        events.withWatermark("ts", seconds_of(workload.disorder))
        .groupBy(*workload.key_columns, window)
        .agg(F.count("*").alias("events"), F.sum("seconds").alias("seconds"))
    )
    return sessions.select(
        *workload.key_columns,
        F.col("window.start").alias("session_start"),
        F.col("window.end").alias("session_end"),
        "events",
        "seconds",
    )


def bids_by_session_window(bids: DataFrame, workload: Workload) -> DataFrame:
    """Count the bids of each bidder's sessions with Spark's own operator."""
    window = F.session_window("dateTime", seconds_of(workload.gap)).alias("window")
    sessions = (
        bids.withWatermark("dateTime", seconds_of(workload.disorder))
        .groupBy("bidder", window)
        .agg(F.count("*").alias("bids"))
    )
    return sessions.select(
        "bidder",
        F.col("window.start").alias("session_start"),
        F.col("window.end").alias("session_end"),
        "bids",
    )


BY_SESSION_WINDOW: Final[Mapping[Task, Way]] = {
    "sessions": by_session_window,
    "bids": bids_by_session_window,
}

SESSION_WINDOW: Final = Entrant(
    name="session_window",
    about="Spark's own operator, RocksDB",
    ways=BY_SESSION_WINDOW,
)
SESSION_WINDOW_DEFAULT_STORE: Final = Entrant(
    name="session_window, default store",
    about="Spark's own operator, the default state store",
    ways=BY_SESSION_WINDOW,
    settings={"spark.sql.streaming.stateStore.providerClass": DEFAULT_STORE},
)
