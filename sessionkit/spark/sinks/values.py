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


@explained()
@attrs.frozen
class Files:
    """
    A folder to which every micro-batch adds files, each row exactly once.

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

        They're the rows that a reader of the folder finds, but for files that a run which was
        killed, or which a later one has replaced, has left there.

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
    A Kafka topic. A micro-batch that runs again writes its rows again.

    Rows that have a `session_id` or an `event_id` become JSON, with that id as the key, by which a
    consumer can drop repeats. A frame with a column `value` is sent as it is; it may have `key`,
    `topic`, `partition` and `headers`.

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
    A function on the driver, called with the DataFrame and the id of each micro-batch.

    A batch that runs again has the same id.

    Attributes:
        function: Called as `function(frame, batch_id)`.
    """

    function: Callable[[DataFrame, int], None] = attrs.field(validator=_is_function)


@explained()
@attrs.frozen
class AtLeastOncePerRow:
    """
    A function on the executors, called with each row. A batch that runs again calls it again.

    Attributes:
        writer: Called as `writer(row)`; or an object with a method `process(row)`, and optionally
            `open(partition_id, epoch_id)` and `close(error)`.
    """

    writer: Any


@explained()
@attrs.frozen
class Console:
    """
    The standard output of the driver, for inspection.

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
    A table in the driver's memory, for tests and notebooks.

    Attributes:
        table: The name of the table, and of the query.
    """

    table: str = attrs.field(validator=text)


@explained()
@attrs.frozen
class ExactlyOnce:
    """
    Your own function that writes each micro-batch once.

    In one transaction, `write` stores the rows, and the number of the micro-batch under the id of
    the query. `last_batch` reads that number: after a crash at any point, a stored micro-batch
    isn't written again. If id and number are a primary key, only one of two runs at once writes.
    The rows are persisted, so `write` may run several actions.

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
    A sink for each kind of row, from one run of the stateful operator.

    The frame comes from `sessionize` or `apply_with_state`, with rejected rows. Every row has a
    sink: `rejected` takes all kinds that no other argument names. A result row has the columns of a
    result and the columns that you add to the frame; any other row has all columns. No two sinks
    share a table, a folder or a topic.

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
        session: Takes the sessions of a `SessionSpec`.
        result: Takes the result rows of a `StatefulSpec`.
        rejected: Takes every other row. None leaves out the rows of kinds without a sink; they are
            still counted.
        event: Takes the events of closed sessions, of a spec with `with_events=True`, in place of
            `rejected`.
        late: Takes the events that were late, in place of `rejected`.
        duplicate: Takes the events that were processed already, in place of `rejected`.
        outside: Takes the events outside any session, in place of `rejected`.
        quarantined: Takes the rows that aren't valid events, in place of `rejected`.
        failed: Takes the events for which a function raised, in place of `rejected`.
        failed_output: Takes what a function failed to return, in place of `rejected`.
        erased: Takes the keys that were erased, in place of `rejected`.
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
