"""A checkpoint of another day than its table is refused; both of one day go on right."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from sessionkit.addons.postgres import Postgres
from sessionkit.spark import ExactlyOnce, Files, Routes
from tests.support.hourly_query import Query, Store
from tests.support.spark_settings import changed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from examples import embedded_postgres as server  # a cell of the matrix has no psycopg


@pytest.fixture(autouse=True, scope="module")
def _one_micro_batch_a_run(spark: SparkSession) -> Iterator[None]:
    """No micro-batch without data: what a run adds is enough, and soon there."""
    with changed(spark, {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}):
        yield


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A user's own store, in a folder of its own."""
    (tmp_path / "store").mkdir()
    return Store(tmp_path / "store" / "visits.db")


class TestAStoreOfOnesOwn:
    """`ExactlyOnce`, with a store that is restored too, or isn't."""

    def test_an_older_checkpoint_is_refused_and_both_of_one_day_go_on(
        self, spark: SparkSession, tmp_path: Path, store: Store
    ) -> None:
        """Otherwise, sessions of the micro-batches between would be lost in silence."""
        query, sink = Query(spark, tmp_path), ExactlyOnce(store.write, store.last_batch)
        query.run(sink)
        query.copy("checkpoint", to="checkpoint copy")
        query.copy("store", to="store copy")
        for _ in range(2):
            query.run(sink)
        rows = store.rows()
        query.copy("checkpoint copy", to="checkpoint")
        message, hint = query.refusal(sink)

        assert "the store of `last_batch` has micro-batches that the checkpoint" in message
        assert "take the store back to micro-batch" in hint
        assert rows == store.rows()
        query.copy("store copy", to="store")
        assert rows != store.rows()
        query.start(sink)
        assert rows == store.rows()


def places(
    kind: str, spark: SparkSession, folder: Path, running: server.Postgres
) -> tuple[Any, Callable[[], list[Any]]]:
    """Return a sink, and what reads its rows."""
    if kind == "folder":
        path = folder / "visits"
        return Files("json", path), lambda: sorted(
            (row.key, row.session_id) for row in spark.read.json(str(path)).collect()
        )
    asked = "SELECT key, session_id FROM joined"
    return Postgres(running.dsn, "joined"), lambda: running.rows(asked)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["folder", "table"])
def test_each_of_several_places_is_checked(
    kind: str, spark: SparkSession, tmp_path: Path, postgres: server.Postgres
) -> None:
    """One that joins later says from when; a lost one is refused, and so is an older checkpoint."""
    query = Query(spark, tmp_path, with_rejected=True)
    visits, rows = places(kind, spark, tmp_path, postgres)
    first = Routes(session=visits, rejected=None)
    query.run(first)
    query.copy("checkpoint", to="older")
    query.run(first)
    both = Routes(session=visits, rejected=Files("json", tmp_path / "rejected"))
    message, hint = query.refusal(both)

    assert f"the folder {tmp_path}/rejected doesn't have micro-batch" in message
    since = int(hint.rpartition("sink_since=")[2])
    query.run(both, sink_since=since)
    found = rows()
    query.copy("rejected", to="kept")
    shutil.rmtree(tmp_path / "rejected")
    message, _ = query.refusal(both, sink_since=since)
    assert "nor any other of its query" in message
    query.copy("kept", to="rejected")
    query.start(both, sink_since=since)
    query.copy("older", to="checkpoint")
    message, hint = query.refusal(both, sink_since=since)
    assert "hasn't planned yet" in message
    assert "sink_since" in hint
    assert found == rows()


@pytest.mark.nightly
def test_a_folder_is_rewound_by_its_numbers(spark: SparkSession, tmp_path: Path) -> None:
    """Without what is above the last finished one, an older checkpoint gives the same rows."""
    query = Query(spark, tmp_path, with_rejected=True)
    sink = Routes(session=Files("json", tmp_path / "visits"), rejected=None)

    def rows() -> list[Any]:
        found = spark.read.schema("key string, session_id string").json(str(tmp_path / "visits"))
        return sorted((row.key, row.session_id) for row in found.collect())

    query.run(sink)
    query.copy("checkpoint", to="older")
    query.run(sink)
    query.run(sink)
    found = rows()
    query.copy("older", to="checkpoint")
    _, hint = query.refusal(sink)
    number = int(hint.partition("above ")[2].partition(" ")[0])
    for mark in tmp_path.glob("visits/query_id=*/_batches/*"):
        if int(mark.name) > number:
            shutil.rmtree(mark)
            for files in tmp_path.glob(f"visits/query_id=*/batch_id={mark.name}"):
                shutil.rmtree(files)
    assert found != rows()
    query.start(sink)

    assert found == rows()


@pytest.mark.long
def test_a_table_of_postgresql_is_rewound(
    spark: SparkSession, tmp_path: Path, postgres: server.Postgres
) -> None:
    """Sessions come again with the same ids, and take the place of those that are there."""
    query = Query(spark, tmp_path)
    sink = Postgres(postgres.dsn, "rewound")
    query.run(sink)
    query.copy("checkpoint", to="older")
    query.run(sink)
    query.run(sink)
    found = postgres.rows("SELECT key, session_id FROM rewound")
    query.copy("older", to="checkpoint")
    _, hint = query.refusal(sink)
    statement = hint[hint.index("UPDATE") :].partition(";")[0]
    postgres.run("DELETE FROM rewound WHERE session_end > '2026-03-08 06:55Z'")
    postgres.run(statement)
    query.start(sink)

    assert found == postgres.rows("SELECT key, session_id FROM rewound")
