"""
Watch the temperature of devices: from a topic of Kafka to a table of PostgreSQL, each row once.

    python kafka_to_postgres.py broker:9092 readings postgresql://jobs@db/plant /checkpoints/alarms

A message is JSON: `{"device": "d-1", "at": "2026-03-02T10:00:00Z", "celsius": 80.5}`. A row is
written when a device gets hot, and when it has cooled down. The state of a device is forgotten
after a week without readings. It needs Java and the extras `spark` and `postgres`. It runs until
you end it, and goes on where it was when you start it again.
"""

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import attrs
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit import EventTimeGap, KeyState, KeyTimes, StatefulSpec
from sessionkit.addons.postgres import Postgres
from sessionkit.addons.sources import KafkaTopics, read_stream
from sessionkit.spark import apply_with_state, recommended_settings, start_query

HOT = 80.0
SETTINGS: dict[str, Any] = {
    "spark.jars.packages": f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}",
    **recommended_settings(cores=2),
}


@attrs.frozen
class Reading:
    """The fields that are read besides device and time."""

    celsius: float


@attrs.frozen
class Device:
    """What is remembered of a device."""

    is_hot: bool = False


@attrs.frozen
class Alarm:
    """A row: a device has got hot, or has cooled down."""

    is_hot: bool
    since: datetime
    celsius: float


def process(
    device: object, readings: list[Reading], state: KeyState[Device], times: KeyTimes
) -> list[Alarm]:
    """Compare each reading with the one before, in the order of their times."""
    is_hot = state.get(Device()).is_hot
    alarms = []
    for reading, at in zip(readings, times.event_times, strict=True):
        if is_hot != (reading.celsius >= HOT):
            is_hot = not is_hot
            alarms.append(Alarm(is_hot, at, reading.celsius))
    state.set(Device(is_hot))
    return alarms


ALARMS = StatefulSpec(
    keys={"device": str},
    event_time="at",
    process=process,
    order="event_time",
    watermark_delay="1 minute",
    timeout=EventTimeGap("7 days"),
)


def start(
    spark: SparkSession,
    topic: KafkaTopics,
    dsn: str,
    checkpoint: str,
    *,
    trigger: str = "10 seconds",
) -> StreamingQuery:
    """Start the query; what was read and written before isn't read or written again."""
    readings = read_stream(spark, topic, ALARMS, with_position=False)
    return start_query(
        apply_with_state(readings, ALARMS),
        sink=Postgres(dsn, "alarms", key=("device", "since")),
        trigger=trigger,
        checkpoint=checkpoint,
        spec=ALARMS,
    )


def main(arguments: Sequence[str]) -> None:
    """Run it until it's ended."""
    spark = SparkSession.builder.appName("alarms").config(map=SETTINGS).getOrCreate()
    servers, topic, dsn, checkpoint = arguments
    start(spark, KafkaTopics(servers, topic), dsn, checkpoint).awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
