"""The sink Kafka, on a real broker with Spark's real connector."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionkit import EventTimeGap
from sessionkit.spark import Files, Seed, carry_over, sessionize
from sessionkit.spark.query.rules import output_rules
from sessionkit.spark.query.start import start_query
from sessionkit.spark.sinks import native as sinks
from tests.support.cells import Events, quick, try_cells
from tests.support.figures import FIGURES, Record
from tests.support.kafka import Kafka, KafkaMissingError, running_kafka
from tests.support.session_specs import collecting
from tests.support.streams import FileStream

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


def test_a_seed_says_where_to_read_on(kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
    """Under another gap, a query reads each message of a topic once: those that came since."""
    before = collecting(EventTimeGap("10 minutes"), watermark_delay="1 hour", bucket_count=1)
    after = collecting(EventTimeGap("20 minutes"), watermark_delay="1 hour", bucket_count=2)
    first, second = (
        FileStream(spark, spec, tmp_path / name)
        for spec, name in ((before, "first"), (after, "second"))
    )
    kafka_options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": "views"}

    def send(*minutes: int) -> None:
        rows = spark.createDataFrame([(str(minute),) for minute in minutes], "value string")
        rows.write.format("kafka").options(**kafka_options, topic="views").save()

    def run(stream: FileStream, start: str, seed: Seed | None = None) -> None:
        reader = spark.readStream.format("kafka").options(**kafka_options)
        minute = F.col("value").cast("string").cast("long")
        views = (
            reader.option("startingOffsets", start)
            .load()
            .select(
                F.lit("ann").alias("key"),
                F.timestamp_seconds(F.lit(1_770_000_000) + minute * F.lit(60)).alias("at"),
                minute.alias("value"),
                F.expr("interval 10 minutes").alias("gap"),
            )
        )
        start_query(
            sessionize(views, stream.spec, seed=seed),
            sink=Files("parquet", stream.folder / "out"),
            trigger="availableNow",
            checkpoint=stream.checkpoint,
        ).awaitTermination()

    send(0, 5)
    run(first, "earliest")
    seed = carry_over(first.checkpoint, before, after, str(tmp_path / "seed"), spark=spark)
    send(12)
    run(second, seed.starting_offsets(), seed)

    assert [[0, 5, 12]] == [found.state.values for found in second.open()]
