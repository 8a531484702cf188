"""What writes whole micro-batches to folders, topics and functions."""

import os
from collections.abc import Callable
from typing import Final

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit.errors import SinkError, SpecError, with_hint
from sessionkit.spark._logs import if_there
from sessionkit.spark.sinks.batches import Batch, Ledger, from_last
from sessionkit.spark.sinks.native import Files, Kafka, kafka_options, message_id

BATCH: Final = "batch_id"
"""The column, and so the name of the subfolder, of a micro-batch."""
MARKS: Final = "_batches"
"""The folder with a mark for each micro-batch that is complete."""
RUN: Final = "_run"
"""The folder with the id of the run that may write."""
LOG: Final = "_spark_metadata"
"""The folder in which Spark's own file sink has a file for each micro-batch."""


@attrs.define
class FolderWriter:
    """
    Writes each micro-batch to `query_id=.../batch_id=...`, which is its name.

    An attempt writes elsewhere, and its files are moved when it is done: Spark calls it a dynamic
    overwrite of partitions. So two attempts at one micro-batch never mix, also of two runs.
    """

    sink: Files
    is_taken: bool = attrs.field(default=False, init=False)
    runs_all: bool = attrs.field(default=True, init=False)

    def ledger(self, spark: SparkSession, query_id: str) -> Ledger:
        """Return what the folder has of a query."""
        folder = self._folder(query_id)
        return Ledger(
            f"the folder {os.fspath(self.sink.path)}",
            lambda number: exists(spark, f"{folder}/{MARKS}/{numbers_from(number)}"),
            lambda number: (
                f"delete what is above {number} in {folder}/{BATCH}=* and {folder}/{MARKS}, or "
                f"pass another folder with sink_since={number + 1}"
            ),
        )

    def is_written(self, batch: Batch) -> bool:
        """Take the folder for this run, and return whether it has the micro-batch."""
        spark = batch.frame.sparkSession
        if not self.is_taken:
            self._note(spark, f"{self._folder(batch.query_id)}/{RUN}", batch.run_id)
            self.is_taken = True
        return exists(spark, f"{self._folder(batch.query_id)}/{MARKS}/{batch.number}")

    def write(self, batch: Batch) -> None:
        """Write it in place of what an attempt may have left."""
        folder, spark = self._folder(batch.query_id), batch.frame.sparkSession
        self._hold(batch)
        rows = batch.frame.withColumn(BATCH, F.lit(batch.number))
        writer = rows.write.format(self.sink.format).mode("overwrite")
        writer = writer.partitionBy(BATCH, *self.sink.partition_by)
        writer.option("partitionOverwriteMode", "dynamic").save(folder)
        self._hold(batch)
        self._note(spark, f"{folder}/{MARKS}/{batch.number}", batch.run_id)

    def _hold(self, batch: Batch) -> None:
        held = f"{self._folder(batch.query_id)}/{RUN}"
        try:
            runs = [row.value for row in batch.frame.sparkSession.read.text(held).collect()]
        except PySparkException:
            runs = []  # a later run takes it at this moment
        if runs != [batch.run_id]:
            found = (
                f"the folder {os.fspath(self.sink.path)} was taken from this run of the query "
                f"{batch.query_id}: a later run has it"
            )
            raise SinkError(with_hint(found, "leave only one run of a query"))

    def _note(self, spark: SparkSession, place: str, run_id: str) -> None:
        spark.createDataFrame([(run_id,)], "run string").coalesce(1).write.mode("overwrite").text(
            place
        )

    def _folder(self, query_id: str) -> str:
        return f"{os.fspath(self.sink.path)}/query_id={query_id}"


def log_of(spark: SparkSession, sink: Files) -> Ledger:
    """
    Return what the log of Spark's own file sink has, which knows micro-batches by number alone.

    Spark takes one whose number is there for one that runs again, and drops its rows. It reads no
    log that doesn't begin with number 0.
    """
    folder = os.fspath(sink.path)
    return Ledger(
        f"the folder {folder}",
        lambda number: exists(spark, f"{folder}/{LOG}/{numbers_from(number)}"),
        lambda _: "pass a folder of its own, or the checkpoint of the query that wrote to this one",
        may_join=False,
    )


def check_layout(spark: SparkSession, sink: Files, *, alone: bool) -> None:
    """
    Refuse a folder that Spark's own sink has written to, for `Routes`, and the other way round.

    Who reads a folder with a log of that sink sees only what the log names.
    """
    folder = os.fspath(sink.path)
    if exists(
        spark, f"{folder}/query_id=*/{MARKS}" if alone else f"{folder}/{LOG}/{numbers_from(0)}"
    ):
        there, here = (
            ("as a sink of Routes", "alone") if alone else ("alone", "as a sink of Routes")
        )
        found = (
            f"the folder {folder} has rows that `Files` has written {there}, and here it's {here}"
        )
        hint = "pass a folder of its own: Spark reads only one of them"
        raise SpecError(with_hint(found, hint))


def exists(spark: SparkSession, glob: str) -> bool:
    """Return whether a path exists, in any file system that Spark can read."""
    # With two paths, Spark doesn't look for a log in it. Connect needs a reason to look at all.
    return bool(if_there(lambda: spark.read.text([glob, glob]).columns))


def numbers_from(least: int, width: int = 1) -> str:
    """Return a glob of the names that begin with a number of at least this."""
    digits = f"{least:0{width}}"
    higher = [
        f"{digits[:place]}[{int(digit) + 1}-9]{'[0-9]' * (len(digits) - place - 1)}"
        for place, digit in enumerate(digits)
        if digit != "9"
    ]
    longer = "[0-9]" * (len(digits) + 1)
    return f"{{{','.join([digits, *higher, longer])}}}*"


def messages(frame: DataFrame) -> DataFrame:
    """Return rows as messages, unless they are: JSON, with the id of the row as the key."""
    named = message_id(frame.schema)
    if not named:
        return frame
    topic = [F.col("topic")] if "topic" in frame.columns else []
    key = F.coalesce(*named).cast("string").alias("key")
    return frame.select(key, *topic, F.to_json(F.struct("*")).alias("value"))


@attrs.frozen
class TopicWriter:
    """Writes micro-batches to Kafka, also one that runs again: its rows have the same keys."""

    sink: Kafka
    runs_all: bool = attrs.field(default=True, init=False)

    def ledger(self, spark: SparkSession, query_id: str) -> None:
        """Return None: a topic says nothing of micro-batches."""

    def is_written(self, batch: Batch) -> bool:
        """Return False: rows that are sent again have the same keys."""
        del batch
        return False

    def write(self, batch: Batch) -> None:
        """Send the rows."""
        messages(batch.frame).write.format("kafka").options(**kafka_options(self.sink)).save()


@attrs.frozen
class Once:
    """
    Your own function for each micro-batch, which isn't called for one that it has written.

    In one transaction, `write` stores the rows, and the number of the micro-batch under the id of
    the query. `last_batch` reads that number. A micro-batch that runs again, after a crash at any
    point, is then either there or not. The rows are persisted, so `write` may run several actions.

    Attributes:
        write: Called on the driver as `write(frame, query_id, batch_id)`.
        last_batch: Called as `last_batch(query_id)` when the query starts, and before each
            micro-batch. Returns the number of the last one that is stored for the query, and None
            where there is none.
    """

    write: Callable[[DataFrame, str, int], None]
    last_batch: Callable[[str], int | None]


@attrs.frozen
class OnceWriter:
    """Writes the micro-batches that a user's store doesn't have yet."""

    sink: Once
    runs_all: bool = attrs.field(default=False, init=False)

    def ledger(self, spark: SparkSession, query_id: str) -> Ledger:
        """Return what the store has of a query."""
        del spark
        return Ledger(
            "the store of `last_batch`",
            from_last(self.sink.last_batch(query_id)),
            lambda number: (
                f"take the store back to micro-batch {number}, or pass a new one with "
                f"sink_since={number + 1}"
            ),
        )

    def is_written(self, batch: Batch) -> bool:
        """Return whether the store has it."""
        last = self.sink.last_batch(batch.query_id)
        return last is not None and batch.number <= last

    def write(self, batch: Batch) -> None:
        """Call the function."""
        self.sink.write(batch.frame, batch.query_id, batch.number)


@attrs.frozen
class ForeachBatchWriter:
    """Calls a function with every micro-batch, also with one that runs again."""

    function: Callable[[DataFrame, int], None]
    runs_all: bool = attrs.field(default=False, init=False)

    def ledger(self, spark: SparkSession, query_id: str) -> None:
        """Return None: the function says nothing of micro-batches."""

    def is_written(self, batch: Batch) -> bool:
        """Return False: the function gets a micro-batch that runs again."""
        del batch
        return False

    def write(self, batch: Batch) -> None:
        """Call the function."""
        self.function(batch.frame, batch.number)
