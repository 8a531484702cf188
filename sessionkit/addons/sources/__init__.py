"""
Where events come from: Kafka and files, decoded into what a spec reads.

`read_stream` and `read_batch` return the columns of the spec. A payload that can't be read becomes
a quarantined row, with its bytes, where it came from, and the reason.
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
