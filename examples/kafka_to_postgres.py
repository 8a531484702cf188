"""
Visits from a Kafka topic to a table of PostgreSQL, each exactly once.

Run it with `python -m examples.kafka_to_postgres BROKERS DATABASE CHECKPOINT`. The messages of the
topic `views` are JSON: `{"user": "ann", "at": "2026-03-08T12:00:00Z", "page": "/", "seconds": 5}`.
The table `rejected` gets what is late or can't be read: with its bytes, its topic, partition and
offset, and the reason.
"""

import sys
from typing import Any

import attrs
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from examples.local_spark import KAFKA_CONNECTOR, start_spark
from sessionkit import Inputs, SessionSpec
from sessionkit.spark import Postgres, Routes, sessionize, start_query
from sessionkit.spark.sources import KAFKA_COLUMNS, KafkaTopics, read_stream

__all__ = ["VISITS", "View", "Visit", "start"]


@attrs.frozen
class View:
    """A page view."""

    page: str
    seconds: float


@attrs.define
class Visit:
    """A visit: how many pages were read, for how long, and the last of them."""

    pages: int = 0
    seconds: float = 0.0
    last_page: str = ""

    def update(self, view: View) -> None:
        """Add a view."""
        self.pages += 1
        self.seconds += view.seconds
        self.last_page = view.page


VISITS = SessionSpec.of(
    Visit, keys={"user": str}, event_time="at", gap="30 minutes", watermark_delay="10 minutes",
    order="event_time", inputs=Inputs(passthrough=KAFKA_COLUMNS),
)  # fmt: skip


def start(spark: SparkSession, brokers: str, database: str, **run: Any) -> StreamingQuery:
    """Start the job, with a checkpoint and a trigger."""
    views = read_stream(spark, KafkaTopics(brokers, "views"), VISITS)
    visits = sessionize(views, VISITS, with_rejected=True)
    sink = Routes(session=Postgres(database, "visits"), rejected=Postgres(database, "rejected"))
    return start_query(visits, sink=sink, spec=VISITS, **run)


if __name__ == "__main__":
    session = start_spark("kafka to postgres", {"spark.jars.packages": KAFKA_CONNECTOR})
    start(session, *sys.argv[1:3], checkpoint=sys.argv[3], trigger="10s").awaitTermination()
