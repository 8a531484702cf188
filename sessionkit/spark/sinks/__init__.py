"""
Write the rows of a query to Spark's own sinks, or to sinks that take whole micro-batches.

To write a sink of your own, use the names here: a value with the methods of `TableSink`, and a
`BatchWriter` that checks whether a place has a micro-batch, and writes each exactly once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from sessionkit._instants import instant_of
from sessionkit.errors import SessionkitError
from sessionkit.spark._logs import logs_of, query_id_of

__all__ = ["Batch", "BatchWriter", "Ledger", "RowsToWrite", "TableSink"]

OutputMode: TypeAlias = Literal["append", "update", "complete"]
"""
The rows of its result that a query writes after a micro-batch.

`"append"`: the rows that will never change. `"update"`: the rows that this micro-batch has changed.
`"complete"`: all rows, which only an aggregation keeps.
"""


def _from_last(value: Callable[[int], bool] | int | None) -> Callable[[int], bool]:
    if callable(value):
        return value
    return lambda number: value is not None and value >= number


@attrs.frozen
class Ledger:
    """
    Say which micro-batches of a query a place already has: a table, a folder or a store.

    `BatchWriter.ledger` returns it. If it doesn't fit the checkpoint, the query refuses to start.

    Attributes:
        place: The place's name in messages.
        has_from: The number of the last micro-batch that the place has, None if it has none. Or a
            function: `has_from(number)` returns whether it has this micro-batch or a later one. As
            an attribute, it's always such a function, made of the number.
        rewind: `rewind(number)` returns a hint: how to take the place back until this micro-batch
            is its last.
        may_join: Whether an empty place can join a query that has finished micro-batches.
        identity: A value that is equal for one place under several names; None if unknown.
    """

    place: str
    has_from: Callable[[int], bool] = attrs.field(converter=_from_last)
    rewind: Callable[[int], str]
    may_join: bool = True
    identity: object = None


@attrs.frozen
class Batch:
    """
    A micro-batch, as `BatchWriter.write` gets it.

    Attributes:
        frame: Its rows, a DataFrame.
        number: Its number, from 0; the same if it runs again.
        query_id: The id of the query, the same after a restart.
        run_id: The id of this run of the query, another one after a restart.
        plan: Returns a checksum of what the checkpoint says of this micro-batch: the same where it
            runs again, and another one in a copy of the checkpoint that has planned other rows.
            Empty if unknown. It starts a job of Spark, once.
    """

    frame: DataFrame
    number: int
    query_id: str
    run_id: str
    plan: Callable[[], str] = attrs.field(default=lambda: "", eq=False, repr=False)


class BatchWriter(ABC):
    """
    Write the micro-batches of one run of a query to one place: the base class of your own writer.

    Override `write`. Override `is_written` too, so that each micro-batch is written once: by
    default, one that runs again is written again. Override `ledger` too, so that the query refuses
    to start if the place and the checkpoint are of different moments.

    Attributes:
        runs_all: Whether `write` is one action of Spark over all rows. If False, the default, the
            rows are persisted before `write`, so that several actions, or none, see the same rows.
    """

    runs_all: ClassVar[bool] = False

    def ledger(self, rows: DataFrame, query_id: str | None) -> Ledger | None:
        """
        Check that the place can take rows, and return which micro-batches of a query it has.

        It's called before the first micro-batch of a run. By default, it checks nothing and returns
        None: unknown.

        Args:
            rows: The rows that `write` gets, as a streaming DataFrame or one of a micro-batch.
            query_id: The id of the query; None if the query is new.
        """
        del rows, query_id
        return None

    def start(self, spark: SparkSession, checkpoint: str) -> None:
        """Check, when the query of a checkpoint starts, that it may write here; by default yes."""
        del spark, checkpoint

    def is_written(self, batch: Batch) -> bool:
        """
        Return whether the place has a micro-batch, which then isn't written again.

        It's called before each `write`. By default False.
        """
        del batch
        return False

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Write the micro-batch. What it raises stops the query."""


@attrs.frozen
class RowsToWrite:
    """
    Describe the rows that a sink will take, before a query starts.

    Attributes:
        schema: Their columns.
        of_results: Whether they are result rows, of sessions or of a `StatefulSpec`, rather than
            rejected rows.
        name: Their name within the query, the same in every run: the kind, or `all` for all rows.
        mode: The output mode.
    """

    schema: T.StructType
    of_results: bool = True
    name: str = "all"
    mode: OutputMode = "append"


@runtime_checkable
class TableSink(Protocol):
    """
    The protocol of a sink that writes whole micro-batches.

    `start_query` and `Routes` take any object with these three members; it needs no base class.
    """

    @property
    def label(self) -> str:
        """The name of its place in messages, such as `the table visits`."""
        ...

    @property
    def place(self) -> object:
        """The identity of its place, which sinks of one place share; a `PurePath` for a folder."""
        ...

    def writer(self, rows: RowsToWrite, spark: SparkSession) -> BatchWriter:
        """Check, before a query starts, that the sink can take rows; return their `BatchWriter`."""
        ...


# ---------------------------------------------------------------------------------------- repairs


@attrs.frozen
class FinishedBatch:
    """The last finished micro-batch: sessions that ended by its watermark are in all sinks."""

    query_id: str
    number: int
    watermark: datetime


def finished(checkpoint: str, spark: SparkSession) -> FinishedBatch:
    """Return the last micro-batch of a checkpoint's query that is written to its sinks."""
    query_id, logs = query_id_of(spark, checkpoint), logs_of(checkpoint, spark)
    if query_id is None or not logs.commits:
        found = f"no query has finished a micro-batch at {checkpoint}"
        raise SessionkitError(found, "pass the checkpoint location of the query")
    watermark = instant_of(logs.watermark_ms(logs.written) * 1000)
    return FinishedBatch(query_id, logs.written, watermark)


@attrs.frozen
class Span:
    """
    Recomputed sessions, and the span of a table in which they replace the stored sessions.

    Overlapping sessions of a key, stored or new, form a group: all are exchanged, or none. A group
    is in the span if its first session begins there.

    Attributes:
        rows: The new sessions, with the columns of the table.
        is_final: The name of an extra column: whether the query will never write the session.
        keys: The columns of the key.
        compared: The columns that are compared between a new and a stored session with one id.
        start: The start of the span, inclusive.
        end: The end of the span, exclusive.
        settled: The end of history, in event time. A session that ended by then is final: the query
            never changes its row.
        days: The days in UTC on which history has an event; it says nothing about other days.
        delete_unseen: Whether to delete the sessions of other days, and of keys that history lacks.
        finished: The last micro-batch that the query has finished.
    """

    rows: DataFrame
    is_final: str
    keys: tuple[str, ...]
    compared: tuple[str, ...]
    start: datetime
    end: datetime
    settled: datetime
    days: tuple[date, ...]
    delete_unseen: bool
    finished: FinishedBatch


@attrs.frozen
class Difference:
    """
    The differences between the new sessions of a span and the stored ones.

    Attributes:
        counts: The numbers of sessions that are `unchanged`, `changed`, `added`, `deleted`, and
            `left` as they are, since they aren't final or history says nothing about them.
        unseen: The numbers of `days` in UTC, and of `keys`, for which the table has final sessions,
            but history has no event.
        sessions: The changed, added and deleted ones: the key, `session_id`, `session_start`,
            `session_end` and the `difference`.
    """

    counts: Mapping[str, int]
    unseen: Mapping[str, int]
    sessions: DataFrame = attrs.field(repr=False)

    @classmethod
    def of(
        cls, counts: Mapping[str, int], sessions: DataFrame, *, days: int = 0, keys: int = 0
    ) -> "Difference":
        """Return a difference with a count, maybe 0, for each kind of session."""
        kinds = ("unchanged", "changed", "added", "deleted", "left")
        unseen = {"days": days, "keys": keys}
        return cls({kind: counts.get(kind, 0) for kind in kinds}, unseen, sessions)


@runtime_checkable
class RepairableSink(TableSink, Protocol):
    """A sink whose sessions can be exchanged for others, in one transaction."""

    def exchange(self, span: Span, *, dry_run: bool) -> Difference:
        """Replace the stored sessions of a span, unless it's a `dry_run`; return the difference."""
        ...
