"""The sink Kafka, on a real broker with Spark's real connector."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionkit.spark.query import sinks
from sessionkit.spark.query.rules import output_rules
from sessionkit.spark.query.start import start_query
from tests.support.cells import Events, quick, try_cells
from tests.support.figures import FIGURES, Record
from tests.support.kafka import Kafka, KafkaMissingError, running_kafka

CELLS = [rule for rule in output_rules() if rule.sink == "kafka"]


@pytest.fixture(scope="module")
def kafka(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker, and a session that can reach it; tests are skipped where none can be had."""
    try:
        with running_kafka(tmp_path_factory.mktemp("kafka"), spark.version) as broker:
            broker.connect(spark)
            yield broker
    except KafkaMissingError as error:
        pytest.skip(f"cells tried: 0, not tried: {len(CELLS)} ({error})")


def test_every_cell_agrees_with_spark(
    kafka: Kafka, spark: SparkSession, tmp_path: Path, record_property: Record
) -> None:
    """Spark writes a micro-batch to Kafka in the cells that the table accepts, and no others."""
    options = {"kafka.bootstrap.servers": kafka.servers, "topic": "cells"}
    with quick(spark):
        outcomes = try_cells(Events(spark, tmp_path).write(), CELLS, options)
    record_property(FIGURES, f"Kafka, {kafka.connector.name}: {outcomes.summary(0, '')}")

    assert set(outcomes.said) == set(CELLS)
    assert outcomes.disagreements == []


def test_a_query_is_started_to_a_topic(kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
    """The rows of the frame are messages of the topic, each once after a restart."""
    events = Events(spark, tmp_path).write().stream()
    messages = events.select("key", F.to_json(F.struct("key", "value")).alias("value"))
    for _ in range(2):
        query = start_query(
            messages,
            sink=sinks.Kafka(kafka.servers, "started"),
            trigger="availableNow",
            checkpoint=tmp_path / "checkpoint",
        )
        query.awaitTermination()

    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.servers)
    found = reader.option("subscribe", "started").load()
    rows = found.select(F.col("key").cast("string"), F.col("value").cast("string")).collect()
    assert [("a", '{"key":"a","value":1}')] == [tuple(row) for row in rows]
