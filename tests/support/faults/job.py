"""
The job: it runs in a process of its own, as the driver of a JVM that it did not start.

So it can be killed a hundred times while the JVM goes on: starting one takes seconds. What the JVM
still runs for a driver that is gone is stopped by the next one, as a cluster's manager would.
"""

import json
import os
import pickle
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import attrs
import psycopg
import pyarrow.parquet as pq
from psycopg import sql
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit import StatefulSpec
from sessionkit.addons.delta import Delta
from sessionkit.addons.postgres import Postgres
from sessionkit.errors import BalanceError, SinkError
from sessionkit.spark import (
    AtLeastOnce,
    ExactlyOnce,
    Files,
    Kafka,
    Routes,
    apply_with_state,
    reconcile,
    sessionize,
    start_query,
)
from sessionkit.spark._logs import query_id_of
from sessionkit.spark.progress import Reconciliation
from sessionkit.spark.query import Trigger
from sessionkit.spark.sinks import Batch
from sessionkit.spark.sinks.writers import checked_parts
from tests.support.faults.ledger import Row, last_batch, replace_batch, rows_of, write_batch
from tests.support.faults.specs import spec_of
from tests.support.faults.timeline import ON_TIME

COMMITTED: Final = "committed"
HOUR_S: Final = 3600.0
LOOK_S: Final = 0.02
FOLLOWING: Final = re.compile(r"begin with Reconciliation\(first=(\d+)\)")
STORE: Final = "spark.sql.streaming.stateStore"
PACKAGE: Final = "org.apache.spark.sql.execution.streaming.state"
PROVIDERS: Final = {"HDFS": "HDFSBackedStateStoreProvider", "RocksDB": "RocksDBStateStoreProvider"}
CHANGELOGS: Final = f"{STORE}.rocksdb.changelogCheckpointing.enabled"
EVENT: Final = "key string, at timestamp, number long"
TABLES: Final = ("sessions", "rejected")
Alone: TypeAlias = Literal["Files", "AtLeastOnce", "Delta", "Kafka"]
FAR: Final = 1_000_000
"""The number of a micro-batch that no query comes to."""
KIND_OF_RESULTS: Final = ("session", "result")
SESSIONS: Final = sql.SQL("SELECT key, numbers, {} FROM {}")
REJECTED: Final = sql.SQL("SELECT kind, (event->>'number')::bigint FROM {}")


@attrs.frozen
class Servers:
    """A broker of Kafka, the jars with which Spark reaches it, and a PostgreSQL."""

    kafka: str
    jars: Path
    dsn: str = attrs.field(repr=False)


@attrs.frozen
class Job:
    """What is run, and where."""

    spec: str
    layout: str
    store: str
    folder: Path
    servers: Servers | None = None
    alone: Alone | None = None
    """The sink that all rows go to; None for `Routes`."""

    @property
    def name(self) -> str:
        ends = "Kafka to PostgreSQL" if self.servers else "files to SQLite and a folder"
        ends = f"files to {self.alone}" if self.alone else ends
        return f"{self.spec}, {self.layout}, {self.store}, {ends}"

    @property
    def is_chained(self) -> bool:
        """Whether operators of Spark read its sessions; they have no rejected rows."""
        return self.spec == "chained"

    @property
    def topic(self) -> str:
        """The topic of its events, and in what its tables' names begin."""
        return f"job_{self.folder.name}"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def ledger(self) -> Path:
        return self.folder / "sink" / "ledger.db"

    @property
    def sums(self) -> Path:
        return self.folder / "sums"

    @property
    def rejected(self) -> Path:
        return self.folder / "rejected"

    @property
    def source(self) -> Path:
        return self.folder / "in"


@attrs.frozen
class Life:
    """One start of the job."""

    job: Job
    gateway: tuple[int, str]
    until: Trigger = "0 seconds"
    is_watched: bool = False
    is_reconciled: bool = False
    """Whether the counts are stored after each micro-batch, and continued by the next life."""


@attrs.define
class Sink:
    """Writes micro-batches, and is killed in between, where the harness says so."""

    path: Path
    harness: Connection
    order: str | None = None

    def last_batch(self, _: str) -> int | None:
        """Return the last micro-batch that is there."""
        return last_batch(self.path)

    def write(self, frame: DataFrame, _: str, number: int) -> None:
        rows = [row_of(row.asDict()) for row in frame.collect()]
        if self.harness.poll():
            self.order = self.harness.recv()
        write_batch(self.path, number, rows, before_commit=self._before_commit)
        if self.order == "after the commit":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.order == "JVM after the commit":
            self.harness.send(COMMITTED)
            time.sleep(HOUR_S)

    def replace(self, frame: DataFrame, number: int) -> None:
        """Write a micro-batch in place of the one with its number, as an idempotent function."""
        found = [row_of(row.asDict(recursive=True)) for row in frame.collect()]
        replace_batch(self.path, number, found)

    def _before_commit(self) -> None:
        if self.order == "in the transaction":
            os.kill(os.getpid(), signal.SIGKILL)


def live(life: Life, harness: Connection) -> None:
    """Run the job until it ends or is killed; tell the harness what an end was due to."""
    log = os.open(life.job.folder / "driver.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = map(
        str, life.gateway
    )
    try:
        rows, sink, settings = _query(_session(life), life, Sink(life.job.ledger, harness))
        earlier = [*_earlier_run(rows, sink, life.job)] if life.is_watched else []
        query = start_query(rows, sink=sink, **settings)
        if life.is_reconciled:
            _reconcile(query, life.job.sums)
        query.awaitTermination()
        for write in earlier:
            _check_refused(write)
    except BaseException as error:  # noqa: BLE001 - the harness judges it
        harness.send("".join(traceback.format_exception(error)))
        # Python would wait for threads that talk to a JVM that may be gone.
        sys.stdout.flush()
        os._exit(1)
    os._exit(0)


def _session(life: Life) -> SparkSession:
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    context: Any = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    SparkContext(gateway=gateway, jsc=gateway.jvm.JavaSparkContext(context))
    spark = SparkSession.builder.getOrCreate()
    for query in spark.streams.active:
        query.stop()
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set(f"{STORE}.providerClass", f"{PACKAGE}.{PROVIDERS[life.job.store]}")
    spark.conf.set(CHANGELOGS, value=True)
    return spark


def _query(spark: SparkSession, life: Life, sink: Sink) -> tuple[DataFrame, Any, Any]:
    """Return the rows of the job, its sink, and how it is started."""
    job = life.job
    spec = spec_of(job.spec, job.layout)
    run = apply_with_state if isinstance(spec, StatefulSpec) else sessionize
    rows = run(_events(spark, job), spec, with_rejected=not job.is_chained)
    settings = {"trigger": life.until, "checkpoint": job.checkpoint, "spec": spec}
    if job.is_chained:
        return _by_hour(rows), ExactlyOnce(sink.write, sink.last_batch), settings
    if job.alone == "Kafka":
        assert job.servers is not None
        return rows, Kafka(job.servers.kafka, f"{job.topic}_rows"), settings
    if job.alone is not None:
        sinks = {
            "Files": Files("json", job.rejected),
            "AtLeastOnce": AtLeastOnce(sink.replace),
            "Delta": Delta(job.rejected),
        }
        return rows, sinks[job.alone], settings
    places: list[Any] = [ExactlyOnce(sink.write, sink.last_batch), Files("json", job.rejected)]
    if job.servers is not None:
        places = [Postgres(job.servers.dsn, f"{job.topic}_{name}") for name in TABLES]
    return rows, Routes(**{spec.row_kind: places[0], "rejected": places[1]}), settings


def _by_hour(rows: DataFrame) -> DataFrame:
    """Take sessions through a window and a deduplication, and list them again."""
    session = F.struct("session_id", "numbers")
    window = F.window("session_end", "1 hour")
    found = F.collect_list(session).alias("sessions"), F.count("*").alias("n")
    # By the columns of the window alone, Spark 4.3 would run both in one stage, and fail.
    once = (
        rows.groupBy(window, "key")
        .agg(*found)
        .dropDuplicatesWithinWatermark(["window", "key", "n"])
    )
    each = once.select("key", F.explode("sessions").alias("one")).select("key", "one.*")
    numbers = F.split("numbers", ",").cast("array<bigint>")
    return each.withColumn("numbers", numbers)


def _earlier_run(rows: DataFrame, sink: Routes, job: Job) -> Iterator[Callable[[], None]]:
    """Take the places of a query, as a run does that a later one replaces; yield its writes."""
    spark = rows.sparkSession
    query_id = query_id_of(spark, str(job.checkpoint))
    assert query_id is not None
    for part in checked_parts(rows, sink, "append"):
        if isinstance(part.route.sink, ExactlyOnce):
            continue  # who may write is for its own functions to say
        empty = spark.createDataFrame([], part.route.schema)
        batch = Batch(empty, FAR, query_id, "an earlier run")
        assert not part.writer.is_written(batch)
        yield partial(part.writer.write, batch)


def _reconcile(query: StreamingQuery, path: Path) -> None:
    """Store the sums of a query as they come; a progress that a kill has taken begins others."""
    spans = sums_in(path)
    is_active = True
    while is_active:
        time.sleep(LOOK_S)
        is_active = query.isActive
        try:
            found = reconcile(query, spans[-1])
        except BalanceError as error:
            following = FOLLOWING.search(str(error))
            if following is None:
                raise
            spans.append(Reconciliation(first=int(following[1])))
            continue
        if found != spans[-1]:
            spans[-1] = found
            path.with_suffix(".new").write_bytes(pickle.dumps(spans))
            path.with_suffix(".new").replace(path)


def sums_in(path: Path) -> list[Reconciliation]:
    """Return the stored sums of each span of micro-batches whose progress is known."""
    spans = pickle.loads(path.read_bytes()) if path.exists() else []  # noqa: S301 (our own)
    return spans or [Reconciliation()]


def _check_refused(write: Callable[[], None]) -> None:
    try:
        write()
    except SinkError as refused:
        if "a later run has it" in str(refused):
            return
    message = "an earlier run could write"
    raise AssertionError(message)


def _events(spark: SparkSession, job: Job) -> DataFrame:
    if job.servers is None:
        reader = spark.readStream.schema(EVENT).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(job.source))
    options: dict[str, Any] = {
        "kafka.bootstrap.servers": job.servers.kafka,
        "subscribe": job.topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": ON_TIME + 2,
    }
    messages = spark.readStream.format("kafka").options(**options).load()
    value = F.from_json(F.col("value").cast("string"), EVENT)
    return messages.select(value.alias("value")).select("value.*")


def row_of(row: dict[str, Any]) -> Row:
    """Return a row of any sink, from its columns."""
    if row.get("kind", "session") in KIND_OF_RESULTS:
        return Row("session", row["key"], tuple(row["numbers"]), row.get("session_id"))
    return Row(row["kind"], None, (row["event"]["number"],))


def _logged(job: Job) -> list[Path]:
    """Return the files that the log of Spark's sink names."""
    logs = (job.rejected / "_spark_metadata").glob("[0-9]*")
    lines = {line for log in logs for line in log.read_text().splitlines()[1:]}
    return [Path(urlsplit(json.loads(line)["path"]).path) for line in sorted(lines)]


def _added(job: Job) -> list[Path]:
    """Return the files that the log of a table of Delta, to which rows are added, names."""
    logs = sorted((job.rejected / "_delta_log").glob("*.json"))
    entries = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    return [job.rejected / entry["add"]["path"] for entry in entries if "add" in entry]


def rows_in(job: Job) -> list[Row]:
    """Return what is in the sink of a job."""
    if job.alone == "Delta":
        return [row_of(row) for file in _added(job) for row in pq.read_table(file).to_pylist()]
    if job.servers is None:
        in_files = _logged(job) if job.alone else job.rejected.glob("query_id=*/batch_id=*/*.json")
        lines = [json.loads(line) for file in in_files for line in file.read_text().splitlines()]
        return [*rows_of(job.ledger), *map(row_of, lines)]
    sessions, rejected = (sql.Identifier(f"{job.topic}_{name}") for name in TABLES)
    name = sql.SQL("session_id" if job.spec == "sessions" else "NULL")
    with psycopg.connect(job.servers.dsn) as connection:
        found = connection.execute(SESSIONS.format(name, sessions)).fetchall()
        others = connection.execute(REJECTED.format(rejected)).fetchall()
    return [
        *(Row("session", key, tuple(numbers), id_) for key, numbers, id_ in found),
        *(Row(kind, None, (number,)) for kind, number in others),
    ]
