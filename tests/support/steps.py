"""A query over files: step by step, as rows come, or over all that there are."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit._instants import EPOCH
from tests.support.kept import Kept
from tests.support.streams import write_files

TimedRow: TypeAlias = tuple[str | None, int | None, Any]
"""The id of a row, its event time in milliseconds since the epoch, and a number."""

SCHEMA: Final = pa.schema(
    {"id": pa.string(), "ts": pa.timestamp("us", tz="UTC"), "value": pa.int64()}
)
COLUMNS: Final = "id string, ts timestamp, value bigint"


def instant(time_ms: int) -> datetime:
    """Return the instant that lies this many milliseconds after the epoch."""
    return EPOCH + timedelta(milliseconds=time_ms)


@attrs.frozen
class Source:
    """A folder of files; each file is a micro-batch."""

    spark: SparkSession
    folder: Path

    def put(self, *rows: TimedRow) -> None:
        """Put a file after those that are there."""
        there = len(list(self.folder.glob("*.parquet"))) if self.folder.exists() else 0
        columns = zip(*rows, strict=True) if rows else ((), (), ())
        ids, times, values = columns
        instants = [None if time is None else instant(time) for time in times]
        table = pa.table([pa.array(ids, pa.string()), instants, list(values)], schema=SCHEMA)
        write_files(self.folder, [table], first=there)

    def stream(self) -> DataFrame:
        self.folder.mkdir(parents=True, exist_ok=True)
        reader = self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder))

    def batch(self) -> DataFrame:
        return self.spark.read.schema(COLUMNS).parquet(str(self.folder))


@attrs.frozen
class Steps:
    """A query that runs."""

    query: StreamingQuery
    kept: Kept
    spark: SparkSession

    @property
    def batches(self) -> list[list[Row]]:
        """What it has emitted, a list for each micro-batch."""
        return list(self.kept.batches(self.spark).values())

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All that it has emitted; times are milliseconds since the epoch."""
        return [row.asDict() for batch in self.batches for row in batch]

    def run(self) -> None:
        """Run all micro-batches that there are, those without data too."""
        self.query.processAllAvailable()

    @property
    def values(self) -> list[int]:
        return sorted(row["value"] for row in self.rows)

    def state_rows(self) -> int:
        """Return how many rows the last micro-batch left in state."""
        progress: Any = self.query.lastProgress
        total: int = progress["stateOperators"][0]["numRowsTotal"]
        return total

    def of_operator(self, counter: str) -> list[int]:
        """Return a counter of the first stateful operator for each micro-batch."""
        return [progress["stateOperators"][0][counter] for progress in self.query.recentProgress]

    def dropped(self) -> int:
        """Return how many rows were dropped, at or before the watermark."""
        return sum(
            operator["numRowsDroppedByWatermark"]
            for progress in self.query.recentProgress
            for operator in progress["stateOperators"]
        )


@contextmanager
def running(frame: DataFrame, checkpoint: Path, mode: str = "append") -> Iterator[Steps]:
    """Start a query, and stop it at the end."""
    kept = Kept("unix_millis")
    query = kept.writer(frame, mode).option("checkpointLocation", str(checkpoint)).start()
    try:
        yield Steps(query, kept, frame.sparkSession)
    finally:
        query.stop()


def finished(frame: DataFrame, mode: str = "append") -> Steps:
    """Run a query over all files, and over the batch without data after them; keep its times."""
    kept = Kept()
    writer = kept.writer(frame, mode).option("checkpointLocation", f"{kept.folder}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return Steps(query, kept, frame.sparkSession)
