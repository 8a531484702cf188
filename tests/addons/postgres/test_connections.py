"""The sink Postgres, with a server that is lost under a query, and comes back or stays away."""

import logging
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import attrs
import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyspark.sql import Row, SparkSession
from pyspark.sql import types as T

from examples import embedded_postgres as server
from sessionkit.addons.postgres import Postgres
from sessionkit.addons.postgres.connections import Connections
from sessionkit.addons.postgres.writer import Copying
from sessionkit.errors import SinkError
from sessionkit.spark import start_query
from sessionkit.spark._settings import is_connect
from sessionkit.spark.sinks import Batch
from tests.support.ports import free_ports
from tests.support.streams import write_files
from tests.support.table_sinks import write, writer_of

AWAY_S = 0.5
WAITS_AT_THE_END = """
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END $$;
CREATE TRIGGER waits AFTER INSERT ON numbers FOR EACH STATEMENT EXECUTE FUNCTION wait()
"""
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def numbers(*rows: int) -> pa.Table:
    return pa.table({"number": pa.array(rows, pa.int64())})


def back_after(lost: server.Postgres, seconds: float) -> threading.Thread:
    thread = threading.Timer(seconds, lost.start)
    thread.start()
    return thread


def running(spark: SparkSession, folder: Path, sink: Postgres) -> Any:
    """Start a query that writes numbers from files to a table."""
    rows = spark.readStream.schema("number long").parquet(str(folder / "in"))
    return start_query(rows, sink=sink, trigger="0 seconds", checkpoint=folder / "checkpoint")


@pytest.mark.nightly
@pytest.mark.parametrize("crashes", [False, True], ids=["stopped", "crashed"])
def test_a_query_outlives_a_server_that_comes_back(
    spark: SparkSession,
    tmp_path: Path,
    postgres: server.Postgres,
    crashes: bool,
) -> None:
    """Lost between two micro-batches and within a last transaction: each row is there once."""
    postgres.run("DROP TABLE IF EXISTS numbers, sessionkit_batches; DROP FUNCTION IF EXISTS wait")
    write_files(tmp_path / "in", [numbers(1, 2)])
    query = running(spark, tmp_path, Postgres(postgres.dsn, "numbers"))
    try:
        query.processAllAvailable()
        postgres.stop(crashes=crashes)
        write_files(tmp_path / "in", [numbers(3, 4)], first=1)
        time.sleep(AWAY_S)
        postgres.start()
        query.processAllAvailable()
        assert [(1,), (2,), (3,), (4,)] == postgres.rows("SELECT number FROM numbers")

        postgres.run(WAITS_AT_THE_END)
        with psycopg.connect(postgres.dsn) as holding:
            holding.execute("SELECT pg_advisory_xact_lock(1)")
            write_files(tmp_path / "in", [numbers(5, 6)], first=2)
            while postgres.rows(WAITING) == [(0,)]:
                assert query.isActive
                time.sleep(0.05)
            postgres.stop(crashes=crashes)
            holding.close()
        back_after(postgres, AWAY_S).join()
        query.processAllAvailable()
    finally:
        query.stop()

    assert [(number,) for number in range(1, 7)] == postgres.rows("SELECT number FROM numbers")


def test_a_part_is_copied_once_through_a_loss(postgres: server.Postgres) -> None:
    """The executor repeats what was lost, and tells of the attempts that hold."""
    postgres.run("CREATE TABLE parts (attempt uuid, number bigint)")

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"number": [1, 2]})
        postgres.stop()
        thread = back_after(postgres, AWAY_S)
        yield pa.RecordBatch.from_pydict({"number": [3]})
        thread.join()

    copying = Copying(Postgres(postgres.dsn, "t"), "COPY parts FROM STDIN", (False,))
    told = [row for part in copying.copy(batches()) for row in part.to_pylist()]

    assert [2, 1] == [row["rows"] for row in told]
    attempts = ", ".join(f"'{row['attempt']}'" for row in told)
    kept = f"SELECT number FROM parts WHERE attempt IN ({attempts})"  # noqa: S608
    assert [(1,), (2,), (3,)] == postgres.rows(kept)


def test_a_transaction_whose_end_is_unknown_is_looked_up(
    postgres: server.Postgres, spark: SparkSession
) -> None:
    """The connection is lost after the commit: the ledger has the micro-batch, so all is done."""
    batch = Batch(spark.createDataFrame([(1,)], "id long"), 0, "query", "run")
    writer = writer_of(Postgres(postgres.dsn, "unknown"), batch.frame.schema)
    writer.is_written(batch)
    table = writer.table
    attempt = "11111111-1111-1111-1111-111111111111"
    staging = table.staging.as_string(None)
    postgres.run(f"INSERT INTO {staging} VALUES ('{attempt}', 1)")  # noqa: S608
    calls = []

    def finish(connection: "psycopg.Connection[Any]") -> None:
        calls.append(1)
        told = [Row(attempt=attempt, rows=1)]
        writer._finish(connection, table, batch.number, "", told)
        if len(calls) == 1:
            connection.execute("COMMIT")
            connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with closing(Connections(writer.sink)) as connections:
        connections.run(finish)

    assert (2, [(1,)]) == (len(calls), postgres.rows("SELECT id FROM unknown"))


@pytest.mark.nightly
def test_a_server_that_stays_away_ends_the_query_in_the_time_that_the_user_sets(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each wait is in the log with its reason, and the error is the one of the last try."""
    with server.running_postgres() as gone, caplog.at_level(logging.WARNING):
        write_files(tmp_path / "in", [numbers(1)])
        query = running(spark, tmp_path, Postgres(gone.dsn, "numbers", retry_for="2 seconds"))
        try:
            query.processAllAvailable()
            gone.stop()
            began = time.monotonic()
            write_files(tmp_path / "in", [numbers(2)], first=1)
            with pytest.raises(Exception, match="Connection refused"):
                query.processAllAvailable()
            lasted = time.monotonic() - began
        finally:
            query.stop()

    assert 2 <= lasted < 20
    if is_connect(spark):
        return  # the log is that of another process
    waits = [record.getMessage() for record in caplog.records if "numbers" in record.getMessage()]
    assert 3 <= len(waits)
    assert all("Connection refused" in wait and server.PASSWORD not in wait for wait in waits)


def test_a_server_that_is_gone_at_the_start_is_named() -> None:
    """An error of ours says what the server said, and what to do."""
    schema, rows = T.StructType().add("id", T.LongType()), MagicMock()
    writer = writer_of(Postgres("postgresql://127.0.0.1:1/none", "t"), schema)
    with pytest.raises(SinkError, match=r"PostgreSQL gave no answer about the table t: .*refused"):
        writer.ledger(rows, None)


def test_what_waiting_cannot_help_has_another_hint(postgres: server.Postgres) -> None:
    """A password that is refused, or a database that isn't there: change the address."""
    schema, rows = T.StructType().add("id", T.LongType()), MagicMock()
    wrong = postgres.dsn.replace(server.PASSWORD, "another")
    for dsn in (wrong, make_conninfo(postgres.dsn, dbname="nowhere")):
        with pytest.raises(SinkError, match=r"\n\nHint: change `dsn`"):
            writer_of(Postgres(dsn, "t"), schema).ledger(rows, None)


def test_a_role_without_a_right_is_told_what_it_lacks(postgres: server.Postgres) -> None:
    """At the start, where another role has made the table of the last micro-batches."""
    postgres.run(
        "CREATE ROLE weak LOGIN PASSWORD 'weak'; CREATE SCHEMA lent; "
        "GRANT USAGE ON SCHEMA lent TO weak; "
        "CREATE TABLE lent.sessionkit_batches (table_name text, query_id text, batch_id bigint)"
    )
    dsn = make_conninfo(postgres.dsn, user="weak", password="weak")  # noqa: S106 (its own)
    schema, rows = T.StructType().add("id", T.LongType()), MagicMock()
    writer = writer_of(Postgres(dsn, "lent.t"), schema)
    with pytest.raises(SinkError, match=r"table lent.t: permission denied .*\n\nHint: give"):
        writer.ledger(rows, None)


@pytest.mark.parametrize("retry_for", ["2 minutes", "0 seconds"])
def test_what_a_wait_cannot_help_fails_at_once(postgres: server.Postgres, retry_for: str) -> None:
    """A server that refuses the password, and any loss where the user wants no second try."""
    wrong = postgres.dsn.replace(server.PASSWORD, "another")
    dsn = "postgresql://127.0.0.1:1/none" if retry_for == "0 seconds" else wrong
    began = time.monotonic()
    with (
        closing(Connections(Postgres(dsn, "t", retry_for=retry_for))) as connections,
        pytest.raises(psycopg.OperationalError),
    ):
        connections.run(lambda connection: connection.execute("SELECT 1"))

    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "setting", ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"]
)
def test_a_transaction_that_took_too_long_runs_again(
    postgres: server.Postgres, setting: str
) -> None:
    """Whatever limit of the server it met: the statement's, a lock's or that of a pause."""
    limited = make_conninfo(postgres.dsn, options=f"-c {setting}=100")
    calls = []

    def slow_once(connection: "psycopg.Connection[Any]") -> int:
        calls.append(1)
        if len(calls) == 1:
            time.sleep(0.3)
            connection.execute("SELECT pg_advisory_xact_lock(1)")
        return len(calls)

    with psycopg.connect(postgres.dsn) as holding:
        holding.execute("SELECT pg_advisory_xact_lock(1)")
        with closing(Connections(Postgres(limited, "t"))) as connections:
            assert 2 == connections.run(slow_once)


def test_a_table_of_the_sink_that_is_gone_is_named(postgres: server.Postgres) -> None:
    """The one with the last micro-batches, or a staging table, dropped while the query runs."""
    with (
        closing(Connections(Postgres(postgres.dsn, "visits"))) as connections,
        pytest.raises(SinkError, match='visits is gone: relation "staging"') as refused,
    ):
        connections.run(lambda connection: connection.execute("TRUNCATE staging"))
    assert "Hint: start the query again" in str(refused.value)


def test_a_statement_that_always_takes_too_long_says_what_to_set(
    postgres: server.Postgres,
) -> None:
    """When the time for retries is up."""
    limited = make_conninfo(postgres.dsn, options="-c statement_timeout=50")
    with (
        closing(Connections(Postgres(limited, "t", retry_for="300 ms"))) as connections,
        pytest.raises(SinkError, match=r"statement timeout\n\nHint: .*SET statement_timeout"),
    ):
        connections.run(lambda connection: connection.execute("SELECT pg_sleep(5)"))


def set_read_only(one: server.Postgres, value: str) -> None:
    with psycopg.connect(one.dsn, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}".encode())
        connection.execute("SELECT pg_reload_conf()")


def test_a_primary_that_is_demoted_is_waited_for(postgres: server.Postgres) -> None:
    """As one that's gone, until it takes writes again."""
    postgres.run("CREATE TABLE demoted (id int)")
    set_read_only(postgres, "on")
    try:
        with (
            closing(Connections(Postgres(postgres.dsn, "t", retry_for="0 seconds"))) as connections,
            pytest.raises(psycopg.OperationalError, match="session is read-only"),
        ):
            connections.run(lambda connection: connection.execute("SELECT 1"))
    finally:
        back = threading.Timer(AWAY_S, set_read_only, (postgres, "off"))
        back.start()
    with closing(Connections(Postgres(postgres.dsn, "t"))) as connections:
        connections.run(lambda connection: connection.execute("INSERT INTO demoted VALUES (1)"))
    back.join()

    assert [(1,)] == postgres.rows("SELECT id FROM demoted")


@contextmanager
def standby_of(primary: server.Postgres) -> Iterator[server.Postgres]:
    """Run a copy of a server that follows it, until the end of the block."""
    program, _, _, _, *options = primary.command
    data, (port,) = primary.home / "standby", free_ports(1)
    copy = [str(Path(program).with_name("pg_basebackup")), f"--dbname={primary.dsn}"]
    copy += [f"--pgdata={data}", "--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
    subprocess.run(copy, user=primary.user, cwd=primary.home, check=True)
    dsn = make_conninfo(primary.dsn, port=port)
    quick = "--wal-retrieve-retry-interval=100ms"
    command = [program, "-D", str(data), f"--port={port}", *options, quick]
    standby = attrs.evolve(primary, dsn=dsn, command=command, process=None)
    try:
        standby.start()
        yield standby
    finally:
        standby.stop()


@pytest.mark.parametrize("loses", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_failover_goes_on_or_is_noticed(spark: SparkSession, loses: bool) -> None:
    """A standby is refused at the start; one that lacks a micro-batch when it takes over, later."""
    with server.running_postgres() as primary, standby_of(primary) as standby:
        ports = [conninfo_to_dict(each.dsn)["port"] for each in (standby, primary)]
        both = make_conninfo(primary.dsn, host="127.0.0.1,127.0.0.1", port=f"{ports[0]},{ports[1]}")
        frames = [spark.createDataFrame([(each,)], "id long") for each in range(3)]
        alone = writer_of(Postgres(standby.dsn, "moved"), frames[0].schema)
        with pytest.raises(SinkError, match="session is read-only"):
            alone.ledger(frames[0], None)
        writer = writer_of(Postgres(both, "moved"), frames[0].schema)
        write(writer, frames[0])
        while not standby.rows("SELECT FROM pg_class WHERE relname = 'moved'"):
            time.sleep(0.05)
        if loses:
            with psycopg.connect(standby.dsn, autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
                connection.execute("SELECT pg_reload_conf()")
            while primary.rows("SELECT FROM pg_stat_replication"):
                time.sleep(0.05)
        write(writer, frames[1], 1)
        while not loses and standby.rows("SELECT id FROM moved") != [(0,), (1,)]:
            time.sleep(0.05)
        primary.stop(crashes=True)
        promoted = threading.Timer(AWAY_S, standby.run, ("SELECT pg_promote()",))
        promoted.start()
        if loses:
            with pytest.raises(SinkError, match="it has those to 0, and had those to 1"):
                write(writer, frames[2], 2)
        else:
            write(writer, frames[2], 2)
        promoted.join()
        there = [(0,)] if loses else [(0,), (1,), (2,)]
        assert there == standby.rows("SELECT id FROM moved")
