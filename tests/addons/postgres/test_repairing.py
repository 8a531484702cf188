"""The SQL of a repair on a real server, where history lacks a part of what the table has."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final
from uuid import uuid4

import attrs
import pytest
from psycopg import Connection
from psycopg.sql import SQL, Identifier
from pyspark.sql import types as T

from examples.embedded_postgres import Postgres as Server
from sessionkit.addons.postgres import tables
from sessionkit.addons.postgres.connections import connected
from sessionkit.addons.postgres.exchange import ADD_FLAG, exchange_rows, find
from sessionkit.addons.postgres.tables import Target, listed
from sessionkit.addons.tables import Upsert
from sessionkit.spark.sinks import FinishedBatch, Span
from tests.support.figures import FIGURES, Record
from tests.support.repairs import (
    GAP,
    Event,
    Row,
    days_of,
    has_beginning,
    reached,
    sessions_of,
    spoiled_rows,
    visits_of,
    with_holes,
)

KINDS: Final = {
    "key": T.StringType(),
    "session_id": T.StringType(),
    "session_start": T.TimestampType(),
    "session_end": T.TimestampType(),
    "values": T.ArrayType(T.LongType()),
}
SCHEMA: Final = T.StructType([T.StructField(name, kind) for name, kind in KINDS.items()])
NAMES: Final = tuple(SCHEMA.names)
FLAG: Final = "_is_final"


@pytest.fixture
def connection(postgres: Server) -> Iterator[Connection[Any]]:
    """Give a connection in whose schema there are no tables."""
    with connected(postgres.dsn) as connection:
        connection.execute("CREATE SCHEMA repairing")
        yield connection
        connection.rollback()


def put(connection: Connection[Any], into: Identifier, rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    columns = listed([*rows[0]])
    places = SQL(", ").join(SQL("%s") for _ in rows[0])
    statement = SQL("INSERT INTO {} ({}) VALUES ({})").format(into, columns, places)
    connection.cursor().executemany(statement, [tuple(row.values()) for row in rows])


def repaired(
    connection: Connection[Any], table: Sequence[Row], span: Span, new: Sequence[tuple[Row, bool]]
) -> tuple[dict[str, Any], dict[str, int], tuple[int, int]]:
    """Return what a repair makes of a table whose rows have notes, the counts, and the unseen."""
    upsert = Upsert("t", NAMES, ("session_id",), refuses_duplicates=True)
    target = Target("repairing", f"t{uuid4().hex[:8]}", upsert, "repair of a query")
    connection.execute(target.create(SCHEMA))
    connection.execute(target.sql("ALTER TABLE {table} ADD COLUMN note text"))
    put(connection, target.identifier, [{**row.columns, "note": row.id} for row in table])
    connection.execute(target.sql(tables.CREATE_STAGING))
    connection.execute(target.sql(ADD_FLAG, flag=Identifier(FLAG)))
    attempt, flagged = uuid4(), attrs.evolve(upsert, columns=(*NAMES, FLAG))
    rows = [{tables.ATTEMPT: attempt, **row.columns, FLAG: is_final} for row, is_final in new]
    put(connection, target.staging, rows)
    copying = attrs.evolve(target, upsert=flagged)
    copied = copying.sql(tables.COPIED, attempts=[str(attempt)])
    there = tables.relation(connection, target.identifier)
    assert there is not None
    counts, days, keys = find(connection, target, span, copied, there.types)
    exchange_rows(connection, target, copied, counts)
    query = target.sql("SELECT {columns}, note FROM {table}")
    after = {row[1]: (Row(*row[:-1]), row[-1]) for row in connection.execute(query).fetchall()}
    return after, counts, (days, keys)


def span_of(history: Sequence[Event], watermark: datetime, *, begins_late: bool) -> Span:
    frame: Any = None
    first, last = (pick(at for _, at, _ in history) for pick in (min, max))
    return Span(
        rows=frame,
        is_final=FLAG,
        keys=("key",),
        compared=("session_start", "session_end", "values"),
        start=first + GAP * begins_late,
        end=datetime.max.replace(tzinfo=UTC),
        settled=min(watermark, last),
        days=days_of(history),
        delete_unseen=False,
        finished=FinishedBatch("query", 1, watermark),
    )


@pytest.mark.parametrize("histories", [15, pytest.param(200, marks=pytest.mark.long)])
def test_no_good_session_is_touched_that_history_does_not_reach(
    histories: int, connection: Connection[Any], record_property: Record
) -> None:
    """It ends early, begins late, lacks days and keys; what it reaches is put right."""
    total = dict[str, int]()
    for seed in range(histories):
        random = Random(seed)
        events = visits_of(random)
        history = with_holes(random, events)
        truth = sessions_of(events)
        watermark = max(at for _, at, _ in events) - timedelta(minutes=random.choice([0, 500]))
        table = spoiled_rows(random, [row for row in truth if row.end <= watermark])
        begins_late = events[0] not in history
        span = span_of(history, watermark, begins_late=begins_late)
        new = [
            (row, row.end <= span.settled and has_beginning(row, history))
            for row in sessions_of(history)
        ]
        with connection.transaction(force_rollback=True):
            after, counts, unseen = repaired(connection, table, span, new)

        good = {row.id: row for row in truth if row in table}
        assert good == {name: after[name][0] for name in good}, seed
        assert all(note == name for name, (_, note) in after.items() if note), seed
        notes = {row.id for row in table} & after.keys()
        assert all(after[name][1] for name in notes), seed
        is_reached = reached(history, span.start, span.settled)
        wanted = {row.id: row for row in truth if is_reached(row)}
        beyond = [row for row in truth if not is_reached(row)]
        assert wanted == {
            name: row
            for name, (row, _) in after.items()
            if is_reached(row) and not any(map(row.overlaps, beyond))
        }, seed
        for kind, count in counts.items():
            total[kind] = total.get(kind, 0) + count
        total["unseen days"] = total.get("unseen days", 0) + unseen[0]
        total["unseen keys"] = total.get("unseen keys", 0) + unseen[1]
    assert all(total.values())
    assert {"unchanged", "changed", "added", "deleted", "left"} <= total.keys()
    record_property(FIGURES, f"{histories} histories with holes on PostgreSQL: {total}")
