"""Checkpoints that an earlier commit has written, each of which this one goes on with."""

import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit.errors import StateError
from sessionkit.spark import check_checkpoint
from sessionkit.spark._settings import is_connect
from tests.support import earlier_queries as queries
from tests.support.spark_settings import changed

EARLIER = "58795c676c1085d614fbe964217574acb3a36667"
ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.spark, pytest.mark.long]


@attrs.frozen
class Begun:
    """A folder with a checkpoint of each query, as the earlier commit has left it."""

    folder: Path
    store: str
    layout: str


@pytest.fixture(scope="module", params=queries.STORED, ids=" ".join)
def begun(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Begun:
    """Let the earlier commit run its part."""
    if is_connect(spark):
        pytest.skip("the stores of a session of Connect are those of its server")
    code, folder = tmp_path_factory.mktemp("earlier"), tmp_path_factory.mktemp("queries")
    archive = ["git", "-C", str(ROOT), "archive", EARLIER, "sessionkit"]
    found = subprocess.run(archive, capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"not run: the history has no commit {EARLIER[:7]}")
    subprocess.run(["tar", "-x", "-C", str(code)], input=found.stdout, check=True)
    queries.write_events(spark, folder / "in")
    # With -P, Python doesn't look for modules next to the program; workers look where they are.
    command = [sys.executable, "-P", queries.__file__, str(folder), *request.param]
    environ = {**os.environ, "PYTHONPATH": str(code), "PYSPARK_PYTHON": sys.executable}
    subprocess.run(command, cwd=code, env=environ, check=True)
    return Begun(folder, *request.param)


@pytest.mark.parametrize("name", queries.specs("buckets"))
def test_a_query_goes_on_with_what_an_earlier_commit_has_stored(
    name: str, spark: SparkSession, begun: Begun
) -> None:
    """
    All stored state is sound, and the rows of both are those of one batch over all events.

    Where each event has its own gap, a session now stores its last event, which the earlier commit
    didn't.
    """
    spec = queries.specs(begun.layout)[name]
    folder = begun.folder / name
    with changed(spark, queries.provider(begun.store)):
        if name == "gaps_by_event":
            with pytest.raises(StateError, match="migrate"):
                check_checkpoint(folder / "checkpoint", spec, deep=True, spark=spark)
            return
        check_checkpoint(folder / "checkpoint", spec, deep=True, spark=spark)
        queries.run(queries.events_in(spark, begun.folder, "*"), folder, spec)

    events = spark.read.schema(queries.SCHEMA).json(f"{begun.folder}/in/batch=*")
    batch = rows_of(queries.output(events, spec))
    assert len(batch) > 30
    assert batch == rows_of(spark.read.parquet(str(folder / "rows")))


def rows_of(frame: DataFrame) -> list[str]:
    """Return the final rows, without the session that no event ends."""
    final = frame.where("is_final") if "is_final" in frame.columns else frame
    # The earlier commit wrote no `last_event_time`; micro-batches say how many revisions there are.
    final = final.where(F.col("user") != queries.LAST).drop("last_event_time", "revision")
    return sorted(map(str, final.collect()))
