"""The sources and the payload formats."""

import json
import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Final, TypeAlias

import attrs
import pyarrow as pa

from sessionkit import SpecError
from sessionkit._for_addons import (
    at_least_one,
    check_path,
    check_text,
    explained,
    flag,
    names,
    names_of,
    quoted,
    spark_options,
    sql_type,
    text,
)

SHOWN: Final = 100
"""The most letters of a value in a reason."""
MOST_BYTES: Final = 20_000_000
MOST_LEVELS: Final = 1_000
PAYLOAD: Final = "payload"
UNREADABLE: Final = "_unreadable"
"""The column with the reason why a payload can't be read, which quarantines the row."""


def spark_type_name(kind: pa.DataType) -> str:
    """Return the name of a type as Spark shows it."""
    return sql_type(kind).replace("timestamp_ltz", "timestamp")


def ddl(fields: Iterable[pa.Field]) -> str:
    """Return the columns as a DDL string of Spark."""
    return ", ".join(f"{quoted(field.name)} {sql_type(field.type)}" for field in fields)


@explained()
@attrs.frozen
class Json:
    """
    Read a payload as a JSON object, whose fields are the columns of the spec.

    Other fields are ignored, and a missing field is null.

    Times are ISO 8601, or whole seconds since 1970; a number of milliseconds is thus read as a time
    far ahead, and quarantined. A time without a zone is in the time zone of the Spark session.

    Attributes:
        options: Further options of Spark's `from_json`, such as `timestampFormat`.
        max_bytes: The most bytes of a payload. A longer payload never leaves the JVM.

    Raises:
        SpecError: `max_bytes` isn't a whole number from 1, or an option isn't a text, a number or a
            bool.
    """

    options: Mapping[str, str] = attrs.field(factory=dict, validator=spark_options, hash=False)
    max_bytes: int = attrs.field(default=MOST_BYTES, validator=at_least_one)


@explained()
@attrs.frozen
class Avro:
    """
    Read a payload as an Avro record, whose fields are the columns of the spec.

    Needs the extra `avro`.

    Attributes:
        schema: The schema with which the records were written, as JSON.
        is_framed: Whether a zero byte and the four bytes of a schema id precede each record, as
            serializers with a schema registry write them. The id is skipped.
        max_bytes: The most bytes of a payload. A longer payload never leaves the JVM.
        max_depth: The most levels of nested records, arrays and maps, for recursive schemas. At
            most 1,000: at a few times as many, fastavro crashes the process.
        max_items: The most items of a payload: items of arrays and maps, and records in unions.

    Raises:
        SpecError: The schema isn't JSON, or isn't one of a record; `max_depth` is more than 1,000;
            or a limit isn't a whole number from 1.
    """

    schema: str = attrs.field(repr=False)
    is_framed: bool = attrs.field(default=False, validator=flag)
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
        check_text("schema", value)
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


def _is_payload(_: Any, __: "attrs.Attribute[Any]", value: object) -> None:
    if not isinstance(value, Json | Avro):
        found = f"`payload` must be a Json or an Avro, found {value!r}"
        raise SpecError(found, "write payload=Json(), or Avro(schema)")


def _is_folder(_: Any, attribute: "attrs.Attribute[Any]", value: object) -> None:
    check_path(value, f"`{attribute.name}`")


@explained()
@attrs.frozen
class KafkaTopics:
    """
    Read the messages of Kafka topics, without the messages of aborted transactions.

    Pass it to `read_stream` or `read_batch`.

    Example:
        from sessionkit.addons.sources import Json, KafkaTopics

        views = KafkaTopics("kafka-1:9092,kafka-2:9092", "views", payload=Json(max_bytes=100_000))

    Attributes:
        servers: The brokers, as `host:port,host:port`.
        topics: The name of a topic, or several names.
        payload: The format of message values: `Json()` or `Avro(schema)`.
        starting: The start of a batch, or of a query with a new checkpoint: `"earliest"`;
            `"latest"`, for a stream only, since Spark itself refuses it for a batch; or offsets as
            JSON, such as `Seed.starting_offsets` returns.
        options: Further options by Spark's names, such as `kafka.security.protocol`. Under
            `{"kafka.isolation.level": "read_uncommitted"}`, Kafka's default, messages of aborted
            transactions count too.
        headers: The text columns of the spec to read from headers, with the names of the headers,
            such as `{"tenant": "X-Tenant"}`. If a name comes several times, the last one counts; a
            missing header is null. These columns aren't read from the payload.
        origin_columns: The columns of a message's origin, for
            `Inputs(passthrough=KafkaTopics.origin_columns)`: `kafka_topic`, `kafka_partition`,
            `kafka_offset`, `kafka_timestamp` (UTC), and `payload`, the bytes of a message that
            can't be an event. Rejected rows have them.
    """

    origin_columns: ClassVar[Mapping[str, type]] = {
        "kafka_topic": str,
        "kafka_partition": int,
        "kafka_offset": int,
        "kafka_timestamp": datetime,
        PAYLOAD: bytes,
    }
    servers: str = attrs.field(validator=text)
    topics: tuple[str, ...] = attrs.field(converter=names_of, validator=names)
    payload: PayloadFormat = attrs.field(factory=Json, validator=_is_payload)
    starting: str = attrs.field(default="earliest", validator=text)
    options: Mapping[str, str] = attrs.field(
        factory=dict, repr=False, validator=spark_options, hash=False
    )
    headers: Mapping[str, str] = attrs.field(
        factory=dict, kw_only=True, validator=spark_options, hash=False
    )


@explained()
@attrs.frozen
class JsonLines:
    """
    Read a folder of files with a JSON object on each line. Empty lines are skipped.

    Pass it to `read_stream` or `read_batch`.

    Example:
        from sessionkit.addons.sources import JsonLines

        views = JsonLines("/data/events", options={"maxFilesPerTrigger": 100})

    Attributes:
        path: The folder, or a glob.
        payload: The format of a line: a `Json`.
        options: Further options by Spark's names, such as `maxFilesPerTrigger`.
        origin_columns: The columns of a line's origin, for
            `Inputs(passthrough=JsonLines.origin_columns)`: `file_path`, and `payload`, the bytes of
            a line that can't be an event. Rejected rows have them.
    """

    origin_columns: ClassVar[Mapping[str, type]] = {"file_path": str, PAYLOAD: bytes}
    path: str | os.PathLike[str] = attrs.field(validator=_is_folder)
    payload: Json = attrs.field(factory=Json, validator=_is_payload)
    options: Mapping[str, str | int] = attrs.field(
        factory=dict, validator=spark_options, hash=False
    )


Source: TypeAlias = KafkaTopics | JsonLines
