"""What is read from a plan, and nothing is read into a plan that is not there."""

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from sessionkit.spark._plan import PlanNode, plan_of, plan_tree
from tests.support.queries import Events, joined, windowed, with_state

EVENT_TIME, NO_TIMEOUT = GroupStateTimeout.EventTimeTimeout, GroupStateTimeout.NoTimeout


@pytest.fixture(scope="module")
def events(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Events:
    return Events(spark, tmp_path_factory.mktemp("plan")).write()


def root_of(frame: DataFrame) -> PlanNode:
    root = plan_of(frame)
    assert root is not None
    return root


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda events: windowed(events.stream()), True),
        (lambda events: joined(events, "inner").groupBy("key1").count(), True),
        (lambda events: events.stream().selectExpr("key AS Aggregate"), False),
        (lambda events: events.stream().join(windowed(events.batch()), "key"), False),
    ],
)
def test_an_aggregation_of_a_stream_is_seen(
    events: Events, make: Callable[[Events], DataFrame], *, expected: bool
) -> None:
    """Neither a column of that name is one, nor that of a table that is joined."""
    assert expected == root_of(make(events)).aggregates_stream


def test_a_watermark_after_an_aggregation_is_seen(events: Events) -> None:
    """One before it isn't one after it."""
    first = windowed(events.watermarked()).select(F.col("window.end").alias("end"), "count")

    assert not root_of(first).is_watermarked_late
    assert root_of(first.withWatermark("end", "1 hour")).is_watermarked_late


@pytest.mark.parametrize(
    ("follow", "expected"),
    [
        (lambda rows, events: rows.where("key > 'a'").dropDuplicates(["key"]).limit(1), None),
        (lambda rows, events: rows.join(events.batch(), "key"), None),
        (lambda rows, events: rows.sample(0.5).repartition(2), None),
        (lambda rows, events: rows.groupBy("key").count(), "Aggregate"),
        (lambda rows, events: rows.join(events.stream(), "key").select("value"), "Join"),
    ],
)
def test_what_would_drop_rows_of_a_function_with_state_is_seen(
    events: Events, follow: Callable[[DataFrame, Events], DataFrame], expected: str | None
) -> None:
    """With an event-time timeout, as Spark has passed the times of its rows by then."""
    timed = with_state(events.watermarked(), "append", EVENT_TIME)
    free = with_state(events.watermarked(), "append", NO_TIMEOUT)

    assert expected == root_of(follow(timed, events)).loses_rows_of_python_state
    assert None is root_of(follow(free, events)).loses_rows_of_python_state


@pytest.mark.parametrize(
    ("make", "between"),
    [
        (lambda rows, timed: rows, None),
        (lambda rows, timed: rows.withWatermark("at", "1 hour"), None),
        (lambda rows, timed: rows.withWatermark("at", "1 hour").union(rows), None),
        (lambda rows, timed: rows.withWatermark("at", "1 hour").withWatermark("at", "1 day"), []),
        (
            lambda rows, timed: rows.union(watermarked(rows)).withWatermark("at", "1 hour"),
            ["Union"],
        ),
        (lambda rows, timed: watermarked(timed(EVENT_TIME)), ["FlatMapGroupsInPandasWithState"]),
        (lambda rows, timed: watermarked(timed(NO_TIMEOUT)), None),
        (
            lambda rows, timed: (
                windowed(watermarked(rows))
                .select(F.col("window.end").alias("at"))
                .withWatermark("at", "1 hour")
            ),
            ["Aggregate"],
        ),
    ],
)
def test_a_watermark_on_another_one_is_seen(
    events: Events, make: Callable[..., DataFrame], between: list[str] | None
) -> None:
    """With what is between the two, unless the event time ends there."""

    def timed(timeout: str) -> DataFrame:
        return with_state(events.watermarked(), "append", timeout)

    found = root_of(make(events.stream(), timed)).watermarked_twice

    assert (between is None) == (found is None)
    assert {*(between or [])} <= {node.operator for node in found or ()}


def watermarked(rows: DataFrame) -> DataFrame:
    time = F.current_timestamp() if "at" not in rows.columns else F.col("at")
    return rows.withColumn("at", time).withWatermark("at", "1 hour")


def test_a_plan_says_which_folders_it_reads(events: Events) -> None:
    """As streams, in the words of the user; not those of a table that is joined."""
    batch, source = events.batch(), f"file://{events.source}/../events"
    other = events.spark.readStream.schema(batch.schema).parquet(source)

    assert {events.source, source} == root_of(events.stream().union(other)).folders
    assert set() == root_of(events.spark.readStream.format("rate").load()).folders
    assert {events.source} == root_of(events.stream().join(batch, "key")).folders


def test_reading_a_plan_leaves_nothing_behind(events: Events) -> None:
    """No view, and no query, is there afterwards."""
    spark = events.spark
    before = (spark.catalog.listTables(), len(spark.streams.active))
    plan_of(windowed(events.watermarked()))

    assert before == (spark.catalog.listTables(), len(spark.streams.active))


@pytest.mark.parametrize(
    ("timeout", "waits"),
    [(NO_TIMEOUT, False), (EVENT_TIME, False), (GroupStateTimeout.ProcessingTimeTimeout, True)],
)
def test_a_timeout_of_processing_time_is_seen(events: Events, timeout: str, *, waits: bool) -> None:
    """Where a literal over several lines hides the tree, nothing is."""
    frame = with_state(events.watermarked(), "append", timeout)

    assert waits == root_of(frame).waits_for_clock
    assert plan_of(frame.withColumn("text", F.lit("two\nlines"))) is None


def test_a_plan_says_how_its_sources_are_called() -> None:
    """As Spark 4.3 shows them; a path isn't a name."""
    root = plan_tree(
        """
Project [id#0L]
+- ~Union false, false
   :- StreamingRelation FileSource[/in/a], [id#0L], name="a"
   :- StreamingRelation FileSource[/in/name="c"], [id#1L], name="b_2"
   +- StreamingRelation FileSource[/in/name="d"], [id#2L]
"""
    )
    assert root is not None
    assert {"a", "b_2"} == root.source_names
