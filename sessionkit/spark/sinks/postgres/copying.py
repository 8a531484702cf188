"""What an executor does: it copies the rows of its part into the staging table."""

import base64
import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final
from uuid import uuid4

import attrs
import pyarrow as pa
from psycopg import Connection, Cursor
from psycopg.types.json import Jsonb
from psycopg.types.string import StrDumper

from sessionkit._engine.wire.inbound import in_utc
from sessionkit.spark.sinks.postgres.connections import Connections
from sessionkit.spark.sinks.postgres.sink import Postgres

__all__ = ["COPIED", "Copying"]

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
COPIED: Final = "attempt string, rows bigint"
"""What a part tells the driver: by which attempts how many rows were copied."""


@attrs.frozen
class Copying:
    """
    Copies rows; Spark calls it with those of a part.

    Each batch of Arrow is copied in a transaction of its own, which can be repeated if the
    connection is lost. An attempt that fails, or that of a task which loses against another one,
    leaves rows that nobody asks for: the driver knows only the attempts of tasks that Spark took.

    Attributes:
        sink: How to connect.
        statement: The COPY.
        json: For each column, whether its values are written as JSON.
    """

    sink: Postgres
    statement: str
    json: tuple[bool, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Copy the rows, and say by which attempts; a batch without rows says nothing."""
        with closing(Connections(self.sink)) as connections:
            for batch in batches:
                if batch.num_rows:
                    copy = partial(self._copy, batch)
                    copied = {"attempt": [connections.run(copy)], "rows": [batch.num_rows]}
                    yield pa.RecordBatch.from_pydict(copied)

    def _copy(self, batch: pa.RecordBatch, connection: Connection[Any]) -> str:
        attempt = str(uuid4())
        with _cursor(connection) as cursor, cursor.copy(self.statement.encode()) as copy:
            for row in zip(*map(self._values, batch.columns, self.json), strict=True):
                copy.write_row((attempt, *row))
        return attempt

    def _values(self, column: pa.Array, as_json: bool) -> Iterator[Any]:  # noqa: FBT001 (mapped)
        values: list[Any] = column.cast(in_utc(column.type)).to_pylist(maps_as_pydicts="strict")
        return map(_as_json, values) if as_json else iter(values)


def _storable(text: str) -> str:
    """Return a text as PostgreSQL can hold it: without a NUL, for which it has no form."""
    return text.replace("\0", REPLACEMENT)


class _TextDumper(StrDumper):
    """Writes a text, also where it is an item of an array."""

    def dump(self, obj: str) -> Any:
        return super().dump(_storable(obj))


def _cursor(connection: Connection[Any]) -> Cursor[Any]:
    cursor = connection.cursor()
    cursor.adapters.register_dumper(str, _TextDumper)
    return cursor


def _as_json(value: Any) -> Jsonb | None:
    return None if value is None else Jsonb(value, dumps=_dumps)


def _dumps(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Return a value of which JSON knows the parts; what it has no form for becomes text."""
    match value:
        case str():
            return _storable(value)
        case dict():
            return {_name(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case timedelta():
            return value.total_seconds()
        case float() if value != value or value in {float("inf"), float("-inf")}:  # noqa: PLR0124
            return str(value)
        case _:
            return value


def _name(key: Any) -> str:
    found = _plain(key)
    return found if isinstance(found, str) else json.dumps(found)
