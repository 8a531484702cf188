"""Micro-batches written whole to sinks, each exactly once."""

import re
from collections.abc import Iterable, Sequence
from itertools import dropwhile, takewhile
from typing import Final

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from sessionkit.errors import SinkError, SpecError, with_hint
from sessionkit.spark._logs import query_id_of
from sessionkit.spark.sinks.protocol import Batch, BatchWriter, Ledger
from sessionkit.spark.sinks.routes import Route, same_place_error

OWN_ERROR: Final = re.compile(r"^sessionkit\.errors\.(?=\w+: )", re.MULTILINE)
FRAME: Final = re.compile(r'^ +File ".*", line \d+.*$', re.MULTILINE)
JAVA: Final = ("\tat ", "Driver stacktrace:", " SQLSTATE: ")
NONE: Final = -1
PAGE: Final = '"Back up and restore" in docs/how-to/operate.md says how'


@attrs.frozen
class Start:
    """
    From where a query continues.

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

    def check(self, ledger: Ledger) -> None:
        """
        Check that a place and the checkpoint are of one moment.

        The place may be one micro-batch ahead of what is finished if that one is planned: its run
        was cut off between the sink and the checkpoint, and Spark repeats it with the same rows.
        """
        if ledger.has_from(self.planned + 1):
            last = "none" if self.planned == NONE else self.planned
            found = (
                f"{ledger.place} has micro-batches that the checkpoint {self.checkpoint} hasn't "
                f"planned yet, whose last one is {last}: the checkpoint is older, or of another "
                "query, and rows of micro-batches whose number is there would be left out"
            )
            raise SpecError(with_hint(found, f"{ledger.rewind(self.finished)}; {PAGE}"))
        if self.finished == NONE or ledger.has_from(self.finished):
            return
        lacks = (
            f"{ledger.place} doesn't have micro-batch {self.finished}, which the checkpoint "
            f"{self.checkpoint} has finished, "
        )
        if ledger.has_from(0):
            found = (
                f"{lacks}and has earlier ones: it is older than the checkpoint, and the rows "
                "between would be missing"
            )
            raise SpecError(with_hint(found, f"restore both from copies of one moment; {PAGE}"))
        if self.finished >= self.since or not ledger.may_join:
            found = (
                f"{lacks}nor any other of its query: the query wrote elsewhere, or the rows are "
                "lost"
            )
            hint = "pass the place that the query wrote to"
            if ledger.may_join:
                hint += f"; if this one is new to the query, pass sink_since={self.finished + 1}"
            raise SpecError(with_hint(found, hint))


@attrs.frozen
class Part:
    """Some rows of a micro-batch, and what writes them."""

    route: Route
    writer: BatchWriter

    def of(self, batch: Batch) -> Batch:
        return attrs.evolve(batch, frame=self.route.rows(batch.frame))


def check_places(
    frame: DataFrame, parts: Iterable[Part], query_id: str | None, start: Start
) -> None:
    """Check that each place can take its rows, and has the micro-batches of the checkpoint."""
    routes: dict[object, Route] = {}
    for part in parts:
        ledger = part.writer.ledger(part.route.rows(frame), query_id)
        if ledger is None:
            continue
        first = routes.setdefault(ledger.identity, part.route)
        if ledger.identity is not None and first is not part.route:
            raise same_place_error(first.name, part.route.name, part.route.sink)
        start.check(ledger)


@attrs.define
class WriteBatches:
    """
    The function of `foreachBatch` for sinks that take micro-batches whole.

    Spark keeps the state of a micro-batch only where an action has run over all of its rows. So one
    that every sink has already is run all the same, and one that goes to several sinks is persisted
    before the first.

    Attributes:
        start: From where the query continues, if the first micro-batch has to check it.
        query_id: The id of the query; None before the first micro-batch.
    """

    checkpoint: str
    run_id: str
    parts: Sequence[Part]
    start: Start | None = None
    query_id: str | None = None

    def __call__(self, frame: DataFrame, number: int) -> None:
        try:
            self._write(frame, number)
        except Exception as error:
            put_message_first(error)
            raise

    def _write(self, frame: DataFrame, number: int) -> None:
        if self.query_id is None:
            self.query_id = query_id_of(frame.sparkSession, self.checkpoint) or ""
            if self.start is not None:
                check_places(frame, self.parts, self.query_id, self.start)
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


def put_message_first(error: Exception) -> None:
    """
    Make the traceback of an error begin with its message.

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
    text = str(error)
    if isinstance(error, PySparkException):
        own, frames = OWN_ERROR.search(text), [*FRAME.finditer(text)]
        if own or frames:
            lines = text[own.end() if own else frames[-1].end() :].splitlines()
            message = dropwhile(lambda line: not line or line.startswith(" "), lines)
            return "\n".join(takewhile(lambda line: not line.startswith(JAVA), message)).strip()
    return f"{type(error).__name__}: {text}"
