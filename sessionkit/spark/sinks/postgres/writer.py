"""What writes the micro-batches of one run to a table."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs
import psycopg
import pyarrow as pa
from pyspark.sql import types as T

from sessionkit.errors import SinkError, SpecError, with_hint
from sessionkit.spark.query.rules import OutputMode
from sessionkit.spark.sinks.batches import Batch
from sessionkit.spark.sinks.keys import (
    SUPERSEDES,
    check_has_columns,
    check_key,
    key_of,
    same_key_error,
)
from sessionkit.spark.sinks.postgres.connections import connected
from sessionkit.spark.sinks.postgres.copying import COPIED, Copying
from sessionkit.spark.sinks.postgres.sink import Postgres
from sessionkit.spark.sinks.postgres.statements import (
    COLUMNS_OF,
    LOCK,
    Statements,
    is_json,
    postgres_type,
)
from sessionkit.spark.sinks.routes import Route

__all__ = ["PostgresWriter", "check_columns", "check_table"]

NONE: Final = -1
UNIQUE: Final = """\
SELECT 1 FROM pg_index WHERE indrelid = to_regclass(%s) AND indisunique AND indpred IS NULL
AND (SELECT array_agg(attname::text ORDER BY attname::text) FROM pg_attribute
     WHERE attrelid = indrelid AND attnum = ANY(indkey)) = %s"""


def check_columns(sink: Postgres, route: Route, mode: OutputMode) -> None:
    """
    Check that a table for these rows can be made, before a query starts.

    Raises:
        SpecError: It can't.
    """
    check_key(sink, route, mode)
    for field in route.schema.fields:
        postgres_type(field.dataType, field.name)


def check_table(sink: Postgres, route: Route, query_id: str | None) -> None:
    """
    Check that a table can take these rows, if there is one.

    Args:
        sink: The table.
        route: The rows.
        query_id: The id of the query; None for a new one.

    Raises:
        SpecError: It can't, or belongs to another query.
        psycopg.OperationalError: The server can't be reached.
    """
    statements = Statements(sink.names, tuple(route.schema.names), key_of(sink, route))
    with connected(sink.dsn) as connection:
        if _types(connection, statements):
            _check_table(connection, statements, route.schema)
        _check_owner(connection, statements, query_id)


@attrs.define
class PostgresWriter:
    """
    Writes micro-batches to a table, which the first one takes for this run.

    Attributes:
        sink: The table.
        key: The columns by which a row replaces an earlier one.
        last: The number of the last micro-batch that the table has; None before the first.
    """

    sink: Postgres
    key: tuple[str, ...]
    last: int | None = None
    runs_all: bool = attrs.field(default=True, init=False)

    def is_written(self, batch: Batch) -> bool:
        """Return whether the table has this micro-batch."""
        if self.last is None:
            self.last = self._taken(batch)
        return batch.number <= self.last

    def write(self, batch: Batch) -> None:
        """Copy the rows from the executors, then move them in one transaction."""
        statements = Statements(self.sink.names, tuple(batch.frame.columns), self.key)
        with connected(self.sink.dsn) as connection:
            types = _types(connection, statements)
            _hold(connection, statements, batch)
            connection.execute(statements.empty_staging())
        as_json = tuple(is_json(types[name]) for name in statements.columns)
        copying = Copying(self.sink.dsn, statements.copy().as_string(None), as_json)

        def copy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return copying(batches)

        copied = batch.frame.mapInArrow(copy, COPIED).collect()
        with connected(self.sink.dsn) as connection:
            _hold(connection, statements, batch)
            if copied:
                _move(connection, statements, [row.attempt for row in copied], _rows(copied))
            connection.execute(statements.note(), {"batch": batch.number})
        self.last = batch.number

    def _taken(self, batch: Batch) -> int:
        """Make what isn't there, take the table for this run, and return its last micro-batch."""
        schema = batch.frame.schema
        statements = Statements(self.sink.names, tuple(schema.names), self.key)
        owner = {"query": batch.query_id, "run": batch.run_id}
        with connected(self.sink.dsn) as connection:
            connection.execute(LOCK)
            connection.execute(statements.create_ledger())
            _check_owner(connection, statements, batch.query_id)
            if not _types(connection, statements):
                connection.execute(statements.create_table(schema))
            _check_table(connection, statements, schema)
            (last,) = connection.execute(statements.claim(), owner).fetchone() or (NONE,)
            connection.execute(statements.drop_staging())
            connection.execute(statements.create_staging())
        return int(last)


def _rows(copied: list[Any]) -> int:
    return sum(row["rows"] for row in copied)


def _types(connection: "psycopg.Connection[Any]", statements: Statements) -> dict[str, str]:
    """Return the columns of the table and their types; nothing where there is no table."""
    name = statements.table.as_string(connection)
    return dict(connection.execute(COLUMNS_OF, [name]).fetchall())


def _check_table(
    connection: "psycopg.Connection[Any]", statements: Statements, schema: T.StructType
) -> None:
    table, types = ".".join(statements.names), _types(connection, statements)
    check_has_columns(table, statements.columns, types)
    for field in schema.fields:
        made = postgres_type(field.dataType, field.name)
        if not _takes_parts(field.name, made, types[field.name]):
            found = f"the column `{field.name}` of the table {table} is {types[field.name]}"
            kind = field.dataType.simpleString()
            hint = f"make it {made}, or leave the table to the sink to make"
            raise SpecError(with_hint(f"{found}, and the rows have {kind} for it", hint))
    name = statements.table.as_string(connection)
    unique = [name, sorted(statements.key)]
    if statements.key and connection.execute(UNIQUE, unique).fetchone() is None:
        key = ", ".join(statements.key)
        found = f"the table {table} has no unique index of exactly ({key})"
        hint = f"add one: ALTER TABLE {table} ADD PRIMARY KEY ({key})"
        raise SpecError(with_hint(found, hint))


def _takes_parts(name: str, made: str, kind: str) -> bool:
    """Return whether a column can take values with parts, for which the sink makes another."""
    if is_json(made):
        return is_json(kind)
    if made.endswith("[]"):
        return kind.endswith("[]") or (is_json(kind) and name != SUPERSEDES)
    return True


def _check_owner(
    connection: "psycopg.Connection[Any]", statements: Statements, query_id: str | None
) -> None:
    ledger = statements.ledger.as_string(connection)
    if connection.execute("SELECT to_regclass(%s)", [ledger]).fetchone() == (None,):
        return
    owner = connection.execute(statements.owner()).fetchone()
    if owner is not None and owner[0] != query_id:
        found = f"the table {'.'.join(statements.names)} belongs to the query {owner[0]}"
        here = "this one has a new checkpoint" if query_id is None else f"this one is {query_id}"
        hint = (
            "write to another table, or go on from the checkpoint of that query; if it is gone for "
            f"good, give its table away: {statements.release()}"
        )
        raise SpecError(with_hint(f"{found}, and {here}", hint))


def _hold(connection: "psycopg.Connection[Any]", statements: Statements, batch: Batch) -> None:
    """Hold the row of the ledger to the end of the transaction."""
    owner = {"query": batch.query_id, "run": batch.run_id}
    if connection.execute(statements.hold(), owner).fetchone() is None:
        found = (
            f"the table {'.'.join(statements.names)} was taken from this run of the query "
            f"{batch.query_id}: a later run has it, or someone gave it away"
        )
        raise SinkError(with_hint(found, "leave only one run of a query, and one query of a table"))


def _move(
    connection: "psycopg.Connection[Any]", statements: Statements, attempts: list[str], rows: int
) -> None:
    named = {"attempts": [*attempts]}
    there = connection.execute(statements.count(), named).fetchone()
    if there is None or there[0] != rows:
        found = (
            f"{rows} rows were copied for the table {'.'.join(statements.names)}, of which "
            f"{there[0] if there else 0} are there: the server may have crashed between"
        )
        raise SinkError(with_hint(found, "start the query again: it repeats the micro-batch"))
    try:
        for statement in statements.merge():
            connection.execute(statement, named)
    except psycopg.errors.CardinalityViolation:
        raise same_key_error(".".join(statements.names), statements.key) from None
