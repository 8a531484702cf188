"""What became of every event of a query: the counts of its micro-batches, added up and checked."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql import Observation
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit._engine.counts import COUNTED, Counts
from sessionkit.errors import BalanceError, UnsupportedError, with_hint
from sessionkit.spark.jobs.progress import batch_counts, entry, has_run, total

DROPPED: Final = "numRowsDroppedByWatermark"
OURS: Final = frozenset({"applyInPandasWithState", "transformWithStateInPandasExec"})
"""The stateful operators in which a spec runs, by the names that Spark gives them."""


@attrs.frozen
class Reconciliation:
    """
    What became of the events of consecutive micro-batches, each of which balances.

    So the sums balance: `events` is the sum of `processed`, `late`, `duplicate`, `quarantined`,
    `failed`, and `buffered`, the events that still wait. It's a value: `add` returns another one.
    Keep it as you keep other values, to go on with it after a restart.

    Attributes:
        first: The number of the first micro-batch.
        batches: How many micro-batches have been added.
        counts: Their counts, added up. `counts.unknown` names those that aren't exact, since Spark
            3.5 reports none of a micro-batch without data.
        dropped: Rows that Spark itself dropped as late, in any stateful operator of
            the query, such as a `dropDuplicates` before the spec. The operator of a spec drops
            none.
        query_id: The id of the query, which it keeps over restarts; None where nothing was added.
        partitions: In how many partitions the state is; None where nothing was added. Spark 3.5
            doesn't say: there, pass the `spark.sql.shuffle.partitions` with which the query was
            first started, or a query that counts every micro-batch twice can't be told from one
            with twice as many partitions.
    """

    first: int = 0
    batches: int = 0
    counts: Counts = attrs.field(factory=Counts)
    dropped: int = 0
    query_id: str | None = None
    partitions: int | None = None

    def add(self, progress: Any) -> "Reconciliation":
        """
        Add the next micro-batch; one that has been added already changes nothing.

        Args:
            progress: As for `batch_counts`.

        Raises:
            BalanceError: The micro-batch doesn't balance, was counted more than once or in part,
                isn't the next one, or is one of another query.
            SessionkitError: The progress is from a query that sessionkit didn't build.
        """
        if not has_run(progress):
            return self
        number, following = int(entry(progress, "batchId")), self.first + self.batches
        query_id = str(entry(progress, "id"))
        if self.query_id not in {None, query_id}:
            found = f"micro-batch {number} is one of the query {query_id}"
            hint = (
                "keep a Reconciliation for each query; one with a new checkpoint is another query"
            )
            raise BalanceError(with_hint(f"{found}, and those before of {self.query_id}", hint))
        if number < following:
            return self
        if number > following:
            raise _missing(number, following)
        where, operators = f"micro-batch {number}", entry(progress, "stateOperators") or []
        own = own_operators(operators)
        partitions = _partitions_read_once(where, own, self.partitions)
        counts = batch_counts(progress)
        _check_balance(where, counts, total(own, DROPPED))
        return attrs.evolve(
            self,
            batches=self.batches + 1,
            counts=self.counts + counts,
            dropped=self.dropped + total(operators, DROPPED),
            query_id=query_id,
            partitions=partitions,
        )


NOTHING_YET: Final = Reconciliation()


def reconcile(
    counted: StreamingQuery | Observation, so_far: Reconciliation = NOTHING_YET
) -> Reconciliation:
    """
    Add up what became of every event of a query, or of a batch, and check that none is missing.

    Spark keeps the progress of the last micro-batches only: 100 of them, or as many as
    `spark.sql.streaming.numRecentProgressUpdates` says, and none of an earlier run. So call it
    again in time, and pass what it returned before; or call `Reconciliation.add` in a
    `StreamingQueryListener`.

    Args:
        counted: A query over the frame that `sessionize` or `apply_with_state` returned, running or
            stopped. Or the `observation` of a batch; this waits until an action has run.
        so_far: What has been added up already. By default, nothing has, and the query begins with
            micro-batch 0. A batch counts as one micro-batch.

    Raises:
        BalanceError: A micro-batch doesn't balance, was counted more than once or in part, isn't in
            the progress, or is one of another query. The message names the first.
        SessionkitError: It is a query that sessionkit didn't build.
        UnsupportedError: It is an observation on Connect of Spark 3.5, which can't read it.
    """
    progress = getattr(counted, "recentProgress", None)
    if progress is None:
        found = _observed(counted)
        counts = Counts(**{name: found[name] for name in COUNTED})
        _check_balance("the batch", counts, 0)
        return attrs.evolve(so_far, batches=so_far.batches + 1, counts=so_far.counts + counts)
    for one in progress:
        so_far = so_far.add(one)
    return so_far


def _observed(observation: Any) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = observation.get
    except PySparkNotImplementedError as error:
        problem = "on Connect, Spark 3.5 can't read an `Observation`"
        hint = "count the rows of `with_rejected=True`, or run the batch without Connect"
        raise UnsupportedError(with_hint(problem, hint)) from error
    return found


def own_operators(operators: Iterable[Any]) -> list[Any]:
    """Return those of the stateful operators of a progress in which a spec runs."""
    return [one for one in operators if entry(one, "operatorName") in OURS]


def _partitions_read_once(
    where: str, operators: Iterable[Any], partitions: int | None
) -> int | None:
    """
    Return how many partitions the state has, each of which was read by one task.

    A frame that isn't persisted runs again for each action in `foreachBatch`. Then Spark 4.3 shows
    the counts of the last run, which may have been over some partitions only, and others add up
    those of all runs. Either way they balance.
    """
    for operator in operators:
        partitions = partitions or int(entry(operator, "numShufflePartitions"))
        tasks = int(entry(operator, "numStateStoreInstances"))
        found = f"{tasks} tasks read its {partitions} partitions of state"
        if tasks > partitions:
            hint = "in foreachBatch, persist the frame before the first action that runs over it"
            raise BalanceError(with_hint(f"{where} ran more than once: {found}", hint))
        if tasks < partitions:
            hint = "in foreachBatch, let an action run over all rows of the frame"
            raise BalanceError(with_hint(f"{where} ran in part: {found}", hint))
    return partitions


def _check_balance(where: str, counts: Counts, dropped: int) -> None:
    if counts.is_balanced and not dropped:
        return
    parts = ", ".join(f"{name} {number}" for name, number in counts.ends.items())
    found = f"{where} doesn't balance: events {counts.events}, but {parts}"
    found = f"{found}; Spark dropped {dropped} packed rows" if dropped else found
    raise BalanceError(with_hint(found, "report it to sessionkit, with the progress of the query"))


def _missing(number: int, following: int) -> BalanceError:
    found = f"micro-batch {following} isn't in the progress, which goes on with {number}"
    hint = (
        "Spark keeps the last ones of this run only (spark.sql.streaming.numRecentProgressUpdates):"
        " call reconcile more often and pass what it returned, or begin with"
        f" Reconciliation(first={number})"
    )
    return BalanceError(with_hint(found, hint))
