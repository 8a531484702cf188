"""Runs one contestant over one set of files, to time it or to compare its rows."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.contestants import Contestant
from benchmarks.events import FILES_A_BATCH

__all__ = ["rows_of", "seconds_of_batches", "spark_session"]

CORES: Final = 2
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "3g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
INPUT: Final = "user_id string, ts timestamp, page string, seconds double"


@contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """Yield the session in which all contestants run; Spark writes only to the folder."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Python workers import the functions of the contestants by name.
    root = str(Path(__file__).resolve().parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("sessionkit benchmark")
    builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    for name, value in SETTINGS.items():
        builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def seconds_of_batches(
    spark: SparkSession, contestant: Contestant, files: Path, checkpoint: Path
) -> list[float]:
    """Return how long each micro-batch with data took, as Spark reports it; no row is kept."""
    rows = contestant(_stream(spark, files))
    progress = _run(rows.writeStream.format("noop"), checkpoint)
    return [
        batch["durationMs"]["triggerExecution"] / 1000
        for batch in progress
        if batch["numInputRows"] > 0
    ]


def rows_of(
    spark: SparkSession,
    contestant: Contestant,
    columns: Sequence[str],
    files: Path,
    folder: Path,
) -> pa.Table:
    """Return these columns of the rows that come out, in their order."""
    rows = contestant(_stream(spark, files)).select(*columns)
    path = folder / "rows"
    writer = rows.writeStream.format("parquet").option("path", str(path))
    _run(writer, folder / "checkpoint")
    return pq.read_table(path).sort_by([(name, "ascending") for name in columns])


def _stream(spark: SparkSession, files: Path) -> DataFrame:
    reader = spark.readStream.schema(INPUT).option("maxFilesPerTrigger", FILES_A_BATCH)
    return reader.parquet(str(files))


def _run(writer: DataStreamWriter, checkpoint: Path) -> list[Any]:
    writer = writer.option("checkpointLocation", str(checkpoint)).outputMode("append")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return list(query.recentProgress)
