"""Queries over files, their rows kept: step by step, as rows come, or over all that there are."""

import json
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final, Literal, TypeAlias

import attrs
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sessionkit import Counts
from sessionkit._instants import EPOCH
from sessionkit.spark import batch_counts
from tests.support.streams import FileStream, write_files

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
class Kept:
    """
    What a stream has emitted so far.

    Connect calls `foreachBatch` in a process that it starts for each query, which takes longer than
    all that a test does. So there a file sink keeps the rows, in the one mode that it has.

    Attributes:
        times: The function by which times become numbers: a datetime from Spark is naive, in the
            zone of the machine. None leaves them as they are.
        folder: Where the rows are.
    """

    times: Literal["unix_micros", "unix_millis"] | None = None
    folder: str = attrs.field(factory=mkdtemp)

    def writer(self, frame: DataFrame, mode: str = "append") -> DataStreamWriter:
        """Return the writer of a stream, with a sink that keeps its rows."""
        is_connect = type(frame).__module__.startswith("pyspark.sql.connect")
        if is_connect and mode == "append":
            files = self._shown(frame).writeStream.format("parquet")
            return files.option("path", f"{self.folder}/files")
        return frame.writeStream.foreachBatch(self).outputMode(mode)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Keep the rows of a micro-batch; if it runs again, its new rows replace them."""
        rows = self._shown(frame).collect()
        written = Path(self.folder, f".{batch_id}")
        written.write_bytes(pickle.dumps(rows))
        written.rename(Path(self.folder, str(batch_id)))

    def _shown(self, frame: DataFrame) -> DataFrame:
        return frame if self.times is None else frame.select(*self._columns(frame))

    def _columns(self, frame: DataFrame) -> list[Column]:
        convert: Any = getattr(F, str(self.times))
        return [
            convert(F.col(name)).alias(name) if kind == "timestamp" else F.col(name)
            for name, kind in frame.dtypes
        ]

    def batches(self, spark: SparkSession) -> dict[int, list[Row]]:
        """Return the rows of every micro-batch, in their order."""
        if Path(self.folder, "files").exists():
            return self._from_files(spark)
        numbers = sorted(int(path.name) for path in Path(self.folder).glob("[0-9]*"))
        return {
            number: pickle.loads(Path(self.folder, str(number)).read_bytes())  # noqa: S301 (our own)
            for number in numbers
        }

    def _from_files(self, spark: SparkSession) -> dict[int, list[Row]]:
        """Return the rows in files, by the micro-batches that the sink's log says."""
        numbers: dict[str, int] = {}
        # A log that Spark has compacted has files of several micro-batches, and goes last.
        logs = Path(self.folder, "files", "_spark_metadata").glob("[0-9]*")
        for log in sorted(logs, key=lambda path: (path.suffix, int(path.stem))):
            for line in log.read_text().splitlines()[1:]:
                numbers.setdefault(Path(json.loads(line)["path"]).name, int(log.stem))
        frame = spark.read.parquet(f"{self.folder}/files")
        found = frame.select(F.struct("*").alias("row"), F.col("_metadata.file_name").alias("file"))
        batches: dict[int, list[Row]] = {number: [] for number in sorted(set(numbers.values()))}
        for row in found.collect():
            batches[numbers[row["file"]]].append(row["row"])
        return batches


@attrs.frozen
class Source:
    """A folder of files; each file is a micro-batch."""

    spark: SparkSession
    folder: Path

    def put(self, *rows: TimedRow) -> None:
        """Put a file after those that are there."""
        written = len(list(self.folder.glob("*.parquet"))) if self.folder.exists() else 0
        columns = zip(*rows, strict=True) if rows else ((), (), ())
        ids, times, values = columns
        instants = [None if time is None else instant(time) for time in times]
        table = pa.table([pa.array(ids, pa.string()), instants, list(values)], schema=SCHEMA)
        write_files(self.folder, [table], first=written)

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


@attrs.define
class Batches:
    """A spec over a stream from rows to rows; each run after the first is a restart."""

    files: FileStream
    schema: pa.Schema
    kept: Kept = attrs.field(factory=lambda: Kept("unix_micros"))
    counts: dict[int, Counts] = attrs.field(factory=dict)

    @property
    def rows(self) -> dict[int, list[dict[str, Any]]]:
        """What came out, by batch; times as microseconds since the epoch."""
        batches = self.kept.batches(self.files.spark)
        return {n: [row.asDict() for row in rows] for n, rows in batches.items()}

    def run(self, batches: Iterable[Sequence[Mapping[str, Any]]]) -> None:
        """Start, run a micro-batch for each of these, then those without data, and stop."""
        self._put(batches)
        with self.files.state_store():
            query = self._writer().trigger(availableNow=True).start()
        query.awaitTermination()
        self._read_progress(query)

    def run_with_pauses(self, batches: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        """Start, and after each of these micro-batches let those without data run; stop."""
        self._put(batches[:1])
        with self.files.state_store():
            query = self._writer().start()
        query.processAllAvailable()
        for batch in batches[1:]:
            self._put([batch])
            query.processAllAvailable()
        query.stop()
        self._read_progress(query)

    def _put(self, batches: Iterable[Sequence[Mapping[str, Any]]]) -> None:
        rows = [list(map(dict, batch)) for batch in batches]
        self.files.put(*(pa.Table.from_pylist(batch, self.schema) for batch in rows))

    def _writer(self) -> DataStreamWriter:
        writer = self.kept.writer(self.files.output())
        return writer.option("checkpointLocation", self.files.checkpoint)

    def _read_progress(self, query: StreamingQuery) -> None:
        for entry in query.recentProgress:
            if entry.get("observedMetrics"):
                self.counts[entry["batchId"]] = batch_counts(entry)


def batches_of(spark: SparkSession, spec: Any, schema: pa.Schema, folder: Path) -> Batches:
    """Prepare a stream in an empty folder; rejected rows come out too."""
    return Batches(FileStream(spark, spec, folder, with_rejected=True), schema)
