"""Streams and queries of one event, for tests of what a query is and how it starts."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

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
