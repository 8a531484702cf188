"""The sources and the formats of payloads, as values."""

import json
import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Final, TypeAlias

import attrs
import pyarrow as pa

from sessionkit import SpecError
from sessionkit._for_addons import at_least_one, explained, names_of, quoted, sql_type

SHOWN: Final = 100
"""How many letters of a value a reason shows."""
MOST_BYTES: Final = 20_000_000
MOST_LEVELS: Final = 1_000
PAYLOAD: Final = "payload"
UNREADABLE: Final = "_unreadable"
"""The column with the reason why a payload can't be read: then its row is a quarantined one."""
_OF_MESSAGES: Final[Mapping[str, type]] = {
    "kafka_topic": str,
    "kafka_partition": int,
    "kafka_offset": int,
    "kafka_timestamp": datetime,
    PAYLOAD: bytes,
}
_OF_LINES: Final[Mapping[str, type]] = {"file_path": str, PAYLOAD: bytes}


def shown(kind: pa.DataType) -> str:
    """Return the name of a type in a reason: what Spark itself shows."""
    return sql_type(kind).replace("timestamp_ltz", "timestamp")


def ddl(fields: Iterable[pa.Field]) -> str:
    """Return the columns as Spark's SQL has them."""
    return ", ".join(f"{quoted(field.name)} {sql_type(field.type)}" for field in fields)


@explained()
@attrs.frozen
class Json:
    """
    A JSON object, whose fields are the columns of the spec; others are left alone.

    Times are ISO 8601, or whole seconds since 1970. One without a zone is of the time zone of the
    Spark session.

    Attributes:
        options: More options of Spark's `from_json`, such as `timestampFormat`.
        max_bytes: The most bytes of a payload. A longer one never leaves the JVM.

    Raises:
        SpecError: A limit isn't positive.
    """

    options: Mapping[str, str] = attrs.field(factory=dict)
    max_bytes: int = attrs.field(default=MOST_BYTES, validator=at_least_one)


@explained()
@attrs.frozen
class Avro:
    """
    An Avro record. Needs the extra `avro`.

    Attributes:
        schema: The schema with which the records were written, as JSON.
        is_framed: Whether each record follows a zero byte and the four bytes of a schema id, as
            serializers with a schema registry write them. The id is skipped.
        max_bytes: The most bytes of a payload. A longer one never leaves the JVM.
        max_depth: The most levels of records, arrays and maps in one another, where the schema
            contains itself. At most 1,000: at a few times as many, fastavro crashes the process.
        max_items: The most items of a payload: those of arrays and maps, and records of a union.

    Raises:
        SpecError: The schema isn't JSON, or not that of a record, or a limit is out of range.
    """

    schema: str = attrs.field(repr=False)
    is_framed: bool = False
    max_bytes: int = attrs.field(default=MOST_BYTES, validator=at_least_one, kw_only=True)
    max_depth: int = attrs.field(default=500, validator=at_least_one, kw_only=True)
    max_items: int = attrs.field(default=1_000_000, validator=at_least_one, kw_only=True)

    @max_depth.validator
    def _check_depth(self, _: object, value: int) -> None:
        if value > MOST_LEVELS:
            found = f"`max_depth` must be at most {MOST_LEVELS}, found {value}"
            raise SpecError(found, "fastavro crashes the process at a few times as many")

    @schema.validator
    def _check_schema(self, _: object, value: str) -> None:
        try:
            parsed: Any = json.loads(value)
        except ValueError as error:
            found = f"the schema of Avro isn't JSON: {error}"
            raise SpecError(found, "pass the text of an .avsc file") from None
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            found = "the schema of Avro must be that of a record"
            raise SpecError(found, 'write {"type": "record", "fields": [...]}')

    @property
    def field_names(self) -> tuple[str, ...]:
        """The names of the fields of a record."""
        return tuple(field["name"] for field in json.loads(self.schema).get("fields", ()))


PayloadFormat: TypeAlias = Json | Avro


@explained()
@attrs.frozen
class KafkaTopics:
    """
    The messages of Kafka topics; those of transactions that were aborted are left out.

    Example:
        from sessionkit.addons.sources import Json, KafkaTopics

        views = KafkaTopics("kafka-1:9092,kafka-2:9092", "views", payload=Json(max_bytes=100_000))

    Attributes:
        servers: The brokers, as `host:port,host:port`.
        topics: The topics, or one.
        payload: How the value of a message is read: `Json()` or `Avro(schema)`.
        starting: Where a query with a new checkpoint begins, and a batch: `"earliest"`, `"latest"`
            (for a stream), or offsets as JSON, such as `Seed.starting_offsets` returns.
        options: More options, under Spark's names, such as `kafka.security.protocol`. With
            `{"kafka.isolation.level": "read_uncommitted"}`, Kafka's default, messages of aborted
            transactions count too.
        headers: Columns of the spec that messages have as headers, and the name of each one's
            header, such as `{"tenant": "X-Tenant"}`. A column is a text: of several headers of a
            name the last one, null where there is none. The payload isn't looked at for it.
        origin_columns: The columns that say where a message came from, for
            `Inputs(passthrough=KafkaTopics.origin_columns)`: topic, partition, offset, the time
            that Kafka gave the message (UTC), and the `payload`, the bytes of a message that can't
            be an event. A rejected row has them.
    """

    origin_columns: ClassVar[Mapping[str, type]] = _OF_MESSAGES
    servers: str
    topics: tuple[str, ...] = attrs.field(converter=names_of)
    payload: PayloadFormat = attrs.field(factory=Json)
    starting: str = "earliest"
    options: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict, kw_only=True)


@explained()
@attrs.frozen
class JsonLines:
    """
    A folder of files with a JSON object on each line. Empty lines are skipped.

    Example:
        from sessionkit.addons.sources import JsonLines

        views = JsonLines("/data/events", options={"maxFilesPerTrigger": 100})

    Attributes:
        path: The folder, or a glob.
        payload: How a line is read.
        options: More options, under Spark's names, such as `maxFilesPerTrigger`.
        origin_columns: The columns that say where a line came from, for
            `Inputs(passthrough=JsonLines.origin_columns)`: the path of the file, and the `payload`,
            the bytes of a line that can't be an event. A rejected row has them.
    """

    origin_columns: ClassVar[Mapping[str, type]] = _OF_LINES
    path: str | os.PathLike[str]
    payload: Json = attrs.field(factory=Json)
    options: Mapping[str, str | int] = attrs.field(factory=dict)


Source: TypeAlias = KafkaTopics | JsonLines
