"""
Find the duty periods of aircraft on a stream, and compare them with Spark's own operator.

Run it with `make demo`. It writes a year of flights as files, streams them through Spark, saves the
sessions, and then compares them row by row with the result of `session_window` on the same files
as one batch. The spec is in `spec.py`.
"""

import shutil
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples import running
from examples.running import cut, start_spark, write_files
from examples.trips.events import arriving, read_flights, smallest_lead
from examples.trips.spec import DUTY_PERIODS, GAP
from sessionkit import Counts, SessionSpec
from sessionkit.spark import batch_counts, read_state, sessionize

AnySpec: TypeAlias = SessionSpec[Any, Any, Any]

OUT = Path("out")
FILES = 24
SHOWN = 8
COMPARED = ("tailnum", "session_start", "session_end", "flights", "miles")
SETTINGS = {"spark.sql.session.timeZone": "America/New_York"}  # for printed times


def main() -> int:
    """Run the demo on the whole year; return the exit code."""
    print("The flights that left New York in 2013.", flush=True)
    spark = start_spark("sessionkit demo", SETTINGS)
    try:
        return run(spark, read_flights(), OUT, file_count=FILES)
    finally:
        spark.stop()


def run(
    spark: SparkSession,
    flights: pa.Table,
    out: Path,
    *,
    file_count: int,
    spec: AnySpec = DUTY_PERIODS,
) -> int:
    """Run the demo on these flights; return the exit code, 1 if anything differs."""
    saved, checkpoint = out / "duty_periods", out / "checkpoint"
    for folder in (saved, checkpoint):
        shutil.rmtree(folder, ignore_errors=True)
    with TemporaryDirectory(prefix="sessionkit-") as scratch:
        source = Path(scratch, "flights")
        prepare(flights, source, file_count, spec)
        counts = stream(spark, spec, source, saved, checkpoint)
        emitted = spark.read.parquet(str(saved))
        remaining = still_open(spark, checkpoint, spec)
        show_busiest(emitted)
        show_counts(counts)
        print(f"The sessions are saved in {saved}/ as Parquet. Comparing with session_window ...")
        expected = session_windows(spark.read.parquet(str(source)))
        found = emitted.select(*COMPARED).unionByName(remaining)
        differing = differences(found, expected).limit(SHOWN).collect()
        claim = f"demo: {emitted.count()} sessions emitted, {remaining.count()} open"
    missing = flights.num_rows - accounted_for(counts)
    return conclude(claim, differing, missing)


def prepare(flights: pa.Table, folder: Path, file_count: int, spec: AnySpec) -> None:
    """Write the flights as files, and print how far out of order they are."""
    parts = cut(arriving(flights, spec.watermark_delay), file_count)
    write_files(parts, folder)
    hours = spec.watermark_delay / timedelta(hours=1)
    lead = smallest_lead(parts, spec.watermark_delay) / timedelta(minutes=1)
    print(
        f"{flights.num_rows:,} flights in {file_count} files, up to {hours:g} hours out of order. "
        f"Each one is ahead of the watermark when it arrives, by at least {lead:.0f} minutes."
    )


def stream(
    spark: SparkSession, spec: AnySpec, source: Path, saved: Path, checkpoint: Path
) -> Counts:
    """Stream the files, one per micro-batch, into a folder of sessions; return the counts."""
    query = (
        sessionize(running.stream(spark, source), spec)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(saved))
    )
    watch(query, spark.read.parquet(str(source)).count())
    return total_counts(query)


def watch(query: StreamingQuery, total: int) -> None:
    """Show a progress bar until the query has ended; raise the error that it raised."""
    columns = [
        TextColumn("{task.completed:,} of {task.total:,} flights"),
        BarColumn(),
        TextColumn("{task.fields[sessions]:,} sessions closed"),
        TimeElapsedColumn(),
    ]
    with Progress(*columns) as bar:
        task = bar.add_task("flights", total=total, sessions=0)
        ended = False
        while not ended:
            ended = bool(query.awaitTermination(1))
            counts = total_counts(query)
            bar.update(task, completed=counts.events, sessions=counts.sessions)


def total_counts(query: StreamingQuery) -> Counts:
    """Sum the counts of all micro-batches so far."""
    return sum(map(batch_counts, query.recentProgress), Counts())


def accounted_for(counts: Counts) -> int:
    """Return the number of flights whose outcome is known."""
    return counts.processed + counts.quarantined + counts.late


def show_busiest(sessions: DataFrame) -> None:
    """Print the duty periods with the most flights."""
    busiest = sessions.orderBy(F.desc("flights"), F.desc("miles"), "tailnum", "session_start")
    begin = F.date_format("session_start", "d MMM HH:mm").alias("begin")
    shown = busiest.select("tailnum", begin, "flights", "miles", "origin", "dest")
    print_table("The busiest duty periods", shown.limit(SHOWN).collect())


def show_counts(counts: Counts) -> None:
    """Print the outcomes of the flights."""
    rows = [
        ("part of a session", counts.processed),
        ("quarantined: cancelled, without a departure", counts.quarantined),
        ("late", counts.late),
        ("all", accounted_for(counts)),
    ]
    print_table("The outcomes of the flights", [Row(flights=what, count=n) for what, n in rows])


def still_open(spark: SparkSession, checkpoint: Path, spec: AnySpec) -> DataFrame:
    """Return the sessions that are still open, from the checkpoint of a finished query."""
    found = read_state(str(checkpoint), spec, spark=spark)
    rows = [
        (s.key.tailnum, s.session_start, s.session_end, s.state.flights, s.state.miles)
        for s in found
    ]
    types = ("string", "timestamp", "timestamp", "bigint", "bigint")
    schema = ", ".join(f"{name} {kind}" for name, kind in zip(COMPARED, types, strict=True))
    return spark.createDataFrame(rows, schema)


def session_windows(flights: DataFrame) -> DataFrame:
    """Find all sessions with Spark's own operator, in one batch."""
    return (
        flights.where("tailnum IS NOT NULL AND departure IS NOT NULL")
        .groupBy("tailnum", F.session_window("departure", GAP).alias("window"))
        .agg(F.count("*").alias("flights"), F.sum("distance").alias("miles"))
        .select("tailnum", "window.start", "window.end", "flights", "miles")
        .toDF(*COMPARED)
    )


def differences(found: DataFrame, expected: DataFrame) -> DataFrame:
    """Return the rows that aren't in both, and how many more of each are in `found`."""
    more = found.withColumn("more", F.lit(1)).unionByName(expected.withColumn("more", F.lit(-1)))
    return (
        more.groupBy(*COMPARED)
        .agg(F.sum("more").alias("more"))
        .where("more <> 0")
        .orderBy(*COMPARED)
        .withColumns({name: F.col(name).cast("string") for name in COMPARED[1:3]})
    )


def conclude(claim: str, differing: Sequence[Row], missing: int) -> int:
    """Print whether everything agrees; return the exit code."""
    if differing:
        print_table("Rows only in sessionkit (1) or only in session_window (-1)", differing)
        print(f"{claim}, NOT equal to session_window")
    elif missing:
        print(f"{claim}, NOT equal: {missing} flights are unaccounted for")
    else:
        print(f"{claim}, equal to session_window")
    return 1 if differing or missing else 0


def print_table(title: str, rows: Sequence[Row]) -> None:
    """Print rows under the names of their columns, with numbers right-aligned."""
    table = Table(title=title, title_justify="left")
    for name, value in rows[0].asDict().items():
        table.add_column(name, justify="right" if isinstance(value, int) else "left")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in row))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
