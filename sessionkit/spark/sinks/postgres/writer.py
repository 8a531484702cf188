"""Rows on their way into a table of PostgreSQL, each exactly once."""

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

import attrs
from psycopg import Connection
from psycopg.sql import SQL, Composed
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from sessionkit.errors import SinkError, SpecError, with_hint
from sessionkit.spark.sinks.batches import NONE, Batch, BatchWriter, Ledger, from_last
from sessionkit.spark.sinks.postgres import tables
from sessionkit.spark.sinks.postgres.connections import Connections, connected
from sessionkit.spark.sinks.postgres.loading import COUNTS, Copying, Moving
from sessionkit.spark.sinks.postgres.tables import Table, is_json, postgres_type
from sessionkit.spark.sinks.values import Postgres, fits

Result = TypeVar("Result")


def check_columns(sink: Postgres, schema: T.StructType) -> None:
    """Check that PostgreSQL has a type for each column, and that no name is the sink's own."""
    for field in schema.fields:
        postgres_type(field.dataType, field.name)
        if field.name in {tables.ATTEMPT, tables.RANK} or not fits(field.name):
            found = f"no column for the table {sink.table} can have the name `{field.name}`"
            raise SpecError(with_hint(found, "rename it; PostgreSQL cuts names after 63 bytes"))


@attrs.define
class TableWriter(BatchWriter):
    """Writes micro-batches to a table, which the first one takes for this run."""

    sink: Postgres
    key: tuple[str, ...]
    route: str = "all"
    refuses_duplicates: bool = False
    table: Table | None = None
    last: int = NONE
    runs_all = True

    def ledger(self, rows: DataFrame, query_id: str | None) -> Ledger:
        """Return what the table has of a query; nothing is made or tried again."""
        with connected(self.sink.dsn) as connection:
            table = self._found(connection, rows.schema, query_id)
            *_, last = tables.check(connection, table, rows.schema)
            identity = tables.identity_of(connection, table)

        def rewind(number: int) -> str:
            statement = table.sql(tables.REWIND, number=number).as_string(None)
            anew = f"or write to a new table, with sink_since={number + 1}"
            return f"take the table back, and its number: {statement}; {anew}"

        return Ledger(f"the table {table.label}", from_last(last), rewind, identity=identity)

    def _found(
        self,
        connection: Connection[Any],
        schema: T.StructType,
        query_id: str | None,
        run_id: str = "",
    ) -> Table:
        place = tables.place(connection, self.sink)
        return Table(*place, tuple(schema.names), self.key, query_id, run_id, self.route)

    def is_written(self, batch: Batch) -> bool:
        self._taken(batch)
        return batch.number <= self.last

    def write(self, batch: Batch) -> None:
        """Copy the rows from the executors, then move them in one transaction."""
        table = self._taken(batch)
        types = self._run(partial(_prepare, table=table))
        as_json = tuple(is_json(types[name]) for name in table.columns)
        copying = Copying(self.sink, table.sql(tables.COPY).as_string(None), as_json)
        parts = batch.frame.mapInArrow(copying.copy, COUNTS).collect()
        self._run(lambda connection: self._finish(connection, table, batch.number, parts))
        self.last = batch.number

    def _run(self, transaction: Callable[[Connection[Any]], Result]) -> Result:
        with closing(Connections(self.sink)) as connections:
            return connections.run(transaction)

    def _taken(self, batch: Batch) -> Table:
        if self.table is None:
            self.table, self.last = self._run(partial(self._take, batch=batch))
        return self.table

    def _take(self, connection: Connection[Any], batch: Batch) -> tuple[Table, int]:
        """Make what isn't there, take the table for this run, and return its last micro-batch."""
        schema = batch.frame.schema
        connection.execute(tables.LOCK)
        table = self._found(connection, schema, batch.query_id, batch.run_id)
        ledger, there, _ = tables.check(connection, table, schema)
        if ledger is None or ledger.comment is None:
            connection.execute(table.sql(tables.CREATE_LEDGER))
        if there is None:
            connection.execute(table.create(schema))
        last = connection.execute(table.sql(tables.CLAIM)).fetchone()
        if last is None:
            found = f"another kind of row of this query goes to the table {table.label}"
            raise SinkError(with_hint(found, "give each kind of row a table of its own"))
        connection.execute(table.sql(tables.CREATE_STAGING))
        return table, int(last[0])

    def _finish(
        self, connection: Connection[Any], table: Table, number: int, parts: Sequence[Any]
    ) -> None:
        """Move the rows and note the micro-batch, unless a lost connection has done so."""
        if _hold(connection, table) >= number:
            return
        if parts:
            copied = table.sql(tables.COPIED, attempts=[part.attempt for part in parts])
            _check_all_there(connection, table, copied, sum(part["rows"] for part in parts))
            Moving(table, copied, self.refuses_duplicates).move(connection)
        connection.execute(table.sql(tables.NOTE, number=number))


def _prepare(connection: Connection[Any], table: Table) -> dict[str, str]:
    """Empty the staging table, and return the types of the columns."""
    _hold(connection, table)
    connection.execute(table.sql(tables.EMPTY_STAGING))
    there = tables.relation(connection, table.identifier)
    return {} if there is None else there.types


def _hold(connection: Connection[Any], table: Table) -> int:
    """Hold the row of the ledger to the end of the transaction; return its micro-batch."""
    held = connection.execute(table.sql(tables.HOLD)).fetchone()
    if held is None:
        found = (
            f"the table {table.label} was taken from this run of the query {table.query_id}: "
            "a later run has it, or someone gave it away"
        )
        hint = "leave only one run of a query, and one query of a table"
        raise SinkError(with_hint(found, hint))
    return int(held[0])


def _check_all_there(
    connection: Connection[Any], table: Table, copied: Composed, rows: int
) -> None:
    counted = connection.execute(SQL("SELECT count(*) FROM {}").format(copied)).fetchone()
    there = counted[0] if counted else 0
    if there != rows:
        found = (
            f"{rows} rows were copied for the table {table.label}, of which {there} are there: "
            "the server has lost them, or one that is behind has taken its place"
        )
        raise SinkError(with_hint(found, "start the query again: it repeats the micro-batch"))
