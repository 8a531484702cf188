"""`flatMapGroupsWithState` in Java, compiled against the JARs of pyspark."""

from datetime import timedelta
from typing import Any, Final

from pyspark.sql import DataFrame

from benchmarks.entrants.entrant import Entrant
from benchmarks.entrants.intervals import with_times
from benchmarks.entrants.spark_sql import seconds_of
from benchmarks.environments import FOLDER
from benchmarks.workloads import Workload

__all__ = ["FLAT_MAP_GROUPS"]


def sessions(events: DataFrame, workload: Workload) -> DataFrame:
    """Find the sessions with the compiled class, in the session's own JVM."""
    gap_us = workload.gap // timedelta(microseconds=1)
    marked = events.withWatermark("ts", seconds_of(workload.disorder))
    marked = marked.select("user_id", "ts", "seconds")
    jvm: Any = marked.sparkSession._jvm  # noqa: SLF001 - the only door to a class in Java
    rows = DataFrame(jvm.Sessions.find(marked._jdf, gap_us), marked.sparkSession)  # noqa: SLF001
    return with_times(
        rows.selectExpr(
            "user AS user_id",
            "start AS start_us",
            f"last + {gap_us} AS end_us",
            "events",
            "seconds",
        )
    )


FLAT_MAP_GROUPS: Final = Entrant(
    name="java",
    about="`flatMapGroupsWithState` in Java, one group a key, RocksDB",
    ways={"sessions": sessions},
    environment="java",
    settings={"spark.driver.extraClassPath": str(FOLDER / "java")},
)
