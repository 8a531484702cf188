"""Named timers on both clocks, on a real Spark stream whose processing time is moved by hand."""

from typing import Any, Final

import attrs
import pytest
from pyspark.sql import SparkSession

from sessionkit import ProcessingTimeGap, TimeToLive
from tests.support.clocked import Trigger
from tests.support.scenarios import (
    Life,
    Report,
    command,
    commanded,
    instant,
    on_driver,
    on_spark,
    tick,
)


@attrs.frozen
class Lived:
    """The same life on Spark and on the driver."""

    spark: Report
    driver: Report


def lived(life: Life, spark: SparkSession, folder: Any) -> Lived:
    return Lived(on_spark(life, spark, folder), on_driver(life))


def calls_of(key: str, report: Report, *batches: int) -> list[list[tuple[Any, ...]]]:
    """Return the result rows of a key in these batches."""
    return [[row for row in report.rows[batch] if row[0] == key] for batch in batches]


THREE_TIMERS: Final = [
    command("a", 1, "note", "x"),
    command("a", 2, "event", "first", 20),
    command("a", 3, "processing", "second", 10),
    command("a", 4, "event", "third", 30),
]
BOTH_CLOCKS: Final = [
    [
        Trigger(
            instant(0),
            [
                *THREE_TIMERS,
                command("c", 1, "note", "y"),
                command("c", 2, "event", "kept", 38),
                command("d", 1, "event", "again", 24),
            ],
        ),
        Trigger(instant(10)),
        Trigger(instant(11), [tick(25)]),
    ],
    [
        Trigger(
            instant(12),
            [
                tick(40),
                command("b", 26, "note", "z"),
                command("b", 27, "event", "past", -100),
                command("c", 28, "note", "y2"),
                command("c", 20, "note", "late", offset=7),
            ],
        ),
        Trigger(instant(13)),
    ],
]


@pytest.fixture(scope="module")
def both_clocks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """A query with timers on both clocks, stopped and started again on the way."""
    life = Life(commanded(), BOTH_CLOCKS)
    return lived(life, spark, tmp_path_factory.mktemp("both_clocks"))


def test_three_timers_on_two_clocks_go_off_once_each_and_in_order(both_clocks: Lived) -> None:
    """Each fires in the first batch whose clock is past it, strictly, across a restart."""
    assert calls_of("a", both_clocks.spark, *range(5)) == [
        [("a", "note+event+processing+event", ["x"], ["first", "second", "third"])],
        [],
        [("a", "second", ["x"], ["first", "third"])],
        [("a", "first", ["x"], ["third"])],
        [("a", "third", ["x"], [])],
    ]


@pytest.mark.since_spark("4.0", "Spark 3.5 reports no counts of a micro-batch without data")
def test_the_driver_has_the_timers_of_spark(both_clocks: Lived) -> None:
    """Batches, rows, rejections, counts and what is stored are equal."""
    assert both_clocks.spark == both_clocks.driver
    assert all(counts.is_balanced for counts in both_clocks.spark.counts.values())


SILENCE: Final = [
    [Trigger(instant(0), [command("a", 1, "note", "x"), command("c", 1, "note", "y")])],
    [
        Trigger(instant(1)),
        Trigger(instant(9), [command("a", 2, "look")]),
        Trigger(instant(15)),
    ],
]


@pytest.fixture(scope="module")
def silence(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """A query whose keys end by processing time alone, without a watermark or timers."""
    spec = commanded(
        timeout=ProcessingTimeGap("10 seconds") | TimeToLive("15 seconds"),
        processing_timers=False,
        watermark_delay=None,
    )
    return lived(Life(spec, SILENCE), spark, tmp_path_factory.mktemp("silence"))


@pytest.mark.nightly
def test_no_batch_without_data_runs_behind_a_start_before_one_with_data(silence: Lived) -> None:
    """So nothing that waits for the clock happens behind a restart until a row has come."""
    assert [0, None, 1, 2] == silence.spark.batches


@pytest.mark.since_spark("4.0", "Spark 3.5 reports no counts of a micro-batch without data")
def test_the_driver_runs_the_batches_without_data_of_spark(silence: Lived) -> None:
    """Batches, rows, rejections, counts and what is stored are equal."""
    assert silence.spark == silence.driver
