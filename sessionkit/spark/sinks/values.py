"""The sinks of `start_query`, as values."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from sessionkit._arguments import (
    at_least_one,
    explained,
    flag,
    names,
    names_of,
    spark_options,
    text,
)
from sessionkit.errors import SpecError
from sessionkit.spark._paths import check_path
from sessionkit.spark.sinks import TableSink
from sessionkit.spark.sinks.marks import finished_rows

REST: Final = "rejected"


def _is_format(_: Any, __: "attrs.Attribute[str]", value: object) -> None:
    if not isinstance(value, str) or not value or "/" in value:
        found = f"`format` must be the name of a format, found {value!r}"
        raise SpecError(found, 'it comes first: Files("parquet", "/data/visits")')


def _is_folder(_: Any, attribute: "attrs.Attribute[Any]", value: object) -> None:
    check_path(value, f"`{attribute.name}` of Files")


def _is_function(_: Any, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if not callable(value):
        found = f"`{attribute.name}` must be a function, found {value!r}"
        raise SpecError(found, "write it with `def`, and pass its name")


def _is_writer(_: Any, __: "attrs.Attribute[Any]", value: object) -> None:
    if not callable(value) and not callable(getattr(value, "process", None)):
        found = f"`writer` must be a function or an object with `process`, found {value!r}"
        raise SpecError(found, "write `def write(row): ...`, and pass its name")


@explained({"path": 'path=..., the folder, after the format: Files("parquet", "/visits")'})
@attrs.frozen
class Files:
    """
    Write to a folder: every micro-batch adds files, each row exactly once.

    Example:
        from pyspark.sql import functions as F
        from sessionkit.spark import Files, sessionize, start_query

        # stream and visits: as in the example of start_query
        query = start_query(
            sessionize(stream, visits).withColumn("day", F.to_date("session_start")),
            sink=Files("parquet", "/data/visits", partition_by="day"),
            trigger="1 minute",
            checkpoint="/checkpoints/visits",
        )

    Attributes:
        format: The format: `parquet`, `orc`, `json`, `csv` or another that Spark knows.
        path: The folder.
        partition_by: The columns whose values name the subfolders of the files.

    Raises:
        SpecError: The format isn't the name of a format, or the path isn't a path of this system.
    """

    format: str = attrs.field(validator=_is_format)
    path: str | os.PathLike[str] = attrs.field(validator=_is_folder)
    partition_by: tuple[str, ...] = attrs.field(default=(), converter=names_of, validator=names)

    def read(
        self, spark: SparkSession, *, schema: str | StructType | None = None, **options: Any
    ) -> DataFrame:
        """
        Return the rows of all finished micro-batches, each exactly once.

        Another reader of the folder may find some rows twice, or rows of a micro-batch that isn't
        finished: those in files that a killed or replaced run has left. This method leaves such
        files out.

        Args:
            spark: The session to read with.
            schema: The schema of the rows, without which JSON and CSV have Spark guess their types.
            options: Options of the format, such as `header=True`.
        """
        reader = spark.read.format(self.format).options(**options)
        return finished_rows(spark, self.path, reader if schema is None else reader.schema(schema))


@explained()
@attrs.frozen
class Kafka:
    """
    Write to a Kafka topic. A micro-batch that runs again sends its rows again.

    If the frame has a column `session_id` or `event_id`, each row is sent as a JSON object of all
    columns. The key of the message is that id, by which a consumer can drop repeats. Any other
    frame needs a column `value`, which is sent as it is, and may have `key`, `topic`, `partition`
    and `headers`. `start_query` raises a `SpecError` if `value`, or the topic, is missing.

    Attributes:
        servers: The brokers, as `host:port,host:port`.
        topic: The topic of every row; None if the frame has a column `topic`.
        options: More options, under Spark's names, such as `kafka.security.protocol`.
    """

    servers: str = attrs.field(validator=text)
    topic: str | None = attrs.field(default=None, validator=text)
    options: Mapping[str, str] = attrs.field(
        factory=dict, repr=False, validator=spark_options, hash=False
    )


@explained()
@attrs.frozen
class AtLeastOnce:
    """
    Call a function on the driver with the DataFrame and the number of each micro-batch.

    A micro-batch that runs again after a failure has the same number, and the function gets its
    rows again.

    Attributes:
        function: Called as `function(frame, batch_id)`.
    """

    function: Callable[[DataFrame, int], None] = attrs.field(validator=_is_function)


@explained()
@attrs.frozen
class AtLeastOncePerRow:
    """
    Call a function on the executors with each row.

    A micro-batch that runs again after a failure calls it again.

    Attributes:
        writer: Called as `writer(row)`; or an object with a method `process(row)`, and optionally
            `open(partition_id, epoch_id)` and `close(error)`.

    Raises:
        SpecError: `writer` is neither a function nor such an object.
    """

    writer: Any = attrs.field(validator=_is_writer)


@explained()
@attrs.frozen
class Console:
    """
    Print the rows of each micro-batch on the driver, for inspection. Needs no checkpoint.

    Attributes:
        rows: How many rows of a micro-batch are shown.
        truncate: Whether long values are truncated.
    """

    rows: int = attrs.field(default=20, validator=at_least_one)
    truncate: bool = attrs.field(default=True, validator=flag)


@explained()
@attrs.frozen
class MemoryTable:
    """
    Keep the rows in a table in the driver's memory, for tests and notebooks.

    `spark.table(name)` reads it. Needs no checkpoint.

    Attributes:
        table: The name of the table, and of the query.
    """

    table: str = attrs.field(validator=text)


@explained()
@attrs.frozen
class ExactlyOnce:
    """
    Call your own function so that each micro-batch is written once.

    In one transaction, `write` must store the rows, and the number of the micro-batch under the id
    of the query. `last_batch` reads that number. After a crash at any point, `write` isn't called
    for a micro-batch that is stored. Make id and number a primary key: if two runs of a query go on
    at the same time, only one of them can then write. The rows are persisted, so `write` may run
    several actions.

    Attributes:
        write: Called on the driver as `write(frame, query_id, batch_id)`.
        last_batch: Called as `last_batch(query_id)` when the query starts, and before each
            micro-batch. Returns the number of the last micro-batch that is stored for the query;
            None if there is none.
    """

    write: Callable[[DataFrame, str, int], None] = attrs.field(validator=_is_function)
    last_batch: Callable[[str], int | None] = attrs.field(validator=_is_function)


RouteSink: TypeAlias = TableSink | Files | Kafka | ExactlyOnce | AtLeastOnce


@explained({"rejected": "rejected=None, or a sink for the rows of all other kinds"})
@attrs.frozen(kw_only=True)
class Routes:
    """
    Write each kind of row to a sink of its own.

    The frame comes from `sessionize` or `apply_with_state`, with `with_rejected=True`; its column
    `kind` says where a row goes. Every row has a sink: `rejected` takes all kinds that no other
    argument names. A result row has the columns of a result and the columns that you add to the
    frame; any other row has all columns. No two sinks may share a table, a folder or a topic:
    `start_query` raises a `SpecError`. All rows come from one run of the functions.

    Example:
        from sessionkit.spark import Files, Routes, sessionize, start_query

        # stream and visits: as in the example of start_query
        query = start_query(
            sessionize(stream, visits, with_rejected=True),
            sink=Routes(
                session=Files("parquet", "/data/visits"),
                late=Files("parquet", "/data/late"),
                rejected=Files("parquet", "/data/rejected"),
            ),
            trigger="1 minute",
            checkpoint="/checkpoints/visits",
        )

    Attributes:
        session: Takes the sessions of a `SessionSpec`, for which it's required.
        result: Takes the result rows of a `StatefulSpec`, for which it's required.
        rejected: Required. Takes every other row. None leaves out the rows of kinds without a sink;
            they are still counted.
        event: Takes the events of closed sessions, of a spec with `with_events=True`, in place of
            `rejected`.
        late: Takes the events that were late, in place of `rejected`.
        duplicate: Takes the events that were processed already, in place of `rejected`.
        outside: Takes the events outside any session, in place of `rejected`.
        quarantined: Takes the rows that aren't valid events, in place of `rejected`.
        failed: Takes the events for which a function raised, in place of `rejected`.
        failed_output: Takes what a function failed to return, in place of `rejected`.
        erased: Takes the keys that were erased, in place of `rejected`.

    Raises:
        SpecError: `rejected` is left out.
    """

    session: RouteSink | None = None
    result: RouteSink | None = None
    rejected: RouteSink | None
    event: RouteSink | None = None
    late: RouteSink | None = None
    duplicate: RouteSink | None = None
    outside: RouteSink | None = None
    quarantined: RouteSink | None = None
    failed: RouteSink | None = None
    failed_output: RouteSink | None = None
    erased: RouteSink | None = None

    @property
    def named(self) -> dict[str, RouteSink]:
        """The kinds that have a sink of their own."""
        sinks = attrs.asdict(self, recurse=False)
        return {kind: sink for kind, sink in sinks.items() if sink is not None and kind != REST}


NativeSink: TypeAlias = Files | Kafka | AtLeastOnce | AtLeastOncePerRow | Console | MemoryTable
BatchSink: TypeAlias = Routes | TableSink | ExactlyOnce
"""The sinks that take whole micro-batches, through `foreachBatch`."""
StreamSink: TypeAlias = NativeSink | BatchSink


def described(sink: StreamSink | None) -> str:
    """Return the name of a sink's place in messages."""
    match sink:
        case Files():
            return f"the folder {os.fspath(sink.path)}"
        case TableSink():
            return sink.label
        case Kafka():
            return f"the topic {sink.topic}"
        case _:
            return "the store of `last_batch`"
