"""Micro-batches on their way to sinks that take them whole, each exactly once."""

from collections.abc import Sequence
from typing import Protocol

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit.spark._columns import quoted
from sessionkit.spark.checkpoints.log import query_id_of
from sessionkit.spark.sinks.ledgers import Ledger, Start
from sessionkit.spark.sinks.reasons import say_first

__all__ = ["Batch", "BatchWriter", "Part", "WriteBatches", "drain"]


@attrs.frozen
class Batch:
    """
    A micro-batch.

    Attributes:
        frame: Its rows.
        number: Its number: one that runs again has the same.
        query_id: The id of the query, which it keeps over restarts.
        run_id: The id of this run of the query: of two runs, the later one goes on.
    """

    frame: DataFrame
    number: int
    query_id: str
    run_id: str


class BatchWriter(Protocol):
    """
    What writes the micro-batches of one run to one place.

    Attributes:
        runs_all: Whether `write` is one action over all rows. If not, they are computed before.
    """

    @property
    def runs_all(self) -> bool:
        """Whether `write` is one action over all rows."""
        ...

    def ledger(self, spark: SparkSession, query_id: str) -> Ledger | None:
        """Return which micro-batches of a query the place has; None where it doesn't know."""
        ...

    def is_written(self, batch: Batch) -> bool:
        """Return whether the place has this micro-batch; then it isn't written again."""
        ...

    def write(self, batch: Batch) -> None:
        """Write it."""
        ...


@attrs.frozen
class Part:
    """
    Some rows of a micro-batch, and what writes them.

    Attributes:
        writer: What writes them.
        kinds: The kinds of the rows, or with `is_rest` those that they are not; None for all rows.
        is_rest: Whether these are the rows of no kind in `kinds`.
        columns: The columns that are written; None for all.
    """

    writer: BatchWriter
    kinds: tuple[str, ...] | None = None
    is_rest: bool = False
    columns: tuple[str, ...] | None = None

    def of(self, batch: Batch) -> Batch:
        """Return the rows of this part."""
        frame = batch.frame
        if self.kinds is not None:
            named = F.col("kind").isin(list(self.kinds))
            frame = frame.where(~named if self.is_rest else named)
        if self.columns is not None:
            frame = frame.select(*map(quoted, self.columns))
        return attrs.evolve(batch, frame=frame)


@attrs.define
class WriteBatches:
    """
    The function of `foreachBatch` for sinks that take micro-batches whole.

    Spark keeps the state of a micro-batch only where an action has run over all of its rows. So one
    that every sink has already is run all the same, and one that goes to several sinks is persisted
    before the first.

    Attributes:
        checkpoint: The checkpoint location, which knows the id of the query.
        run_id: The id of this run.
        parts: What goes where.
        start: From where the query goes on, if the first micro-batch has to check it.
        query_id: The id of the query; None before the first micro-batch.
    """

    checkpoint: str
    run_id: str
    parts: Sequence[Part]
    start: Start | None = None
    query_id: str | None = None

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Write a micro-batch to each sink that doesn't have it."""
        try:
            self._write(frame, number)
        except Exception as error:
            say_first(error)
            raise

    def _write(self, frame: DataFrame, number: int) -> None:
        if self.query_id is None:
            self.query_id = query_id_of(frame.sparkSession, self.checkpoint) or ""
            if self.start is not None:
                for part in self.parts:
                    self.start.check(part.writer.ledger(frame.sparkSession, self.query_id))
        batch = Batch(frame, number, self.query_id, self.run_id)
        pending = [part for part in self.parts if not part.writer.is_written(part.of(batch))]
        if not pending:
            drain(frame)
        elif len(pending) == 1 and pending[0].writer.runs_all:
            _write(pending, batch)
        else:
            frame.persist()
            try:
                if not pending[0].writer.runs_all:
                    drain(frame)
                _write(pending, batch)
            finally:
                frame.unpersist()


def _write(parts: Sequence[Part], batch: Batch) -> None:
    for part in parts:
        part.writer.write(part.of(batch))


def drain(frame: DataFrame) -> None:
    """Run a micro-batch without writing a row, so that Spark keeps its state."""
    frame.write.format("noop").mode("overwrite").save()
