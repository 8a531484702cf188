"""Check the sink of a query, and hand it to Spark or to writers of whole micro-batches."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, get_args
from uuid import uuid4

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.utils import is_remote

from sessionkit.errors import SessionkitError, SinkError, SpecError
from sessionkit.spark._columns import twice_problems
from sessionkit.spark._logs import exists, root_of
from sessionkit.spark._paths import LOCAL_ROOT
from sessionkit.spark._settings import plan_each_read
from sessionkit.spark.sinks import (
    Batch,
    BatchWriter,
    Ledger,
    OutputMode,
    RowsToWrite,
    TableSink,
)
from sessionkit.spark.sinks.batches import (
    NONE,
    CallFunction,
    Part,
    Route,
    Start,
    WriteBatches,
    check_places,
    reason_of,
    routes_of,
)
from sessionkit.spark.sinks.marks import (
    BATCH,
    LOG,
    MARKS,
    Claim,
    Folder,
    numbers_from,
)
from sessionkit.spark.sinks.runs import other_run
from sessionkit.spark.sinks.texts import check_messages, check_texts, rows_for, written_as
from sessionkit.spark.sinks.values import (
    AtLeastOnce,
    AtLeastOncePerRow,
    BatchSink,
    Console,
    ExactlyOnce,
    Files,
    Kafka,
    Routes,
    StreamSink,
    described,
)

OF_SPARK: Final = ("py4j.", "pyspark.")
BUILT_IN: Final = ("parquet", "orc", "json", "csv", "text")
NO_FORMAT: Final = re.compile(r"DATA_SOURCE_NOT_(FOUND|ENABLED)|Failed to find (the )?data source")


@attrs.define
class FolderWriter(BatchWriter):
    """
    A writer of each micro-batch to a folder of this run, which a mark then names.

    No other run writes to that folder, so two runs never mix or replace their files.

    Attributes:
        claim: The claim of this run to mark micro-batches; None before the first one.
        is_first: Whether no micro-batch has been marked in this run.
    """

    sink: Files
    claim: Claim | None = attrs.field(default=None, init=False)
    is_first: bool = attrs.field(default=True, init=False)
    runs_all = True

    def ledger(self, rows: DataFrame, query_id: str | None) -> Ledger | None:
        spark = rows.sparkSession
        check_layout(spark, self.sink, alone=False)
        if query_id is None:
            return None
        folder = Folder(spark, os.fspath(self.sink.path), query_id)
        return Ledger(
            described(self.sink),
            folder.has_from,
            lambda number: (
                f"delete what is above {number} in {folder.of_query}*/{BATCH}=* and "
                f"{folder.of_query}/{MARKS}, or pass another folder with sink_since={number + 1}"
            ),
        )

    def is_written(self, batch: Batch) -> bool:
        """Take the folder for this run, and return whether it has the micro-batch."""
        claim = self._claimed(batch)
        return claim.is_finished(batch.number, batch.plan, partial(self._clear, batch))

    def write(self, batch: Batch) -> None:
        """Save a micro-batch, and mark it unless a later run has taken the folder."""
        claim, folder = self._claimed(batch), self.folder(batch)
        claim.check()
        rows = rows_for(self.sink, batch.frame)
        try:
            name = folder.save(
                rows,
                batch.number,
                claim.run,
                self.sink.format,
                options=written_as(self.sink),
                partition_by=self.sink.partition_by,
            )
        except Exception:
            claim.check()  # a later run may have removed files
            raise
        try:
            claim.check()
        except SinkError:
            folder.remove(batch.number, name)  # no run knows of them yet
            raise
        claim.finish(batch.number, name, batch.plan(), partial(self._clear, batch))

    def _clear(self, batch: Batch, kept: str) -> None:
        """Remove what a run that was killed has left; only the first micro-batch may find any."""
        if self.is_first:
            self.folder(batch).clear(batch.number, kept)
            self.is_first = False

    def _claimed(self, batch: Batch) -> Claim:
        if self.claim is None:
            self.claim = Claim(self.folder(batch), described(self.sink), batch.query_id)
            self.claim.begin()
        return self.claim

    def folder(self, batch: Batch) -> Folder:
        return Folder(batch.frame.sparkSession, os.fspath(self.sink.path), batch.query_id)


def log_of(spark: SparkSession, sink: Files) -> Ledger:
    """
    Return the ledger of Spark's own file sink, whose log knows micro-batches by number alone.

    Spark takes a micro-batch whose number is in the log for a repeat, and drops its rows. It reads
    no log that doesn't begin with number 0.
    """
    return Ledger(
        described(sink),
        lambda number: exists(spark, f"{os.fspath(sink.path)}/{LOG}", numbers_from(number)),
        lambda _: "pass a folder of its own, or the checkpoint of the query that wrote to this one",
        may_join=False,
    )


def check_no_gap(spark: SparkSession, sink: Files, start: Start) -> None:
    """Check that the log of Spark's own file sink has an entry for each repartition."""
    log = f"{os.fspath(sink.path)}/{LOG}"
    for number in range(start.finished + 1, start.repartitioned + 1):
        if exists(spark, log, f"{number}{{,.compact}}"):
            continue
        found = (
            f"micro-batch {number} of the checkpoint {start.checkpoint} has changed its partitions,"
            f" and {log} has no entry for it: with the next micro-batch, Spark could read "
            f"{described(sink)} no more, and some micro-batches later the query would end"
        )
        hint = (
            f"add entry {number} as `Change the partitions` in docs/how-to/restart.md shows, or "
            "carry the state over to a new checkpoint and a new folder with `migrate`"
        )
        raise SpecError(found, hint)


def check_layout(spark: SparkSession, sink: Files, *, alone: bool) -> None:
    """
    Refuse to write to one folder with both Spark's own sink and `Routes`.

    If a folder has a log of Spark's sink, readers see only the files that the log names.
    """
    other = f"query_id=*/{MARKS}" if alone else f"{LOG}/{numbers_from(0)}"
    if exists(spark, os.fspath(sink.path), other):
        ways = ("alone", "as a sink of Routes")
        before, now = reversed(ways) if alone else ways
        found = f"{described(sink)} has rows that `Files` has written {before}, and here it's {now}"
        raise SpecError(found, "pass a folder of its own: Spark reads only one of them")


def kafka_options(sink: Kafka) -> dict[str, str]:
    topic = {} if sink.topic is None else {"topic": sink.topic}
    return {"kafka.bootstrap.servers": sink.servers, **topic, **sink.options}


@attrs.frozen
class TopicWriter(BatchWriter):
    """A writer to Kafka, also of a micro-batch that runs again: its rows have the same keys."""

    sink: Kafka
    runs_all = True

    def write(self, batch: Batch) -> None:
        writer = rows_for(self.sink, batch.frame).write.format("kafka")
        writer.options(**kafka_options(self.sink)).save()


@attrs.define
class OnceWriter(BatchWriter):
    """
    A writer of the micro-batches that a user's store doesn't have yet.

    Attributes:
        is_first: Whether this run has asked for no micro-batch yet: only then may the store have it
            from an earlier run.
    """

    sink: ExactlyOnce
    is_first: bool = attrs.field(default=True, init=False)

    def ledger(self, rows: DataFrame, query_id: str | None) -> Ledger | None:
        del rows
        if query_id is None:
            return None
        return Ledger(
            described(self.sink),
            self.sink.last_batch(query_id),
            lambda number: (
                f"take the store back to micro-batch {number}, or pass a new one with "
                f"sink_since={number + 1}"
            ),
        )

    def is_written(self, batch: Batch) -> bool:
        last = self._last(batch.query_id)
        if last > batch.number or (last == batch.number and not self.is_first):
            raise other_run(described(self.sink), batch.query_id, batch.number)
        self.is_first = False
        return last == batch.number

    def write(self, batch: Batch) -> None:
        """Call the user's function; the store alone knows which of two runs is the second one."""
        number, query_id = batch.number, batch.query_id
        try:
            self.sink.write(batch.frame, query_id, number)
        except Exception as error:
            first, *_ = reason_of(error).splitlines() or [type(error).__name__]
            if self._has(batch):
                found = (
                    f"micro-batch {number} of the query {query_id} is in {described(self.sink)}, "
                    f"though `write` of ExactlyOnce ended with {first}: another run has written "
                    "it, or this call has, before it failed"
                )
                hint = "start the query again; if another run of it is active, stop that one first"
                raise SinkError(found, hint) from error
            if isinstance(error, SessionkitError) or type(error).__module__.startswith(OF_SPARK):
                raise  # it isn't of the store
            found = (
                f"`write` of ExactlyOnce failed for micro-batch {number} of the query {query_id}, "
                f"and {described(self.sink)} doesn't have it: {first}"
            )
            hint = "if another run of the query is active, stop it; then start this one again"
            raise SinkError(found, hint) from error

    def _has(self, batch: Batch) -> bool:
        try:
            return self._last(batch.query_id) >= batch.number
        except Exception:  # noqa: BLE001 (the store may be away: the first error says why)
            return False

    def _last(self, query_id: str) -> int:
        last = self.sink.last_batch(query_id)
        return NONE if last is None else last


@attrs.frozen
class FunctionWriter(BatchWriter):
    """A writer that calls a function with every micro-batch, also if it runs again."""

    sink: AtLeastOnce

    def write(self, batch: Batch) -> None:
        self.sink.function(batch.frame, batch.number)


# -- the start of a query -------------------------------------------------------------------------

WRITERS: Final[Mapping[type[Any], Callable[[Any], BatchWriter]]] = {
    Files: FolderWriter,
    Kafka: TopicWriter,
    ExactlyOnce: OnceWriter,
    AtLeastOnce: FunctionWriter,
}


def checked_parts(frame: DataFrame, sink: StreamSink, mode: OutputMode) -> Sequence[Part]:
    """Check that a sink fits a frame; return its routes and writers, none for Spark's sinks."""
    if not isinstance(sink, StreamSink):
        # Don't show the text: it may be an address with a password.
        found = f"`sink` must be a sink, found a {type(sink).__name__}"
        kinds = ", ".join(kind.__name__ for kind in get_args(StreamSink))
        raise SpecError(found, f"pass one of {kinds}")
    if not isinstance(sink, BatchSink):
        _check_rows(frame, frame.schema, sink)
        return ()
    root = root_of(frame.sparkSession) if isinstance(sink, Routes) else LOCAL_ROOT
    return [_part(frame, route, mode) for route in routes_of(frame.schema, sink, root)]


def _part(frame: DataFrame, route: Route, mode: OutputMode) -> Part:
    sink = route.sink
    if isinstance(sink, TableSink):
        rows = RowsToWrite(route.schema, route.of_results, route.name, mode)
        return Part(route, sink.writer(rows, frame.sparkSession))
    _check_rows(frame, route.schema, sink)
    return Part(route, WRITERS[type(sink)](sink))


def check_start(
    frame: DataFrame, sink: StreamSink, parts: Sequence[Part], query_id: str | None, start: Start
) -> None:
    """
    Check that the places of a sink can take the rows, and have the micro-batches of the checkpoint.

    On Connect, this process may not reach a table or a store: the first micro-batch checks them.
    """
    if isinstance(sink, Files):
        check_layout(frame.sparkSession, sink, alone=True)
        start.check(log_of(frame.sparkSession, sink))
        check_no_gap(frame.sparkSession, sink, start)
    for part in parts:
        part.writer.start(frame.sparkSession, start.checkpoint)
    reachable = [part for part in parts if not is_remote() or isinstance(part.route.sink, Files)]
    check_places(frame, reachable, query_id, start)


def to_sink(
    frame: DataFrame, mode: OutputMode, sink: StreamSink, parts: Sequence[Part], start: Start | None
) -> DataStreamWriter:
    """Return the writer of a stream to a sink."""
    writer = rows_for(sink, frame).writeStream.outputMode(mode)
    if start is not None and is_remote():
        plan_each_read(frame.sparkSession)
    if start is not None and isinstance(sink, BatchSink):
        unchecked = start if is_remote() else None
        return writer.foreachBatch(WriteBatches(start.checkpoint, str(uuid4()), parts, unchecked))
    match sink:
        case Files():
            writer = writer.format(sink.format).options(**written_as(sink))
            writer = writer.option("path", os.fspath(sink.path))
            return writer.partitionBy(*sink.partition_by) if sink.partition_by else writer
        case Kafka():
            return writer.format("kafka").options(**kafka_options(sink))
        case AtLeastOnce() if start is not None and is_remote():
            return writer.foreachBatch(CallFunction(start.checkpoint, sink.function))
        case AtLeastOnce():
            return writer.foreachBatch(sink.function)
        case AtLeastOncePerRow():
            return writer.foreach(sink.writer)
        case Console():
            writer = writer.format("console").option("numRows", sink.rows)
            return writer.option("truncate", sink.truncate)
    return writer.format("memory")


def _check_rows(frame: DataFrame, schema: T.StructType, sink: object) -> None:
    """Check what only the first micro-batch, or a reader of the rows, would find otherwise."""
    if isinstance(sink, Files):
        _check_columns(frame, schema, sink)
    if isinstance(sink, Kafka):
        check_messages(schema, sink)
    if isinstance(sink, Files | Kafka):
        check_texts(schema, sink)


def _check_columns(frame: DataFrame, schema: T.StructType, sink: Files) -> None:
    for name in sink.partition_by:
        if name not in schema.names:
            found = f"partition_by names `{name}`; the columns are {', '.join(schema.names)}"
            raise SpecError(found, "name a column of the frame")
    for found, hint in twice_problems(frame, schema.names):
        raise SpecError(f"{found}: nobody could read such files", hint)
    if sink.format.lower() not in BUILT_IN:
        _check_known(sink.format, frame.sparkSession)


def _check_known(name: str, spark: SparkSession) -> None:
    try:
        spark.read.format(name).load(f"/no-folder-{uuid4()}").columns  # noqa: B018 (Connect looks now)
    except Exception as error:  # noqa: BLE001 (a class of Java's that Spark doesn't convert)
        if NO_FORMAT.search(str(error)) is None:
            return  # the format exists, and found no such folder
        near = get_close_matches(name.lower(), BUILT_IN, n=1)
        hint = f"write {near[0]!r}" if near else "add its package to spark.jars.packages"
        raise SpecError(f"Spark has no format {name!r}", hint) from None
