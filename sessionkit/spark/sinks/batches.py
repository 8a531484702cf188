"""Micro-batches on their way to sinks that take them whole, each exactly once."""

import re
from collections.abc import Callable, Sequence
from itertools import dropwhile, takewhile
from typing import Final, Protocol

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit.errors import SinkError, SpecError, with_hint
from sessionkit.spark._columns import quoted
from sessionkit.spark._logs import logs_of, query_id_of

OWN: Final = re.compile(r"^sessionkit\.errors\.(?=\w+: )", re.MULTILINE)
FRAME: Final = re.compile(r'^ +File ".*", line \d+.*$', re.MULTILINE)
JAVA: Final = ("\tat ", "Driver stacktrace:", " SQLSTATE: ")
NONE: Final = -1
PAGE: Final = '"Back up and restore" in docs/how-to/operate.md says how'


def put_message_first(error: Exception) -> None:
    """
    Let the traceback of an error begin with its message.

    Spark shows the traceback of what a function of `foreachBatch` raises, after words of its own.
    Python begins it with the first cause, so that is what the error says.
    """
    first: BaseException = error
    while (earlier := _before(first)) is not None:
        first = earlier
    first.__cause__ = SinkError(_reason(error))


def _before(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _reason(error: Exception) -> str:
    """Return the message of an error; for one of Spark's, that of the executor."""
    said = str(error)
    if isinstance(error, PySparkException):
        own, frames = OWN.search(said), [*FRAME.finditer(said)]
        if own or frames:
            lines = said[own.end() if own else frames[-1].end() :].splitlines()
            told = dropwhile(lambda line: not line or line.startswith(" "), lines)
            return "\n".join(takewhile(lambda line: not line.startswith(JAVA), told)).strip()
    return f"{type(error).__name__}: {said}"


@attrs.frozen
class Ledger:
    """
    Which micro-batches of one query a place has: a table, a folder, a store.

    Attributes:
        place: The place, as in "the table visits".
        has_from: Whether it has a micro-batch with this number or a higher one.
        rewind: How it is taken back to the micro-batch of a number.
        may_join: Whether a place that has none can join a query that has finished some.
    """

    place: str
    has_from: Callable[[int], bool]
    rewind: Callable[[int], str]
    may_join: bool = True


def from_last(last: int | None) -> Callable[[int], bool]:
    """Return `has_from` of a place that knows its last micro-batch."""
    return lambda number: last is not None and last >= number


@attrs.frozen
class Start:
    """
    The micro-batch from which a query goes on.

    Attributes:
        checkpoint: The checkpoint location.
        planned: The last micro-batch that it has planned, and -1 for none.
        finished: The last one that it has finished, and -1 for none.
        since: The first micro-batch of a place that has none of this query.
    """

    checkpoint: str
    planned: int
    finished: int
    since: int = 0

    def check(self, ledger: Ledger | None) -> None:
        """
        Check that a place and the checkpoint are of one moment.

        The place may be one micro-batch ahead of what is finished if that one is planned: its run
        was cut off between the sink and the checkpoint, and Spark repeats it with the same rows.
        """
        if ledger is None:
            return
        if ledger.has_from(self.planned + 1):
            raise self._behind_of(ledger)
        if self.finished == NONE or ledger.has_from(self.finished):
            return
        if ledger.has_from(0):
            raise self._ahead_of(ledger)
        if self.finished >= self.since or not ledger.may_join:
            raise self._unknown_to(ledger)

    def _behind_of(self, ledger: Ledger) -> SpecError:
        found = (
            f"{ledger.place} has micro-batches that the checkpoint {self.checkpoint} hasn't "
            f"planned yet, whose last one is {_said(self.planned)}: the checkpoint is older, or "
            "of another query, and rows of micro-batches whose number is there would be left out"
        )
        return SpecError(with_hint(found, f"{ledger.rewind(self.finished)}; {PAGE}"))

    def _ahead_of(self, ledger: Ledger) -> SpecError:
        found = (
            f"{ledger.place} doesn't have micro-batch {self.finished}, which the checkpoint "
            f"{self.checkpoint} has finished, and has earlier ones: it is older than the "
            "checkpoint, and the rows between would be missing"
        )
        hint = f"restore both from copies of one moment; {PAGE}"
        return SpecError(with_hint(found, hint))

    def _unknown_to(self, ledger: Ledger) -> SpecError:
        found = (
            f"{ledger.place} doesn't have micro-batch {self.finished}, which the checkpoint "
            f"{self.checkpoint} has finished, nor any other of its query: the query wrote "
            "elsewhere, or the rows are lost"
        )
        hint = "pass the place that the query wrote to"
        if ledger.may_join:
            hint += f"; if this one is new to the query, pass sink_since={self.finished + 1}"
        return SpecError(with_hint(found, hint))


def _said(number: int) -> str:
    return "none" if number == NONE else str(number)


def start_of(spark: SparkSession, checkpoint: str, since: int) -> Start:
    """Return the micro-batch from which the query of a checkpoint goes on."""
    logs = logs_of(checkpoint, spark)
    return Start(checkpoint, logs.planned, logs.finished, since)


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
            put_message_first(error)
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
