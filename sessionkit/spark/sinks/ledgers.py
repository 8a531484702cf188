"""What a place has of a query, against what the query's checkpoint says."""

from collections.abc import Callable
from typing import Final

import attrs
from pyspark.sql import SparkSession

from sessionkit.errors import SpecError, with_hint
from sessionkit.spark.checkpoints.log import logs_of

__all__ = ["Ledger", "Start", "from_last", "start_of"]

NONE: Final = -1
PAGE: Final = '"Back up and restore" in docs/how-to/operate.md says how'


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
    From where a query goes on.

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

        Raises:
            SpecError: One of them is older than the other, or the place isn't that of the query.
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
    """Return from where the query of a checkpoint goes on."""
    logs = logs_of(checkpoint, spark)
    return Start(checkpoint, logs.planned, logs.finished, since)
