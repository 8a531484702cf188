"""Sessions of a table of PostgreSQL exchanged for others, in one transaction."""

from typing import Any, Final

import attrs
from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from sessionkit._for_addons import Difference, Span
from sessionkit.addons.postgres import Postgres, tables
from sessionkit.addons.postgres.connections import connected
from sessionkit.addons.postgres.tables import Target, listed
from sessionkit.addons.postgres.writer import checked_copies, copied_parts
from sessionkit.addons.tables import CHANGES, DIFFERENCES, REVISION, SESSION_COLUMNS, Upsert
from sessionkit.errors import SinkError

ADD_FLAG: Final = "ALTER TABLE {staging} ADD COLUMN {flag} boolean"
HOLD: Final = "SELECT query_id FROM {ledger} WHERE table_name = {name} FOR UPDATE"
"""Holds the row of the ledger: the query writes before this transaction, or after it."""
FIND: Final = "CREATE TEMP TABLE sessionkit_found ON COMMIT DROP AS " + DIFFERENCES
COUNT: Final = "SELECT difference, count(*) FROM sessionkit_found GROUP BY difference"
DELETE: Final = """\
DELETE FROM {table} AS present USING sessionkit_found AS found
WHERE present.session_id = found.session_id AND difference IN ('changed', 'deleted')"""
INSERT: Final = """\
INSERT INTO {table} ({columns}) SELECT {values} FROM {copied}
JOIN sessionkit_found AS found ON found.session_id = copied.session_id
WHERE difference IN ('changed', 'added')"""
SHOW: Final = """\
SELECT {keys}, session_id, session_start, session_end, difference FROM sessionkit_found
WHERE difference IN ('changed', 'added', 'deleted')"""
DROP: Final = "DROP TABLE {staging}"


def exchanged(sink: Postgres, span: Span, upsert: Upsert, *, dry_run: bool) -> Difference:
    """
    Exchange the sessions of a span, by way of a staging table of its own.

    No row that this deletes or adds is one that the query will write, so it may run meanwhile.
    """
    with connected(sink.dsn) as connection:
        repair = f"repair of {span.finished.query_id}"
        table = tables.target(connection, sink, upsert, repair)
        there = tables.relation(connection, table.identifier)
        if there is not None:
            there.check_whole()
        connection.execute(table.sql(tables.CREATE_STAGING))
        connection.execute(table.sql(ADD_FLAG, flag=Identifier(span.is_final)))
    types = {} if there is None else there.types
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
        connection.execute(_find(table, span, copied, types))
        counts = dict(connection.execute(COUNT).fetchall())
        shown = connection.execute(table.sql(SHOW, keys=listed(span.keys))).fetchall()
        if not dry_run:
            _exchange(connection, table, copied, counts)
        connection.execute(table.sql(DROP))
    fields = [span.rows.schema[name] for name in (*span.keys, *SESSION_COLUMNS)]
    fields.append(T.StructField("difference", T.StringType()))
    spark: SparkSession = span.rows.sparkSession
    return Difference.of(counts, spark.createDataFrame(shown, T.StructType(fields)))


def _find(table: Target, span: Span, copied: Composed, types: dict[str, str]) -> Composed:
    """Return the statement that notes how the sessions differ."""
    equal = [
        SQL("old.{0}::text IS NOT DISTINCT FROM new.{0}::text").format(Identifier(name))
        if types[name] == "json"
        else SQL("old.{0} IS NOT DISTINCT FROM new.{0}").format(Identifier(name))
        for name in span.compared
    ]
    return table.sql(
        FIND,
        old=table.identifier,
        # COPIED is a table with the name `copied`; here it has another one.
        new=SQL("(SELECT * FROM {})").format(copied),
        keys=listed(span.keys),
        revision=SQL(REVISION if table.upsert.revises else "CAST(1 AS bigint)"),
        is_final=Identifier(span.is_final),
        equal=SQL(" AND ").join(equal),
        start=span.start,
        end=span.end,
        settled=span.settled,
    )


def _exchange(
    connection: Connection[Any], table: Target, copied: Composed, counts: dict[str, int]
) -> None:
    changed, added, deleted = (counts.get(name, 0) for name in CHANGES)
    values = SQL(", ").join(
        SQL("coalesce(found._revision, 0) + 1")
        if table.upsert.revises and name == REVISION
        else Identifier("copied", name)
        for name in table.upsert.columns
    )
    gone = connection.execute(table.sql(DELETE)).rowcount
    came = connection.execute(table.sql(INSERT, values=values, copied=copied)).rowcount
    if (gone, came) != (changed + deleted, changed + added):
        found = f"of {changed + deleted} rows of the table {table.label} {gone} were deleted, and "
        found += f"of {changed + added} new ones {came} added: a trigger or a rule keeps the others"
        raise SinkError(found, "let a trigger return OLD before DELETE, and NEW before INSERT")
