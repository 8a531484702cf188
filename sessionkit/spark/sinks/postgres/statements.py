"""The SQL that the sink runs, and the types of its columns."""

from collections.abc import Sequence
from typing import Final

import attrs
from psycopg.sql import SQL, Composed, Identifier
from psycopg.sql import Literal as Value
from pyspark.sql import types as T

from sessionkit.errors import SpecError, with_hint
from sessionkit.spark.sinks.keys import REVISION, SESSION_ID, SUPERSEDES
from sessionkit.spark.sinks.postgres.sink import STAGING

__all__ = ["ATTEMPT", "COLUMNS_OF", "LOCK", "Statements", "is_json", "postgres_type"]

ATTEMPT: Final = "_attempt"
"""The column of the table beside, that says which attempt of which task has copied a row."""
LEDGER: Final = "sessionkit_batches"
ATTEMPTS: Final = SQL(f"{ATTEMPT} = ANY(%(attempts)s)")

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
COLUMNS_OF: Final = SQL(
    "SELECT attname::text, format_type(atttypid, NULL) FROM pg_attribute"
    " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
)


def postgres_type(kind: T.DataType, name: str) -> str:
    """
    Return the type of a column that is made for values of this type.

    Raises:
        SpecError: There is none.
    """
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
    The SQL for one table.

    Attributes:
        names: Its schema, where it is named, and its name.
        columns: The columns that are written.
        key: Those by which a row replaces an earlier one; none where rows are added.
    """

    names: tuple[str, ...]
    columns: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def table(self) -> Identifier:
        """The table."""
        return Identifier(*self.names)

    @property
    def staging(self) -> Identifier:
        """The table beside it."""
        return Identifier(*self.names[:-1], self.names[-1] + STAGING)

    @property
    def ledger(self) -> Identifier:
        """The table with the last micro-batch of each table of this schema."""
        return Identifier(*self.names[:-1], LEDGER)

    @property
    def name(self) -> str:
        """The name under which it is in the ledger."""
        return self.names[-1]

    def create_ledger(self) -> Composed:
        """Make the ledger."""
        return SQL(
            "CREATE TABLE IF NOT EXISTS {} (table_name text PRIMARY KEY, query_id text NOT NULL,"
            " run_id text NOT NULL, batch_id bigint NOT NULL,"
            " written_at timestamptz NOT NULL DEFAULT now())"
        ).format(self.ledger)

    def create_table(self, schema: T.StructType) -> Composed:
        """Make the table."""
        parts = [
            SQL("{} {}").format(
                Identifier(field.name), SQL(postgres_type(field.dataType, field.name))
            )
            for field in schema.fields
        ]
        if self.key:
            parts.append(SQL("PRIMARY KEY ({})").format(_listed(self.key)))
        return SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(self.table, SQL(", ").join(parts))

    def drop_staging(self) -> Composed:
        """Drop the table beside, and with it what tasks of an earlier run have copied."""
        return SQL("DROP TABLE IF EXISTS {}").format(self.staging)

    def create_staging(self) -> Composed:
        """Make the table beside, in which nothing survives a crash of the server."""
        return SQL(
            "CREATE UNLOGGED TABLE {} AS SELECT NULL::uuid AS {}, {} FROM {} WITH NO DATA"
        ).format(self.staging, Identifier(ATTEMPT), _listed(self.columns), self.table)

    def empty_staging(self) -> Composed:
        """Empty the table beside, if the table still belongs to this run."""
        return SQL("TRUNCATE {}").format(self.staging)

    def copy(self) -> Composed:
        """Copy rows into the table beside."""
        columns = _listed((ATTEMPT, *self.columns))
        return SQL("COPY {} ({}) FROM STDIN").format(self.staging, columns)

    def owner(self) -> Composed:
        """Return the query to which the table belongs."""
        return SQL("SELECT query_id FROM {} WHERE table_name = {}").format(
            self.ledger, Value(self.name)
        )

    def claim(self) -> Composed:
        """Take the table for a query and its run, and return the last micro-batch."""
        return SQL(
            "INSERT INTO {ledger} AS owned (table_name, query_id, run_id, batch_id)"
            " VALUES ({name}, %(query)s, %(run)s, -1)"
            " ON CONFLICT (table_name) DO UPDATE SET run_id = excluded.run_id"
            " WHERE owned.query_id = excluded.query_id RETURNING batch_id"
        ).format(ledger=self.ledger, name=Value(self.name))

    def hold(self) -> Composed:
        """Find the row of the ledger, if it is still that of this run, and hold it."""
        return SQL(
            "SELECT batch_id FROM {} WHERE table_name = {}"
            " AND query_id = %(query)s AND run_id = %(run)s FOR UPDATE"
        ).format(self.ledger, Value(self.name))

    def note(self) -> Composed:
        """Note the micro-batch."""
        return SQL(
            "UPDATE {} SET batch_id = %(batch)s, written_at = now() WHERE table_name = {}"
        ).format(self.ledger, Value(self.name))

    def count(self) -> Composed:
        """Count the rows that these attempts have copied."""
        return SQL("SELECT count(*) FROM {} WHERE {}").format(self.staging, ATTEMPTS)

    def merge(self) -> list[Composed]:
        """
        Move the rows that these attempts have copied into the table.

        Of a session that gives several rows, the ones with the highest revision stay, and none that
        another row supersedes.
        """
        if not self._has_revisions:
            return [self._insert(SQL("{} WHERE {}").format(self.staging, ATTEMPTS))]
        lower = SQL(
            "DELETE FROM {table} AS present USING {staging} AS copied WHERE {attempts}"
            " AND present.session_id = copied.session_id AND present.revision < copied.revision"
        ).format(table=self.table, staging=self.staging, attempts=ATTEMPTS)
        highest = SQL(
            "(SELECT *, rank() OVER (PARTITION BY session_id ORDER BY revision DESC) AS _rank"
            " FROM {staging} WHERE {attempts}) AS copied WHERE _rank = 1 AND NOT EXISTS"
            " (SELECT FROM {table} AS other WHERE other.session_id = copied.session_id"
            " AND other.revision > copied.revision)"
        ).format(table=self.table, staging=self.staging, attempts=ATTEMPTS)
        if SUPERSEDES not in self.columns:
            return [lower, self._insert(highest)]
        gone = SQL("(SELECT unnest(supersedes) FROM {} WHERE {})").format(self.staging, ATTEMPTS)
        superseded = SQL("DELETE FROM {} WHERE session_id IN {}").format(self.table, gone)
        left = SQL("{} AND session_id NOT IN {}").format(highest, gone)
        return [superseded, lower, self._insert(left)]

    def _insert(self, rows: Composed) -> Composed:
        columns = _listed(self.columns)
        return SQL("INSERT INTO {} ({}) SELECT {} FROM {} {}").format(
            self.table, columns, columns, rows, self._conflict()
        )

    def release(self) -> str:
        """Return the SQL with which a user gives the table to another query."""
        return (
            SQL("DELETE FROM {} WHERE table_name = {}")
            .format(self.ledger, Value(self.name))
            .as_string(None)
        )

    @property
    def _has_revisions(self) -> bool:
        return SESSION_ID in self.key and REVISION in self.columns

    def _conflict(self) -> Composed:
        if not self.key:
            return Composed([])
        others = [name for name in self.columns if name not in self.key]
        if not others:
            return SQL("ON CONFLICT ({}) DO NOTHING").format(_listed(self.key))
        changes = SQL(", ").join(
            SQL("{} = excluded.{}").format(Identifier(name), Identifier(name)) for name in others
        )
        return SQL("ON CONFLICT ({}) DO UPDATE SET {}").format(_listed(self.key), changes)


def _listed(names: Sequence[str]) -> Composed:
    return SQL(", ").join(map(Identifier, names))
