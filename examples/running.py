"""What the apps share: a small, quiet Spark, events as files, and a report in the end."""

import os
import shutil
import sys
import warnings
from argparse import ArgumentParser, RawTextHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit import Counts, SessionSpec, StatefulSpec
from sessionkit.addons.report import Columns, report
from sessionkit.spark import Files, batch_counts, start_query

__all__ = [
    "KAFKA_CONNECTOR",
    "by_arrival",
    "cut",
    "emptied",
    "find_sessions",
    "log_of",
    "parser_of",
    "show",
    "show_counts",
    "start_engine",
    "start_spark",
    "stream",
    "write_files",
    "write_report",
]

Spec: TypeAlias = SessionSpec[Any, Any, Any] | StatefulSpec[Any, Any, Any]

KAFKA_CONNECTOR: Final = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
PANDAS_WARNING: Final = "PySpark does not yet fully support pandas"
LOGGING: Final = Path(__file__).with_name("log4j2.properties")
SETTINGS: Final = {
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
DATA: Final = Path(__file__).parents[2] / "shared" / "data"
"""Logs next to the checkout, where there are any: the project itself has none of others."""
SEED: Final = 2013
SERVERS: Final[list[Any]] = []
"""A server of Sail ends once nobody holds it."""
MICROSECOND: Final = timedelta(microseconds=1)


def start_engine(name: str, engine: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark, with settings of its own, or Sail in this process, which needs no Java."""
    if engine == "spark":
        return start_spark(name, settings)
    from pysail.spark import SparkConnectServer  # noqa: PLC0415 - only who asks for Sail has it

    server = SparkConnectServer()
    server.start()
    SERVERS.append(server)
    _, port = server.listening_address
    return SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()


def start_spark(name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark with a name, and with settings on top of the defaults; it takes seconds."""
    print("Starting Spark ...", flush=True)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # PySpark warns about pandas 3, here and in its workers.
    warnings.filterwarnings("ignore", PANDAS_WARNING, FutureWarning)
    os.environ["PYTHONWARNINGS"] = f"ignore:{PANDAS_WARNING}:FutureWarning"
    builder = SparkSession.builder.master("local[2]").appName(name)
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


# -- what an app is asked for, and where its events are -----------------------------------------


def parser_of(
    app: str, about: str | None, *, takes_events: bool = True, takes_sail: bool = False
) -> ArgumentParser:
    """Return a parser of what apps take: a log of one's own, and where the report goes."""
    parser = ArgumentParser(
        f"python -m examples.{app}", description=about, formatter_class=RawTextHelpFormatter
    )
    if takes_events:
        parser.add_argument("--events", type=Path, help="your own log, as the README shows it")
    if takes_sail:
        note = "sail needs no Java, and runs all events as one batch"
        parser.add_argument("--engine", choices=("spark", "sail"), default="spark", help=note)
    parser.add_argument("--out", type=Path, default=Path("out", app), help="a folder to write to")
    return parser


def log_of(name: str, events: Path | None) -> Path | None:
    """Say where the events come from, and return the log; None if the app makes them up."""
    if events is not None and not events.exists():
        sys.exit(f"There is no {events}.\n\nHint: leave --events out, and the app makes events up")
    log = events or DATA / name
    if not log.exists():
        print("These events are MADE UP: pass a log with --events.", flush=True)
        return None
    print(f"The events come from {log.name}.", flush=True)
    return log


def emptied(folder: Path) -> Path:
    """Return a folder with nothing in it: what an earlier run has left there is deleted."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


# -- events as files ----------------------------------------------------------------------------


def by_arrival(events: pa.Table, times: Any, delay: timedelta) -> pa.Table:
    """Return events in the order in which they arrive, each late by less than the delay."""
    generator = np.random.default_rng(SEED)
    late_us = generator.integers(0, delay // MICROSECOND, events.num_rows)
    return events.take(pa.array(np.argsort(_micros(times) + late_us, kind="stable")))


def cut(events: pa.Table, count: int) -> list[pa.Table]:
    """Split a table into parts of about the same size, in order."""
    borders = [events.num_rows * part // count for part in range(count + 1)]
    return [events.slice(begin, end - begin) for begin, end in pairwise(borders)]


def write_files(parts: Sequence[pa.Table], folder: Path) -> None:
    """Write one Parquet file per part; Spark reads files in order of their modification times."""
    folder.mkdir(parents=True)
    for place, part in enumerate(parts):
        path = folder / f"{place:03}.parquet"
        pq.write_table(part, path)
        os.utime(path, (place + 1, place + 1))


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the events of a folder as a stream, one file per micro-batch."""
    reader = spark.readStream.schema(spark.read.parquet(str(folder)).schema)
    return reader.option("maxFilesPerTrigger", 1).parquet(str(folder))


def find_sessions(
    spark: SparkSession,
    events: Path,
    find: Callable[[DataFrame], DataFrame],
    rows: Path,
    *,
    spec: Spec,
    checkpoint: Path,
) -> StreamingQuery | None:
    """
    Write what is found in a folder of events to a folder of rows; return the query.

    Spark streams the files, one after the other. Sail has no streams, and takes all as one batch.
    """
    if SERVERS:
        find(spark.read.parquet(str(events))).write.parquet(str(rows))
        return None
    return start_query(
        find(stream(spark, events)),
        sink=Files("parquet", rows),
        trigger="availableNow",
        checkpoint=checkpoint,
        spec=spec,
    )


def _micros(instants: Any) -> Any:
    return instants.cast(pa.int64()).to_numpy()


# -- the end ------------------------------------------------------------------------------------


def show(title: str, rows: Sequence[Sequence[object]], *names: str) -> None:
    """Print rows under the names of their columns."""
    lines = [names, *([str(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print(f"\n{title}")
    for line in lines:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        print(f"  {'  '.join(padded)}".rstrip())


def show_counts(query: StreamingQuery) -> Counts:
    """Wait for the end of a query, print what has become of its events, and return that."""
    query.awaitTermination()
    counts = sum(map(batch_counts, query.recentProgress), Counts())
    print(
        f"{counts.events:,} events: {counts.processed:,} in sessions, {counts.late:,} late, "
        f"{counts.quarantined:,} quarantined, {counts.buffered:,} wait for earlier ones. "
        f"{counts.sessions:,} sessions are over."
    )
    return counts


def write_report(
    rows: Any,
    folder: Path,
    title: str,
    *,
    table: str | None = None,
    time_zone: str = "UTC",
    **columns: Any,
) -> Path:
    """Write the report, print a link to it, and return its path."""
    path = folder / "report.html"
    shown = Columns(**columns)
    report(rows, out=path, title=title, table=table, columns=shown, time_zone=time_zone)
    print(f"\nThe report: {path.resolve().as_uri()}")
    return path
