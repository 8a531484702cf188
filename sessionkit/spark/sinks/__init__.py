"""
Where the rows of a query go: Spark's own sinks, and those that write whole micro-batches.

The names here are for who writes another one: a value with the methods of `TableSink`, and a
`BatchWriter` that says whether a place has a micro-batch, and writes one, each exactly once.
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
Which rows of its result a query writes after a micro-batch.

`"append"`: those that will never change. `"update"`: those that this micro-batch has changed.
`"complete"`: all of them, which only an aggregation keeps.
"""


def _from_last(value: Callable[[int], bool] | int | None) -> Callable[[int], bool]:
    if callable(value):
        return value
    return lambda number: value is not None and value >= number


@attrs.frozen
class Ledger:
    """
    Which micro-batches of one query a target has: a table, a folder, a store.

    Attributes:
        place: What messages call it.
        has_from: The number of the last micro-batch that it has, None if it has none; or a function
            that returns whether it has a micro-batch with this number or a higher one.
        rewind: How a user takes it back to the micro-batch of a number.
        may_join: Whether a place that has none can join a query that has finished some.
        identity: What tells the place from others, however they are named; None if unknown.
    """

    place: str
    has_from: Callable[[int], bool] = attrs.field(converter=_from_last)
    rewind: Callable[[int], str]
    may_join: bool = True
    identity: object = None


@attrs.frozen
class Batch:
    """A micro-batch; one that runs again has the same number, and an id of a run of its own."""

    frame: DataFrame
    number: int
    query_id: str
    run_id: str


class BatchWriter(ABC):
    """
    Base class of what writes the micro-batches of one run to one place.

    Override `write`; and `ledger` and `is_written`, so that each micro-batch is written once.

    Attributes:
        runs_all: Whether `write` is one action over all rows. If not, they are computed before.
    """

    runs_all: ClassVar[bool] = False

    def ledger(self, rows: DataFrame, query_id: str | None) -> Ledger | None:
        """Check that the place can take rows; return what it has of a query, if it knows that."""
        del rows, query_id
        return None

    def start(self, spark: SparkSession, checkpoint: str) -> None:
        """Check, as the query of a checkpoint starts, that it may write here."""
        del spark, checkpoint

    def is_written(self, batch: Batch) -> bool:
        """Return whether the place has this micro-batch; then it isn't written again."""
        del batch
        return False

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Write the micro-batch."""


@attrs.frozen
class RowsToWrite:
    """
    The rows that a sink is to take.

    Attributes:
        schema: Their columns.
        of_results: Whether they are result rows.
        name: What tells them from the rows that the query writes elsewhere, in every run: their
            kind; `all` where there are no others.
        mode: The output mode.
    """

    schema: T.StructType
    of_results: bool = True
    name: str = "all"
    mode: OutputMode = "append"


@runtime_checkable
class TableSink(Protocol):
    """A sink that writes micro-batches whole: `start_query` and `Routes` take any value like it."""

    @property
    def label(self) -> str:
        """What messages call its place, such as `the table visits`."""
        ...

    @property
    def place(self) -> object:
        """What is equal for two sinks of one place; a `PurePath` for a folder."""
        ...

    def writer(self, rows: RowsToWrite, spark: SparkSession) -> BatchWriter:
        """Check that the sink can take rows, before a query starts; return what writes them."""
        ...


# ------------------------------------------------------------------------------- tables put right


@attrs.frozen
class FinishedBatch:
    """
    The last micro-batch that a query has finished: each of its sinks has it.

    Attributes:
        query_id: The id of the query.
        number: The number of the micro-batch.
        watermark: The watermark in force in it: sessions that ended by then are in the sinks.
    """

    query_id: str
    number: int
    watermark: datetime


def finished(checkpoint: str, spark: SparkSession) -> FinishedBatch:
    """
    Return the last micro-batch that the query of a checkpoint has finished, and a sink has got.

    Raises:
        SessionkitError: There is none.
    """
    query_id, logs = query_id_of(spark, checkpoint), logs_of(checkpoint, spark)
    if query_id is None or not logs.commits:
        found = f"no query has finished a micro-batch at {checkpoint}"
        raise SessionkitError(found, "pass the checkpoint location of the query")
    watermark = instant_of(logs.watermark_ms(logs.written) * 1000)
    return FinishedBatch(query_id, logs.written, watermark)


@attrs.frozen
class Span:
    """
    Sessions that were computed anew, and which of a table they stand for.

    Sessions of a key that overlap belong together, those of the table with the new ones: all of
    them are exchanged, or none. They are in the span if the first of them begins in it.

    Attributes:
        rows: The new sessions, with the columns of the table.
        is_final: The name of one more column: whether the query will never write the session.
        keys: The columns of the key.
        compared: The columns by which a session differs from the one with its id in the table.
        start: When the span begins, inclusive.
        end: When it ends, exclusive.
        settled: A session that ended by then is final: the query never changes its row, and history
            goes on until then.
        days: The days in UTC on which history has an event; of others, it says nothing.
        delete_unseen: Whether to delete sessions of other days, and of keys that history lacks,
            which are left otherwise.
        finished: Where the query stands.
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
    How the sessions of a span differ from those of the table.

    Attributes:
        counts: How many sessions are `unchanged`, `changed`, `added`, `deleted`, and `left` as they
            are, since they aren't final or history says nothing of them.
        unseen: How many `days` in UTC and how many `keys` the table has final sessions of, and
            history no event.
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
        """Bring the sessions of a span into the table, unless it's a `dry_run`."""
        ...
