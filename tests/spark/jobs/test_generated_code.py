"""The code that Spark generates for a query, and compiles anew wherever its text differs."""

import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples.visits import visits
from sessionkit.spark import sessionize
from sessionkit.spark._columns import is_future
from tests.support.spark_settings import changed
from tests.support.streams import needs_own_process

INPUT = "user_id string, ts timestamp, url string, seconds double"


@pytest.fixture(autouse=True)
def _planned_at_once(spark: SparkSession) -> Iterator[None]:
    """Without adaptive execution, so that the plan is known before it runs."""
    with changed(spark, {"spark.sql.adaptive.enabled": "false"}):
        yield


@pytest.fixture
def events(spark: SparkSession, tmp_path: Path) -> str:
    """Return a folder with an event."""
    rows = spark.sql(
        "SELECT 'ann' user_id, timestamp'2026-03-08 12:00:00Z' ts, '/' url, 1D seconds"
    )
    rows.write.parquet(str(tmp_path / "events"))
    return str(tmp_path / "events")


def generated(spark: SparkSession, folder: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the code that a stream generates for the limit, as Spark prints it."""
    ahead = is_future(F.col("ts"), timedelta(days=1), is_batch=False)
    frame = spark.read.schema(INPUT).parquet(folder).select("user_id", ahead)
    capsys.readouterr()
    frame.explain("codegen")
    return "".join(
        line for line in capsys.readouterr().out.splitlines(keepends=True) if line.startswith("/*")
    )


def test_the_time_of_the_micro_batch_is_not_in_the_code(
    spark: SparkSession, events: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The limit for event times in the future moves on, and the code stays the same."""
    first = generated(spark, events, capsys)
    time.sleep(0.01)

    assert first
    assert first == generated(spark, events, capsys)


@pytest.mark.parametrize("zone", ["UTC", "+18:00", "-18:00"])
def test_the_limit_is_exact_in_every_zone(spark: SparkSession, zone: str) -> None:
    """Whatever day it is there, an event time is in the future by more than the skew alone."""
    skew, steps = timedelta(hours=20), range(-1, 2)
    times = [
        F.current_timestamp() + F.lit(timedelta(hours=20, microseconds=step)) for step in steps
    ]
    times += [F.current_timestamp() + F.lit(timedelta(hours=hour)) for hour in range(-50, 100, 10)]
    with changed(spark, {"spark.sql.session.timeZone": zone}):
        judged = [
            F.coalesce(is_future(time, skew, is_batch=False), F.lit(0) == 1) for time in times
        ]
        found = spark.range(1).select(*judged).first()

    hours = [hour > 20 for hour in range(-50, 100, 10)]
    assert [False, False, True, *hours] == list(found or ())


def test_a_micro_batch_compiles_nothing_again(
    spark: SparkSession, events: str, tmp_path: Path
) -> None:
    """Two micro-batches of a second stream find the code of the first one's."""
    needs_own_process(spark)
    for number in range(2):
        shutil.copytree(events, tmp_path / "in" / f"day={number}")
    metrics = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]
    compiled = []
    for number in range(2):
        reader = spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1)
        rows = sessionize(reader.parquet(str(tmp_path / "in")), visits)
        before = metrics.METRIC_COMPILATION_TIME().getCount()
        writer = rows.writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / str(number))).start().awaitTermination()
        compiled.append(metrics.METRIC_COMPILATION_TIME().getCount() - before)
    assert compiled[0] > 0
    assert compiled[1] == 0
