"""
Read events from Kafka and files, decoded into the columns of a spec.

A payload that can't be read becomes a quarantined row, with its bytes, its origin and the reason.
"""

from sessionkit.addons.sources.reading import read_batch, read_stream
from sessionkit.addons.sources.values import (
    Avro,
    Json,
    JsonLines,
    KafkaTopics,
)

__all__ = [
    "Avro",
    "Json",
    "JsonLines",
    "KafkaTopics",
    "read_batch",
    "read_stream",
]
