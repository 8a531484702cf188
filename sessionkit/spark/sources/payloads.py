"""How payloads are written, as values."""

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from sessionkit.errors import SpecError, with_hint

__all__ = ["Avro", "Json", "PayloadFormat"]


@attrs.frozen
class Json:
    """
    A JSON object, whose fields are the columns of the spec; others are left alone.

    Times are ISO 8601, or whole seconds since 1970. One without a zone is of the time zone of the
    Spark session.

    Attributes:
        options: More options of Spark's `from_json`, such as `timestampFormat`.
    """

    options: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Avro:
    """
    An Avro record. Needs the extra `avro`.

    Attributes:
        schema: The schema with which the records were written, as JSON.
        is_framed: Whether each record follows a zero byte and the four bytes of a schema id, as
            serializers with a schema registry write them. The id is skipped.

    Raises:
        SpecError: The schema isn't JSON, or not that of a record.
    """

    schema: str = attrs.field(repr=False)
    is_framed: bool = False

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
