"""Trying cells of the table of output rules on the real Spark, many queries at a time."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pandas as pd
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.streaming.state import GroupStateTimeout

from sessionkit.spark._output_rules import OutputRule, QueryType, Sink

ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"
QUICK: Final = {
    # A batch of one row is planned and compiled for longer than it runs.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
}
PATIENCE_S: Final = 60
HOUR: Final = "at2 BETWEEN at1 AND at1 + INTERVAL 1 HOUR"


@attrs.frozen
class Events:
    """A stream of one file with one event: key, at, value."""

    spark: SparkSession
    folder: Path

    @property
    def source(self) -> str:
        return str(self.folder / "events")

    def write(self) -> "Events":
        event = "SELECT 'a' AS key, TIMESTAMP '2026-03-08 12:00:00' AS at, 1L AS value"
        self.spark.sql(event).write.parquet(self.source)
        return self

    def batch(self) -> DataFrame:
        return self.spark.read.parquet(self.source)

    def stream(self) -> DataFrame:
        return self.spark.readStream.schema(self.batch().schema).parquet(self.source)

    def watermarked(self) -> DataFrame:
        """Return the event as a stream with a watermark."""
        return self.stream().withWatermark("at", "10 minutes")


def windowed(frame: DataFrame) -> DataFrame:
    """Count the events of each window and key."""
    return frame.groupBy(F.window("at", "10 minutes"), "key").count()


def session_windowed(frame: DataFrame) -> DataFrame:
    """Count the events of each session window and key."""
    return frame.groupBy(F.session_window("at", "10 minutes"), "key").count()


def joined(events: Events, kind: str) -> DataFrame:
    left = events.watermarked().select(F.col("key").alias("key1"), F.col("at").alias("at1"))
    right = events.watermarked().select(F.col("key").alias("key2"), F.col("at").alias("at2"))
    return left.join(right, F.expr(f"key1 = key2 AND {HOUR}"), kind)


def with_state(frame: DataFrame, mode: str, timeout: str) -> DataFrame:
    """Apply a function with state, and drop a column of what it returns."""

    def run(key: Any, frames: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"key": [key[0]], "dropped": [0]})

    schema = "key string, dropped long"
    rows = frame.groupBy("key").applyInPandasWithState(run, schema, "n long", mode, timeout)
    return rows.drop("dropped")


EVENT_TIME: Final = GroupStateTimeout.EventTimeTimeout
QUERIES: Final[dict[QueryType, Callable[[Events], DataFrame]]] = {
    "stateless": lambda events: events.stream().where("value > 0"),
    "sorted": lambda events: events.stream().orderBy("at"),
    "limit": lambda events: events.stream().limit(1),
    "aggregation": lambda events: windowed(events.stream()),
    "watermarked_aggregation": lambda events: windowed(events.watermarked()),
    "sorted_aggregation": lambda events: windowed(events.watermarked()).orderBy("count"),
    "session_window": lambda events: session_windowed(events.stream()),
    "watermarked_session_window": lambda events: session_windowed(events.watermarked()),
    "chained_aggregation": lambda events: (
        windowed(events.watermarked()).groupBy(F.window("window", "1 hour")).sum("count")
    ),
    "deduplication": lambda events: events.stream().dropDuplicates(["key"]),
    "deduplication_within_watermark": lambda events: (
        events.watermarked().dropDuplicatesWithinWatermark(["key"])
    ),
    "inner_join": lambda events: joined(events, "inner"),
    "semi_join": lambda events: joined(events, "leftSemi"),
    "outer_join": lambda events: joined(events, "leftOuter"),
    "stateful": lambda events: with_state(events.watermarked(), "append", EVENT_TIME),
    "stateful_update": lambda events: with_state(events.watermarked(), "update", EVENT_TIME),
}


@attrs.frozen
class Outcomes:
    said: dict[OutputRule, str]

    @property
    def disagreements(self) -> list[str]:
        """The cells in which the table says something else than Spark, in words."""
        return [
            f"{rule.query}, {rule.mode}, {rule.sink}: Spark {said}, the table {expected(rule)}"
            for rule, said in self.said.items()
            if said != expected(rule)
        ]

    def summary(self, not_tried: int, reason: str) -> str:
        agreed = len(self.said) - len(self.disagreements)
        figures = f"cells tried: {len(self.said)}, agreed: {agreed}, not tried: {not_tried}"
        return f"{figures} ({reason})" if not_tried else figures


def expected(rule: OutputRule) -> str:
    """Return what the table says of a cell."""
    return ACCEPTED if rule.refused is None else REFUSED


def try_cells(events: Events, rules: Iterable[OutputRule], options: dict[str, str]) -> Outcomes:
    """Start a query for each cell, those of a query type together, and tell what Spark says."""
    said: dict[OutputRule, str] = {}
    by_type: dict[QueryType, list[OutputRule]] = {}
    for rule in rules:
        by_type.setdefault(rule.query, []).append(rule)
    for query, cells in by_type.items():
        frame = QUERIES[query](events)
        begun = {rule: _begin(events, frame, rule, options) for rule in cells}
        said |= {rule: _outcome(found) for rule, found in begun.items()}
    return Outcomes(said)


def _begin(
    events: Events, frame: DataFrame, rule: OutputRule, options: dict[str, str]
) -> StreamingQuery | str:
    name = f"{rule.query}_{rule.mode}_{rule.sink}"
    if rule.sink == "kafka":
        frame = frame.select(F.to_json(F.struct("*")).alias("value"))
    folder = events.folder / name
    writer = frame.writeStream.outputMode(rule.mode).queryName(name).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).options(**options)
    try:
        return _with_sink(writer, rule.sink, str(folder / "out")).start()
    except AnalysisException:
        return REFUSED


def _with_sink(writer: DataStreamWriter, sink: Sink, folder: str) -> DataStreamWriter:
    match sink:
        case "file":
            return writer.format("json").option("path", folder)
        case "foreach":
            return writer.foreach(lambda row: None)
        case "foreachBatch":
            return writer.foreachBatch(lambda batch, _: batch.foreach(lambda row: None))
        case "console" | "memory" | "kafka":
            return writer.format(sink)


def _outcome(found: StreamingQuery | str) -> str:
    if isinstance(found, str):
        return found
    try:
        if not found.awaitTermination(PATIENCE_S):
            found.stop()
            return "did not end"
    except PySparkException as error:
        return f"failed: {error}"
    return ACCEPTED if found.recentProgress else "ended without a batch"
