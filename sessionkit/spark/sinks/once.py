"""A user's own function as a sink that takes each micro-batch once."""

from collections.abc import Callable

import attrs
from pyspark.sql import DataFrame, SparkSession

from sessionkit.spark.sinks.batches import Batch
from sessionkit.spark.sinks.ledgers import Ledger, from_last

__all__ = ["ForeachBatchWriter", "Once", "OnceWriter"]


@attrs.frozen
class Once:
    """
    Your own function for each micro-batch, which isn't called for one that it has written.

    In one transaction, `write` stores the rows, and the number of the micro-batch under the id of
    the query. `last_batch` reads that number. A micro-batch that runs again, after a crash at any
    point, is then either there or not. The rows are persisted, so `write` may run several actions.

    Attributes:
        write: Called on the driver as `write(frame, query_id, batch_id)`.
        last_batch: Called as `last_batch(query_id)` when the query starts, and before each
            micro-batch. Returns the number of the last one that is stored for the query, and None
            where there is none.
    """

    write: Callable[[DataFrame, str, int], None]
    last_batch: Callable[[str], int | None]


@attrs.frozen
class OnceWriter:
    """Writes the micro-batches that a user's store doesn't have yet."""

    sink: Once
    runs_all: bool = attrs.field(default=False, init=False)

    def ledger(self, spark: SparkSession, query_id: str) -> Ledger:
        """Return what the store has of a query."""
        del spark
        return Ledger(
            "the store of `last_batch`",
            from_last(self.sink.last_batch(query_id)),
            lambda number: (
                f"take the store back to micro-batch {number}, or pass a new one with "
                f"sink_since={number + 1}"
            ),
        )

    def is_written(self, batch: Batch) -> bool:
        """Return whether the store has it."""
        last = self.sink.last_batch(batch.query_id)
        return last is not None and batch.number <= last

    def write(self, batch: Batch) -> None:
        """Call the function."""
        self.sink.write(batch.frame, batch.query_id, batch.number)


@attrs.frozen
class ForeachBatchWriter:
    """Calls a function with every micro-batch, also with one that runs again."""

    function: Callable[[DataFrame, int], None]
    runs_all: bool = attrs.field(default=False, init=False)

    def ledger(self, spark: SparkSession, query_id: str) -> None:
        """Return that nobody knows."""

    def is_written(self, batch: Batch) -> bool:
        """Return that nobody knows."""
        del batch
        return False

    def write(self, batch: Batch) -> None:
        """Call the function."""
        self.function(batch.frame, batch.number)
