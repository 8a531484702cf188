"""
One entrant of Spark, in a process and a JVM of its own: `python -m benchmarks.child JOB [JOB]`.

A job comes as JSON, and its answer goes to a file as JSON: when each batch began, and how long it
took. What the process used meanwhile, `measure` looks up from outside.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.entrants import ENTRANTS
from benchmarks.events import FILES_A_BATCH, schema_of
from benchmarks.workloads import WORKLOADS, Workload

__all__ = ["LOCAL", "Batch", "Job", "main", "run_query", "spark_session", "stream_of"]

CORES: Final = 2
LOCAL: Final = f"local[{CORES}]"
ROOT: Final = Path(__file__).resolve().parents[1]
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "6g",
    "spark.python.unix.domain.socket.enabled": "true",
    # Executors of another machine, or in another folder, find the entrants there.
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    # Below 2 GiB, Spark measures an Arrow batch anew after each of its rows.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    # RocksDB writes what has changed, instead of its files: what Spark advises, and sessionkit.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


BIDS: Final = ("bidder", "bids", "session_start", "session_end")
"""The columns of query 11 of NEXMark."""


@attrs.frozen(kw_only=True)
class Job:
    """
    What is done once: rows to be compared, or batches to be timed.

    Attributes:
        entrant: Who runs.
        workload: On what.
        files: The folder with the events.
        checkpoint: The folder for the checkpoint.
        answer: The file for the batches.
        rows: The folder for the rows, where they are compared; nothing is timed then.
        master: Where Spark runs.
        settings: Settings of Spark that go before all others.
        repetitions: How often a batch is read.
    """

    entrant: str
    workload: str
    files: Path
    checkpoint: Path
    answer: Path
    rows: Path | None = None
    master: str = LOCAL
    settings: Mapping[str, str] = attrs.field(factory=dict)
    repetitions: int = 1

    @property
    def folder(self) -> Path:
        """The folder of all its files."""
        return self.answer.parent

    def as_json(self) -> str:
        """Return the job as the child takes it."""
        return json.dumps(attrs.asdict(self), default=str)

    @classmethod
    def of_json(cls, text: str) -> "Job":
        """Return the job that was written as JSON."""
        found = json.loads(text)
        paths = {name: found[name] and Path(found[name]) for name in PATHS}
        return cls(**{**found, **paths})


PATHS: Final = ("files", "checkpoint", "answer", "rows")


@attrs.frozen
class Batch:
    """
    One micro-batch, or one reading of all files.

    Attributes:
        begun: When it began, in seconds since 1970.
        took_s: How long it took altogether, for the use of the processor meanwhile.
        seconds: How long the work on the rows took.
    """

    begun: float
    took_s: float
    seconds: float


def main() -> None:
    """Run the jobs of the command line, which are those of one entrant on one workload."""
    jobs = [Job.of_json(text) for text in sys.argv[1:]]
    workload, entrant = WORKLOADS[jobs[0].workload], ENTRANTS[jobs[0].entrant]
    settings = {**entrant.settings, **jobs[0].settings}
    spark = spark_session(settings, jobs[0].master)
    run = _batches if workload.mode == "batch" else _micro_batches
    for job in jobs:
        # A stream that is timed leaves its last sessions open: no batch without data closes them.
        closes = job.rows is not None or workload.mode == "job"
        spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(closes).lower())
        batches = run(spark, workload, job)
        job.answer.write_text(json.dumps([attrs.asdict(batch) for batch in batches]))
    spark.stop()


def spark_session(settings: Mapping[str, str], master: str = LOCAL) -> SparkSession:
    """Start Spark with what all entrants have, and these settings."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("sessionkit benchmark")
    for name, value in {**SETTINGS, **settings}.items():
        builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def stream_of(spark: SparkSession, workload: Workload, files: Path) -> DataFrame:
    """Return the events as a stream, a batch in each trigger."""
    reader = spark.readStream.schema(schema_of(workload))
    return reader.option("maxFilesPerTrigger", FILES_A_BATCH).parquet(str(files))


def run_query(writer: DataStreamWriter, checkpoint: Path) -> list[Any]:
    """Read all that is there; return the progress of every micro-batch."""
    writer = writer.option("checkpointLocation", str(checkpoint)).outputMode("append")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return list(query.recentProgress)


def _micro_batches(spark: SparkSession, workload: Workload, job: Job) -> list[Batch]:
    stream = stream_of(spark, workload, job.files)
    rows = ENTRANTS[job.entrant].ways[workload.task](stream, workload)
    if job.rows is None:
        timed = rows.select(*BIDS) if workload.task == "bids" else rows
        output = job.answer.with_name("output")
        writer = _to_files(timed, output) if workload.to_files else timed.writeStream.format("noop")
    else:
        writer = _to_files(_comparable(rows, workload), job.rows)
    progress = run_query(writer, job.checkpoint)
    return [_batch(each) for each in progress if each["numInputRows"] > 0]


def _to_files(rows: DataFrame, folder: Path) -> DataStreamWriter:
    return rows.writeStream.format("parquet").option("path", str(folder))


def _batch(progress: Any) -> Batch:
    return Batch(
        begun=datetime.fromisoformat(progress["timestamp"]).timestamp(),
        took_s=progress["durationMs"]["triggerExecution"] / 1000,
        seconds=progress["durationMs"]["addBatch"] / 1000,
    )


def _batches(spark: SparkSession, workload: Workload, job: Job) -> list[Batch]:
    events = spark.read.schema(schema_of(workload)).parquet(str(job.files))
    way = ENTRANTS[job.entrant].ways[workload.task]
    if job.rows is not None:
        _comparable(way(events, workload), workload).write.parquet(str(job.rows))
        return []
    batches = []
    for _ in range(job.repetitions):
        begun = time.time()
        way(events, workload).write.format("noop").mode("overwrite").save()
        took_s = time.time() - begun
        batches.append(Batch(begun, took_s, took_s))
    return batches


def _comparable(rows: DataFrame, workload: Workload) -> DataFrame:
    if workload.task == "counts":
        return rows.select("user_id", "events", "seconds")
    is_of_bids = workload.task == "bids"
    return rows.select(
        *(["bidder"] if is_of_bids else workload.key_columns),
        F.unix_micros("session_start").alias("start_us"),
        F.unix_micros("session_end").alias("end_us"),
        *(["bids"] if is_of_bids else ["events", "seconds"]),
    )


if __name__ == "__main__":
    main()
