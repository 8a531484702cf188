"""The whole programs of `examples/programs`, on what they are written for."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from examples import embedded_postgres as server
from sessionkit.addons.sources import KafkaTopics
from tests.support.kafka import Kafka, reached_kafka
from tests.support.pages import ROOT

PROGRAMS = ROOT / "examples" / "programs"
NO_SPARK = "raise ModuleNotFoundError('there is no pyspark here', name='pyspark')"


def test_the_workflow_tests_a_spec_where_neither_spark_nor_java_is(tmp_path: Path) -> None:
    """Its last step runs as it stands; the one before installs this project and pytest."""
    workflow = yaml.safe_load((PROGRAMS / "test.yml").read_text("utf-8"))
    *_, install, test = (step.get("run", "") for step in workflow["jobs"]["test"]["steps"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (tmp_path / "pyspark.py").write_text(NO_SPARK, "utf-8")
    command = [sys.executable, *test.removeprefix("python ").split(), "-p", "no:cacheprovider"]
    (tmp_path / "test_visits.py").write_text((PROGRAMS / "test_visits.py").read_text("utf-8"))
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert install == f"python -m pip install {project['name']} pytest"
    assert "1 passed" in done.stdout, done.stdout


@pytest.fixture(name="kafka", scope="module")
def run_kafka(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker that the session of the tests reaches; skipped where none can be had."""
    with reached_kafka(spark, tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.mark.nightly
def test_kafka_to_postgres_each_row_once(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """Over a restart: a device got hot before it, and cooled down after it."""
    from examples.programs.kafka_to_postgres import start  # noqa: PLC0415 - it needs psycopg

    def send(*readings: tuple[str, str, float]) -> None:
        fields = ("device", "at", "celsius")
        values = [(json.dumps(dict(zip(fields, one, strict=True))),) for one in readings]
        options = {"kafka.bootstrap.servers": kafka.servers, "topic": "readings"}
        frame = spark.createDataFrame(values, "value string")
        frame.write.format("kafka").options(**options).save()

    def run(postgres: Any) -> None:
        topic, checkpoint = KafkaTopics(kafka.servers, "readings"), str(tmp_path / "checkpoint")
        query = start(spark, topic, postgres.dsn, checkpoint, trigger="availableNow")
        query.awaitTermination()

    try:
        with server.running_postgres() as postgres:
            send(
                ("d-1", "2026-03-02T10:00:00Z", 70.0),
                ("d-1", "2026-03-02T10:02:00Z", 81.5),
                ("d-1", "2026-03-02T10:01:00Z", 75.0),
                ("d-2", "2026-03-02T10:30:00Z", 20.0),
            )
            run(postgres)
            send(("d-1", "2026-03-02T10:40:00Z", 60.0), ("d-2", "2026-03-02T10:50:00Z", 21.0))
            for _ in range(2):
                run(postgres)
            rows = postgres.rows("SELECT device, is_hot, celsius FROM alarms ORDER BY since")
    except server.PostgresMissingError as error:
        pytest.skip(f"not run: {error}")

    assert rows == sorted([("d-1", True, 81.5), ("d-1", False, 60.0)], key=repr)
