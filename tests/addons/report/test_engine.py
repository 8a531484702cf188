"""Where result rows may lie: folders of Spark, files, frames and tables of PostgreSQL."""

from datetime import UTC, datetime
from pathlib import Path
from traceback import format_exception
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.embedded_postgres import Postgres
from sessionkit import SchemaError, SpecError
from sessionkit.addons.report import report
from sessionkit.addons.report.engine import ROWS, engine_of
from sessionkit.errors import UnsupportedError
from tests.support.refusals import refusal, says

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def table_of(*ids: str) -> pa.Table:
    times = pa.array([NOON] * len(ids), pa.timestamp("us", tz="UTC"))
    return pa.table(
        {
            "user": ["ann"] * len(ids),
            "session_id": ids,
            "session_start": times,
            "session_end": times,
        }
    )


def ids_in(rows: Any, table: str | None = None) -> list[str]:
    found = engine_of(rows, table).ask(f"SELECT session_id FROM {ROWS} ORDER BY 1")
    return [row["session_id"] for row in found]


def test_a_report_reads_frames_in_memory() -> None:
    assert ids_in(table_of("a", "b")) == ["a", "b"]
    assert ids_in(table_of("a", "b").to_pandas()) == ["a", "b"]


def test_a_report_reads_a_file_and_a_folder_of_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"day={name}").mkdir()
        pq.write_table(table_of(name), tmp_path / f"day={name}" / "part.parquet")
    pq.write_table(table_of("c"), tmp_path / "_temporary.parquet")
    assert ids_in(tmp_path) == ["a", "b"]
    assert ids_in(tmp_path / "day=a" / "part.parquet") == ["a"]


def test_a_folder_of_sparks_file_sink_has_what_its_log_names(tmp_path: Path) -> None:
    """A micro-batch that failed leaves files that no reader of Spark takes."""
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for name in ("a", "b", "c", "failed"):
        pq.write_table(table_of(name), tmp_path / f"{name}.parquet")

    def entry(*names: str) -> str:
        lines = [f'{{"path":"file://{tmp_path}/{name}.parquet","action":"add"}}' for name in names]
        return "\n".join(["v1", *lines])

    (log / "0").write_text(entry("a"))
    (log / "1.compact").write_text(entry("a", "b"))
    (log / "2").write_text(entry("c"))
    assert ids_in(tmp_path) == ["a", "b", "c"]


def test_a_folder_of_routes_has_what_its_marks_name(tmp_path: Path) -> None:
    """A run that was killed, or that a later one has replaced, leaves files without a mark."""
    marks = tmp_path / "query_id=q" / "_batches"
    for run, number, name in (("q", 0, "a"), ("q_7", 1, "b"), ("q_8", 1, "c"), ("q_8", 2, "d")):
        of_batch = tmp_path / f"query_id={run}" / f"batch_id={number}"
        of_batch.mkdir(parents=True)
        pq.write_table(table_of(name), of_batch / "part-0.parquet")
    for place, text in {
        "0": "the id of a run",
        "1/saved-7": '{"folder": "q_7", "is_mark": false}',
        "1/marked-8": '{"folder": "q_8", "is_mark": true}',
    }.items():
        (marks / place).mkdir(parents=True)
        (marks / place / "part-0.txt").write_text(text)

    assert ids_in(tmp_path) == ["a", "c"]


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="there are no Parquet files in"):
        engine_of(tmp_path, None)


def test_a_report_reads_a_table_of_postgresql(postgres: Postgres) -> None:
    postgres.run(
        'CREATE TABLE visits ("user" text, session_id text, session_start timestamptz, '
        "session_end timestamptz, path text[], pages bigint, seen numeric, active interval, "
        "bought bool, note jsonb)"
    )
    postgres.run(
        "INSERT INTO visits VALUES "
        "('ann', 'a', now(), now(), NULL, NULL, 1.5, '2 s', true, '{\"a\": 7}'), "
        "('bob', 'b', now(), now(), '{x,y}', 2, NULL, NULL, NULL, NULL)"
    )
    engine = engine_of(postgres.dsn, "visits")
    kinds = ["text", "text", "time", "time", "list", "number", "number", "interval", "bool", "json"]
    assert [*engine.kinds().values()] == kinds
    columns = "session_id, path, pages, epoch_ms(active) AS active, bought, note->>'a' AS note"
    found = engine.ask(f"SELECT {columns} FROM {ROWS} ORDER BY 1")
    assert [("a", None, None, 2_000, True, "7"), ("b", ["x", "y"], 2, None, None, None)] == [
        tuple(row.values()) for row in found
    ]
    with pytest.raises(SchemaError, match="which table"):
        engine_of(postgres.dsn, None)


def test_no_name_in_a_table_of_postgresql_is_sql(postgres: Postgres) -> None:
    """Whatever its columns are called, and its schema and the table itself."""
    name = 'a" int);CREATE TABLE more (b int);CREATE TABLE rest ("c'
    own, table = name.replace('"', '""'), '"the web"."v.""1"""'
    postgres.run('DROP SCHEMA IF EXISTS "the web" CASCADE; CREATE SCHEMA "the web"')
    postgres.run(f'CREATE TABLE {table} (session_id text, "{own}" int)')
    postgres.run(f"INSERT INTO {table} VALUES ('a', 7)")

    engine = engine_of(postgres.dsn, table)

    assert [{"session_id": "a", name: 7}] == engine.ask(f"FROM {ROWS}")
    assert [] == engine.ask("SELECT * FROM duckdb_tables() WHERE table_name IN ('more', 'rest')")


ADDRESS = "postgresql://ann:s3cret@db.example/shop"


@pytest.mark.parametrize(
    ("rows", "table", "facts"),
    [
        # Swapped, or in the wrong place.
        ("visits", ADDRESS, ["`table`", "as `rows`"]),
        (ADDRESS, ADDRESS, ["`table`", "as `rows`"]),
        (table_of("a"), "visits", ["`table`", "'visits'"]),
        ("/data/visits", "visits", ["`table`", "'visits'"]),
        # Not the form that is read.
        ("host=db.example user=ann password=s3cret", None, ["`rows`", "postgresql://"]),
        ("jdbc:postgresql://db.example/shop?user=ann&password=s3cret", None, ["`rows`"]),
        ("postgresql+psycopg://ann:s3cret@db.example/shop", "visits", ["`rows`"]),
        (Path(ADDRESS), None, ["`rows`"]),
        # PostgreSQL would take a part of the password for the host, the port, or an option.
        ("postgresql://ann:p@s3cret@db.example/shop", "visits", ["`rows`", "%40"]),
        ("postgresql://ann:p/s3cret@db.example/shop", "visits", ["`rows`", "%40"]),
        ("postgresql://ann:p%s3cret@db.example/shop", "visits", ["`rows`", "%40"]),
        ("postgresql://ann:s3cret", "visits", ["`rows`", "%40"]),
        ("postgresql://db.example/shop?user=ann&password=s3cret&x", "visits", ["`rows`", "%40"]),
        # What isn't said.
        (ADDRESS, None, ["`rows`", 'table="visits"']),
        ("postgresql://db.example/shop?user=ann&password=s3cret", None, ['table="visits"']),
        (ADDRESS, "web.visits.2026", ["`table`", "'web.visits.2026'"]),
    ],
)
def test_no_message_has_a_password(rows: Any, table: str | None, facts: list[str]) -> None:
    """Nor has its traceback; a text that may have one is refused where it doesn't belong."""
    with pytest.raises(SpecError) as refused:
        engine_of(rows, table)

    assert says(str(refused.value), *facts, "\n\nHint: ")
    assert "s3cret" not in "".join(format_exception(refused.value, chain=True))


def test_a_report_is_not_written_to_an_address(tmp_path: Path) -> None:
    """A file of that name would have the password in it."""
    text = refusal(report, table_of("a"), out=ADDRESS)

    assert says(text, "`out`", "as `rows`")
    assert "s3cret" not in text


def test_a_table_that_is_not_there_is_named(postgres: Postgres) -> None:
    """As it was written."""
    with pytest.raises(SchemaError, match=r"no table web\.nothing\s+Hint: .*case counts"):
        engine_of(postgres.dsn, "web.nothing")


@pytest.mark.spark
def test_a_report_reads_a_frame_of_spark(spark: Any, tmp_path: Path) -> None:
    """Its rows come to the driver as they are, whatever the time zone of the session."""
    pq.write_table(table_of("a", "b"), tmp_path / "rows.parquet")
    engine = engine_of(spark.read.parquet(str(tmp_path)), None)
    found = engine.ask(f"SELECT session_id, epoch_ms(session_start) AS at FROM {ROWS} ORDER BY 1")
    at = int(NOON.timestamp() * 1000)
    assert found == [{"session_id": "a", "at": at}, {"session_id": "b", "at": at}]


def test_a_spark_without_arrow_tables_says_so() -> None:
    """That is Spark 3.5."""
    frame = SimpleNamespace(isStreaming=False, sparkSession=SimpleNamespace(version="3.5.8"))
    with pytest.raises(UnsupportedError, match=r"Spark 3\.5\.8 can't .*\s+Hint: .*Parquet"):
        engine_of(frame, None)


@pytest.mark.spark
def test_a_report_of_a_stream_is_refused(spark: Any) -> None:
    with pytest.raises(SchemaError, match="this frame is a stream"):
        engine_of(spark.readStream.format("rate").load(), None)


def test_a_missing_library_is_named_with_what_installs_it(tmp_path: Path) -> None:
    """Delta Lake's reader is no part of the extra."""
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(UnsupportedError, match=r"needs deltalake.*\s+Hint: pip install deltalake$"):
        engine_of(tmp_path, None)


@pytest.mark.spark
def test_intervals_in_files_of_spark_are_intervals(spark: Any, tmp_path: Path) -> None:
    """Parquet has whole numbers for them, and Spark notes what they mean."""
    path = str(tmp_path / "rows.parquet")
    spark.sql("SELECT INTERVAL '1.5' SECOND AS active, 7 AS events").write.parquet(path)
    engine = engine_of(path, None)
    assert engine.kinds() == {"active": "interval", "events": "number"}
    assert engine.ask(f"SELECT epoch_ms(active) AS ms FROM {ROWS}") == [{"ms": 1_500}]
