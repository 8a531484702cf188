"""Settings of Spark that are legal and seldom: every type of field crosses under each."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit.spark import Files, read_state, sessionize, start_query
from sessionkit.spark._settings import is_connect
from tests.support.every_type import (
    EVERYTHING,
    SINGLE,
    events,
    expected,
    expected_single,
    shown,
    stored_by_a_stream,
)
from tests.support.spark_settings import changed, spark_release
from tests.support.visits import SESSIONS

ROOT: Final = Path(__file__).parents[3]
ANSI: Final = "spark.sql.ansi.enabled"
CASE: Final = "spark.sql.caseSensitive"
NTZ: Final = {"spark.sql.timestampType": "TIMESTAMP_NTZ"}
NO_DATA: Final = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
AT_START: Final = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.use.daemon": "false",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}


ODD: Final = {
    **NTZ,
    CASE: "true",
    ANSI: "false" if spark_release() >= (4,) else "true",
    "spark.sql.session.timeZone": "Asia/Kathmandu",
}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(ODD, id="all", marks=pytest.mark.nightly),
        *(
            pytest.param({name: value}, id=name, marks=pytest.mark.long)
            for name, value in ODD.items()
        ),
    ],
)
def test_every_type_crosses_under_odd_settings(
    spark: SparkSession, tmp_path: Path, settings: dict[str, str]
) -> None:
    """A batch gives the same columns of the same types, and a stream the same rows."""
    usual = sessionize(events(spark), EVERYTHING).schema
    with changed(spark, settings):
        batch = sessionize(events(spark), EVERYTHING)
        assert usual == batch.schema
        assert expected() == shown(batch.collect())
        assert expected() == stored_by_a_stream(spark, tmp_path / "every", EVERYTHING)
        assert expected_single() == stored_by_a_stream(spark, tmp_path / "single", SINGLE)


def test_names_that_differ_in_their_case_are_told_apart(spark: SparkSession) -> None:
    """Where the session says so, the frame may have both."""
    with changed(spark, {CASE: "true"}):
        both = events(spark).withColumns({"TEXT": F.lit(0), "Ts": F.lit("")})
        assert expected() == shown(sessionize(both, EVERYTHING).collect())


@pytest.mark.long
def test_settings_that_only_a_start_of_spark_can_set(spark: SparkSession, tmp_path: Path) -> None:
    """Unix sockets, workers without a daemon, and workers that say where they crash."""
    if is_connect(spark):
        pytest.skip("not run: a server has been started with settings of its own")
    command = [sys.executable, "-m", "tests.support.every_type", str(tmp_path)]
    command += [f"{name}={value}" for name, value in AT_START.items()]
    own = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **own}, capture_output=True, text=True, check=False
    )

    assert 0 == done.returncode, done.stderr[-6000:]


@pytest.mark.nightly
@pytest.mark.since_spark("4.0", "Spark 3.5 can't read state")
def test_without_batches_that_have_no_data_the_last_sessions_stay_open(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The next run with data gives them: docs/how-to/troubleshoot.md says so."""

    def run(*rows: str) -> int:
        values = ", ".join(rows)
        found = spark.sql(f"SELECT * FROM VALUES {values} AS (user, at, url)")  # noqa: S608
        found.coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
        stream: DataFrame = spark.readStream.schema(found.schema).parquet(str(tmp_path / "in"))
        start_query(
            sessionize(stream, SESSIONS),
            sink=Files("parquet", tmp_path / "out"),
            trigger="availableNow",
            checkpoint=tmp_path / "checkpoint",
        ).awaitTermination()
        return spark.read.schema(found.schema).parquet(str(tmp_path / "out")).count()

    with changed(spark, NO_DATA):
        ended = run(
            "('ann', timestamp'2026-03-02 10:00:00Z', '/')",
            "('bob', timestamp'2026-03-02 18:00:00Z', '/')",
        )
        assert 0 == ended
        assert 2 == len(read_state(str(tmp_path / "checkpoint"), SESSIONS))
        assert 1 == run("('bob', timestamp'2026-03-02 18:01:00Z', '/')")
