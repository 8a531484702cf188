"""Every sink that `start_query` takes: what it needs, and how Spark gets it."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final, TypeAlias, cast
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.utils import is_remote

from sessionkit.errors import SpecError, with_hint
from sessionkit.spark._libraries import check_extra
from sessionkit.spark._output_rules import OutputMode, Sink
from sessionkit.spark.sinks import delta
from sessionkit.spark.sinks.batches import BatchWriter, Ledger, Part, Start, WriteBatches
from sessionkit.spark.sinks.native import (
    Console,
    Files,
    Foreach,
    ForeachBatch,
    Kafka,
    Memory,
    NativeSink,
    check_callable,
    check_native,
    to_native,
)
from sessionkit.spark.sinks.routes import (
    Route,
    Routes,
    check_key,
    key_of,
    refuses_duplicate_ids,
    routes_of,
    same_place_error,
)
from sessionkit.spark.sinks.tables import Delta, Postgres
from sessionkit.spark.sinks.writers import (
    FolderWriter,
    ForeachBatchWriter,
    Once,
    OnceWriter,
    TopicWriter,
    check_layout,
    log_of,
    messages,
)

BatchesSink: TypeAlias = Routes | Postgres | Delta | Once
"""Those that take micro-batches whole, by a function of `foreachBatch`."""
StreamSink: TypeAlias = NativeSink | BatchesSink

SINKS: Final[dict[type[Any], Sink]] = {
    Files: "file",
    Kafka: "kafka",
    ForeachBatch: "foreachBatch",
    Foreach: "foreach",
    Console: "console",
    Memory: "memory",
    Routes: "foreachBatch",
    Postgres: "foreachBatch",
    Delta: "foreachBatch",
    Once: "foreachBatch",
}


def to_sink(
    frame: DataFrame, mode: OutputMode, sink: StreamSink, start: Start | None
) -> DataStreamWriter:
    """Return the writer of a frame to a sink."""
    if isinstance(sink, Kafka):
        frame = messages(frame)
    writer = frame.writeStream.outputMode(mode)
    if start is None or not isinstance(sink, BatchesSink):  # these have a checkpoint
        return to_native(writer, cast("NativeSink", sink))
    parts = [_part(route, mode) for route in routes_of(frame.schema, sink)]
    unchecked = start if is_remote() else None
    return writer.foreachBatch(WriteBatches(start.checkpoint, str(uuid4()), parts, unchecked))


def _part(route: Route, mode: OutputMode) -> Part:
    return Part(_writer(route, mode), route.kinds, route.is_rest, tuple(route.schema.names))


def _writer(route: Route, mode: OutputMode) -> BatchWriter:
    match route.sink:
        case Postgres() | Delta() as sink:
            tables: Any = _postgres() if isinstance(sink, Postgres) else delta
            refuses = refuses_duplicate_ids(sink, route, mode)
            writer: BatchWriter = tables.TableWriter(
                sink, key_of(sink, route), route.name, refuses=refuses
            )
            return writer
        case Files():
            return FolderWriter(route.sink)
        case Kafka():
            return TopicWriter(route.sink)
        case Once():
            return OnceWriter(route.sink)
        case ForeachBatch():
            return ForeachBatchWriter(route.sink.function)


def check_sink(frame: DataFrame, sink: StreamSink, mode: OutputMode) -> None:
    """Check that a sink is valid, and that the frame has the columns it needs."""
    if type(sink) not in SINKS:
        found = f"`sink` must be a sink, found {sink!r}"
        kinds = ", ".join(kind.__name__ for kind in SINKS)
        raise SpecError(with_hint(found, f"pass one of {kinds}"))
    if not isinstance(sink, BatchesSink):
        check_native(frame.schema, sink)
        return
    for route in routes_of(frame.schema, sink):
        match route.sink:
            case Postgres():
                _postgres().check_columns(route.sink, route, mode)
            case Delta():
                check_key(route.sink, route, mode)
                delta.check_columns(route.schema)
                delta.check_delta(frame.sparkSession)
            case Once():
                check_callable("Once", route.sink.write, "write(frame, query_id, batch_id)")
                check_callable("Once", route.sink.last_batch, "last_batch(query_id)")
            case other:
                check_native(route.schema, other)


def check_tables(frame: DataFrame, sink: StreamSink, query_id: str | None) -> None:
    """
    Check that the tables of a sink can take the rows, where this process can reach them.

    With Spark Connect it may not: there, the first micro-batch finds out.

    Args:
        frame: The rows.
        sink: The sink.
        query_id: The id of the query; None for a new one.
    """
    if is_remote() or not isinstance(sink, BatchesSink):
        return
    tables: dict[object, str] = {}
    for route in routes_of(frame.schema, sink):
        if isinstance(route.sink, Postgres):
            place = _postgres().check_table(route.sink, route, query_id).place
            if tables.setdefault(place, route.name) != route.name:
                raise same_place_error(tables[place], route.name, route.sink)
        elif isinstance(route.sink, Delta):
            delta.check_table(route.sink, route, frame.sparkSession)


def check_ledgers(
    frame: DataFrame, sink: StreamSink, mode: OutputMode, query_id: str, start: Start
) -> None:
    """
    Check that the places of a sink have the same micro-batches as the checkpoint.

    With Spark Connect this process may not reach a table: there, the first micro-batch checks.

    Args:
        frame: The rows.
        sink: The sink.
        mode: The output mode.
        query_id: The id of the query; "" for a new one.
        start: From where the query goes on.
    """
    _check_folders(frame, sink)
    for ledger in _ledgers(frame, sink, mode, query_id):
        start.check(ledger)


def _check_folders(frame: DataFrame, sink: StreamSink) -> None:
    sinks = [*sink.named.values(), sink.rejected] if isinstance(sink, Routes) else [sink]
    for one in sinks:
        if isinstance(one, Files):
            check_layout(frame.sparkSession, one, alone=one is sink)


def _ledgers(
    frame: DataFrame, sink: StreamSink, mode: OutputMode, query_id: str
) -> Iterator[Ledger | None]:
    spark = frame.sparkSession
    if isinstance(sink, Files):
        yield log_of(spark, sink)
    elif isinstance(sink, BatchesSink) and query_id and not is_remote():
        for route in routes_of(frame.schema, sink):
            yield _writer(route, mode).ledger(spark, query_id)


def _postgres() -> Any:
    """Return the module that imports psycopg."""
    check_extra("postgres", "psycopg", "the sink Postgres")
    return import_module("sessionkit.spark.sinks.postgres.writer")
