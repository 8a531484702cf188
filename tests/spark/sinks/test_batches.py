"""A table and a checkpoint are of one moment, or nothing starts; nothing here needs Spark."""

from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.sql import types as T

from sessionkit.errors import SpecError
from sessionkit.spark.sinks import Ledger, from_last
from sessionkit.spark.sinks.batches import Part, Route, Start, check_places
from sessionkit.spark.sinks.values import Kafka
from sessionkit.spark.sinks.writers import TopicWriter


def ledger(last: int | None, *, may_join: bool = True) -> Ledger:
    """Return what a table says that has the micro-batches up to one."""
    return Ledger("the table t", from_last(last), "rewind to {}".format, may_join)


@pytest.mark.parametrize(
    ("planned", "finished", "last"),
    [
        (-1, -1, None),  # a first start
        (0, -1, None),  # the first micro-batch never reached the table
        (0, -1, 0),  # it did, and the checkpoint doesn't know
        (7, 7, 7),  # all is done
        (8, 7, 7),  # a crash before the sink
        (8, 7, 8),  # a crash between the sink and the checkpoint
    ],
)
def test_what_a_crash_leaves_goes_on(planned: int, finished: int, last: int | None) -> None:
    """A micro-batch beyond the finished ones is legal where it's planned: it runs again."""
    Start("/c", planned, finished).check(ledger(last))


@pytest.mark.parametrize(
    ("planned", "finished", "last", "found", "hint"),
    [
        (7, 7, 8, "hasn't planned yet, whose last one is 7", "rewind to 7"),
        (8, 7, 9, "hasn't planned yet, whose last one is 8", "rewind to 7"),
        (-1, -1, 0, "hasn't planned yet, whose last one is none", "rewind to -1"),
        (7, 7, 6, "doesn't have micro-batch 7, which", "restore both"),
        (8, 7, 0, "older than the checkpoint", "restore both"),
        (7, 7, None, "nor any other of its query", "sink_since=8"),
        (0, 0, None, "nor any other of its query", "sink_since=1"),
    ],
)
def test_two_moments_are_refused(
    planned: int, finished: int, last: int | None, found: str, hint: str
) -> None:
    """An older checkpoint would lose rows in silence, and so would an older table."""
    with pytest.raises(SpecError) as refused:
        Start("/c", planned, finished).check(ledger(last))

    message, _, advice = str(refused.value).partition("\n\nHint: ")
    assert found in message
    assert "the table t" in message
    assert "the checkpoint /c" in message
    assert hint in advice


def test_a_place_joins_a_query_where_that_is_said() -> None:
    """From then on its number is that of the query, so losing it is found."""
    Start("/c", 8, 7, since=8).check(ledger(None))
    Start("/c", 9, 8, since=8).check(ledger(8))
    with pytest.raises(SpecError, match="nor any other of its query"):
        Start("/c", 9, 8, since=8).check(ledger(None))
    with pytest.raises(SpecError, match="nor any other of its query") as refused:
        Start("/c", 7, 7, since=8).check(ledger(None, may_join=False))
    assert "sink_since" not in str(refused.value)


def test_what_knows_no_micro_batches_is_not_checked() -> None:
    """A topic takes all of them."""
    nothing: Any = MagicMock()
    route = Route(Kafka("h:1", "t"), T.StructType())
    check_places(nothing, [Part(route, TopicWriter(Kafka("h:1", "t")))], "q", Start("/c", 7, 7))
