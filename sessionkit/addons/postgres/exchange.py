"""Sessions of a table of PostgreSQL exchanged for others, in one transaction."""

from typing import Any, Final

import attrs
from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from sessionkit.addons.postgres import Postgres, tables
from sessionkit.addons.postgres.connections import connected
from sessionkit.addons.postgres.tables import Target, listed
from sessionkit.addons.postgres.writer import copied_parts
from sessionkit.addons.tables import CHANGES, DIFFERENCES, REVISION, Upsert
from sessionkit.errors import SinkError
from sessionkit.spark.sinks import Difference, Span

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
    upsert.check_exchangeable()
    with connected(sink.dsn) as connection:
        schema, name = tables.place(connection, sink)
        upsert = attrs.evolve(upsert, table=f"{schema}.{name}")
        table = Target(schema, name, upsert, f"repair of {span.finished.query_id}")
        there = tables.relation(connection, table.identifier)
        if there is not None:
            there.check_whole()
        connection.execute(table.sql(tables.CREATE_STAGING))
        connection.execute(table.sql(ADD_FLAG, flag=Identifier(span.is_final)))
    types = {} if there is None else there.types
    flagged = attrs.evolve(upsert, columns=(*upsert.columns, span.is_final))
    copying = attrs.evolve(table, upsert=flagged)
    parts = copied_parts(sink, copying, {**types, span.is_final: "boolean"}, span.rows)
    with connected(sink.dsn) as connection:
        copied = copying.sql(tables.COPIED, attempts=[part.attempt for part in parts])
        _check_copied(connection, table, copied, sum(part["rows"] for part in parts))
        _find(connection, table, span, copied, types)
        counts = dict(connection.execute(COUNT).fetchall())
        shown = connection.execute(table.sql(SHOW, keys=listed(span.keys))).fetchall()
        if not dry_run:
            _exchange(connection, table, copied, counts)
        connection.execute(table.sql(DROP))
    return Difference.of(counts, _frame(span, shown))


def _check_copied(connection: Connection[Any], table: Target, copied: Composed, rows: int) -> None:
    ((there,),) = connection.execute(table.sql("SELECT count(*) FROM {copied}", copied=copied))
    if there != rows:
        found = f"{rows} rows were copied for the table {table.label}, of which {there} are there"
        raise SinkError(found, "repair it again, and from one place at a time")


def _find(
    connection: Connection[Any],
    table: Target,
    span: Span,
    copied: Composed,
    types: dict[str, str],
) -> None:
    """Note how the sessions differ, while the query writes nothing."""
    owner = connection.execute(table.sql(HOLD)).fetchone()
    if owner != (span.finished.query_id,):
        found = f"the table {table.label} was given away by the query {span.finished.query_id}"
        raise SinkError(found, "pass the checkpoint of the query that writes to it")
    equal = [
        SQL("old.{0}::text IS NOT DISTINCT FROM new.{0}::text").format(Identifier(name))
        if types[name] == "json"
        else SQL("old.{0} IS NOT DISTINCT FROM new.{0}").format(Identifier(name))
        for name in span.compared
    ]
    # COPIED is a table with the name `copied`; here it has another one.
    new = SQL("(SELECT * FROM {})").format(copied)
    find = table.sql(
        FIND,
        old=table.identifier,
        new=new,
        keys=listed(span.keys),
        revision=SQL(REVISION if table.upsert.revises else "CAST(1 AS bigint)"),
        is_final=Identifier(span.is_final),
        equal=SQL(" AND ").join(equal),
        start=span.start,
        end=span.end,
        settled=span.settled,
    )
    connection.execute(find)


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


def _frame(span: Span, rows: list[Any]) -> Any:
    spark: SparkSession = span.rows.sparkSession
    own = [span.rows.schema[name] for name in (*span.keys, "session_id")]
    times = [span.rows.schema[name] for name in ("session_start", "session_end")]
    difference = T.StructField("difference", T.StringType())
    return spark.createDataFrame(rows, T.StructType([*own, *times, difference]))
