"""The password of a database is in nothing that a job leaves, whether it runs or fails."""

import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from examples import embedded_postgres as server
from sessionkit.addons.postgres import Postgres
from sessionkit.spark import Kafka, start_query
from tests.support.streams import write_files

WRONG: Final = "another-secret-of-the-tests"
SECRETS: Final = (server.PASSWORD, WRONG)


def texts_in(folder: Path) -> Iterator[str]:
    """Yield the content of each file."""
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.read_bytes().decode("latin-1")


@pytest.mark.cell("classic")
def test_no_error_log_checkpoint_or_metric_has_the_password(
    spark: SparkSession,
    postgres: server.Postgres,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Errors of a start, of the driver and of executors, and a query that has run."""
    caplog.set_level(logging.DEBUG, "sessionkit")
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "a"]})
    write_files(tmp_path / "in", [rows])
    postgres.run(
        f"CREATE ROLE weak LOGIN PASSWORD '{WRONG}'; CREATE TABLE texts (id date, name text);"
        "CREATE TABLE narrow (id bigint)"
    )

    def run(sink: Any, name: str) -> Any:
        frame = spark.readStream.schema("id long, name string").parquet(str(tmp_path / "in"))
        query = start_query(
            frame, sink=sink, trigger="availableNow", checkpoint=tmp_path / f"checkpoints/{name}"
        )
        query.awaitTermination()
        return query

    def once(dsn: str, then: str, after: int) -> Callable[[], str]:
        """Return an address that changes after a number of connections."""
        given = iter([dsn] * after)
        return lambda: next(given, then)

    good = postgres.dsn
    wrong = good.replace(server.PASSWORD, WRONG)
    weak = make_conninfo(good, user="weak", password=WRONG)
    away = make_conninfo(good, port=1)
    unreadable = f"postgresql://tests:{WRONG}@[127.0.0.1/postgres"
    fails: dict[str, Callable[[], Any]] = {
        "wrong": lambda: run(Postgres(wrong, "t"), "wrong"),
        "unreadable": lambda: run(Postgres(unreadable, "t"), "unreadable"),
        "swapped": lambda: Postgres("t", good),
        "away": lambda: run(Postgres(away, "t"), "away"),
        "no database": lambda: run(Postgres(make_conninfo(good, dbname="no"), "t"), "no database"),
        "no right": lambda: run(Postgres(weak, "t"), "no right"),
        "types": lambda: run(Postgres(good, "texts"), "types"),
        "columns": lambda: run(Postgres(good, "narrow"), "columns"),
        "same key": lambda: run(Postgres(good, "same", key="name"), "same key"),
        "later": lambda: run(Postgres(once(good, wrong, 1), "later"), "later"),
        "function": lambda: run(Postgres(lambda: str(1 // 0), "t"), "function"),
        "topic": lambda: run(
            Kafka("127.0.0.1:1", "t", options={"kafka.sasl.jaas.config": WRONG}), "topic"
        ),
    }
    said = []
    for name, fail in fails.items():
        with pytest.raises(Exception) as failed:  # noqa: PT011 (of any kind)
            fail()
        said.append("".join(traceback.format_exception(failed.value)))
        assert not any(secret in said[-1] for secret in SECRETS), name
    query = run(Postgres(good, "written"), "runs")
    assert [(1, "a"), (2, "a")] == postgres.rows("SELECT * FROM written")
    with psycopg.connect(good) as connection:
        notes = connection.execute("SELECT * FROM sessionkit_batches").fetchall()
    said += [str(query.recentProgress), repr(query.status), str(notes)]
    said += [*texts_in(tmp_path / "checkpoints"), caplog.text, *capfd.readouterr()]

    assert len(fails) + 6 < len(said)
    assert not any(secret in text for text in said for secret in SECRETS)
