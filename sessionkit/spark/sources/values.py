"""The sources as values."""

import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, TypeAlias

import attrs

from sessionkit.spark.sources.payloads import PAYLOAD, Json, PayloadFormat

__all__ = [
    "FILE_COLUMNS",
    "KAFKA_COLUMNS",
    "Csv",
    "JsonLines",
    "KafkaTopics",
    "Parquet",
    "Rate",
    "Socket",
    "Source",
]

KAFKA_COLUMNS: Final[Mapping[str, type]] = {
    "kafka_topic": str,
    "kafka_partition": int,
    "kafka_offset": int,
    "kafka_timestamp": datetime,
    PAYLOAD: bytes,
}
"""What the rows of a topic pass through: `passthrough=KAFKA_COLUMNS`."""
FILE_COLUMNS: Final[Mapping[str, type]] = {"file_path": str, PAYLOAD: bytes}
"""What the rows of files pass through: `passthrough=FILE_COLUMNS`."""


def _names(names: Iterable[str] | str) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


@attrs.frozen
class KafkaTopics:
    """
    The messages of Kafka topics.

    Attributes:
        servers: The brokers, as `host:port,host:port`.
        topics: The topics, or one.
        payload: How the value of a message is read: `Json()` or `Avro(schema)`.
        starting: Where a query with a new checkpoint begins, and a batch: `"earliest"`, `"latest"`
            (for a stream), or offsets as JSON, such as `Seed.starting_offsets` returns.
        options: More options, under Spark's names, such as `kafka.security.protocol`.
    """

    servers: str
    topics: tuple[str, ...] = attrs.field(converter=_names)
    payload: PayloadFormat = attrs.field(factory=Json)
    starting: str = "earliest"
    options: Mapping[str, str] = attrs.field(factory=dict, repr=False)


@attrs.frozen
class JsonLines:
    """
    A folder of files with a JSON object on each line. Empty lines are skipped.

    Attributes:
        path: The folder, or a glob.
        payload: How a line is read.
        options: More options, under Spark's names, such as `maxFilesPerTrigger`.
    """

    path: str | os.PathLike[str]
    payload: Json = attrs.field(factory=Json)
    options: Mapping[str, str | int] = attrs.field(factory=dict)


@attrs.frozen
class Csv:
    """
    A folder of CSV files that begin with the names of their columns.

    Attributes:
        path: The folder, or a glob.
        columns: The names of all columns, as the files have them, in their order. By default, those
            of the files that are there.
        options: More options, under Spark's names, such as `sep` or `timestampFormat`.
    """

    path: str | os.PathLike[str]
    columns: tuple[str, ...] = ()
    options: Mapping[str, str | int] = attrs.field(factory=dict)


@attrs.frozen
class Parquet:
    """
    A folder of Parquet files, of which one at least is there when the query starts.

    Attributes:
        path: The folder, or a glob.
        options: More options, under Spark's names, such as `maxFilesPerTrigger`.
    """

    path: str | os.PathLike[str]
    options: Mapping[str, str | int] = attrs.field(factory=dict)


@attrs.frozen
class Socket:
    """
    Lines of JSON from a socket, to try things out: what was sent is gone after a restart.

    Attributes:
        host: The host that sends.
        port: Its port.
        payload: How a line is read.
    """

    host: str
    port: int
    payload: Json = attrs.field(factory=Json)


@attrs.frozen
class Rate:
    """
    Made-up events at a steady rate, to try things out.

    Attributes:
        columns: The columns of the spec as SQL over `timestamp` and `value`, a number that counts
            up: `{"user": "concat('user-', value % 10)", "ts": "timestamp"}`.
        rows_per_second: How many events come in a second.
    """

    columns: Mapping[str, str]
    rows_per_second: int = 1


Source: TypeAlias = KafkaTopics | JsonLines | Csv | Parquet | Socket | Rate
