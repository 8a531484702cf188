"""The type of a query is read from its plan, and nothing is read into a plan that is not there."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from sessionkit.spark._output_rules import QUERY_TYPES, QueryType
from sessionkit.spark._plan import plan_of
from tests.support.cells import QUERIES, Events, joined, session_windowed, windowed, with_state


@pytest.fixture(scope="module")
def events(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Events:
    return Events(spark, tmp_path_factory.mktemp("plan")).write()


@pytest.mark.parametrize("query", QUERY_TYPES)
def test_a_query_is_of_its_type(events: Events, query: QueryType) -> None:
    """The query with which a row of the table is tried on Spark has the type of the row."""
    assert query == plan_of(QUERIES[query](events)).query


@pytest.mark.parametrize(
    ("query", "make"),
    [
        ("stateless", lambda events: events.stream().union(events.stream())),
        ("stateless", lambda events: events.stream().join(events.batch(), "key", "left")),
        (
            "stateless",
            lambda events: events.stream().repartition(2).selectExpr("explode(array(1))"),
        ),
        ("stateless", lambda events: events.stream().join(windowed(events.batch()), "key")),
        ("sorted", lambda events: events.stream().sortWithinPartitions("at")),
        ("aggregation", lambda events: events.watermarked().groupBy("key").count()),
        ("aggregation", lambda events: events.watermarked().groupBy(F.to_date("at")).count()),
        ("aggregation", lambda events: windowed(events.stream().dropDuplicates(["key"]))),
        ("watermarked_aggregation", lambda events: events.watermarked().groupBy("at").count()),
        ("sorted_aggregation", lambda events: windowed(events.stream()).orderBy("key").limit(1)),
        ("deduplication", lambda events: events.watermarked().distinct()),
        ("outer_join", lambda events: joined(events, "fullOuter")),
    ],
)
def test_other_ways_to_write_a_type(
    events: Events, query: QueryType, make: Callable[[Events], DataFrame]
) -> None:
    """A type is what Spark makes of the frame, not how it was written."""
    assert query == plan_of(make(events)).query


@pytest.mark.parametrize(
    "make",
    [
        lambda events: windowed(joined(events, "inner").selectExpr("key1 AS key", "at1 AS at")),
        lambda events: windowed(events.stream()).limit(1),
        lambda events: windowed(events.stream()).union(windowed(events.stream())),
        lambda events: events.stream().dropDuplicates(["key"]).union(events.stream().distinct()),
        lambda events: (
            events.stream().groupBy(*(F.expr(f"value + {n}") for n in range(30))).count()
        ),
    ],
)
def test_what_is_not_known_is_left_to_spark(
    events: Events, make: Callable[[Events], DataFrame]
) -> None:
    """A query that the table does not have is of no type, and its operators are not known."""
    plan = plan_of(make(events))

    assert (None, None) == (plan.query, plan.stateful_operators)


def test_names_of_the_user_are_no_operators(events: Events) -> None:
    """Columns that are called like an operator or a window are columns."""
    named = events.stream().selectExpr("key AS Sort", "at AS session_window", "value AS `[a`")

    assert plan_of(named).query == "stateless"
    assert plan_of(named.groupBy("session_window", "[a").count()).query == "aggregation"


def test_text_that_looks_like_a_plan_is_left_to_spark(events: Events) -> None:
    """A literal over several lines hides what comes after it, so the type isn't known."""
    text = F.lit("x\n~Sort [a#1]\n   +- ~Aggregate [b#2], [b#2]")

    assert plan_of(events.stream().withColumn("text", text)).query is None


def test_reading_a_plan_leaves_nothing_behind(events: Events) -> None:
    """No view, and no query, is there afterwards."""
    spark = events.spark
    before = (spark.catalog.listTables(), len(spark.streams.active))
    plan_of(session_windowed(events.watermarked()))

    assert before == (spark.catalog.listTables(), len(spark.streams.active))


@pytest.mark.parametrize(
    ("timeout", "waits"),
    [
        (GroupStateTimeout.NoTimeout, False),
        (GroupStateTimeout.EventTimeTimeout, False),
        (GroupStateTimeout.ProcessingTimeTimeout, True),
    ],
)
def test_a_timeout_of_processing_time_is_seen(events: Events, timeout: str, *, waits: bool) -> None:
    """The plan shows which timeout a function with state has."""
    assert (
        waits
        == plan_of(with_state(events.watermarked(), "append", timeout)).has_processing_time_timeout
    )


def test_a_literal_over_several_lines_hides_no_query_that_never_ends(events: Events) -> None:
    """What the tree does not show, the lines do."""
    timeout = GroupStateTimeout.ProcessingTimeTimeout
    waiting = with_state(events.watermarked(), "append", timeout)
    plan = plan_of(waiting.withColumn("text", F.lit("two\nlines")))

    assert plan.query is None
    assert plan.has_processing_time_timeout


def test_rows_straight_from_a_function_with_state_are_seen(events: Events) -> None:
    """The plan shows whether anything follows the function."""
    projected: Any = with_state(events.watermarked(), "append", GroupStateTimeout.NoTimeout)

    assert not plan_of(projected).ends_in_python_state
