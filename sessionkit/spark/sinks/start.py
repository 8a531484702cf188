"""Every sink that `start_query` takes: what it needs, and how Spark gets it."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, get_args
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.utils import is_remote

from sessionkit.errors import SpecError
from sessionkit.spark.sinks import BatchWriter, OutputMode, Rows, TableSink, writers
from sessionkit.spark.sinks.batches import Part, Route, Start, WriteBatches, check_places, routes_of
from sessionkit.spark.sinks.values import (
    BatchSink,
    Console,
    ExactlyOnce,
    Files,
    Foreach,
    ForeachBatch,
    Kafka,
    StreamSink,
)

WRITERS: Final[Mapping[type[Any], Callable[[Any], BatchWriter]]] = {
    Files: writers.FolderWriter,
    Kafka: writers.TopicWriter,
    ExactlyOnce: writers.OnceWriter,
    ForeachBatch: writers.FunctionWriter,
}


def checked_parts(frame: DataFrame, sink: StreamSink, mode: OutputMode) -> Sequence[Part]:
    """Check that a sink fits a frame; return what writes which rows, nothing for Spark's sinks."""
    if not isinstance(sink, StreamSink):
        found = f"`sink` must be a sink, found {sink!r}"
        kinds = ", ".join(kind.__name__ for kind in get_args(StreamSink))
        raise SpecError(found, f"pass one of {kinds}")
    if not isinstance(sink, BatchSink):
        _check_partitions(frame.schema, sink)
        return ()
    return [_part(frame, route, mode) for route in routes_of(frame.schema, sink)]


def _part(frame: DataFrame, route: Route, mode: OutputMode) -> Part:
    sink = route.sink
    if isinstance(sink, TableSink):
        rows = Rows(route.schema, route.of_results, route.name, mode)
        return Part(route, sink.writer(rows, frame.sparkSession))
    _check_partitions(route.schema, sink)
    return Part(route, WRITERS[type(sink)](sink))


def check_start(
    frame: DataFrame, sink: StreamSink, parts: Sequence[Part], query_id: str | None, start: Start
) -> None:
    """
    Check that the places of a sink can take the rows, and have the micro-batches of the checkpoint.

    With Spark Connect this process may not reach a table or a store: there, the first micro-batch
    checks those.
    """
    if isinstance(sink, Files):
        writers.check_layout(frame.sparkSession, sink, alone=True)
        start.check(writers.log_of(frame.sparkSession, sink))
    for part in parts:
        part.writer.start(frame.sparkSession, start.checkpoint)
    reachable = [part for part in parts if not is_remote() or isinstance(part.route.sink, Files)]
    check_places(frame, reachable, query_id, start)


def to_sink(
    frame: DataFrame, mode: OutputMode, sink: StreamSink, parts: Sequence[Part], start: Start | None
) -> DataStreamWriter:
    if isinstance(sink, Kafka):
        frame = writers.messages(frame)
    writer = frame.writeStream.outputMode(mode)
    if start is not None and isinstance(sink, BatchSink):
        unchecked = start if is_remote() else None
        return writer.foreachBatch(WriteBatches(start.checkpoint, str(uuid4()), parts, unchecked))
    match sink:
        case Files():
            writer = writer.format(sink.format).option("path", os.fspath(sink.path))
            return writer.partitionBy(*sink.partition_by) if sink.partition_by else writer
        case Kafka():
            return writer.format("kafka").options(**writers.kafka_options(sink))
        case ForeachBatch():
            return writer.foreachBatch(sink.function)
        case Foreach():
            return writer.foreach(sink.writer)
        case Console():
            writer = writer.format("console").option("numRows", sink.rows)
            return writer.option("truncate", sink.truncate)
    return writer.format("memory")


def _check_partitions(schema: T.StructType, sink: object) -> None:
    """Check what Spark would find only in the first micro-batch."""
    for name in sink.partition_by if isinstance(sink, Files) else ():
        if name not in schema.names:
            found = f"partition_by names `{name}`; the columns are {', '.join(schema.names)}"
            raise SpecError(found, "name a column of the frame")
