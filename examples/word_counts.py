"""
Count words on a stream, from a socket or from files, as running counts or in event-time windows.

    python -m examples.word_counts --files FOLDER
    python -m examples.word_counts --socket HOST:PORT --mode update
    python -m examples.word_counts --files FOLDER --windows --mode append

A line is a list of words; with `--windows`, the first one is an event time, such as
`2024-03-10T12:07:00Z`. Words are then counted in ten-minute windows that start every five minutes,
and a word may be ten minutes late. Files are read to their end; a socket is read until you
interrupt the program.
"""

import sys
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit.spark.sinks import OutputMode
from sessionkit.spark.windows import sliding

__all__ = ["WINDOWED", "from_files", "from_socket", "main", "running_counts", "start", "windows"]

Show = Callable[[str], None]

WINDOWED = sliding(
    "10 minutes", every="5 minutes", event_time="ts", keys="word", watermark_delay="10 minutes"
).agg(n="count(*)")
"""Needs no Spark session, because its aggregate is SQL text."""


def from_socket(spark: SparkSession, host: str, port: int) -> DataFrame:
    """Return the lines that a server sends. Spark can't read them again after a failure."""
    options = {"host": host, "port": str(port)}
    return spark.readStream.format("socket").options(**options).load()


def from_files(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the lines of text files, one file per micro-batch, oldest first."""
    return spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))


def running_counts(lines: DataFrame) -> DataFrame:
    """Count each word since the start of the stream."""
    words = lines.select(F.explode(F.split("value", " ")).alias("word"))
    return words.where("word <> ''").groupBy("word").agg(F.count("*").alias("n"))


def windows(lines: DataFrame, mode: OutputMode) -> DataFrame:
    """Count each word in each window, by the event time at the start of its line."""
    parts = lines.select(F.split("value", " ").alias("parts"))
    words = parts.select(
        F.expr("try_to_timestamp(parts[0])").alias("ts"),
        F.explode(F.expr("slice(parts, 2, greatest(size(parts) - 1, 0))")).alias("word"),
    )
    with warnings.catch_warnings():
        # Complete mode shows every window there ever was, which is the point of the example.
        warnings.filterwarnings("ignore", "mode 'complete' drops no window")
        return WINDOWED.output_mode(mode).apply(words.where("word <> ''"))


def start(
    counts: DataFrame, mode: OutputMode, *, show: Show = print, until_end: bool = False
) -> StreamingQuery:
    """Start a query that shows the rows of each micro-batch that has any."""

    def write(batch: DataFrame, number: int) -> None:
        lines = sorted(" ".join(map(str, row)) for row in batch.collect())
        if lines:
            show(f"batch {number}")
        for line in lines:
            show(f"  {line}")

    clock = [
        F.date_format(name, "HH:mm").alias(name) if kind == "timestamp" else F.col(name)
        for name, kind in counts.dtypes
    ]
    writer = counts.select(*clock).writeStream.foreachBatch(write).outputMode(mode)
    return (writer.trigger(availableNow=True) if until_end else writer).start()


def main(arguments: Sequence[str] | None = None) -> int:
    """Count until the files end or the program is interrupted; return the exit code."""
    chosen = _parse(arguments)
    mode: OutputMode = chosen.mode
    spark = SparkSession.builder.appName("word counts").getOrCreate()
    if chosen.files:
        lines = from_files(spark, chosen.files)
    else:
        host, _, port = chosen.socket.rpartition(":")
        lines = from_socket(spark, host, int(port))
    counts = windows(lines, mode) if chosen.windows else running_counts(lines)
    query = start(counts, mode, until_end=bool(chosen.files))
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    return 0


def _parse(arguments: Sequence[str] | None) -> Namespace:
    parser = ArgumentParser(description="Count words on a stream.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--files", type=Path, help="a folder of text files")
    source.add_argument("--socket", help="HOST:PORT of a server that sends lines")
    parser.add_argument("--mode", choices=["append", "update", "complete"], default="complete")
    parser.add_argument("--windows", action="store_true", help="count in event-time windows")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
