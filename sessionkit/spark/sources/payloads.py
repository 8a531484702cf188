"""How payloads are written, as values."""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import attrs

from sessionkit.errors import SpecError, with_hint

__all__ = ["Avro", "Json", "PayloadFormat"]

MOST_BYTES: Final = 20_000_000
MOST_LEVELS: Final = 1_000


def _at_least_one(_: object, field: "attrs.Attribute[int]", value: int) -> None:
    if value.__class__ is not int or value < 1:
        found = f"`{field.name}` must be an int of at least 1, found {value!r}"
        raise SpecError(with_hint(found, f"leave it out for {field.default:_}"))


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
    max_bytes: int = attrs.field(default=MOST_BYTES, validator=_at_least_one)


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
            contains itself. At most 1,000: fastavro ends the process where there are a few times as
            many.
        max_items: The most items of a payload: those of arrays and maps, and records of a union.

    Raises:
        SpecError: The schema isn't JSON, or not that of a record, or a limit is out of range.
    """

    schema: str = attrs.field(repr=False)
    is_framed: bool = False
    max_bytes: int = attrs.field(default=MOST_BYTES, validator=_at_least_one, kw_only=True)
    max_depth: int = attrs.field(default=500, validator=_at_least_one, kw_only=True)
    max_items: int = attrs.field(default=1_000_000, validator=_at_least_one, kw_only=True)

    @max_depth.validator
    def _check_depth(self, _: object, value: int) -> None:
        if value > MOST_LEVELS:
            found = f"`max_depth` must be at most {MOST_LEVELS}, found {value}"
            raise SpecError(with_hint(found, "fastavro ends the process at a few times as many"))

    @schema.validator
    def _check_schema(self, _: object, value: str) -> None:
        try:
            parsed: Any = json.loads(value)
        except ValueError as error:
            found = f"the schema of Avro isn't JSON: {error}"
            raise SpecError(with_hint(found, "pass the text of an .avsc file")) from None
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            found = "the schema of Avro must be that of a record"
            raise SpecError(with_hint(found, 'write {"type": "record", "fields": [...]}'))

    @property
    def field_names(self) -> tuple[str, ...]:
        """The names of the fields of a record."""
        return tuple(field["name"] for field in json.loads(self.schema).get("fields", ()))


PayloadFormat: TypeAlias = Json | Avro
