"""Tables of the sink Postgres: which it takes, what it keeps of its own, and what it refuses."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from examples import embedded_postgres as server
from sessionkit import SpecError
from sessionkit.addons.postgres import Postgres
from sessionkit.errors import SinkError
from sessionkit.spark import Routes
from sessionkit.spark.sinks import Batch, Ledger
from tests.support.streams import FileStream, refused_by_sink
from tests.support.table_sinks import write, writer_of
from tests.support.visits import SESSIONS, views

ID = T.StructType([T.StructField("id", T.LongType())])
ADD = "INSERT INTO {} (id) VALUES (1)"
MINE = "SELECT mine FROM {}"
ALL = 'SELECT * FROM "We%b"."{}"'
FORGET = 'DROP TABLE "We%b"."{}"; DELETE FROM "We%b".sessionkit_batches'
COUNT = "SELECT count(*) FROM {}"


def checked(sink: Postgres, query_id: str | None = None, schema: T.StructType = ID) -> Ledger:
    """Check a table for rows of a schema, as `start_query` does."""
    found: Ledger = writer_of(sink, schema).ledger(SimpleNamespace(schema=schema), query_id)
    return found


def batch_of(
    spark: SparkSession, *ids: int, query: str = "query", run: str = "run", number: int = 0
) -> Batch:
    """Return a micro-batch of rows with an id."""
    return Batch(spark.createDataFrame([(one,) for one in ids], ID), number, query, run)


def written(sink: Postgres, batch: Batch) -> Any:
    writer = writer_of(sink, ID)
    assert not writer.is_written(batch)
    writer.write(batch)
    return writer


UNIQUE: Final = {
    "plain": "CREATE UNIQUE INDEX ON {} (b, a)",
    "constraint": "ALTER TABLE {} ADD UNIQUE (a, b)",
    "nulls": "ALTER TABLE {} ADD UNIQUE NULLS NOT DISTINCT (a, b)",
    "includes": "CREATE UNIQUE INDEX ON {} (a, b) INCLUDE (c)",
}
OTHER: Final = {
    "expression": "CREATE UNIQUE INDEX ON {} (a, b, lower(c))",
    "included": "CREATE UNIQUE INDEX ON {} (a) INCLUDE (b)",
    "partial": "CREATE UNIQUE INDEX ON {} (a, b) WHERE c IS NULL",
    "deferrable": "ALTER TABLE {} ADD UNIQUE (a, b) DEFERRABLE",
    "deferred": "ALTER TABLE {} ADD UNIQUE (a, b) DEFERRABLE INITIALLY DEFERRED",
    "repeated": "CREATE INDEX ON {} (a, b)",
}
UPSERT: Final = "INSERT INTO {} VALUES ('1', '2') ON CONFLICT (a, b) DO UPDATE SET c = excluded.c"


@pytest.mark.parametrize("kind", [*UNIQUE, *OTHER])
def test_a_unique_index_is_one_by_which_a_row_replaces_another(
    postgres: server.Postgres, kind: str
) -> None:
    """The sink takes those that the server takes for ON CONFLICT, and no others."""
    name, schema = f"by_{kind}", T.StructType([T.StructField(one, T.StringType()) for one in "ab"])
    postgres.run(f"CREATE TABLE {name} (a text, b text, c text)")
    postgres.run({**UNIQUE, **OTHER}[kind].format(name))
    sink = Postgres(postgres.dsn, name, ("b", "a"))  # in another order than the columns
    if kind in UNIQUE:
        checked(sink, schema=schema)
        postgres.run(UPSERT.format(name))
        return
    with pytest.raises(SpecError, match=r"no unique index of exactly \(b, a\)") as refused:
        checked(sink, schema=schema)
    assert f'ALTER TABLE "public"."{name}" ADD PRIMARY KEY ("b", "a")' in str(refused.value)
    with pytest.raises(psycopg.Error):
        postgres.run(UPSERT.format(name))


def test_an_index_that_was_not_finished_does_not_count(postgres: server.Postgres) -> None:
    """CREATE INDEX CONCURRENTLY leaves one behind where it finds two rows with one key."""
    postgres.run("CREATE TABLE unfinished AS SELECT 1::bigint AS id FROM generate_series(1, 2)")
    with psycopg.connect(postgres.dsn, autocommit=True) as connection, pytest.raises(psycopg.Error):
        connection.execute("CREATE UNIQUE INDEX CONCURRENTLY ON unfinished (id)")
    with pytest.raises(SpecError, match=r"no unique index of exactly \(id\)"):
        checked(Postgres(postgres.dsn, "unfinished", "id"))


def test_what_an_earlier_run_has_copied_is_cleaned_up(
    postgres: server.Postgres, spark: SparkSession
) -> None:
    """That of the same query and no other one."""
    copied = {}
    for query in ("first", "second"):
        sink = Postgres(postgres.dsn, f"left_by_{query}")
        writer = writer_of(sink, ID)
        writer.is_written(batch_of(spark, query=query))
        copied[query] = writer.table.staging.as_string(None)
        postgres.run(ADD.format(copied[query]))
    later = batch_of(spark, query="first", run="later")
    writer_of(Postgres(postgres.dsn, "left_by_first"), ID).is_written(later)

    assert [(0,)] == postgres.rows(COUNT.format(copied["first"]))
    assert [(1,)] == postgres.rows(COUNT.format(copied["second"]))


def test_the_ledger_is_where_the_table_is(postgres: server.Postgres, spark: SparkSession) -> None:
    """A schema that comes before it in the search path later changes nothing."""
    postgres.run("CREATE SCHEMA path_second")
    path = make_conninfo(postgres.dsn, options="-c search_path=path_first,path_second")
    written(Postgres(path, "numbers"), batch_of(spark, 1))
    postgres.run("CREATE SCHEMA path_first")

    assert writer_of(Postgres(path, "numbers"), ID).is_written(batch_of(spark, run="later"))
    assert [(1,)] == postgres.rows("SELECT id FROM path_second.numbers")
    ledger = checked(Postgres(path, "numbers"), "query")
    assert (True, False) == (ledger.has_from(0), ledger.has_from(1))


def test_a_search_path_of_no_schema_is_named(postgres: server.Postgres) -> None:
    """There the table would have no place."""
    path = make_conninfo(postgres.dsn, options="-c search_path=nowhere")
    with pytest.raises(SpecError, match="no schema of the search path exists"):
        checked(Postgres(path, "t"))


def test_names_may_have_any_character(postgres: server.Postgres, spark: SparkSession) -> None:
    """A `%` and a quote in the names of schema, table, columns and key; case counts."""
    postgres.run('CREATE SCHEMA "We%b"')
    frame = spark.sql("SELECT 1 AS `a%s`, 'x' AS `b%(c)s\"`, 1L AS session_id, 1L AS `revision`")
    name = "V%" + "v" * 61
    for key in ((), ("a%s",), ("session_id", "a%s")):
        sink = Postgres(postgres.dsn, f'"We%b".{name}', key)
        write(writer_of(sink, frame.schema), frame, query="query%s", run=f"run%{len(key)}")
        assert [(1, "x", 1, 1)] == postgres.rows(ALL.format(name))
        postgres.run(FORGET.format(name))


@pytest.mark.parametrize("name", ["c" * 64, "sessionkit_attempt", "sessionkit_rank"])
def test_a_column_needs_a_name_that_the_table_can_have(name: str) -> None:
    """One that PostgreSQL would cut, or that the staging table has, is refused before."""
    sink = Postgres("postgresql://", "t")
    schema = T.StructType([T.StructField(name, T.LongType())])
    with pytest.raises(SpecError, match=f"can have the name `{name}`"):
        writer_of(sink, schema)


def test_two_routes_to_one_table_are_refused_whatever_they_call_it(
    postgres: server.Postgres, spark: SparkSession, tmp_path: Path
) -> None:
    """By what the server says it is, before the query starts; and by the ledger, where it runs."""
    postgres.run("CREATE SCHEMA shared")
    path = make_conninfo(postgres.dsn, options="-c search_path=shared")
    stream = FileStream(spark, SESSIONS, tmp_path, with_rejected=True)
    stream.put(views(("ann", 0)))
    sink = Routes(session=Postgres(path, "t"), rejected=Postgres(postgres.dsn, "shared.t"))
    with refused_by_sink(spark, "`rejected` of Routes write to the table shared.t"):
        stream.run_to(sink)

    first, second = (writer_of(Postgres(path, "u"), ID, name=name) for name in "ab")
    assert not first.is_written(batch_of(spark))
    with pytest.raises(SinkError, match="another kind of row of this query goes to"):
        second.is_written(batch_of(spark))


def test_a_column_that_is_dropped_under_a_query_is_named(
    postgres: server.Postgres, spark: SparkSession
) -> None:
    """The next micro-batch says which one; after that the table itself may be gone."""
    postgres.run("CREATE TABLE thinner (id bigint, other text)")
    writer = written(Postgres(postgres.dsn, "thinner"), batch_of(spark, 1))
    postgres.run("ALTER TABLE thinner DROP COLUMN id")
    with pytest.raises(SpecError, match="has no column `id`; it has other\n\nHint: add the column"):
        writer.write(batch_of(spark, 2, number=1))
    postgres.run("DROP TABLE thinner")
    with pytest.raises(SinkError, match="the table public.thinner is gone.*\n\nHint: restore it"):
        writer.write(batch_of(spark, 2, number=1))


def test_a_column_that_the_table_needs_is_named(postgres: server.Postgres) -> None:
    """One with a default may be left out, and one that may be null."""
    postgres.run(
        "CREATE TABLE wider (id bigint, note text, at timestamptz NOT NULL DEFAULT now(), "
        "n bigint GENERATED ALWAYS AS IDENTITY, total integer NOT NULL)"
    )
    with pytest.raises(SpecError, match="the rows have no column `total`") as refused:
        checked(Postgres(postgres.dsn, "wider"))
    _, _, statement = str(refused.value).rpartition("do without: ")
    postgres.run(statement)

    assert "the table public.wider" == checked(Postgres(postgres.dsn, "wider")).place


def test_a_table_that_is_gone_is_not_made_again(
    postgres: server.Postgres, spark: SparkSession
) -> None:
    """Its rows are missing, so the query says so, and how to go on without them."""
    sink = Postgres(postgres.dsn, "gone")
    written(sink, batch_of(spark, 1))
    postgres.run("DROP TABLE gone")
    with pytest.raises(SpecError, match="the table public.gone is gone") as refused:
        checked(sink, "query")
    with pytest.raises(SpecError, match="the table public.gone is gone"):
        writer_of(sink, ID).is_written(batch_of(spark, 2, number=1, run="later"))
    _, _, statement = str(refused.value).rpartition("an empty one: ")
    postgres.run(statement)
    written(sink, batch_of(spark, 2, number=1, run="later"))

    assert [(2,)] == postgres.rows("SELECT id FROM gone")


def test_a_password_that_would_be_read_as_a_port_is_not_shown(postgres: server.Postgres) -> None:
    """A text without a host, of which only the executors' function knows."""
    for text in ("postgresql://jobs:secret", "postgresql://jobs:se@cret@db/web"):
        with pytest.raises(SpecError, match="can't read `dsn`") as refused:
            checked(Postgres(lambda text=text: text, "t"))  # type: ignore[misc]
        assert "cret" not in str(refused.value)


def test_a_table_whose_rows_are_hidden_takes_only_new_ones(postgres: server.Postgres) -> None:
    """Under row-level security, a row that the role doesn't see would stay next to its revision."""
    postgres.run(
        "CREATE ROLE etl LOGIN PASSWORD 'etl'; CREATE TABLE hidden (id bigint PRIMARY KEY);"
        "ALTER TABLE hidden ENABLE ROW LEVEL SECURITY;"
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO etl;"
        "CREATE POLICY few ON hidden USING (id > 5) WITH CHECK (true);"
        "INSERT INTO hidden VALUES (1), (6)"
    )
    etl = make_conninfo(postgres.dsn, user="etl", password="etl")  # noqa: S106
    with psycopg.connect(etl) as connection:
        assert 1 == connection.execute("DELETE FROM hidden").rowcount
    with pytest.raises(SpecError, match=r"(?s)may hide rows of the table .*hidden.*BYPASSRLS"):
        checked(Postgres(etl, "hidden", "id"))

    checked(Postgres(etl, "hidden", ()))
    checked(Postgres(postgres.dsn, "hidden", "id"))  # its owner
    postgres.run("ALTER ROLE etl BYPASSRLS")
    checked(Postgres(etl, "hidden", "id"))
