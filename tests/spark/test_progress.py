"""Counts read from a query's progress, in every shape that releases of Spark give it."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Row

from sessionkit import Counts, SessionkitError
from sessionkit._engine.counts import COUNTED
from sessionkit.spark import batch_counts
from sessionkit.spark.progress import bucket_stats_text

COUNTS = Counts(events=4, processed=3, late=1, sessions=2, rows=2)
NUMBERS = {name: getattr(COUNTS, name) for name in COUNTED}
CONNECT = Row(values=list(NUMBERS.values()), schema={"type": "struct"})
WITH_STATS = Row(values=[*NUMBERS.values(), "64|"], schema={"type": "struct"})
UNKNOWN = {
    "duplicate",
    "outside",
    "failed",
    "processed",
    "buffered",
    "sessions",
    "timers",
    "rows",
    "revised",
    "out_of_order",
    "failed_output",
}


def progress_of(observed: Any, *, rows: int = 4, ran: bool = True) -> dict[str, Any]:
    """Return a progress as Spark 4 has it."""
    durations = {"latestOffset": 1, "triggerExecution": 2, **({"addBatch": 1} if ran else {})}
    metrics = {} if observed is None else {"sessionkit": observed}
    return {
        "batchId": 3,
        "durationMs": durations,
        "observedMetrics": metrics,
        "sources": [{"numInputRows": rows}],
    }


@pytest.mark.parametrize(
    "observed",
    [Row(**NUMBERS), NUMBERS, CONNECT, CONNECT.asDict(), WITH_STATS],
    ids=["row", "dict", "connect row", "connect json", "connect, with bucket stats"],
)
def test_counts_are_read_in_every_shape(observed: Any) -> None:
    """As a row or a dict, and on Connect next to their schema."""
    assert COUNTS == batch_counts(progress_of(observed))


def test_bucket_stats_are_read_where_they_are_reported() -> None:
    """On Connect it comes last; without buckets it isn't there."""
    assert "64|" == bucket_stats_text(progress_of(WITH_STATS))
    assert "64|" == bucket_stats_text(progress_of({**NUMBERS, "buckets": "64|"}))
    assert bucket_stats_text(progress_of(CONNECT)) is None


def test_counts_are_read_from_the_object_that_a_listener_of_spark_3_5_gets() -> None:
    """Its progress has attributes instead of entries."""
    progress = SimpleNamespace(**progress_of(Row(**NUMBERS)))

    assert COUNTS == batch_counts(progress)


def test_an_empty_sum_counts_as_zero() -> None:
    """Spark observes a null where a micro-batch called no group."""
    assert Counts() == batch_counts(progress_of(dict.fromkeys(NUMBERS), rows=0))


@pytest.mark.parametrize(
    "progress", [None, progress_of(None, rows=0, ran=False)], ids=["none yet", "idle"]
)
def test_nothing_is_counted_where_no_micro_batch_ran(progress: Any) -> None:
    """Spark reports that a query is idle, and reports nothing before the first trigger."""
    assert Counts() == batch_counts(progress)


def test_what_spark_3_5_does_not_report_is_unknown() -> None:
    """Of a micro-batch without data it has no metrics, although sessions close in it."""
    found = batch_counts(progress_of(None, rows=0))

    assert (UNKNOWN, 0) == (set(found.unknown), found.events)
    assert found.is_balanced
    assert UNKNOWN == (found + COUNTS).unknown
    assert 4 == (COUNTS + found).events


def test_the_progress_of_another_query_is_refused() -> None:
    """One with data and without our metrics isn't of a query that sessionkit built."""
    with pytest.raises(SessionkitError, match="no observed metrics named 'sessionkit'"):
        batch_counts(progress_of(None))
