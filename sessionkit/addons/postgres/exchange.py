"""Replace sessions of a PostgreSQL table in one transaction."""

from typing import Any, Final

import attrs
from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from sessionkit._for_addons import Difference, Span
from sessionkit.addons.postgres import Postgres, tables
from sessionkit.addons.postgres.connections import connected
from sessionkit.addons.postgres.tables import Target, listed, postgres_type
from sessionkit.addons.postgres.writer import checked_copies, copied_parts
from sessionkit.addons.tables import (
    CHANGES,
    DAY_OF,
    DAY_ZERO,
    DIFFERENCES,
    REVISION,
    SESSION_COLUMNS,
    SESSION_ID,
    Upsert,
    day_numbers,
)
from sessionkit.errors import SinkError

ADD_FLAG: Final = "ALTER TABLE {staging} ADD COLUMN {flag} boolean"
HOLD: Final = "SELECT query_id FROM {ledger} WHERE table_name = {name} FOR UPDATE"
"""Locks the row of the ledger, so that the query writes before or after this transaction."""
FIND: Final = "CREATE TEMP TABLE sessionkit_found ON COMMIT DROP AS " + DIFFERENCES
COUNT: Final = "SELECT difference, count(*) FROM sessionkit_found GROUP BY difference"
UNSEEN: Final = """\
SELECT (SELECT count(DISTINCT _unseen_day) FROM sessionkit_found),
       (SELECT count(*) FROM (SELECT DISTINCT {keys} FROM sessionkit_found WHERE _is_unseen_key)
                        AS unseen)"""
DELETE: Final = """\
DELETE FROM {table} AS present USING sessionkit_found AS found
WHERE present.session_id = found.session_id AND difference = 'deleted'"""
UPDATE: Final = """\
UPDATE {table} AS present SET {changes} FROM {copied}
JOIN sessionkit_found AS found ON found.session_id = copied.session_id
WHERE present.session_id = found.session_id AND difference = 'changed'"""
INSERT: Final = """\
INSERT INTO {table} ({columns}) SELECT {values} FROM {copied}
JOIN sessionkit_found AS found ON found.session_id = copied.session_id
WHERE difference = 'added'"""
SHOW: Final = """\
SELECT {shown}, session_id, session_start, session_end, difference FROM sessionkit_found
WHERE difference IN ('changed', 'added', 'deleted')"""
DROP: Final = "DROP TABLE {staging}"


def exchanged(sink: Postgres, span: Span, upsert: Upsert, *, dry_run: bool) -> Difference:
    """Replace the sessions of a span; the query may run, since it never writes such a row."""
    with connected(sink.dsn) as connection:
        repair = f"repair of {span.finished.query_id}"
        table = tables.target(connection, sink, upsert, repair)
        present = tables.relation(connection, table.identifier)
        if present is not None:
            present.check_whole()
        connection.execute(table.sql(tables.CREATE_STAGING))
        connection.execute(table.sql(ADD_FLAG, flag=Identifier(span.is_final)))
    types = {} if present is None else present.types
    flagged = attrs.evolve(table.upsert, columns=(*upsert.columns, span.is_final))
    copying = attrs.evolve(table, upsert=flagged)
    parts = copied_parts(sink, copying, {**types, span.is_final: "boolean"}, span.rows)
    with connected(sink.dsn) as connection:
        copied = checked_copies(
            connection, copying, parts, "repair it again, and from one place at a time"
        )
        owner = connection.execute(table.sql(HOLD)).fetchone()
        if owner != (span.finished.query_id,):
            found = f"the table {table.label} was given away by the query {span.finished.query_id}"
            raise SinkError(found, "pass the checkpoint of the query that writes to it")
        counts, days, keys = find(connection, table, span, copied, types)
        shown = connection.execute(table.sql(SHOW, shown=_keys_as_read(span))).fetchall()
        if not dry_run:
            exchange_rows(connection, table, copied, counts)
        connection.execute(table.sql(DROP))
    # All fields are nullable: a row that someone else wrote may lack values of a session.
    fields = [
        T.StructField(name, span.rows.schema[name].dataType)
        for name in (*span.keys, *SESSION_COLUMNS)
    ]
    fields.append(T.StructField("difference", T.StringType()))
    spark: SparkSession = span.rows.sparkSession
    sessions = spark.createDataFrame(shown, T.StructType(fields))
    return Difference.of(counts, sessions, days=days, keys=keys)


def _keys_as_read(span: Span) -> Composed:
    """Return the key columns, cast to the types of the rows: the table may have wider types."""
    return SQL(", ").join(
        SQL(f"{{}}::{postgres_type(span.rows.schema[name].dataType, name)}").format(
            Identifier(name)
        )
        for name in span.keys
    )


def find(
    connection: Connection[Any], table: Target, span: Span, copied: Composed, types: dict[str, str]
) -> tuple[dict[str, int], int, int]:
    """Store how the sessions differ; return counts, and how many days and keys history lacks."""
    connection.execute(_find(table, span, copied, types))
    counts = dict(connection.execute(COUNT).fetchall())
    ((days, keys),) = connection.execute(table.sql(UNSEEN, keys=listed(span.keys))).fetchall()
    return counts, days, keys


def _find(table: Target, span: Span, copied: Composed, types: dict[str, str]) -> Composed:
    equal = [
        SQL("old.{0}::text IS NOT DISTINCT FROM new.{0}::text").format(Identifier(name))
        if types[name] == "json"
        else SQL("old.{0} IS NOT DISTINCT FROM new.{0}").format(Identifier(name))
        for name in span.compared
    ]
    return table.sql(
        FIND,
        old=table.identifier,
        # COPIED has the alias `copied`, and the statement another one.
        new=SQL("(SELECT * FROM {})").format(copied),
        keys=listed(span.keys),
        revision=SQL(REVISION if table.upsert.revises else "CAST(1 AS bigint)"),
        is_final=Identifier(span.is_final),
        equal=SQL(" AND ").join(equal),
        start=span.start,
        end=span.end,
        settled=span.settled,
        start_day=SQL(DAY_OF).format(Identifier("session_start"), DAY_ZERO),
        end_day=SQL(DAY_OF).format(Identifier("session_end"), DAY_ZERO),
        days=SQL(day_numbers(span.days)),
        delete_unseen=span.delete_unseen,
    )


def exchange_rows(
    connection: Connection[Any], table: Target, copied: Composed, counts: dict[str, int]
) -> None:
    """Delete, change and add the rows of sessions; a changed row keeps its further columns."""
    expected = tuple(counts.get(name, 0) for name in CHANGES)
    new = {
        name: SQL("coalesce(found._revision, 0) + 1")
        if table.upsert.revises and name == REVISION
        else Identifier("copied", name)
        for name in table.upsert.columns
    }
    values = SQL(", ").join(new.values())
    changes = SQL(", ").join(
        SQL("{} = {}").format(Identifier(name), value)
        for name, value in new.items()
        if name != SESSION_ID
    )
    deleted = connection.execute(table.sql(DELETE)).rowcount
    changed = connection.execute(table.sql(UPDATE, changes=changes, copied=copied)).rowcount
    added = connection.execute(table.sql(INSERT, values=values, copied=copied)).rowcount
    if (done := (changed, added, deleted)) != expected:
        parts = (f"{a} of {b} {c}" for a, b, c in zip(done, expected, CHANGES, strict=True))
        found = f"a trigger or rule of the table {table.label} took {', '.join(parts)} rows"
        hint = "let a trigger return OLD before DELETE, and NEW before INSERT and UPDATE"
        raise SinkError(found, hint)
