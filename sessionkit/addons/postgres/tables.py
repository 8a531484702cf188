"""The names, types and SQL of a PostgreSQL table, and checks that rows fit it."""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final, LiteralString

import attrs
from psycopg import Connection
from psycopg.rows import class_row
from psycopg.sql import SQL, Composed, Identifier
from pyspark.sql import types as T

from sessionkit import SpecError
from sessionkit.addons.postgres import LEDGER, STAGING, Postgres
from sessionkit.addons.tables import SUPERSEDES, Upsert

ATTEMPT: Final = "sessionkit_attempt"
"""The column of a staging table with the task attempt that copied the row."""
RANK: Final = "sessionkit_rank"

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

TZ, NO_TZ = "timestamp with time zone", "timestamp without time zone"
HOLD_ALL: Final[dict[str, frozenset[str]]] = {
    "smallint": frozenset({"smallint", "integer", "bigint", "real", "double precision", "numeric"}),
    "integer": frozenset({"integer", "bigint", "double precision", "numeric"}),
    "bigint": frozenset({"bigint", "numeric"}),
    "real": frozenset({"real", "double precision", "numeric"}),
    "double precision": frozenset({"double precision", "numeric"}),
    "numeric": frozenset({"numeric"}),
    "boolean": frozenset({"boolean"}),
    "bytea": frozenset({"bytea"}),
    TZ: frozenset({TZ}),
    "timestamp": frozenset({NO_TZ}),
    "date": frozenset({"date", NO_TZ}),
    "interval": frozenset({"interval", "interval day to second"}),
}
"""The column types that hold each value of a type exactly. Text columns hold all values."""
KNOWN: Final = frozenset().union(*HOLD_ALL.values())
"""For other types, such as uuid or user-defined types, PostgreSQL itself decides."""
MODIFIER: Final = re.compile(r"\((\d+)(?:,(-?\d+))?\)")
"""The modifier of a type: the digits of a second, or the precision and scale of a number."""
MICROSECONDS: Final = 6

LOCK: Final = SQL("SELECT pg_advisory_xact_lock(hashtext('sessionkit'))")
"""Makes queries create the same tables one after the other."""
CREATE_LEDGER: Final = """\
CREATE TABLE IF NOT EXISTS {ledger} (
    table_name text PRIMARY KEY, query_id text NOT NULL, run_id text NOT NULL,
    batch_id bigint NOT NULL, written_at timestamptz NOT NULL DEFAULT now(), plan text);
COMMENT ON TABLE {ledger} IS 'sessionkit: the last micro-batch of each table of this schema'"""
CREATE_STAGING: Final = """\
DROP TABLE IF EXISTS {staging};
CREATE TABLE {staging} AS SELECT NULL::uuid AS {attempt}, {columns} FROM {table} WITH NO DATA;
COMMENT ON TABLE {staging} IS {staging_mark}"""
"""Drops the rows of earlier runs too."""
EMPTY_STAGING: Final = "TRUNCATE {staging}"
COPY: Final = "COPY {staging} ({attempt}, {columns}) FROM STDIN"
COPIED: Final = (
    "(SELECT {columns} FROM {staging} WHERE {attempt} = ANY({attempts}::uuid[])) AS copied"
)
"""The rows that these attempts copied, as the table `copied`."""
OWNER: Final = "SELECT query_id, batch_id FROM {ledger} WHERE table_name = {name}"
CLAIM: Final = """\
INSERT INTO {ledger} AS owned (table_name, query_id, run_id, batch_id)
VALUES ({name}, {query}, {writer}, -1) ON CONFLICT (table_name) DO UPDATE
SET run_id = excluded.run_id WHERE owned.query_id = excluded.query_id
AND (owned.run_id = excluded.run_id OR split_part(owned.run_id, '/', 1) <> {run})
RETURNING batch_id, plan"""
"""Makes a route of a run the owner of the table."""
HELD: Final = """\
SELECT batch_id FROM {ledger}
WHERE table_name = {name} AND query_id = {query} AND run_id = {writer}"""
HOLD: Final = HELD + " FOR UPDATE"
"""Locks the row of the ledger, if this run still owns it."""
NOTE: Final = """\
UPDATE {ledger} SET batch_id = {number}, plan = {plan}, written_at = now()
WHERE table_name = {name}"""
"""The plan has the number of its micro-batch, since users may take the table back."""
REWIND: Final = "UPDATE {ledger} SET batch_id = {number} WHERE table_name = {name}"
"""For users: takes the table back to a micro-batch."""
RELEASE: Final = "DELETE FROM {ledger} WHERE table_name = {name}"
"""For users: releases the table to another query."""

PLACE: Final = """\
SELECT coalesce((SELECT nspname FROM pg_class JOIN pg_namespace AS own
                 ON relnamespace = own.oid WHERE pg_class.oid = to_regclass(%s)),
                current_schema())::text"""
"""The schema of a table whose name has none: where it is, or would be created."""
RELATION: Final = """\
SELECT %(name)s AS name,
       (SELECT coalesce(json_object_agg(attname, CASE
                   WHEN typtype = 'd' THEN format_type(typbasetype, typtypmod)
                   ELSE format_type(atttypid, atttypmod) END), '{}')
        FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
        WHERE attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped) AS types,
       ARRAY(SELECT attname::text FROM pg_attribute
             WHERE attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
             AND attnotnull AND NOT atthasdef AND attidentity = '') AS needed,
       ARRAY(SELECT to_json(ARRAY(SELECT attname::text FROM pg_attribute
                                  WHERE attrelid = indrelid
                                  AND attnum = ANY((indkey::int2[])[0:indnkeyatts - 1])))
             FROM pg_index
             WHERE indrelid = pg_class.oid AND indisunique AND indisvalid AND indimmediate
             AND indpred IS NULL AND indexprs IS NULL) AS unique_by,
       row_security_active(oid) AS is_filtered
FROM pg_class WHERE oid = to_regclass(%(name)s)"""
"""`types` has base types for domains; `unique_by` has the key columns, without INCLUDE columns, of
the unique indexes that ON CONFLICT takes."""
SERVER: Final = "SELECT pg_postmaster_start_time(), current_database()"
"""Identifies a server, whatever its host name."""


def postgres_type(kind: T.DataType, name: str) -> str:
    """Return the type of a PostgreSQL column for a type of Spark."""
    if isinstance(kind, T.DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    if isinstance(kind, T.ArrayType) and type(kind.elementType) in SCALARS:
        return f"{SCALARS[type(kind.elementType)]}[]"
    if isinstance(kind, T.ArrayType | T.MapType | T.StructType):
        return "jsonb"
    if type(kind) in SCALARS:
        return SCALARS[type(kind)]
    found = f"PostgreSQL has no column for `{name}`, which is {kind.simpleString()}"
    raise SpecError(found, 'cast it: col(..).cast("string")')


def is_json(kind: str) -> bool:
    return kind in {"json", "jsonb"}


@attrs.frozen
class Target:
    """
    A table, for one route of one run of a query.

    Attributes:
        query_id: The id of the query; None for a new query.
        route: The kind of its rows, if the query writes to several tables.
    """

    schema: str
    name: str
    upsert: Upsert
    query_id: str | None = None
    run_id: str = ""
    route: str = ""

    @property
    def label(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def identifier(self) -> Identifier:
        return Identifier(self.schema, self.name)

    @property
    def ledger(self) -> Identifier:
        return Identifier(self.schema, LEDGER)

    @property
    def staging(self) -> Identifier:
        """The staging table, with a name that's unique to the query and the table."""
        digest = sha256(f"{self.query_id}/{self.name}".encode()).hexdigest()
        return Identifier(self.schema, f"{STAGING}{digest[:32]}")

    def sql(self, text: LiteralString, **more: object) -> Composed:
        """Fill names and values into SQL; as parameters, psycopg would misread a `%` in a name."""
        return SQL(text).format(
            table=self.identifier,
            ledger=self.ledger,
            staging=self.staging,
            staging_mark=f"sessionkit: rows of the query {self.query_id} for {self.name}",
            attempt=Identifier(ATTEMPT),
            columns=listed(self.upsert.columns),
            key=listed(self.upsert.key),
            name=self.name,
            query=self.query_id,
            run=self.run_id,
            writer=f"{self.run_id}/{self.route}",
            **more,
        )

    def create(self, schema: T.StructType) -> Composed:
        parts = [
            SQL(f"{{}} {postgres_type(field.dataType, field.name)}").format(Identifier(field.name))
            for field in schema.fields
        ]
        if self.upsert.key:
            parts.append(self.sql("PRIMARY KEY ({key})"))
        return self.sql("CREATE TABLE {table} ({parts})", parts=SQL(", ").join(parts))


def listed(names: Sequence[str]) -> Composed:
    """Return the names of columns as SQL, separated by commas."""
    return SQL(", ").join(map(Identifier, names))


@attrs.frozen
class Relation:
    """
    A table, or another relation of its name, as the catalog of the server describes it.

    Attributes:
        types: The types of its columns, by name.
        needed: The columns that are NOT NULL and have no default.
        unique_by: The columns of each unique index by which a row can replace another.
        is_filtered: Whether row-level security applies to the current role.
    """

    name: str
    types: dict[str, str]
    needed: list[str]
    unique_by: list[list[str]]
    is_filtered: bool

    def check_whole(self) -> None:
        """Check that the role sees all rows: it couldn't replace a hidden row."""
        if self.is_filtered:
            found = f"row-level security may hide rows of the table {self.name} from this role"
            hint = "give the role BYPASSRLS, or a table of its own without FORCE ROW LEVEL SECURITY"
            raise SpecError(f"{found}, and it can't replace those", hint)


def in_sql(*names: str) -> str:
    return Identifier(*names).as_string(None)


def relation(connection: Connection[Any], name: Identifier) -> Relation | None:
    values = {"name": name.as_string(connection)}
    return connection.cursor(row_factory=class_row(Relation)).execute(RELATION, values).fetchone()


def target(
    connection: Connection[Any],
    sink: Postgres,
    upsert: Upsert,
    query_id: str | None,
    *,
    run_id: str = "",
    route: str = "",
) -> Target:
    """Return the table of a sink, in the schema where it is or would be created."""
    *schemas, name = sink.names
    if not schemas:
        schemas = [*connection.execute(PLACE, (in_sql(name),)).fetchall()[0]]
    schema = schemas[0]
    if schema is None:
        found = f"no schema of the search path exists, so there is none for the table {name}"
        raise SpecError(found, f'name one: table="schema.{name}"')
    upsert = attrs.evolve(upsert, table=f"{schema}.{name}")
    return Target(schema, name, upsert, query_id, run_id, route)


def check(
    connection: Connection[Any], table: Target, schema: T.StructType
) -> tuple[Relation | None, Relation | None, int | None]:
    """
    Check that no other query owns a table, and that rows fit.

    Return the ledger, the table, and its last micro-batch; None for each that doesn't exist yet.
    """
    ledger, present = (relation(connection, name) for name in (table.ledger, table.identifier))
    last = None if ledger is None else _last_batch(connection, table, present)
    if present is not None:
        _check_fits(present, table, schema)
    return ledger, present, last


def _last_batch(connection: Connection[Any], table: Target, present: Relation | None) -> int | None:
    """Return the last micro-batch of a table or None, and check that no other query owns it."""
    owner = connection.execute(table.sql(OWNER)).fetchone()
    if owner is None:
        return None
    query_id, last = owner
    release = table.sql(RELEASE).as_string(None)
    if query_id != table.query_id:
        found = f"the table {table.label} belongs to the query {query_id}"
        new = table.query_id is None
        here = "this one has a new checkpoint" if new else f"this one is {table.query_id}"
        hint = (
            "write to another table, or continue from the checkpoint of that query; if there is "
            f"none any more, give its table away: {release}"
        )
        raise SpecError(f"{found}, and {here}", hint)
    if last < 0:
        return None
    if present is None:
        found = f"the table {table.label} is gone, which had the micro-batches to {last}"
        raise SpecError(found, f"restore it, or continue with an empty one: {release}")
    return int(last)


def _check_fits(present: Relation, table: Target, schema: T.StructType) -> None:
    columns, key = table.upsert.columns, table.upsert.key
    if key:
        present.check_whole()
    table.upsert.check_columns_of(present.types)
    for name in [name for name in present.needed if name not in columns]:
        lacks = f"the rows have no column `{name}`, and the table {table.label} needs it"
        optional = f"ALTER TABLE {present.name} ALTER COLUMN {in_sql(name)} DROP NOT NULL"
        hint = f"add it to the frame, or let the table do without: {optional}"
        raise SpecError(f"{lacks}; they have {', '.join(columns)}", hint)
    for field in schema.fields:
        expected, actual = postgres_type(field.dataType, field.name), present.types[field.name]
        if not (_takes_parts(field.name, expected, actual) and _holds_all(expected, actual)):
            raise table.upsert.unfit(field, actual, expected)
    if key and {*key} not in map(set, present.unique_by):
        lacks = f"the table {table.label} has no unique index of exactly ({', '.join(key)})"
        lacks += "; one that is partial, deferrable, unfinished or has an expression doesn't count"
        names = listed(key).as_string(None)
        raise SpecError(lacks, f"add one: ALTER TABLE {present.name} ADD PRIMARY KEY ({names})")


def _takes_parts(name: str, expected: str, actual: str) -> bool:
    """Return whether a column takes arrays or JSON, if the sink would create such a column."""
    if is_json(expected):
        return is_json(actual)
    if expected.endswith("[]"):
        return actual.endswith("[]") or (is_json(actual) and name != SUPERSEDES)
    return True


def _holds_all(expected: str, actual: str) -> bool:
    """Return whether a column holds each value of another type exactly, or refuses it."""
    if expected.endswith("[]") and actual.endswith("[]"):
        expected, actual = expected.removesuffix("[]"), actual.removesuffix("[]")
    name, modifier = MODIFIER.sub("", actual), MODIFIER.search(actual)
    expected_name, expected_modifier = MODIFIER.sub("", expected), MODIFIER.search(expected)
    is_known = name in KNOWN or name.startswith(("interval", "time "))
    if not is_known or expected_name not in HOLD_ALL:
        return True
    if name not in HOLD_ALL[expected_name]:
        return False
    if modifier is None:
        return True
    if name == "numeric":
        scale = int(expected_modifier[2] or 0) if expected_modifier else 0
        return expected_name not in {"real", "double precision"} and int(modifier[2] or 0) >= scale
    return int(modifier[1]) >= MICROSECONDS
