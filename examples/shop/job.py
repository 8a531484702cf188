"""From a topic of Kafka, or from files, to two tables of PostgreSQL, each row exactly once."""

from typing import Any

import attrs
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from examples.shop.spec import VISITS
from sessionkit import Inputs
from sessionkit.addons.postgres import Postgres
from sessionkit.addons.sources import (
    JsonLines,
    KafkaTopics,
    read_stream,
)
from sessionkit.spark import Routes, sessionize, start_query

__all__ = ["start"]


def start(
    spark: SparkSession, source: KafkaTopics | JsonLines, database: str, **run: Any
) -> StreamingQuery:
    """Start the job, with a checkpoint and a trigger."""
    places = (
        KafkaTopics.origin_columns if isinstance(source, KafkaTopics) else JsonLines.origin_columns
    )
    spec = attrs.evolve(VISITS, inputs=Inputs(passthrough=places))
    visits = sessionize(read_stream(spark, source, spec), spec, with_rejected=True)
    sink = Routes(session=Postgres(database, "visits"), rejected=Postgres(database, "rejected"))
    return start_query(visits, sink=sink, spec=spec, **run)
