"""Rows as messages of a Kafka topic."""

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit.spark.sinks.batches import Batch
from sessionkit.spark.sinks.native import Kafka, message_id

__all__ = ["TopicWriter", "messages"]


def messages(frame: DataFrame) -> DataFrame:
    """Return rows as messages, unless they are: JSON, with the id of the row as the key."""
    named = message_id(frame.schema)
    if not named:
        return frame
    topic = [F.col("topic")] if "topic" in frame.columns else []
    key = F.coalesce(*named).cast("string").alias("key")
    return frame.select(key, *topic, F.to_json(F.struct("*")).alias("value"))


@attrs.frozen
class TopicWriter:
    """Writes micro-batches to Kafka, also one that runs again: its rows have the same keys."""

    sink: Kafka
    runs_all: bool = attrs.field(default=True, init=False)

    def ledger(self, spark: SparkSession, query_id: str) -> None:
        """Return that nobody knows."""

    def is_written(self, batch: Batch) -> bool:
        """Return that nobody knows."""
        del batch
        return False

    def write(self, batch: Batch) -> None:
        """Send the rows."""
        writer = messages(batch.frame).write.format("kafka")
        writer = writer.option("kafka.bootstrap.servers", self.sink.servers)
        if self.sink.topic is not None:
            writer = writer.option("topic", self.sink.topic)
        writer.options(**self.sink.options).save()
