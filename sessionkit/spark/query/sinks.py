"""The sinks of a query as values, and what each one needs."""

import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sessionkit.errors import SpecError, with_hint
from sessionkit.spark.query.rules import Sink

__all__ = [
    "SINKS",
    "Console",
    "Files",
    "Foreach",
    "ForeachBatch",
    "Kafka",
    "Memory",
    "StreamSink",
    "check_sink",
    "to_sink",
]


def _names(names: Iterable[str] | str) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


@attrs.frozen
class Files:
    """
    A folder to which every micro-batch adds files, each row exactly once.

    Attributes:
        format: The format: `parquet`, `orc`, `json`, `csv` or another that Spark knows.
        path: The folder.
        partition_by: The columns whose values name the subfolders of the files.
    """

    format: str
    path: str | os.PathLike[str]
    partition_by: tuple[str, ...] = attrs.field(default=(), converter=_names)


@attrs.frozen
class Kafka:
    """
    A Kafka topic. A micro-batch that runs again writes its rows again.

    The frame needs a column `value`, and may have `key`, `topic`, `partition` and `headers`.

    Attributes:
        servers: The brokers, as `host:port,host:port`.
        topic: The topic of every row; None if the frame has a column `topic`.
    """

    servers: str
    topic: str | None = None


@attrs.frozen
class ForeachBatch:
    """
    A function on the driver, called with the DataFrame and the id of each micro-batch.

    A batch that runs again has the same id.

    Attributes:
        function: Called as `function(frame, batch_id)`.
    """

    function: Callable[[DataFrame, int], None]


@attrs.frozen
class Foreach:
    """
    A function on the executors, called with each row. A batch that runs again calls it again.

    Attributes:
        writer: Called as `writer(row)`; or an object with a method `process(row)`, and optionally
            `open(partition_id, epoch_id)` and `close(error)`.
    """

    writer: Any


@attrs.frozen
class Console:
    """
    The standard output of the driver, for inspection.

    Attributes:
        rows: How many rows of a micro-batch are shown.
        truncate: Whether long values are truncated.
    """

    rows: int = 20
    truncate: bool = True


@attrs.frozen
class Memory:
    """
    A table in the driver's memory, for tests and notebooks.

    Attributes:
        table: The name of the table, and of the query.
    """

    table: str


StreamSink: TypeAlias = Files | Kafka | ForeachBatch | Foreach | Console | Memory

SINKS: Final[dict[type[Any], Sink]] = {
    Files: "file",
    Kafka: "kafka",
    ForeachBatch: "foreachBatch",
    Foreach: "foreach",
    Console: "console",
    Memory: "memory",
}


def to_sink(writer: DataStreamWriter, sink: StreamSink) -> DataStreamWriter:
    """Return the writer with a sink."""
    match sink:
        case Files():
            writer = writer.format(sink.format).option("path", os.fspath(sink.path))
            return writer.partitionBy(*sink.partition_by) if sink.partition_by else writer
        case Kafka():
            writer = writer.format("kafka").option("kafka.bootstrap.servers", sink.servers)
            return writer if sink.topic is None else writer.option("topic", sink.topic)
        case ForeachBatch():
            return writer.foreachBatch(sink.function)
        case Foreach():
            return writer.foreach(sink.writer)
        case Console():
            writer = writer.format("console").option("numRows", sink.rows)
            return writer.option("truncate", sink.truncate)
        case Memory():
            return writer.format("memory")


def check_sink(frame: DataFrame, sink: StreamSink) -> None:
    """
    Check that a sink is valid, and that the frame has the columns it needs.

    Raises:
        SpecError: It isn't, or a column is missing.
    """
    match sink:
        case Files():
            _check_partitions(frame, sink)
        case Kafka():
            _check_messages(frame.schema, sink)
        case ForeachBatch():
            _check_function(sink.function)
        case Foreach():
            _check_row_writer(sink.writer)
        case Memory() if not sink.table:
            found = "a memory sink is a table, and a table needs a name"
            raise SpecError(with_hint(found, 'name it: sink=Memory("visits")'))
        case Console() | Memory():
            pass
        case _:
            found = f"`sink` must be a sink, found {sink!r}"
            kinds = ", ".join(kind.__name__ for kind in SINKS)
            raise SpecError(with_hint(found, f"pass one of {kinds}"))


def _check_partitions(frame: DataFrame, sink: Files) -> None:
    missing = [name for name in sink.partition_by if name not in frame.columns]
    if missing:
        found = f"partition_by names `{missing[0]}`; the columns are {', '.join(frame.columns)}"
        raise SpecError(with_hint(found, "name a column of the frame"))


def _check_messages(schema: T.StructType, sink: Kafka) -> None:
    columns = {field.name: field.dataType for field in schema.fields}
    value = columns.get("value")
    if not isinstance(value, T.StringType | T.BinaryType):
        what = "is missing" if value is None else f"has type {value.simpleString()}"
        found = f"Kafka needs a column `value` of text or bytes, but it {what}"
        hint = 'create it: frame.select(to_json(struct("*")).alias("value"))'
        raise SpecError(with_hint(found, hint))
    if sink.topic is None and "topic" not in columns:
        found = "Kafka needs a topic: the sink names none, and the frame has no column `topic`"
        raise SpecError(with_hint(found, "name it: Kafka(servers=..., topic=...)"))


def _check_function(function: object) -> None:
    hint = "write it as `def write(frame, batch_id): ...`"
    if not callable(function):
        raise SpecError(with_hint(f"ForeachBatch needs a function, found {function!r}", hint))
    try:
        inspect.signature(function).bind(None, 0)
    except TypeError as error:
        found = f"ForeachBatch calls its function with a frame and a batch id: {error}"
        raise SpecError(with_hint(found, hint)) from None
    except ValueError:
        return  # Python doesn't know the parameters of this function


def _check_row_writer(writer: object) -> None:
    if not callable(writer) and not callable(getattr(writer, "process", None)):
        found = f"Foreach needs a function of a row, or an object with `process`, found {writer!r}"
        raise SpecError(with_hint(found, "write it as `def write(row): ...`"))
