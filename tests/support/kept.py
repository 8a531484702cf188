"""The rows that a stream emits, kept by micro-batch."""

import json
import pickle
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal

import attrs
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter


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
        """Keep the rows of a micro-batch; those of one that runs again replace them."""
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
