"""
How long users are logged in, and an alert for each log-in that looks like fraud.

    python -m examples.logins                      records that are made up
    python -m examples.logins --events log.csv     a log of your own
"""

import sys
from collections.abc import Mapping
from datetime import timedelta
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
    log_of,
    parser_of,
    show,
    start_spark,
    stream,
    write_files,
    write_report,
)
from sessionkit.spark import Files, apply_with_state, start_query

__all__ = ["REPORT", "main", "run"]

FILES: Final = 4
REPORT: Final[Mapping[str, Any]] = {"keys": "user", "dimensions": "outcome"}
LATE: Final = timedelta(minutes=10)


def run(spark: SparkSession, records: pa.Table, out: Path, *, files: int = FILES) -> Path:
    """Stream the records into periods and alerts, and show these; return the report."""
    with TemporaryDirectory(prefix="logins-") as scratch:
        arrived = by_arrival(records, records["at"], LATE)
        write_files(cut(arrived, files), Path(scratch, "records"))
        queries = [
            start_query(
                apply_with_state(stream(spark, Path(scratch, "records")), spec),
                sink=Files("parquet", out / name),
                trigger="availableNow",
                checkpoint=out / "checkpoints" / name,
                spec=spec,
            )
            for name, spec in (("periods", LOGINS), ("alerts", FRAUD))
        ]
        for query in queries:
            query.awaitTermination()
    alerts = spark.read.parquet(str(out / "alerts")).orderBy("user", "at")
    shown = alerts.select("user", F.col("at").cast("string"), "why").collect()
    show("Alerts", shown, "user", "at", "why")
    periods = spark.read.parquet(str(out / "periods"))
    by_outcome = periods.groupBy("outcome").agg(F.count("*"), F.max("duration"))
    show("Sessions", by_outcome.orderBy("outcome").collect(), "ended", "sessions", "the longest")
    return write_report(as_sessions(periods), out, "Log-ins", **REPORT)


def as_sessions(periods: DataFrame) -> DataFrame:
    """Name the columns as the report expects those of sessions."""
    return periods.select(
        "user",
        F.col("session").cast("string").alias("session_id"),
        F.coalesce("began", "ended").alias("session_start"),
        F.col("ended").alias("session_end"),
        F.col("ended").alias("last_event_time"),  # no gap comes after a log-out
        "outcome",
    )


def main() -> int:
    """Run it on a local Spark; return the exit code."""
    asked = parser_of("logins", __doc__).parse_args()
    log = log_of("access.csv", asked.events)
    spark = start_spark("logins")
    try:
        run(spark, read_log(log) if log else made_up(), emptied(asked.out))
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
