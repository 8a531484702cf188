"""The sinks that Spark has, as values, and what each one needs."""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sessionkit.errors import SpecError, with_hint
from sessionkit.spec.columns import SESSION_COLUMNS

NESTED: Final = (T.StructType, T.ArrayType, T.MapType)
MESSAGE_IDS: Final = (SESSION_COLUMNS[0], "event_id")
"""What names a row, so that the consumer of a topic knows one that comes again."""


def names_in(names: Iterable[str] | str) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def names_or_none(names: Iterable[str] | str | None) -> tuple[str, ...] | None:
    """Return one name or several as a tuple, and None as it is."""
    return None if names is None else names_in(names)


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
    partition_by: tuple[str, ...] = attrs.field(default=(), converter=names_in)


@attrs.frozen
class Kafka:
    """
    A Kafka topic. A micro-batch that runs again writes its rows again.

    Rows that have a `session_id` or an `event_id` become JSON, with that id as the key: a consumer
    knows by it what comes again. A frame with a column `value` is sent as it is; it may have `key`,
    `topic`, `partition` and `headers`.

    Attributes:
        servers: The brokers, as `host:port,host:port`.
        topic: The topic of every row; None if the frame has a column `topic`.
        options: More options, under Spark's names, such as `kafka.security.protocol`.
    """

    servers: str
    topic: str | None = None
    options: Mapping[str, str] = attrs.field(factory=dict, repr=False)


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


NativeSink: TypeAlias = Files | Kafka | ForeachBatch | Foreach | Console | Memory


def to_native(writer: DataStreamWriter, sink: NativeSink) -> DataStreamWriter:
    """Return the writer with a sink."""
    match sink:
        case Files():
            writer = writer.format(sink.format).option("path", os.fspath(sink.path))
            return writer.partitionBy(*sink.partition_by) if sink.partition_by else writer
        case Kafka():
            return writer.format("kafka").options(**kafka_options(sink))
        case ForeachBatch():
            return writer.foreachBatch(sink.function)
        case Foreach():
            return writer.foreach(sink.writer)
        case Console():
            writer = writer.format("console").option("numRows", sink.rows)
            return writer.option("truncate", sink.truncate)
        case Memory():
            return writer.format("memory")


def kafka_options(sink: Kafka) -> dict[str, str]:
    """Return the options of a topic, under Spark's names."""
    topic = {} if sink.topic is None else {"topic": sink.topic}
    return {"kafka.bootstrap.servers": sink.servers, **topic, **sink.options}


def check_native(schema: T.StructType, sink: NativeSink) -> None:
    """Check that a sink is valid, and that the rows have the columns it needs."""
    match sink:
        case Files():
            _check_partitions(schema, sink)
            _check_format(schema, sink)
        case Kafka():
            _check_messages(schema, sink)
        case ForeachBatch():
            check_callable("ForeachBatch", sink.function, "write(frame, batch_id)")
        case Foreach():
            _check_row_writer(sink.writer)
        case Memory() if not sink.table:
            found = "a memory sink is a table, and a table needs a name"
            raise SpecError(with_hint(found, 'name it: sink=Memory("visits")'))
        case Console() | Memory():
            pass


def message_id(schema: T.StructType) -> tuple[str, ...]:
    """Return the columns that name a row for a consumer; none where the rows are messages."""
    return tuple(name for name in MESSAGE_IDS if name in schema.names)


def _check_partitions(schema: T.StructType, sink: Files) -> None:
    missing = [name for name in sink.partition_by if name not in schema.names]
    if missing:
        found = f"partition_by names `{missing[0]}`; the columns are {', '.join(schema.names)}"
        raise SpecError(with_hint(found, "name a column of the frame"))


def _check_format(schema: T.StructType, sink: Files) -> None:
    """Refuse what Spark would refuse in the first micro-batch: a line of text has no parts."""
    columns = [field for field in schema.fields if field.name not in sink.partition_by]
    kind = sink.format.lower()
    if kind == "csv":
        wrong = [field for field in columns if isinstance(field.dataType, NESTED)]
    elif kind == "text":
        wrong = [field for field in columns if not isinstance(field.dataType, T.StringType)]
        wrong = wrong or columns[1:]
    else:
        return
    if wrong:
        found = f"a file of format {kind} can't hold `{wrong[0].name}`"
        found += f", which is {wrong[0].dataType.simpleString()}"
        raise SpecError(with_hint(found, "take the format json or parquet"))


def _check_messages(schema: T.StructType, sink: Kafka) -> None:
    columns = {field.name: field.dataType for field in schema.fields}
    value = columns.get("value")
    if not message_id(schema) and not isinstance(value, T.StringType | T.BinaryType):
        what = "is missing" if value is None else f"has type {value.simpleString()}"
        found = f"Kafka needs a column `value` of text or bytes, but it {what}"
        hint = 'create it: frame.select(to_json(struct("*")).alias("value"))'
        raise SpecError(with_hint(found, hint))
    if sink.topic is None and "topic" not in columns:
        found = "Kafka needs a topic: the sink names none, and the frame has no column `topic`"
        raise SpecError(with_hint(found, "name it: Kafka(servers=..., topic=...)"))


def check_callable(owner: str, function: object, written: str) -> None:
    """Check that a function can be called as it will be."""
    hint = f"write it as `def {written}: ...`"
    if not callable(function):
        raise SpecError(with_hint(f"{owner} needs a function, found {function!r}", hint))
    arguments = [name.strip() for name in written.partition("(")[2].rstrip(")").split(",")]
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        found = f"{owner} calls its function with {' and '.join(map(_said, arguments))}: {error}"
        raise SpecError(with_hint(found, hint)) from None
    except ValueError:
        return  # Python doesn't know the parameters of this function


def _said(argument: str) -> str:
    return f"a {argument.replace('_', ' ')}"


def _check_row_writer(writer: object) -> None:
    if not callable(writer) and not callable(getattr(writer, "process", None)):
        found = f"Foreach needs a function of a row, or an object with `process`, found {writer!r}"
        raise SpecError(with_hint(found, "write it as `def write(row): ...`"))
