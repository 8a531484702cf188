"""`repair` on real tables: what a bug and late events have spoiled is that of one batch."""

import os
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionkit import Lateness, Results, SessionkitError, SessionSpec, SpecError
from sessionkit.addons.delta import Delta
from sessionkit.addons.iceberg import Iceberg
from sessionkit.addons.repair import repair, replay_rejected
from sessionkit.spark import Files, Routes, sessionize, start_query
from tests.support.figures import FIGURES, Record
from tests.support.lakes import DELTA, FOLDERS, lake_of
from tests.support.repairs import (
    GAP,
    MINUTE,
    NOON,
    Right,
    Wrong,
    events_in,
    history_of,
    reached,
    sessions_of,
    spec_of,
    visits_of,
    with_holes,
)
from tests.support.streams import FileStream

KILLS: Final = int(os.environ.get("KILLS", "2"))
KEYS: Final = [f"key {number}" for number in range(200)]
TICK: Final = ("tick", NOON + 10_000 * MINUTE, 0)
"""An event that ends all sessions of others."""
COLUMNS: Final = ("key", "session_id", "session_start", "session_end", "values")


@pytest.fixture(params=["postgres", DELTA, FOLDERS])
def sink(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Any:
    """Give a sink whose table is new."""
    if request.param != "postgres":
        return lake_of(request.param, spark, tmp_path).sink("sessions")
    pytest.importorskip("psycopg", reason="not run: psycopg isn't installed")
    from sessionkit.addons.postgres import Postgres  # noqa: PLC0415 - a cell has no psycopg

    server = request.getfixturevalue("postgres")
    server.run("DROP TABLE IF EXISTS sessions, sessionkit_batches")
    return Postgres(server.dsn, "sessions")


def rows_of(sink: Any, spark: SparkSession, *columns: str) -> list[Any]:
    names = columns or COLUMNS
    if isinstance(sink, Delta | Iceberg):
        table = sink.identifier if isinstance(sink, Delta) else sink.table
        if isinstance(sink, Iceberg):  # Spark 4.2 fails to refresh a table of Delta by its path
            spark.catalog.refreshTable(table)
        frame = spark.table(table).selectExpr(*(f"`{name}`" for name in names))
        return sorted(tuple(row) for row in frame.collect())
    import psycopg  # noqa: PLC0415 - a cell has no psycopg

    quoted = ", ".join(f'"{name}"' for name in names)
    with psycopg.connect(sink.dsn) as connection:
        query = f"SELECT {quoted} FROM sessions"  # noqa: S608
        return sorted(connection.execute(query).fetchall())


def change(sink: Any, spark: SparkSession, statement: str) -> None:
    """Run a statement over the table of a sink, with `{table}` and `{text}` filled in."""
    if isinstance(sink, Delta | Iceberg):
        table = sink.identifier if isinstance(sink, Delta) else sink.table
        spark.sql(statement.format(table=table, text="string", q="`"))
        return
    import psycopg  # noqa: PLC0415 - a cell has no psycopg

    with psycopg.connect(sink.dsn) as connection:
        connection.execute(statement.format(table="sessions", text="text", q='"').encode())


def with_notes(sink: Any, spark: SparkSession) -> None:
    """Add a column of the user's to a table, and fill it."""
    change(sink, spark, "ALTER TABLE {table} ADD COLUMN note {text}")
    change(sink, spark, "UPDATE {table} SET note = session_id")


def noted(sink: Any, spark: SparkSession) -> dict[str, tuple[Any, str | None]]:
    """Return the values and the note of each session."""
    rows = rows_of(sink, spark, "session_id", "values", "note")
    return {name: (values, note) for name, values, note in rows if note is None or values}


def batch_of(stream: FileStream, spec: SessionSpec[Any, Any, Any]) -> list[Any]:
    """Return the rows of one batch over all that a stream has read, but for the tick."""
    once = attrs.evolve(spec, results=Results())
    frame = sessionize(history(stream), once).select(*COLUMNS).where("key != 'tick'")
    return sorted(tuple(row) for row in frame.collect())


def history(stream: FileStream) -> Any:
    return stream.spark.read.schema(stream.schema).parquet(str(stream.source))


def spoiled(spark: SparkSession, folder: Path, **options: Any) -> FileStream:
    """Return a stream whose function has a bug, and which gets events late."""
    stream = FileStream(spark, spec_of(Wrong, **options), folder)
    events = history_of(Random(7), KEYS, 3000)
    stream.put(*(events_in(events[first : first + 750]) for first in range(0, 3000, 750)))
    return stream


def naive(rows: list[Any]) -> list[Any]:
    """Return rows of PostgreSQL and of Spark alike: an instant with or without its zone."""
    return [
        tuple(one.timestamp() if hasattr(one, "timestamp") else one for one in row) for row in rows
    ]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.long),
        pytest.param(
            {"lateness": Lateness(allowed=30 * MINUTE), "results": Results(emit="on_update")},
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["once", "revisions"],
)
def test_a_table_becomes_that_of_one_batch(
    sink: Any, spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    """First what is over, while sessions are open; then the rest. Nothing changes twice."""
    stream = spoiled(spark, tmp_path, **options)
    stream.run_to(sink)
    right = spec_of(Right, **options)
    before = rows_of(sink, spark)
    arguments: dict[str, Any] = {"checkpoint": stream.checkpoint}
    planned = repair(sink, right, history(stream), dry_run=True, **arguments)
    assert before == rows_of(sink, spark)
    assert all(planned.counts.values())
    assert planned.sessions.count() == sum(
        planned.counts[kind] for kind in ("changed", "added", "deleted")
    )
    assert planned.counts == repair(sink, right, history(stream), **arguments).counts

    middle = rows_of(sink, spark)
    again = repair(sink, right, history(stream), **arguments).counts
    assert {"changed": 0, "added": 0, "deleted": 0}.items() <= again.items()
    assert middle == rows_of(sink, spark)
    stream.put(events_in([TICK]), events_in([("tick", TICK[1] + 100 * MINUTE, 1)]))
    stream.run_to(sink)
    repair(sink, right, history(stream), between=(None, NOON + 100 * MINUTE), **arguments)
    repair(sink, right, history(stream), between=(NOON + 100 * MINUTE, None), **arguments)
    found = [row for row in rows_of(sink, spark) if row[0] != "tick"]
    assert naive(batch_of(stream, right)) == naive(found)
    if options:
        revisions = {row[0] for row in rows_of(sink, spark, "revision")}
        assert {1, 2} <= revisions


@pytest.mark.long
def test_a_stream_runs_while_the_table_is_repaired(
    sink: Any, spark: SparkSession, tmp_path: Path
) -> None:
    """PostgreSQL takes both; another table is refused until the query has stopped."""
    stream, right = spoiled(spark, tmp_path), spec_of(Right)
    query = start_query(
        stream.output(), sink=sink, trigger="0 seconds", checkpoint=stream.checkpoint
    )
    try:
        query.processAllAvailable()
        arguments: dict[str, Any] = {"checkpoint": stream.checkpoint}
        if isinstance(sink, Delta | Iceberg):
            with pytest.raises(SpecError, match="is running"):
                repair(sink, right, history(stream), **arguments)
            return
        random, count = Random(3), 0
        for hour in range(4):
            later = [
                (key, at + (5 + hour) * 60 * MINUTE, value)
                for key, at, value in history_of(random, KEYS, 300)
            ]
            stream.put(*(events_in(later[first : first + 100]) for first in range(0, 300, 100)))
            counts = repair(sink, right, history(stream), **arguments).counts
            count += sum(counts[kind] for kind in ("changed", "added", "deleted"))
        assert count
        stream.put(events_in([TICK]), events_in([("tick", TICK[1] + 100 * MINUTE, 1)]))
        query.processAllAvailable()
        repair(sink, right, history(stream), **arguments)
        found = [row for row in rows_of(sink, spark) if row[0] != "tick"]
        assert naive(batch_of(stream, right)) == naive(found)
    finally:
        query.stop()


@pytest.mark.nightly
def test_what_history_says_nothing_of_is_left(
    sink: Any, spark: SparkSession, tmp_path: Path
) -> None:
    """After its last event, and of a key and a day without one; a word deletes the latter."""
    stream, right = FileStream(spark, spec_of(Right), tmp_path), spec_of(Right)
    day = 24 * 60
    minutes = {"ann": [0, 5, day, 3 * day], "bob": [20, 3 * day + 20], "eve": [40]}
    events = [(key, NOON + at * MINUTE, at) for key, times in minutes.items() for at in times]
    stream.put(events_in(events), events_in([TICK]))
    stream.run_to(sink)
    with_notes(sink, spark)
    before = noted(sink, spark)
    assert 6 == len(before)
    arguments: dict[str, Any] = {"checkpoint": stream.checkpoint}
    ends_early = history(stream).where(F.col("at") < F.lit(NOON + 2 * day * MINUTE))
    counts = repair(sink, right, ends_early, **arguments).counts
    assert {"unchanged": 3, "changed": 0, "added": 0, "deleted": 0, "left": 3} == counts
    lacking = history(stream).where((F.col("key") != "eve") & (F.col("value") != day))
    seen = repair(sink, right, lacking, dry_run=True, **arguments)
    assert {"unchanged": 4, "changed": 0, "added": 0, "deleted": 0, "left": 3} == seen.counts
    assert {"days": 1, "keys": 1} == seen.unseen
    assert before == noted(sink, spark)

    twice = "UPDATE {table} SET {q}values{q} = {q}values{q} || {q}values{q} WHERE key = 'bob'"
    change(sink, spark, twice)
    change(
        sink,
        spark,
        "INSERT INTO {table} (session_id, session_start, session_end, last_event_time, key,"
        " {q}values{q}, note) SELECT 'foreign', session_start, session_end, NULL, NULL, NULL, NULL"
        " FROM {table} WHERE key = 'eve'",
    )
    done = repair(sink, right, lacking, delete_unseen=True, **arguments)
    assert {"unchanged": 2, "changed": 2, "added": 0, "deleted": 3, "left": 1} == done.counts
    assert {"days": 1, "keys": 2} == done.unseen
    assert 5 == done.sessions.count() == len(done.sessions.collect())
    kept = {row.id for row in sessions_of(events) if row.key != "eve" and row.values != [day]}
    assert {name: one for name, one in before.items() if name in kept} == noted(sink, spark)


@pytest.mark.long
def test_no_good_session_is_touched_that_history_does_not_reach(
    sink: Any, spark: SparkSession, tmp_path: Path, record_property: Record
) -> None:
    """Of 20 histories that begin late, end early, and lack keys and days; notes survive all."""
    random = Random(11)
    events, total = visits_of(random), dict[str, int]()
    stream, right = FileStream(spark, spec_of(Right), tmp_path), spec_of(Right)
    stream.put(events_in(events), events_in([TICK]))
    stream.run_to(sink)
    with_notes(sink, spark)
    truth = sessions_of(events)
    for number in range(20):
        for statement in (
            "UPDATE {{table}} SET {{q}}values{{q}} = {array} WHERE session_id IN ({ids})",
            "DELETE FROM {{table}} WHERE session_id IN ({ids})",
        ):
            array = "array(-1L)" if isinstance(sink, Delta | Iceberg) else "ARRAY[-1]"
            ids = ", ".join(f"'{row.id}'" for row in random.sample(truth, 10))
            change(sink, spark, statement.format(array=array, ids=ids))
        there, left = noted(sink, spark), with_holes(random, events)
        first, last = (pick(at for _, at, _ in left) for pick in (min, max))
        start = None if events[0] in left else first + GAP
        values = [value for *_, value in left]
        frame = history(stream).where(F.col("value").isin(values) & (F.col("key") != "tick"))
        done = repair(sink, right, frame, checkpoint=stream.checkpoint, between=(start, None))
        after = noted(sink, spark)
        good = {row.id for row in truth if row.values == there.get(row.id, ([], ""))[0]}
        kept = {name: one for name, one in after.items() if name in good}
        assert {name: there[name] for name in good} == kept, number
        assert all(there[name][1] == after[name][1] for name in there.keys() & after), number
        is_reached = reached(left, start or first, last)
        assert all(row.values == after[row.id][0] for row in truth if is_reached(row)), number
        for kind, count in {**done.counts, **done.unseen}.items():
            total[kind] = total.get(kind, 0) + count
    assert all(total[kind] for kind in ("unchanged", "changed", "added", "left", "days", "keys"))
    record_property(FIGURES, f"20 histories with holes on {type(sink).__name__}: {total}")


DIES: Final = """
CREATE SEQUENCE steps;
CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF nextval('steps') = {step} THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
  RETURN coalesce(NEW, OLD); END $$;
CREATE TRIGGER dies BEFORE INSERT OR UPDATE OR DELETE ON sessions
  FOR EACH ROW EXECUTE FUNCTION die()"""
LIVES: Final = "DROP TRIGGER dies ON sessions; DROP FUNCTION die; DROP SEQUENCE steps"


@pytest.mark.long
def test_a_repair_that_is_killed_has_changed_nothing(
    postgres: Any, spark: SparkSession, tmp_path: Path
) -> None:
    """PostgreSQL ends the connection at some row; the next call does all."""
    psycopg = pytest.importorskip("psycopg", reason="not run: psycopg isn't installed")
    from sessionkit.addons.postgres import Postgres  # noqa: PLC0415 - a cell has no psycopg

    postgres.run("DROP TABLE IF EXISTS sessions, sessionkit_batches")
    sink = Postgres(postgres.dsn, "sessions")
    stream, right = spoiled(spark, tmp_path), spec_of(Right)
    stream.run_to(sink)
    before = rows_of(sink, spark)
    arguments: dict[str, Any] = {"checkpoint": stream.checkpoint}
    counts = repair(sink, right, history(stream), dry_run=True, **arguments).counts
    steps = counts["changed"] + counts["added"] + counts["deleted"]
    for number in range(KILLS):
        postgres.run(DIES.format(step=1 + number * (steps - 1) // max(KILLS - 1, 1)))
        with pytest.raises(psycopg.OperationalError):
            repair(sink, right, history(stream), **arguments)
        postgres.run(LIVES)
        assert before == rows_of(sink, spark)
    assert counts == repair(sink, right, history(stream), **arguments).counts
    assert before != rows_of(sink, spark)


@pytest.mark.nightly
def test_what_cannot_be_proved_is_refused(sink: Any, spark: SparkSession, tmp_path: Path) -> None:
    """A table that isn't the query's, history that lacks what counts, a query that never ran."""
    stream, right = spoiled(spark, tmp_path), spec_of(Right)
    stream.run_to(sink)
    before = rows_of(sink, spark)
    other = FileStream(spark, spec_of(Wrong), tmp_path / "other", files=stream.source)
    other.run()
    refused: dict[str, dict[str, Any]] = {
        "belongs to the query|doesn't say that it has": {"checkpoint": other.checkpoint},
        "no query has finished": {"checkpoint": str(tmp_path / "nowhere")},
        "less than a gap before": {"between": (NOON + 5 * MINUTE, None)},
        "time zone": {"between": (None, NOON.replace(tzinfo=None))},
        "no session": {"history": history(stream).where("false")},
        "`history` must be a DataFrame of a batch, found a stream": {"history": stream.events()},
        "must be two instants": {"between": NOON},
        "begins no earlier": {"between": (NOON + 60 * MINUTE, NOON + 60 * MINUTE)},
        "before the first event of `history`": {"between": (None, NOON - 60 * MINUTE)},
    }
    for wanted, changed in refused.items():
        arguments = {"history": history(stream), "checkpoint": stream.checkpoint, **changed}
        with pytest.raises(SessionkitError, match=wanted):
            repair(sink, right, **arguments)
    assert before == rows_of(sink, spark)


@pytest.mark.nightly
def test_rejected_events_come_back(sink: Any, spark: SparkSession, tmp_path: Path) -> None:
    """Late events of the rejected rows, with those that the query has taken."""
    right = spec_of(Right)
    stream = FileStream(spark, right, tmp_path, with_rejected=True)
    events = [*history_of(Random(5), KEYS[:20], 300), TICK, ("tick", TICK[1] + 100 * MINUTE, 1)]
    stream.put(*(events_in(events[first : first + 75]) for first in (0, 75, 150, 225, 300)))
    late = Files("parquet", str(tmp_path / "late"))
    stream.run_to(Routes(session=sink, rejected=late))
    rejected = spark.read.parquet(str(tmp_path / "late"))
    values = [row[0] for row in rejected.select("event.value").collect()]
    assert values
    taken = history(stream).where(~F.col("value").isin(values))
    counts = replay_rejected(sink, right, taken, rejected, checkpoint=stream.checkpoint).counts
    assert counts["changed"] + counts["added"]
    found = [row for row in rows_of(sink, spark) if row[0] != "tick"]
    assert naive(batch_of(stream, right)) == naive(found)


def test_a_table_with_rejected_rows_is_not_that_of_the_sessions(
    sink: Any, spark: SparkSession, tmp_path: Path
) -> None:
    """The error names the table to pass, and no other key of this one."""
    right = spec_of(Right)
    stream = FileStream(spark, right, tmp_path, with_rejected=True)
    stream.put(events_in([("ann", NOON, 1)]), events_in([TICK]), events_in([("bob", NOON, 2)]))
    stream.run_to(Routes(session=Files("parquet", str(tmp_path / "own")), rejected=sink))
    with pytest.raises(SpecError, match="has rejected rows") as refused:
        repair(sink, right, history(stream), checkpoint=stream.checkpoint)
    assert "`session` of Routes" in str(refused.value)
