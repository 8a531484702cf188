"""The SQL that the sink runs, and the types of its columns."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import attrs
from psycopg.sql import SQL, Composed, Identifier
from psycopg.sql import Literal as Value
from pyspark.sql import types as T

from sessionkit.errors import SpecError, with_hint
from sessionkit.spark.sinks.tables import LEDGER, STAGING

ATTEMPT: Final = "sessionkit_attempt"
"""The column of a staging table that says which attempt of which task has copied a row."""
LEDGER_MARK: Final = "sessionkit: the last micro-batch of each table of this schema"
LEDGER_COLUMNS: Final = ("table_name", "query_id", "run_id", "batch_id", "written_at")

SCALARS: Final[dict[type[T.DataType], str]] = {
    T.StringType: "text",
    T.VarcharType: "text",
    T.CharType: "text",
    T.ByteType: "smallint",
    T.ShortType: "smallint",
    T.IntegerType: "integer",
    T.LongType: "bigint",
    T.FloatType: "real",
    T.DoubleType: "double precision",
    T.BooleanType: "boolean",
    T.BinaryType: "bytea",
    T.TimestampType: "timestamp with time zone",
    T.TimestampNTZType: "timestamp",
    T.DateType: "date",
    T.DayTimeIntervalType: "interval",
}

LOCK: Final = SQL("SELECT pg_advisory_xact_lock(hashtext('sessionkit'))")
"""Two queries that make the same tables at once do it one after the other."""


def postgres_type(kind: T.DataType, name: str) -> str:
    """Return PostgreSQL's type for a Spark type."""
    if isinstance(kind, T.DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    if isinstance(kind, T.ArrayType) and type(kind.elementType) in SCALARS:
        return f"{SCALARS[type(kind.elementType)]}[]"
    if isinstance(kind, T.ArrayType | T.MapType | T.StructType):
        return "jsonb"
    if type(kind) in SCALARS:
        return SCALARS[type(kind)]
    found = f"PostgreSQL has no column for `{name}`, which is {kind.simpleString()}"
    raise SpecError(with_hint(found, 'cast it: col(..).cast("string")'))


def is_json(kind: str) -> bool:
    """Return whether values of a column are written as JSON."""
    return kind in {"json", "jsonb"}


@attrs.frozen
class Statements:
    """
    The SQL for one table: complete, since a `%` in a name is one only where nothing is filled in.

    Attributes:
        schema: The schema of the table.
        name: Its name.
        columns: The columns that are written.
        key: Those by which a row replaces an earlier one; none where rows are added.
    """

    schema: str
    name: str
    columns: tuple[str, ...] = ()
    key: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """The table, for people."""
        return f"{self.schema}.{self.name}"

    @property
    def table(self) -> Identifier:
        """The table."""
        return Identifier(self.schema, self.name)

    @property
    def ledger(self) -> Identifier:
        """The table with the last micro-batch of each table of this schema."""
        return Identifier(self.schema, LEDGER)

    def staging(self, query_id: str) -> Identifier:
        """Return the staging table; no other query and no other table has its name."""
        named = sha256(f"{query_id}/{self.name}".encode()).hexdigest()
        return Identifier(self.schema, f"{STAGING}{named[:32]}")

    def staging_mark(self, query_id: str) -> str:
        """Return the comment by which the staging table is known as one."""
        return f"sessionkit: rows of the query {query_id} on their way to {self.name}"

    def create_ledger(self) -> Composed:
        """Make the ledger if there is none, and mark it."""
        return SQL(
            "CREATE TABLE IF NOT EXISTS {} (table_name text PRIMARY KEY, query_id text NOT NULL,"
            " run_id text NOT NULL, batch_id bigint NOT NULL,"
            " written_at timestamptz NOT NULL DEFAULT now()); COMMENT ON TABLE {} IS {}"
        ).format(self.ledger, self.ledger, Value(LEDGER_MARK))

    def create_table(self, schema: T.StructType) -> Composed:
        """Make the table."""
        parts = [
            SQL("{} {}").format(
                Identifier(field.name), SQL(postgres_type(field.dataType, field.name))
            )
            for field in schema.fields
        ]
        if self.key:
            parts.append(SQL("PRIMARY KEY ({})").format(listed(self.key)))
        return SQL("CREATE TABLE {} ({})").format(self.table, SQL(", ").join(parts))

    def create_staging(self, query_id: str) -> Composed:
        """Make the staging table again, without rows that an earlier run has copied."""
        staging, columns = self.staging(query_id), listed(self.columns)
        return SQL(
            "DROP TABLE IF EXISTS {}; CREATE TABLE {} AS SELECT NULL::uuid AS {}, {} FROM {}"
            " WITH NO DATA; COMMENT ON TABLE {} IS {}"
        ).format(
            staging,
            staging,
            Identifier(ATTEMPT),
            columns,
            self.table,
            staging,
            Value(self.staging_mark(query_id)),
        )

    def empty_staging(self, query_id: str) -> Composed:
        """Empty the staging table."""
        return SQL("TRUNCATE {}").format(self.staging(query_id))

    def copy(self, query_id: str) -> Composed:
        """Copy rows into the staging table."""
        columns = listed((ATTEMPT, *self.columns))
        return SQL("COPY {} ({}) FROM STDIN").format(self.staging(query_id), columns)

    def copied(self, query_id: str, attempts: Sequence[str]) -> Composed:
        """Return the rows that these attempts have copied, as the table `copied`."""
        return SQL("(SELECT {} FROM {} WHERE {} = ANY({}::uuid[])) AS copied").format(
            listed(self.columns),
            self.staging(query_id),
            Identifier(ATTEMPT),
            Value([*attempts]),
        )

    def owner(self) -> Composed:
        """Return the query to which the table belongs, and its last micro-batch."""
        return SQL("SELECT query_id, batch_id FROM {} WHERE table_name = {}").format(
            self.ledger, Value(self.name)
        )

    def rewind(self, number: int) -> str:
        """Return the SQL by which a user takes the table back to a micro-batch."""
        return (
            SQL("UPDATE {} SET batch_id = {} WHERE table_name = {}")
            .format(self.ledger, Value(number), Value(self.name))
            .as_string(None)
        )

    def claim(self, query_id: str, run_id: str, route: str) -> Composed:
        """Take the table for a route of a run, and return the last micro-batch."""
        return SQL(
            "INSERT INTO {} AS owned (table_name, query_id, run_id, batch_id)"
            " VALUES ({}, {}, {}, -1) ON CONFLICT (table_name) DO UPDATE"
            " SET run_id = excluded.run_id WHERE owned.query_id = excluded.query_id"
            " AND (owned.run_id = excluded.run_id OR split_part(owned.run_id, '/', 1) <> {})"
            " RETURNING batch_id"
        ).format(
            self.ledger,
            Value(self.name),
            Value(query_id),
            Value(f"{run_id}/{route}"),
            Value(run_id),
        )

    def hold(self, query_id: str, run_id: str, route: str) -> Composed:
        """Find the row of the ledger, if it is still that of this run, and hold it."""
        return SQL(
            "SELECT batch_id FROM {} WHERE table_name = {} AND query_id = {} AND run_id = {}"
            " FOR UPDATE"
        ).format(self.ledger, Value(self.name), Value(query_id), Value(f"{run_id}/{route}"))

    def note(self, batch_id: int) -> Composed:
        """Note the micro-batch."""
        return SQL("UPDATE {} SET batch_id = {}, written_at = now() WHERE table_name = {}").format(
            self.ledger, Value(batch_id), Value(self.name)
        )

    def release(self) -> str:
        """Return the SQL with which a user gives the table to another query."""
        return (
            SQL("DELETE FROM {} WHERE table_name = {}")
            .format(self.ledger, Value(self.name))
            .as_string(None)
        )


def listed(names: Sequence[str]) -> Composed:
    """Return names, quoted, with commas between."""
    return SQL(", ").join(map(Identifier, names))
