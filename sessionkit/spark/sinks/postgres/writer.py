"""Rows on their way into a table of PostgreSQL, each exactly once."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import attrs
import pyarrow as pa
from psycopg import Connection
from psycopg.sql import SQL, Composed
from pyspark.sql import SparkSession

from sessionkit.errors import SinkError, SpecError, with_hint
from sessionkit.spark._output_rules import OutputMode
from sessionkit.spark.sinks.batches import Batch, Ledger, from_last
from sessionkit.spark.sinks.postgres import checks
from sessionkit.spark.sinks.postgres.connections import Connections, connected
from sessionkit.spark.sinks.postgres.loading import COPIED, RANK, Copying, Moving
from sessionkit.spark.sinks.postgres.statements import (
    ATTEMPT,
    LOCK,
    Statements,
    is_json,
    postgres_type,
)
from sessionkit.spark.sinks.routes import Route, check_key, key_of
from sessionkit.spark.sinks.tables import Postgres, fits

NONE: Final = -1


@attrs.frozen
class Found:
    """
    A table as it is when a query starts.

    Attributes:
        place: What tells the table from all others, whatever the name of its host.
        last_batch: The last micro-batch of the query that it has; None if it has none.
    """

    place: tuple[object, ...]
    last_batch: int | None


def check_columns(sink: Postgres, route: Route, mode: OutputMode) -> None:
    """Check that a table for these rows can be made, before a query starts."""
    check_key(sink, route, mode)
    for field in route.schema.fields:
        postgres_type(field.dataType, field.name)
        if field.name in {ATTEMPT, RANK} or not fits(field.name):
            found = f"no column for the table {sink.table} can have the name `{field.name}`"
            raise SpecError(with_hint(found, "rename it; PostgreSQL cuts names after 63 bytes"))


def check_table(sink: Postgres, route: Route, query_id: str | None) -> Found:
    """
    Check that a table can take these rows, or can be made; nothing is made or tried again.

    Args:
        sink: The table.
        route: The rows.
        query_id: The id of the query; None for a new one.
    """
    with connected(sink.dsn) as connection:
        placed = checks.place(connection, sink)
        statements = Statements(*placed, tuple(route.schema.names), key_of(sink, route))
        last = None
        if checks.check_ours(connection, statements, query_id) is not None:
            last = checks.check_owner(connection, statements, query_id)
        if checks.types_of(connection, statements.table):
            checks.check_table(connection, statements, route.schema)
        return Found((*checks.server(connection), *placed), last)


@attrs.define
class TableWriter:
    """
    Writes micro-batches to a table, which the first one takes for this run.

    Attributes:
        sink: The table.
        key: The columns by which a row replaces an earlier one.
        route: What tells the rows from those that the query writes elsewhere.
        refuses: Whether a second session with the id of another one is an error.
        statements: The SQL; None before the first micro-batch.
        last: The number of the last micro-batch that the table has.
    """

    sink: Postgres
    key: tuple[str, ...]
    route: str = "all"
    refuses: bool = False
    statements: Statements | None = None
    last: int = NONE
    runs_all: bool = attrs.field(default=True, init=False)

    def ledger(self, spark: SparkSession, query_id: str) -> Ledger:
        """Return what the table has of a query."""
        del spark
        with connected(self.sink.dsn) as connection:
            statements = Statements(*checks.place(connection, self.sink))
            last = None
            if checks.check_ours(connection, statements, query_id) is not None:
                last = checks.check_owner(connection, statements, query_id)
        return Ledger(
            f"the table {statements.said}",
            from_last(last),
            lambda number: (
                f"take the table back, and its number: {statements.rewind(number)}; or write to "
                f"a new table, with sink_since={number + 1}"
            ),
        )

    def is_written(self, batch: Batch) -> bool:
        """Return whether the table has this micro-batch."""
        self._taken(batch)
        return batch.number <= self.last

    def write(self, batch: Batch) -> None:
        """Copy the rows from the executors, then move them in one transaction."""
        statements = self._taken(batch)
        with closing(Connections(self.sink)) as connections:
            types = connections.run(lambda one: self._prepare(one, statements, batch))
        as_json = tuple(is_json(types[name]) for name in statements.columns)
        copying = Copying(self.sink, statements.copy(batch.query_id).as_string(None), as_json)

        def copy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return copying(batches)

        copied = batch.frame.mapInArrow(copy, COPIED).collect()
        with closing(Connections(self.sink)) as connections:
            connections.run(lambda one: self._finish(one, statements, batch, copied))
        self.last = batch.number

    def _taken(self, batch: Batch) -> Statements:
        if self.statements is None:
            with closing(Connections(self.sink)) as connections:
                self.statements, self.last = connections.run(lambda one: self._take(one, batch))
        return self.statements

    def _take(self, connection: Connection[Any], batch: Batch) -> tuple[Statements, int]:
        """Make what isn't there, take the table for this run, and return its last micro-batch."""
        schema, query = batch.frame.schema, batch.query_id
        connection.execute(LOCK)
        statements = Statements(*checks.place(connection, self.sink), tuple(schema.names), self.key)
        ledger = checks.check_ours(connection, statements, query)
        if ledger is None or ledger.comment is None:
            connection.execute(statements.create_ledger())
        checks.check_owner(connection, statements, query)
        if not checks.types_of(connection, statements.table):
            connection.execute(statements.create_table(schema))
        checks.check_table(connection, statements, schema)
        claim = statements.claim(query, batch.run_id, self.route)
        last = connection.execute(claim).fetchone()
        if last is None:
            found = f"another kind of row of this query goes to the table {statements.said}"
            raise SinkError(with_hint(found, "give each kind of row a table of its own"))
        connection.execute(statements.create_staging(query))
        return statements, int(last[0])

    def _prepare(
        self, connection: Connection[Any], statements: Statements, batch: Batch
    ) -> dict[str, str]:
        """Empty the staging table, and return the types of the columns."""
        self._hold(connection, statements, batch)
        connection.execute(statements.empty_staging(batch.query_id))
        return checks.types_of(connection, statements.table)

    def _finish(
        self,
        connection: Connection[Any],
        statements: Statements,
        batch: Batch,
        parts: Sequence[Any],
    ) -> None:
        """Move the rows and note the micro-batch, unless a lost connection has done so."""
        if self._hold(connection, statements, batch) >= batch.number:
            return
        if parts:
            copied = statements.copied(batch.query_id, [part.attempt for part in parts])
            _check_all_there(connection, statements, copied, sum(part["rows"] for part in parts))
            Moving(statements, copied, self.refuses).move(connection)
        connection.execute(statements.note(batch.number))

    def _hold(self, connection: Connection[Any], statements: Statements, batch: Batch) -> int:
        """Hold the row of the ledger to the end of the transaction; return its micro-batch."""
        hold = statements.hold(batch.query_id, batch.run_id, self.route)
        held = connection.execute(hold).fetchone()
        if held is None:
            found = (
                f"the table {statements.said} was taken from this run of the query "
                f"{batch.query_id}: a later run has it, or someone gave it away"
            )
            hint = "leave only one run of a query, and one query of a table"
            raise SinkError(with_hint(found, hint))
        return int(held[0])


def _check_all_there(
    connection: Connection[Any], statements: Statements, copied: Composed, rows: int
) -> None:
    counted = connection.execute(SQL("SELECT count(*) FROM {}").format(copied)).fetchone()
    there = counted[0] if counted else 0
    if there != rows:
        found = (
            f"{rows} rows were copied for the table {statements.said}, of which {there} are there: "
            "the server has lost them, or one that is behind has taken its place"
        )
        raise SinkError(with_hint(found, "start the query again: it repeats the micro-batch"))
