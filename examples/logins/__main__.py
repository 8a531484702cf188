"""
How long users are logged in, and an alert for each log-in that looks like fraud.

    python -m examples.logins                      records that are made up
    python -m examples.logins --events log.csv     a log of your own
    python -m examples.logins --engine sail        without Java, as one batch
"""

import sys
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.logins.events import made_up, read_log
from examples.logins.spec import FRAUD, LOGINS
from examples.running import (
    by_arrival,
    cut,
    emptied,
    find_sessions,
    log_of,
    parser_of,
    show,
    start_engine,
    write_files,
    write_report,
)
from sessionkit.spark import apply_with_state

__all__ = ["REPORT", "main", "run"]

FILES: Final = 4
REPORT: Final[Mapping[str, Any]] = {"keys": "user", "dimensions": "outcome"}
LATE: Final = timedelta(minutes=10)


def run(spark: SparkSession, records: pa.Table, out: Path, *, files: int = FILES) -> Path:
    """Turn the records into periods and alerts, and show these; return the report."""
    with TemporaryDirectory(prefix="logins-") as scratch:
        arrived = by_arrival(records, records["at"], LATE)
        write_files(cut(arrived, files), Path(scratch, "records"))
        queries = [
            find_sessions(
                spark,
                Path(scratch, "records"),
                partial(apply_with_state, spec=spec),
                out / name,
                spec=spec,
                checkpoint=out / "checkpoints" / name,
            )
            for name, spec in (("periods", LOGINS), ("alerts", FRAUD))
        ]
        for query in filter(None, queries):
            query.awaitTermination()
    alerts = spark.read.parquet(str(out / "alerts")).orderBy("user", "at")
    shown = alerts.select("user", F.col("at").cast("string"), "why").collect()
    show("Alerts", shown, "user", "at", "why")
    periods = spark.read.parquet(str(out / "periods"))
    by_outcome = periods.groupBy("outcome").agg(F.count("*"), F.max("duration"))
    show("Sessions", by_outcome.orderBy("outcome").collect(), "ended", "sessions", "the longest")
    return write_report(as_sessions(periods), out, "Log-ins", **REPORT)


def as_sessions(periods: DataFrame) -> DataFrame:
    """Give the columns the names that the report expects of sessions."""
    return periods.select(
        "user",
        F.col("session").cast("string").alias("session_id"),
        F.coalesce("began", "ended").alias("session_start"),
        F.col("ended").alias("session_end"),
        F.col("ended").alias("last_event_time"),  # no gap comes after a log-out
        "outcome",
    )


def main() -> int:
    """Run it on a local Spark, or on Sail; return the exit code."""
    asked = parser_of("logins", __doc__, takes_sail=True).parse_args()
    log = log_of("access.csv", asked.events)
    spark = start_engine("logins", asked.engine)
    try:
        run(spark, read_log(log) if log else made_up(), emptied(asked.out))
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
