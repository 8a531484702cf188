"""The sink Postgres, on a real server: each row once, whatever runs again."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from examples import embedded_postgres as server
from sessionkit import EventTimeGap, Inputs, SpecError, Storage
from sessionkit.addons.postgres import Postgres
from sessionkit.addons.postgres.connections import connected
from sessionkit.errors import SinkError
from sessionkit.spark import Files, Routes, reconcile, start_query
from sessionkit.spark.sinks import Batch
from tests.support.session_specs import collecting
from tests.support.streams import FileStream, refused_by_sink
from tests.support.table_sinks import write, writer_of

START = datetime(2026, 3, 8, 6, 50, tzinfo=UTC)
SPEC = collecting(
    EventTimeGap("10 minutes"),
    storage=Storage(bucket_count=2),
    inputs=Inputs(passthrough={"line": int}),
)
EVENTS = pa.schema(
    {
        "key": pa.string(),
        "at": pa.timestamp("us", "UTC"),
        "value": pa.int64(),
        "minutes": pa.int64(),
        "line": pa.int64(),
    }
)


def with_gap(frame: DataFrame) -> DataFrame:
    """Turn minutes into the interval that the spec reads."""
    return frame.withColumn("gap", F.expr("make_dt_interval(0, 0, minutes)"))


def table(*events: tuple[str | None, int, int]) -> pa.Table:
    rows = [
        {
            "key": key,
            "at": START + timedelta(minutes=minute),
            "value": value,
            "minutes": 10,
            "line": value * 100,
        }
        for key, minute, value in events
    ]
    return pa.Table.from_pylist(rows, schema=EVENTS)


class TestAQuery:
    """`start_query` with a table for each kind of row."""

    def test_a_replayed_batch_changes_nothing(
        self, postgres: server.Postgres, spark: SparkSession, tmp_path: Path
    ) -> None:
        """Three sinks have each row once, after runs that repeat the last micro-batch."""
        stream = FileStream(spark, SPEC, tmp_path, with_rejected=True, shape=with_gap)
        stream.put(
            table(("ann", 0, 1), ("bob", 1, 2), (None, 2, 3), ("ann", 5, 4), ("end", 100, 5)),
            table(("ann", 1, 6), ("bob", 101, 7)),
        )
        sink = Routes(
            session=Postgres(postgres.dsn, "visits"),
            rejected=Postgres(postgres.dsn, "rejected"),
            late=Files("json", tmp_path / "late"),
        )

        def found() -> tuple[Any, ...]:
            late = spark.read.json(str(tmp_path / "late")).select("kind", "key", "line", "batch_id")
            return (
                postgres.rows('SELECT key, session_start, "values", events FROM visits'),
                postgres.rows("SELECT kind, key, line, reason, event ->> 'value' FROM rejected"),
                [tuple(row) for row in late.collect()],
            )

        query = stream.run_to(sink)
        assert (1, 1) == (reconcile(query).counts.late, reconcile(query).counts.quarantined)
        first = found()
        stream.forget_end_of(2)
        stream.run_to(sink)

        assert (
            [("ann", START, [1, 4], 2), ("bob", START + timedelta(minutes=1), [2], 1)],
            [("quarantined", None, 300, "`key` is null", "3")],
            [("late", "ann", 600, 1)],
        ) == first
        assert first == found()

    def test_a_table_has_one_query(
        self, postgres: server.Postgres, spark: SparkSession, tmp_path: Path
    ) -> None:
        """Another query is refused before it starts, until someone gives the table away."""
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
        sink = Postgres(postgres.dsn, "numbers", key="value")

        def run(name: str) -> None:
            start_query(
                rows, sink=sink, trigger="availableNow", checkpoint=tmp_path / name
            ).awaitTermination()

        run("first")
        with refused_by_sink(spark, "numbers belongs to the query") as said:
            run("second")
        _, _, statement = said[0].rpartition("give its table away: ")
        postgres.run(statement)
        run("second")
        with refused_by_sink(spark, "belongs to the query"):
            run("first")

        assert server.PASSWORD not in said[0]


def test_only_the_last_run_writes(postgres: server.Postgres, spark: SparkSession) -> None:
    """A run that is still alive when the next one has begun writes nothing more."""
    frame = spark.createDataFrame([(1, "a")], "id long, text string")
    earlier, later = (
        writer_of(Postgres(postgres.dsn, "runs", "id"), frame.schema) for _ in range(2)
    )
    batches = [Batch(frame, number, "query", run) for number, run in ((0, "earlier"), (0, "later"))]
    assert not earlier.is_written(batches[0])
    assert not later.is_written(batches[1])
    with pytest.raises(SinkError, match="a later run has it"):
        earlier.write(batches[0])
    assert [] == postgres.rows("SELECT * FROM runs")

    later.write(batches[1])
    assert later.is_written(batches[1])
    assert not later.is_written(attrs.evolve(batches[1], number=1))
    assert [(1, "a")] == postgres.rows("SELECT * FROM runs")


def test_rows_that_the_server_has_lost_stop_the_query(
    postgres: server.Postgres, spark: SparkSession
) -> None:
    """Fewer rows than the tasks have copied are never taken for all of them."""
    batch = Batch(spark.createDataFrame([(1,)], "id long"), 0, "query", "run")
    writer = writer_of(Postgres(postgres.dsn, "lost"), batch.frame.schema)
    writer.is_written(batch)
    told = [Row(attempt="11111111-1111-1111-1111-111111111111", rows=2)]
    with (
        connected(postgres.dsn) as connection,
        pytest.raises(SinkError, match="2 rows were copied for the table public.lost, and 0 are"),
    ):
        writer._finish(connection, writer.table, batch.number, "", told)


DROPPING = """
CREATE FUNCTION {0}_hook() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF NEW.{1} LIKE 'drop%' THEN RETURN NULL; END IF; RETURN NEW; END $$;
CREATE TRIGGER hook BEFORE INSERT ON {0} FOR EACH ROW EXECUTE FUNCTION {0}_hook()"""
ID_AND_N = "session_id string, n int"
REVISED = f"{ID_AND_N}, revision long, supersedes array<string>"
TWO = [("a", 1), ("drop", 2)]
KEPT_OUT: dict[str, tuple[tuple[str, ...], str, list[Any]]] = {
    "added": ((), ID_AND_N, TWO),
    "replacing": (("session_id",), ID_AND_N, TWO),
    "only_a_key": (("session_id", "n"), ID_AND_N, TWO),
    "revised": (
        ("session_id",),
        REVISED,
        [("a", 1, 1, []), ("drop", 2, 1, []), ("drop", 2, 2, [])],
    ),
}
FOUND = "SELECT session_id FROM hooked_{}"


@pytest.mark.parametrize("kind", KEPT_OUT)
def test_rows_that_a_trigger_keeps_out_stop_the_query(
    postgres: server.Postgres, spark: SparkSession, kind: str
) -> None:
    """The micro-batch isn't noted as written, and none of its rows is there."""
    key, columns, rows = KEPT_OUT[kind]
    batch = Batch(spark.createDataFrame(rows, columns), 0, "query", "run")
    writer = writer_of(Postgres(postgres.dsn, f"hooked_{kind}", key), batch.frame.schema)
    assert not writer.is_written(batch)
    postgres.run(DROPPING.format(f"hooked_{kind}", "session_id"))

    with pytest.raises(SinkError) as refused:
        writer.write(batch)

    found, _, hint = str(refused.value).partition("\n\nHint: ")
    assert f"a trigger or rule of the table public.hooked_{kind} took 1 of 2 rows" in found
    assert "let the trigger return NEW" in hint
    assert [] == postgres.rows(FOUND.format(kind))
    assert not writer.is_written(batch)
    postgres.run(f"DROP TRIGGER hook ON hooked_{kind}")
    writer.write(batch)
    assert ["a", "drop"] == [row[0] for row in postgres.rows(FOUND.format(kind))]


def test_rows_that_are_there_already_are_not_missed(
    postgres: server.Postgres, spark: SparkSession
) -> None:
    """A row of nothing but its key, twice in a micro-batch or in the table; and old revisions."""
    frames = [
        spark.createDataFrame([(one,) for one in ids], "id long") for ids in ([1, 1, 2], [2, 3])
    ]
    writer = writer_of(Postgres(postgres.dsn, "only_keys", "id"), frames[0].schema)
    for number, frame in enumerate(frames):
        write(writer, frame, number)
    assert [(1,), (2,), (3,)] == postgres.rows("SELECT * FROM only_keys")


def test_a_row_replaces_the_earlier_one_by_its_key(
    postgres: server.Postgres, spark: SparkSession
) -> None:
    """Its other columns are the new ones; rows of other keys stay."""
    frames = [
        spark.createDataFrame(rows, "id long, n int") for rows in ([(1, 1), (2, 1)], [(2, 2)])
    ]
    writer = writer_of(Postgres(postgres.dsn, "replaced", "id"), frames[0].schema)
    for number, frame in enumerate(frames):
        write(writer, frame, number)
    assert [(1, 1), (2, 2)] == postgres.rows("SELECT * FROM replaced")


def test_a_table_of_partitions_takes_its_rows(
    postgres: server.Postgres, spark: SparkSession
) -> None:
    """PostgreSQL counts a row that it puts into a partition, and one that a trigger changes."""
    postgres.run(
        """
        CREATE TABLE parted (session_id text PRIMARY KEY, n int) PARTITION BY HASH (session_id);
        CREATE TABLE parted_0 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);
        CREATE TABLE parted_1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1)
        """
    )
    postgres.run(DROPPING.format("parted", "session_id").replace("RETURN NULL", "NEW.n := 0"))
    frame = spark.createDataFrame([("a", 1), ("b", 1), ("drop", 2)], ID_AND_N)
    write(writer_of(Postgres(postgres.dsn, "parted", "session_id"), frame.schema), frame)

    assert [("a", 1), ("b", 1), ("drop", 0)] == postgres.rows("SELECT * FROM parted")


def test_the_highest_revision_stays(postgres: server.Postgres, spark: SparkSession) -> None:
    """Within a micro-batch and over several, in any order, and without what is superseded."""
    writer = writer_of(
        Postgres(postgres.dsn, "revised", ("session_id", "n")),
        spark.createDataFrame([], REVISED).schema,
    )

    def after(number: int, *rows: tuple[str, int, int, list[str]]) -> list[Any]:
        write(writer, spark.createDataFrame([*rows], REVISED), number)
        return postgres.rows("SELECT session_id, n, revision FROM revised")

    assert [("a", 0, 2), ("b", 0, 1), ("b", 1, 1)] == after(
        0, ("a", 0, 2, []), ("a", 0, 1, []), ("a", 1, 1, []), ("b", 0, 1, []), ("b", 1, 1, [])
    )
    assert [("a", 0, 2), ("b", 0, 2), ("c", 0, 3)] == after(
        1, ("a", 0, 1, []), ("b", 0, 2, []), ("c", 0, 3, [])
    )
    assert [("d", 0, 3)] == after(2, ("d", 0, 3, ["a", "b", "e"]), ("e", 0, 1, ["c"]))


@pytest.mark.parametrize("gone", ["earlier", "superseded"])
def test_rows_that_a_trigger_does_not_let_go_stop_the_query(
    postgres: server.Postgres, spark: SparkSession, gone: str
) -> None:
    """A row stays that another one replaces: so nothing of the micro-batch is there."""
    table, there = f"kept_{gone}", f"SELECT session_id, n FROM kept_{gone}"  # noqa: S608
    first = spark.createDataFrame([("a", 1, 1, []), ("b", 1, 1, [])], REVISED)
    new: Any = ("a", 2, 2, []) if gone == "earlier" else ("c", 2, 2, ["a"])
    second = spark.createDataFrame([new], REVISED)
    writer = writer_of(Postgres(postgres.dsn, table, "session_id"), first.schema)
    write(writer, first)
    postgres.run(
        DROPPING.format(table, "session_id")
        .replace("INSERT", "DELETE")
        .replace("LIKE 'drop%'", "IS NULL")
    )
    with pytest.raises(
        SinkError, match=f"rule of the table public.{table} keeps 1 of the replaced rows"
    ) as refused:
        write(writer, second, 1)

    assert "Hint: let a trigger before DELETE return OLD" in str(refused.value)
    assert [("a", 1), ("b", 1)] == postgres.rows(there)
    postgres.run(f"DROP TRIGGER hook ON {table}")
    write(writer, second, 1)
    assert sorted([(new[0], 2), ("b", 1)]) == postgres.rows(there)


def test_two_rows_with_one_key_are_refused(postgres: server.Postgres, spark: SparkSession) -> None:
    """Without revisions neither of them is the right one, so the query stops."""
    batch = Batch(spark.createDataFrame([(1, "a"), (1, "b")], "id long, t string"), 0, "q", "r")
    writer = writer_of(Postgres(postgres.dsn, "doubled", "id"), batch.frame.schema)
    writer.is_written(batch)
    with pytest.raises(SinkError, match=r"two rows of a micro-batch have the same \(id\)"):
        writer.write(batch)
    assert [] == postgres.rows("SELECT * FROM doubled")


LOSE: list[tuple[str, ...]] = [
    ("struct<page:string>", "text", "event", "jsonb"),
    ("array<string>", "text", "items", "text[]"),
    ("array<string>", "jsonb", "supersedes", "text[]"),
    ("timestamp", "date"),
    ("timestamp", "timestamp"),
    ("timestamp", "timestamptz(3)"),
    ("timestamp", "time"),
    ("timestamp_ntz", "timestamptz"),
    ("timestamp_ntz", "date"),
    ("date", "timestamptz"),
    ("double", "real"),
    ("double", "int"),
    ("double", "numeric(10,2)"),
    ("bigint", "int"),
    ("bigint", "double precision"),
    ("int", "real"),
    ("decimal(10,4)", "numeric(12,2)"),
    ("decimal(10,4)", "double precision"),
    ("decimal(10,4)", "cents"),
    ("boolean", "int"),
    ("interval day to second", "interval day"),
    ("interval day to second", "interval(0)"),
    ("array<timestamp>", "date[]"),
    ("array<bigint>", "int[]"),
]
HOLD = [
    ("timestamp", "timestamptz", "TIMESTAMP '2026-03-08 12:00:00.000001Z'"),
    ("timestamp", "timestamptz(6)", "TIMESTAMP '2026-03-08 12:00:00.000001Z'"),
    ("timestamp_ntz", "timestamp", "TIMESTAMP_NTZ '2026-03-08 12:00:00.000001'"),
    ("date", "timestamp", "DATE '2026-03-08'"),
    ("int", "bigint", "1"),
    ("int", "double precision", "2147483647"),
    ("bigint", "numeric", "9223372036854775807L"),
    ("bigint", "varchar(20)", "9223372036854775807L"),
    ("bigint", "jsonb", "9223372036854775807L"),
    ("float", "double precision", "CAST(0.1 AS float)"),
    ("double", "numeric", "0.1D"),
    ("decimal(10,4)", "numeric", "1.0001"),
    ("decimal(10,4)", "numeric(20,6)", "1.0001"),
    ("string", "varchar(40)", "'a'"),
    ("string", "uuid", "'0123456789abcdef0123456789abcdef'"),
    ("boolean", "text", "true"),
    ("interval day to second", "interval", "INTERVAL '1 02:00:00.000001' DAY TO SECOND"),
    ("array<int>", "bigint[]", "array(1)"),
    ("array<int>", "jsonb", "array(1)"),
]


def test_a_column_that_would_cut_values_is_refused_at_the_start(
    postgres: server.Postgres, spark: SparkSession
) -> None:
    """As is one that can't take parts: PostgreSQL takes a timestamp for a date without a word."""
    postgres.run("CREATE DOMAIN cents AS numeric(12,2)")
    for number, (kind, column, *named) in enumerate(LOSE):
        table, (name, made) = f"cutting_{number}", named or ("v", "")
        postgres.run(f"CREATE TABLE {table} (id bigint PRIMARY KEY, {name} {column})")
        schema = spark.createDataFrame([], f"id bigint, {name} {kind}").schema
        writer = writer_of(Postgres(postgres.dsn, table, "id"), schema)
        with pytest.raises(SpecError) as refused:
            writer.ledger(SimpleNamespace(schema=schema), None)
        found, _, hint = str(refused.value).partition("\n\nHint: ")
        assert f"the column `{name}` of the table public.{table} is " in found
        assert found.endswith(f", not {kind}")
        assert hint.startswith(f"make it {made}")


def test_a_column_that_holds_every_value_is_taken(
    postgres: server.Postgres, spark: SparkSession
) -> None:
    """A wider one, a text, and one of a type of which PostgreSQL says itself what it takes."""
    columns = ", ".join(f"c{n} {column}" for n, (_, column, _) in enumerate(HOLD))
    postgres.run(f"CREATE TABLE holding ({columns})")
    values = [f"CAST({value} AS {kind}) AS c{n}" for n, (kind, _, value) in enumerate(HOLD)]
    frame = spark.sql(f"SELECT {', '.join(values)}")
    write(writer_of(Postgres(postgres.dsn, "holding"), frame.schema), frame)

    at = datetime(2026, 3, 8, 12, 0, 0, 1)  # noqa: DTZ001 (a column without a zone)
    assert [
        (
            at.replace(tzinfo=UTC),
            at.replace(tzinfo=UTC),
            at,
            datetime(2026, 3, 8),  # noqa: DTZ001
            1,
            2147483647,
            9223372036854775807,
            "9223372036854775807",
            9223372036854775807,
            0.10000000149011612,
            Decimal("0.1"),
            Decimal("1.0001"),
            Decimal("1.0001"),
            "a",
            UUID("0123456789abcdef0123456789abcdef"),
            "t",
            timedelta(days=1, hours=2, microseconds=1),
            [1],
            [1],
        )
    ] == postgres.rows("SELECT * FROM holding")


def test_values_arrive_as_they_are(postgres: server.Postgres, spark: SparkSession) -> None:
    """Of every type for which the sink makes a column; what has parts becomes JSON."""
    autumn = datetime(2026, 11, 1, 5, 30, tzinfo=UTC)  # in the hour that New York has twice
    query = """
        SELECT 'a\\tb\\\\N' AS text, CAST(2 AS long) AS number, 0.5D AS double, true AS flag,
        X'00FF' AS bytes, TIMESTAMP '2026-11-01 05:30:00Z' AS at, DATE '2026-03-08' AS day,
        INTERVAL '1 02:00:00' DAY TO SECOND AS span, CAST(1.50 AS decimal(10,2)) AS price,
        array('x', NULL) AS list, map('k', 1) AS entries,
        named_struct('a', TIMESTAMP '2026-11-01 05:30:00Z', 'b', X'00FF') AS parts,
        CAST(NULL AS string) AS nothing, CAST(NULL AS map<string,int>) AS no_entries
    """
    frame = spark.sql(query)
    write(writer_of(Postgres(postgres.dsn, "public.typed"), frame.schema), frame)

    assert [
        (
            "a\tb\\N",
            2,
            0.5,
            True,
            b"\x00\xff",
            autumn,
            date(2026, 3, 8),
            timedelta(days=1, hours=2),
            Decimal("1.50"),
            ["x", None],
            {"k": 1},
            {"a": "2026-11-01T05:30:00+00:00", "b": "AP8="},
            None,
            None,
        )
    ] == postgres.rows("SELECT * FROM typed")


def test_neither_a_sink_nor_an_error_shows_the_password(
    postgres: server.Postgres, spark: SparkSession
) -> None:
    """Neither by the value, nor where the connection fails on the driver or on an executor."""
    wrong = postgres.dsn.replace(server.PASSWORD, "wrong-password")
    unreadable = "postgresql://tests:wrong-password@[127.0.0.1/postgres"
    frame = spark.createDataFrame([(1,)], "id long")
    batch = Batch(frame, 0, "query", "run")
    said = [repr(Postgres(wrong, "t"))]
    for dsn in (wrong, unreadable):
        with pytest.raises(Exception) as failed:  # noqa: PT011 (of any kind)
            writer_of(Postgres(dsn, "t"), frame.schema).is_written(batch)
        said.append(str(failed.value))
    writer = writer_of(Postgres(postgres.dsn, "t"), frame.schema)
    writer.is_written(batch)
    on_driver = iter([postgres.dsn])
    writer.sink = Postgres(lambda: next(on_driver, wrong), "t")
    with pytest.raises(Exception) as failed:  # noqa: PT011
        writer.write(batch)
    said.append(str(failed.value))

    assert "password authentication failed" in said[1]
    assert "can't read `dsn`" in said[2]
    assert not any("wrong-password" in text or server.PASSWORD in text for text in said)
