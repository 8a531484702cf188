"""Specs in Spark Declarative Pipelines, run by the command `spark-pipelines`."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest

from tests.support.spark_settings import spark_release

SPEC: Final = """
name: visits
storage: file://{folder}/storage
configuration:
  spark.sql.shuffle.partitions: "2"
libraries:
  - glob:
      include: transformations/**
"""
VIEWS: Final = """
from pathlib import Path
from typing import Any

import attrs
from pyspark import pipelines
from pyspark.sql import SparkSession

from pyspark.errors import PySparkException

from sessionkit import SessionSpec, aggregates
from sessionkit.spark import sessionize


@attrs.frozen
class View:
    url: str


visits = SessionSpec.aggregate(
    View, {{"pages": aggregates.count()}}, keys={{"user_id": str}}, event_time="ts",
    gap="30 minutes", watermark_delay="0 seconds",
)


def views() -> Any:
    events = SparkSession.active().readStream.schema("user_id string, url string, ts timestamp")
    return events.json("{folder}/in")


sessions = sessionize(views(), visits)


@pipelines.table
def finished_visits() -> Any:
    try:
        sessionize(views(), visits)
    except PySparkException as refused:
        Path("{folder}/refused").write_text(str(refused))
    return sessions
"""
EVENTS: Final = [("ann", "12:00"), ("ann", "12:10"), ("bob", "12:20"), ("ann", "23:00")]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.skipif(spark_release() < (4, 1), reason="Spark has declarative pipelines since 4.1")
@pytest.mark.skipif(
    find_spec("grpc") is None or find_spec("yaml") is None,
    reason="`spark-pipelines` needs pyspark[pipelines]",
)
def test_a_pipeline_returns_a_frame_that_its_module_made(tmp_path: Path) -> None:
    """A query function that calls `sessionize` is refused: Spark doesn't analyze frames there."""
    (tmp_path / "in").mkdir()
    rows = [{"user_id": user, "url": "/", "ts": f"2026-03-09T{at}:00Z"} for user, at in EVENTS]
    (tmp_path / "in" / "0.json").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "views.py").write_text(VIEWS.format(folder=tmp_path))
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(folder=tmp_path))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    paths = {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYSPARK_PYTHON": sys.executable,
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**kept, **paths, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}

    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )

    assert 0 == ran.returncode, ran.stdout + ran.stderr
    refused = (tmp_path / "refused").read_text()
    assert "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION" in refused
    found = pq.read_table(tmp_path / "spark-warehouse" / "finished_visits").to_pylist()
    assert [("ann", 2), ("bob", 1)] == sorted((row["user_id"], row["pages"]) for row in found)
