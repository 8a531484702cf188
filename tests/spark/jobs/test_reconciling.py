"""`reconcile`: the counts of a query or a batch, added up, and what doesn't balance."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit import Counts, EventTimeGap, SpecError, StatefulSpec
from sessionkit._engine.counts import COUNTED
from sessionkit.errors import BalanceError, UnsupportedError
from sessionkit.spark import (
    AtLeastOnce,
    Files,
    Temporary,
    apply_with_state,
    batch_counts,
    reconcile,
    start_query,
)
from sessionkit.spark.progress import Reconciliation
from tests.support.stateful_specs import ignore, summing
from tests.support.streams import FileStream, observed

COUNTS = Counts(events=4, processed=3, late=1)
WAITING = Counts(events=2, buffered=2)
TAKEN = Counts(processed=2, buffered=-2)
LOST = Counts(events=4, processed=2, late=1)
PARTITIONED = Reconciliation(partitions=2)


def progress_of(
    number: int, counts: Counts | None = COUNTS, *, tasks: int = 2, name: str = "one", **more: Any
) -> dict[str, Any]:
    """Return the progress of a micro-batch whose state has two partitions."""
    observed = {} if counts is None else {"sessionkit": attrs.asdict(counts)}
    operator = {
        "operatorName": "applyInPandasWithState",
        "numShufflePartitions": 2,
        "numStateStoreInstances": tasks,
        "numRowsDroppedByWatermark": 0,
    }
    return {
        "batchId": number,
        "id": name,
        "durationMs": {"addBatch": 1},
        "observedMetrics": observed,
        "sources": [{"numInputRows": 0}],
        "stateOperators": [{**operator, **more}],
    }


def query_of(*progress: dict[str, Any]) -> Any:
    return SimpleNamespace(recentProgress=list(progress))


# -- without Spark -----------------------------------------------------------------------------


def test_the_counts_of_all_micro_batches_are_added_up() -> None:
    """Also of those in which buffered events were processed; an idle query adds nothing."""
    idle = {**progress_of(3), "durationMs": {"triggerExecution": 1}}
    query = query_of(progress_of(0), progress_of(1, WAITING), progress_of(2, TAKEN), idle)

    expected = Counts(events=6, processed=5, late=1)
    assert Reconciliation(0, 3, expected, 0, "one", 2) == reconcile(query)


def test_an_earlier_reconciliation_goes_on() -> None:
    """What it has is not added again, although the progress still has it."""
    so_far = reconcile(query_of(progress_of(0), progress_of(1)))

    both = reconcile(query_of(progress_of(1), progress_of(2)), so_far)

    assert Reconciliation(0, 3, COUNTS + COUNTS + COUNTS, 0, "one", 2) == both
    assert both == reconcile(query_of(progress_of(2)), both)


def test_counts_that_spark_3_5_does_not_report_are_named() -> None:
    """A micro-batch without data has no metrics there; it has no events either."""
    found = reconcile(query_of(progress_of(0), progress_of(1, None)))

    assert (2, 4) == (found.batches, found.counts.events)
    assert {"processed", "sessions"} <= found.counts.unknown


def test_what_other_operators_drop_is_counted_apart() -> None:
    """Spark drops rows that are late for one of its own operators before the spec sees them."""
    progress = progress_of(0)
    progress["stateOperators"] += [
        {**progress["stateOperators"][0], "operatorName": "dedupe", "numRowsDroppedByWatermark": 5}
    ]

    found = reconcile(query_of(progress))

    assert (5, COUNTS) == (found.dropped, found.counts)


REFUSED: dict[str, tuple[Sequence[dict[str, Any]], Sequence[str]]] = {
    "unbalanced": (
        [progress_of(0), progress_of(1, LOST), progress_of(2, LOST)],
        ["micro-batch 1 doesn't balance: events 4, but processed 2, late 1", "Hint: report it"],
    ),
    "dropped": (
        [progress_of(0, numRowsDroppedByWatermark=3)],
        ["micro-batch 0 doesn't balance: events 4, but", "; Spark dropped 3 packed rows"],
    ),
    "twice": (
        [progress_of(0), progress_of(1, COUNTS + COUNTS, tasks=4)],
        ["micro-batch 1 ran more than once: 4 tasks read its 2 partitions", "persist the frame"],
    ),
    "in part": (
        [progress_of(0, None, tasks=0)],
        ["micro-batch 0 ran in part: 0 tasks read its 2 partitions", "over all rows of the frame"],
    ),
    "truncated": (
        [progress_of(7), progress_of(8)],
        ["micro-batch 0 isn't in the progress, which goes on with 7", "Reconciliation(first=7)"],
    ),
    "a gap": ([progress_of(0), progress_of(2)], ["micro-batch 1 isn't in the progress"]),
    "another": (
        [progress_of(0), progress_of(1, name="two")],
        ["micro-batch 1 is one of the query two, and those before of one", "a new checkpoint"],
    ),
}


@pytest.mark.parametrize(("progress", "said"), REFUSED.values(), ids=REFUSED)
def test_the_first_micro_batch_that_does_not_add_up_is_named(
    progress: Sequence[dict[str, Any]], said: Sequence[str]
) -> None:
    """With what was found, and what to do."""
    with pytest.raises(BalanceError) as refused:
        reconcile(query_of(*progress), Reconciliation())

    text = str(refused.value)
    assert "\n\nHint: " in text
    for part in said:
        assert part in text


def test_a_query_that_was_started_again_is_reconciled_from_there() -> None:
    """Its progress begins with a later micro-batch, and the result says with which one."""
    idle = {**progress_of(6), "durationMs": {"triggerExecution": 1}}
    found = reconcile(query_of(idle, progress_of(7), progress_of(8)))

    assert Reconciliation(7, 2, COUNTS + COUNTS, 0, "one", 2) == found
    with pytest.raises(BalanceError, match="micro-batch 8 isn't in the progress"):
        reconcile(query_of(progress_of(7), progress_of(9)))


def test_a_reconciliation_may_begin_later() -> None:
    """With the first micro-batch after one that was bad, say."""
    query = query_of(progress_of(6, LOST), progress_of(7), progress_of(8))

    found = reconcile(query, Reconciliation(first=7))

    assert Reconciliation(7, 2, COUNTS + COUNTS, 0, "one", 2) == found


@pytest.mark.parametrize(("so_far", "number"), [(Reconciliation(), 1), (PARTITIONED, 0)])
def test_spark_3_5_counts_the_partitions_twice_too(so_far: Reconciliation, number: int) -> None:
    """Their number is what the first micro-batch has, or what the user says."""
    tasks = [4 - 2 * number, 4]
    every = [progress_of(place, tasks=n, numShufflePartitions=n) for place, n in enumerate(tasks)]

    with pytest.raises(BalanceError, match=f"micro-batch {number} ran more than once: 4 tasks"):
        reconcile(query_of(*every), so_far)


def test_a_batch_is_reconciled_by_its_observation() -> None:
    """Several add up, and one that doesn't balance is refused."""
    observed: Any = SimpleNamespace(get={name: getattr(COUNTS, name) for name in COUNTED})
    lost: Any = SimpleNamespace(get={name: getattr(LOST, name) for name in COUNTED})

    assert Reconciliation(0, 2, COUNTS + COUNTS) == reconcile(observed, reconcile(observed))
    with pytest.raises(BalanceError, match="the batch doesn't balance: events 4, but processed 2"):
        reconcile(lost)


# -- on Spark ----------------------------------------------------------------------------------

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
TWICE = 1
"""The micro-batch whose frame two actions run over."""


@attrs.frozen
class View:
    """An event without fields."""


SPEC: StatefulSpec[Any, Any, Any] = summing(
    ignore, event=View, timeout=EventTimeGap("1 hour"), order="event_time"
)


def views(*hours: int) -> pa.Table:
    """Return a file's events of one key, and a row that has none."""
    times = [NOON + timedelta(hours=hour) for hour in hours]
    keys = [*("ann" for _ in hours), None]
    return pa.table({"key": pa.array(keys, pa.string()), "at": pa.array([*times, NOON])})


def written(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def write(frame: DataFrame, number: int) -> None:
    """Write a frame once, twice, or twice from memory."""
    if number != TWICE:
        frame.persist()
    written(frame)
    written(frame)
    frame.unpersist()


@pytest.fixture(scope="module")
def query(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> StreamingQuery:
    """A query that has run over four files, and once without data."""
    stream = FileStream(spark, SPEC, tmp_path_factory.mktemp("reconciled"))
    stream.put(*(views(hour, hour + 1) for hour in (0, 2, 4, 6)))
    started = start_query(
        stream.output(),
        sink=AtLeastOnce(write),
        trigger="availableNow",
        checkpoint=Temporary(),
        spec=SPEC,
    )
    started.awaitTermination()
    return started


@pytest.mark.nightly
def test_a_frame_that_two_actions_ran_over_is_named(query: StreamingQuery) -> None:
    """One that is persisted isn't: the micro-batch before it passes."""
    with pytest.raises(BalanceError, match=f"micro-batch {TWICE} ran more than once: 4 tasks"):
        reconcile(query)


def test_a_query_on_spark_is_reconciled(query: StreamingQuery) -> None:
    """From the file after that on: its two events wait for the watermark, or are processed."""
    found = reconcile(query, Reconciliation(first=TWICE + 1))

    assert found.batches == len(query.recentProgress) - TWICE - 1
    assert (6, 2) == (found.counts.events, found.counts.quarantined)
    assert found == reconcile(query, found)


def test_a_query_that_was_started_again_on_spark_is_reconciled(
    spark: SparkSession, tmp_path: Path
) -> None:
    """From its own start; together with what was kept before, nothing is missing."""
    stream = FileStream(spark, SPEC, tmp_path)

    def run() -> StreamingQuery:
        query = start_query(
            stream.output(),
            sink=Files("parquet", tmp_path / "out"),
            trigger="availableNow",
            checkpoint=stream.checkpoint,
        )
        query.awaitTermination()
        return query

    stream.put(views(0, 1), views(2, 3))
    before = reconcile(run())
    stream.put(views(4, 5), views(6, 7))
    query = run()
    found = reconcile(query)

    assert (0, before.batches) == (before.first, found.first)
    assert (4, 2) == (found.counts.events - found.counts.quarantined, found.counts.quarantined)
    assert found.counts.events == sum(found.counts.ends.values())
    both = reconcile(query, before)
    assert (0, before.counts + found.counts) == (both.first, both.counts)
    with pytest.raises(BalanceError, match="micro-batch 0 isn't in the progress"):
        reconcile(query, Reconciliation())


def test_a_batch_on_spark_is_counted_once(spark: SparkSession, tmp_path: Path) -> None:
    """Although two actions run over it."""
    stream, observation = FileStream(spark, SPEC, tmp_path), Observation()
    stream.put(views(0, 1), views(2, 3))
    read = stream.batch()
    frame = apply_with_state(read, SPEC, observation=observation)
    written(frame)
    written(frame)
    observed(observation)

    expected = Counts(events=6, processed=4, quarantined=2)
    assert expected == reconcile(observation).counts


def test_a_progress_is_no_query() -> None:
    """`Reconciliation.add` takes one, and `reconcile` the query that has it."""
    for progress in (progress_of(0), [progress_of(0)]):
        with pytest.raises(SpecError, match="Hint: pass the query"):
            reconcile(progress)  # type: ignore[arg-type]


def test_what_is_no_progress_has_no_counts() -> None:
    """Neither a query nor an observation is taken for the progress of an idle query."""
    for other in (Observation(), query_of(progress_of(0)), UnreadObservation()):
        for read in (batch_counts, Reconciliation().add):
            with pytest.raises(SpecError, match=rf"found {type(other).__name__}\s+Hint: pass"):
                read(other)


class UnreadObservation:
    """An observation on Connect of Spark 3.5."""

    @property
    def get(self) -> dict[str, Any]:
        problem = "Observation isn't implemented"
        raise PySparkNotImplementedError(problem)


def test_an_observation_that_spark_cannot_read_is_refused() -> None:
    """The hint names another way."""
    with pytest.raises(UnsupportedError, match=r"Hint: count the rows of `with_rejected=True`"):
        reconcile(UnreadObservation())  # type: ignore[arg-type]
