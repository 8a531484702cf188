"""A table of PostgreSQL and those that the sink keeps next to it: their names, types and SQL."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final, LiteralString

import attrs
from psycopg.sql import SQL, Composed, Identifier
from pyspark.sql import types as T

from sessionkit.errors import SpecError, with_hint
from sessionkit.spark.sinks.values import LEDGER, STAGING

ATTEMPT: Final = "sessionkit_attempt"
"""The column of a staging table that says which attempt of which task has copied a row."""
RANK: Final = "sessionkit_rank"
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
CREATE_LEDGER: Final = """\
CREATE TABLE IF NOT EXISTS {ledger} (
    table_name text PRIMARY KEY, query_id text NOT NULL, run_id text NOT NULL,
    batch_id bigint NOT NULL, written_at timestamptz NOT NULL DEFAULT now());
COMMENT ON TABLE {ledger} IS {ledger_mark}"""
CREATE_STAGING: Final = """\
DROP TABLE IF EXISTS {staging};
CREATE TABLE {staging} AS SELECT NULL::uuid AS {attempt}, {columns} FROM {table} WITH NO DATA;
COMMENT ON TABLE {staging} IS {staging_mark}"""
"""Without rows that an earlier run has copied."""
EMPTY_STAGING: Final = "TRUNCATE {staging}"
COPY: Final = "COPY {staging} ({attempt}, {columns}) FROM STDIN"
COPIED: Final = (
    "(SELECT {columns} FROM {staging} WHERE {attempt} = ANY({attempts}::uuid[])) AS copied"
)
"""The rows that some attempts have copied, as the table `copied`."""
OWNER: Final = "SELECT query_id, batch_id FROM {ledger} WHERE table_name = {name}"
CLAIM: Final = """\
INSERT INTO {ledger} AS owned (table_name, query_id, run_id, batch_id)
VALUES ({name}, {query}, {writer}, -1) ON CONFLICT (table_name) DO UPDATE
SET run_id = excluded.run_id WHERE owned.query_id = excluded.query_id
AND (owned.run_id = excluded.run_id OR split_part(owned.run_id, '/', 1) <> {run})
RETURNING batch_id"""
"""Takes the table for a route of a run."""
HOLD: Final = """\
SELECT batch_id FROM {ledger}
WHERE table_name = {name} AND query_id = {query} AND run_id = {writer} FOR UPDATE"""
"""Holds the row of the ledger, if it is still that of this run."""
NOTE: Final = """\
UPDATE {ledger} SET batch_id = {number}, written_at = now() WHERE table_name = {name}"""
REWIND: Final = "UPDATE {ledger} SET batch_id = {number} WHERE table_name = {name}"
"""What a user runs to take the table back to a micro-batch."""
RELEASE: Final = "DELETE FROM {ledger} WHERE table_name = {name}"
"""What a user runs to give the table to another query."""


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
class Table:
    """
    A table, for one route of one run of a query.

    Attributes:
        schema: The schema of the table.
        name: Its name.
        columns: The columns that are written.
        key: Those by which a row replaces an earlier one; none where rows are added.
        query_id: The id of the query; None for a new one.
        run_id: The id of the run.
        route: What tells the rows from those that the query writes elsewhere.
    """

    schema: str
    name: str
    columns: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    query_id: str | None = None
    run_id: str = ""
    route: str = ""

    @property
    def label(self) -> str:
        """The table, for people."""
        return f"{self.schema}.{self.name}"

    @property
    def identifier(self) -> Identifier:
        """The table."""
        return Identifier(self.schema, self.name)

    @property
    def ledger(self) -> Identifier:
        """The table with the last micro-batch of each table of this schema."""
        return Identifier(self.schema, LEDGER)

    @property
    def staging(self) -> Identifier:
        """The staging table; no other query and no other table has its name."""
        named = sha256(f"{self.query_id}/{self.name}".encode()).hexdigest()
        return Identifier(self.schema, f"{STAGING}{named[:32]}")

    @property
    def staging_mark(self) -> str:
        """The comment by which the staging table is known as one."""
        return f"sessionkit: rows of the query {self.query_id} on their way to {self.name}"

    def sql(self, text: LiteralString, **more: object) -> Composed:
        """
        Fill in names, and values as literals.

        Nothing is left for psycopg to fill in, which would take a `%` in a name for a place.
        """
        return SQL(text).format(
            table=self.identifier,
            ledger=self.ledger,
            staging=self.staging,
            ledger_mark=LEDGER_MARK,
            staging_mark=self.staging_mark,
            attempt=Identifier(ATTEMPT),
            columns=listed(self.columns),
            key=listed(self.key),
            name=self.name,
            query=self.query_id,
            run=self.run_id,
            writer=f"{self.run_id}/{self.route}",
            **more,
        )

    def create(self, schema: T.StructType) -> Composed:
        """Make the table."""
        parts = [
            SQL("{} {}").format(
                Identifier(field.name), SQL(postgres_type(field.dataType, field.name))
            )
            for field in schema.fields
        ]
        if self.key:
            parts.append(self.sql("PRIMARY KEY ({key})"))
        return self.sql("CREATE TABLE {table} ({parts})", parts=SQL(", ").join(parts))


def listed(names: Sequence[str]) -> Composed:
    """Return names, quoted, with commas between."""
    return SQL(", ").join(map(Identifier, names))
