"""Every sink that `start_query` takes: what it needs, and how Spark gets it."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, get_args
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.utils import is_remote

from sessionkit.errors import SpecError, with_hint
from sessionkit.spark.sinks import writers
from sessionkit.spark.sinks.batches import Part, Start, WriteBatches, check_places
from sessionkit.spark.sinks.protocol import BatchWriter, OutputMode, Rows, TableSink
from sessionkit.spark.sinks.routes import NESTED, Route, routes_of
from sessionkit.spark.sinks.values import (
    BatchSink,
    Console,
    ExactlyOnce,
    Files,
    Foreach,
    ForeachBatch,
    Kafka,
    MemoryTable,
    NativeSink,
    StreamSink,
)

WRITERS: Final[Mapping[type[Any], Callable[[Any], BatchWriter]]] = {
    Files: writers.FolderWriter,
    Kafka: writers.TopicWriter,
    ExactlyOnce: writers.OnceWriter,
    ForeachBatch: writers.FunctionWriter,
}
FORMATS: Final = ("csv", "json", "orc", "parquet", "text")
"""Those that every Spark can write files in."""
NO_FORMAT: Final = "failed to find"
"""What every release of Spark says of a format that it doesn't know, among other words."""


def checked_parts(frame: DataFrame, sink: StreamSink, mode: OutputMode) -> Sequence[Part]:
    """Check that a sink fits a frame; return what writes which rows, nothing for Spark's sinks."""
    if not isinstance(sink, StreamSink):
        found = f"`sink` must be a sink, found {sink!r}"
        kinds = ", ".join(kind.__name__ for kind in get_args(StreamSink))
        raise SpecError(with_hint(found, f"pass one of {kinds}"))
    if not isinstance(sink, BatchSink):
        if isinstance(sink, Files):
            check_format(frame.sparkSession, sink.format)
        check_columns(frame.schema, sink)
        return ()
    return [_part(frame, route, mode) for route in routes_of(frame.schema, sink)]


def _part(frame: DataFrame, route: Route, mode: OutputMode) -> Part:
    sink = route.sink
    if isinstance(sink, TableSink):
        rows = Rows(route.schema, route.of_results, route.name, mode)
        return Part(route, sink.writer(rows, frame.sparkSession))
    if isinstance(sink, Files):
        check_format(frame.sparkSession, sink.format)
    check_columns(route.schema, sink)
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


# ------------------------------------------------------------------------------ Spark's own sinks


def check_format(spark: SparkSession, name: str) -> None:
    """Check that Spark knows a format; where it doesn't, its own error is a page of Java."""
    if name.lower() in FORMATS:
        return
    try:
        _ = spark.read.format(name).schema("_ INT").load().schema
    except Exception as error:  # noqa: BLE001 (a gateway's own, and what else is wrong is no matter)
        if NO_FORMAT not in str(error).lower():
            return
        close = get_close_matches(name.lower(), FORMATS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        hint += f"Spark has {', '.join(FORMATS)}; add the package of any other one to its jars"
        found = f"`Files` names the format {name!r}, which this Spark doesn't know"
        raise SpecError(with_hint(found, hint)) from None


def check_columns(schema: T.StructType, sink: NativeSink | ExactlyOnce) -> None:
    """Check that a sink is valid, and that the rows have the columns it needs."""
    match sink:
        case Files():
            _check_files(schema, sink)
        case Kafka():
            _check_messages(schema, sink)
        case ForeachBatch():
            _check_callable("ForeachBatch", sink.function, "write(frame, batch_id)")
        case ExactlyOnce():
            _check_callable("ExactlyOnce", sink.write, "write(frame, query_id, batch_id)")
            _check_callable("ExactlyOnce", sink.last_batch, "last_batch(query_id)")
        case Foreach(writer=own):
            if not callable(own) and not callable(getattr(own, "process", None)):
                found = "Foreach needs a function of a row, or an object with `process`, found "
                raise SpecError(with_hint(f"{found}{own!r}", "write it as `def write(row): ...`"))
        case MemoryTable() if not sink.table:
            found = "a memory sink is a table, and a table needs a name"
            raise SpecError(with_hint(found, 'name it: sink=MemoryTable("visits")'))


def _check_files(schema: T.StructType, sink: Files) -> None:
    """Refuse what Spark would refuse in the first micro-batch: a line of text has no parts."""
    missing = [name for name in sink.partition_by if name not in schema.names]
    if missing:
        found = f"partition_by names `{missing[0]}`; the columns are {', '.join(schema.names)}"
        raise SpecError(with_hint(found, "name a column of the frame"))
    columns = [field for field in schema.fields if field.name not in sink.partition_by]
    kind, wrong = sink.format.lower(), []
    if kind == "csv":
        wrong = [field for field in columns if isinstance(field.dataType, NESTED)]
    elif kind == "text":
        wrong = [field for field in columns if not isinstance(field.dataType, T.StringType)]
        wrong = wrong or columns[1:]
    if wrong:
        found = f"a file of format {kind} can't hold `{wrong[0].name}`"
        found += f", which is {wrong[0].dataType.simpleString()}"
        raise SpecError(with_hint(found, "take the format json or parquet"))


def _check_messages(schema: T.StructType, sink: Kafka) -> None:
    columns = {field.name: field.dataType for field in schema.fields}
    value = columns.get("value")
    if not writers.message_id(schema) and not isinstance(value, T.StringType | T.BinaryType):
        what = "is missing" if value is None else f"has type {value.simpleString()}"
        found = f"Kafka needs a column `value` of text or bytes, but it {what}"
        hint = 'create it: frame.select(to_json(struct("*")).alias("value"))'
        raise SpecError(with_hint(found, hint))
    if sink.topic is None and "topic" not in columns:
        found = "Kafka needs a topic: the sink names none, and the frame has no column `topic`"
        raise SpecError(with_hint(found, "name it: Kafka(servers=..., topic=...)"))


def _check_callable(owner: str, function: object, written: str) -> None:
    hint = f"write it as `def {written}: ...`"
    if not callable(function):
        raise SpecError(with_hint(f"{owner} needs a function, found {function!r}", hint))
    arguments = [name.strip() for name in written.partition("(")[2].rstrip(")").split(",")]
    spelled = [f"a {name.replace('_', ' ')}" for name in arguments]
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        found = f"{owner} calls its function with {' and '.join(spelled)}: {error}"
        raise SpecError(with_hint(found, hint)) from None
    except ValueError:
        return  # Python doesn't know the parameters of this function
