"""Running a spec on a real Spark stream: files in, Parquet out, a checkpoint between."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkNotImplementedError, StreamingQueryException
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from sessionkit import Counts, SpecError, StatefulSpec
from sessionkit.spark import (
    apply_with_state,
    batch_counts,
    read_erasures,
    read_state,
    sessionize,
    start_query,
)
from sessionkit.spark._seeds import Seed
from sessionkit.spark._settings import is_connect
from sessionkit.spark.jobs.transform_with_state import PROVIDER, ROCKSDB
from sessionkit.testing import OpenSession

IN_FOREACH_BATCH = re.compile(r"SinkError: SpecError: (.*?)\n\nThe above", re.DOTALL)


@contextmanager
def refused_by_sink(spark: SparkSession, match: str = "") -> Iterator[list[str]]:
    """Expect a sink to refuse a start, or on Connect a first micro-batch; give what it says."""
    kinds = (SpecError, StreamingQueryException) if is_connect(spark) else (SpecError,)
    said: list[str] = []
    with pytest.raises(kinds) as refused:
        yield said
    text = str(refused.value)
    said.append(inner[1] if (inner := IN_FOREACH_BATCH.search(text)) else text)
    assert re.search(match, said[0])


def needs_own_process(spark: SparkSession) -> None:
    """Skip a test whose `foreachBatch` keeps rows: Connect calls it in a process of the server."""
    if is_connect(spark):
        pytest.skip("the test keeps rows in `foreachBatch`, which Connect calls elsewhere")


def observed(observation: Observation) -> dict[str, Any]:
    """Return what was observed; skip the test on Connect of Spark 3.5, which can't say it."""
    try:
        return observation.get
    except PySparkNotImplementedError:
        pytest.skip("Spark 3.5 has no `Observation.get` on Connect")


def write_files(folder: Path, tables: Iterable[pa.Table], *, first: int = 0) -> None:
    """Write a file a table; the file source takes them in the order of their times."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, table in enumerate(tables, first):
        path = folder / f"{number:04}.parquet"
        # A query that runs must not see half a file, and takes none whose name begins with a dot.
        failed_output = folder / f".{path.name}"
        pq.write_table(table, failed_output)
        os.utime(failed_output, (1_000_000_000 + number, 1_000_000_000 + number))
        failed_output.rename(path)


def begun_at(checkpoint: Path) -> None:
    """Write what a query leaves that has begun, and planned no micro-batch."""
    checkpoint.mkdir(exist_ok=True)
    (checkpoint / "metadata").write_text(f'{{"id":"{uuid4()}"}}', encoding="utf-8")


def with_gap(rows: DataFrame) -> DataFrame:
    """Add the gap that `Reading` of `session_specs` asks for: ten minutes."""
    return rows.select("*", F.expr("interval 10 minutes").alias("gap"))


def run_to_files(frame: DataFrame, folder: Path) -> StreamingQuery:
    """Run a query over all that there is, and the batch without data; its rows are in `out`."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return ended(writer.trigger(availableNow=True).start())


def ended(query: StreamingQuery) -> StreamingQuery:
    """Wait for the end of a query, and raise what has stopped it."""
    try:
        query.awaitTermination()
    except StreamingQueryException as stopped:
        # On Connect, Spark 3.5 cuts off what it raises, and not what it returns.
        raise query.exception() or stopped from None
    return query


@attrs.frozen
class FileStream:
    """A streaming query over files, stopped and started at will; a file is a micro-batch."""

    spark: SparkSession
    spec: Any
    folder: Path
    with_rejected: bool = False
    shape: Callable[[DataFrame], DataFrame] = lambda frame: frame
    seed: Seed | None = None
    files: Path | None = None
    has_clock: bool = False
    erases: bool = False

    @property
    def source(self) -> Path:
        return self.files or self.folder / "in"

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    def put(self, *tables: pa.Table) -> None:
        """Put files before the source, after those that are there."""
        written = len(list(self.source.glob("*.parquet"))) if self.source.exists() else 0
        write_files(self.source, tables, first=written)

    @cached_property
    def schema(self) -> StructType:
        """The columns of the files, read once: Spark starts a job for it."""
        return self.spark.read.parquet(str(self.source)).schema

    def events(self) -> DataFrame:
        """Return the stream of what the files hold."""
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return self.shape(reader.parquet(str(self.source)))

    def batch(self) -> DataFrame:
        """Return what the files hold by now, as a batch."""
        return self.shape(self.spark.read.schema(self.schema).parquet(str(self.source)))

    def output(self) -> DataFrame:
        """Return the stream of what the spec makes of it."""
        options: dict[str, Any] = {"with_rejected": self.with_rejected, "seed": self.seed}
        if self.has_clock:
            options["clock"] = self.spark.readStream.schema("at timestamp").parquet(
                str(self.folder / "clock")
            )
        if self.erases:
            options["erase"] = read_erasures(self.checkpoint, self.spec, spark=self.spark)
        if isinstance(self.spec, StatefulSpec):
            return apply_with_state(self.events(), self.spec, **options)
        return sessionize(self.events(), self.spec, **options)

    @contextmanager
    def state_store(self) -> Iterator[None]:
        """Let a query that starts meanwhile have the state store that its layout needs."""
        before = str(self.spark.conf.get(PROVIDER))
        self.spark.conf.set(PROVIDER, ROCKSDB if self.spec.storage.layout == "pages" else before)
        try:
            yield
        finally:
            self.spark.conf.set(PROVIDER, before)

    def run(self) -> list[Counts]:
        """Start the query, run all files and the batch without data after them, and stop."""
        return [batch_counts(progress) for progress in self.progress()]

    def progress(self) -> list[Any]:
        """Do the same, and return the progress of each micro-batch."""
        with self.state_store():
            return list(run_to_files(self.output(), self.folder).recentProgress)

    def run_to(self, sink: Any, **arguments: Any) -> StreamingQuery:
        """Run all files, and the batch without data after them, to a sink; return the query."""
        query = start_query(
            self.output(),
            sink=sink,
            trigger="availableNow",
            checkpoint=self.checkpoint,
            spec=self.spec,
            **arguments,
        )
        return ended(query)

    def forget_end_of(self, number: int) -> None:
        """Let Spark forget that it has finished a micro-batch, as after a crash in the sink."""
        for commit in (Path(self.checkpoint) / "commits").glob(f"*{number}*"):
            commit.unlink()

    def rows(self) -> list[Row]:
        return self.spark.read.parquet(str(self.folder / "out")).collect()

    def open(self) -> list[OpenSession[Any]]:
        return read_state(self.checkpoint, self.spec, spark=self.spark)
