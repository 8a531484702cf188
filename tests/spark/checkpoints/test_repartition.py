"""Spark's checkpoint manager changes the partitions of a stopped query, which then goes on."""

import json
import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit import SpecError, Storage
from sessionkit.errors import StateCorruptedError
from sessionkit.spark import (
    ExactlyOnce,
    Files,
    Routes,
    check_checkpoint,
    sessionize,
    state_changes,
    state_frame,
)
from sessionkit.spark._logs import OFFSETS
from sessionkit.spark._settings import is_connect
from sessionkit.spark.checkpoints.changes import CHANGELOGS
from sessionkit.spark.jobs.transform_with_state import PROVIDER, ROCKSDB
from sessionkit.spark.sinks import finished
from tests.support import lakes
from tests.support.hourly_query import SPEC, START, Query, Store
from tests.support.spark_settings import IN_PARTITIONS, changed, spark_release
from tests.support.streams import FileStream

RUNS = 4
SETTINGS = {
    **IN_PARTITIONS,
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    PROVIDER: ROCKSDB,
    CHANGELOGS: "true",
}


@pytest.fixture(autouse=True)
def _two_partitions(spark: SparkSession) -> Iterator[None]:
    if is_connect(spark) or spark_release() < (4, 2):
        pytest.skip("not run: this Spark has no checkpoint manager")
    with changed(spark, SETTINGS):
        yield


def repartition(spark: SparkSession, checkpoint: str | Path, partitions: int) -> None:
    manager: Any = spark._streamingCheckpointManager
    manager.repartition(str(checkpoint), partitions)


@pytest.mark.nightly
def test_a_query_goes_on_with_equal_rows(spark: SparkSession, tmp_path: Path) -> None:
    """From two partitions to three and back, in the middle of a stream; also what reads it."""
    query, store = Query(spark, tmp_path), Store(tmp_path / "store.db")
    sink, moves = ExactlyOnce(store.write, store.last_batch), {1: 3, 3: 2}
    for number in range(RUNS):
        if number in moves:
            written = finished(query.stream.checkpoint, spark)
            repartition(spark, query.stream.checkpoint, moves[number])
            assert written == finished(query.stream.checkpoint, spark)
        query.run(sink)
    changes = state_changes(query.stream.checkpoint, SPEC, since=0, until=5, spark=spark)

    # As `collect` gives instants: naive, in the zone of the machine.
    starts = [(START + timedelta(hours=n)).astimezone() for n in range(RUNS - 2)]
    assert [
        (key, str(start.replace(tzinfo=None))) for key in ("ann", "bob") for start in starts
    ] == store.rows()
    told = [(number, change) for number in (3, 5) for change in ("gone", "gone", "new", "new")]
    assert [(2, "new"), (2, "new"), *told] == sorted((row[0], row[1]) for row in changes.collect())


@pytest.mark.nightly
def test_what_another_store_leaves_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark plans the micro-batch before it looks at the store; without its entry, all goes on."""
    query, store = Query(spark, tmp_path), Store(tmp_path / "store.db")
    sink = ExactlyOnce(store.write, store.last_batch)
    spark.conf.unset(PROVIDER)
    query.run(sink)
    with pytest.raises(Exception, match="UNSUPPORTED_PROVIDER"):
        repartition(spark, query.stream.checkpoint, 3)
    with pytest.raises(StateCorruptedError, match="from 2 to 3 partitions") as refused:
        query.start(sink)
    (tmp_path / "checkpoint" / "offsets" / "1").unlink()
    query.run(sink)

    assert "delete" in str(refused.value)
    assert (tmp_path / "checkpoint" / "commits" / "1").exists()


# ------------------------------------------------------------------------- fifty micro-batches

PARTS = (0, 17, 34, 52)
"""Of the tables, where a run begins: after the first in three partitions, then in two again."""
IN_BUCKETS = attrs.evolve(lakes.SPEC, storage=Storage(bucket_count=6))
IN_PAGES = attrs.evolve(lakes.SPEC, storage=Storage(layout="pages", bucket_count=6))
Rows: TypeAlias = list[tuple[str, list[int]]]


def tables() -> list[pa.Table]:
    """Return events of twelve keys, four minutes after each other, and what ends all sessions."""
    draw = random.Random(7)
    chosen = [[key for key in range(12) if draw.random() < 0.4 or key == 0] for _ in range(50)]
    rows = [[(f"k{key:02}", 4 * n, 100 * n + key) for key in keys] for n, keys in enumerate(chosen)]
    return [lakes.events(*one) for one in [*rows, [("end", 1000, 0)], [("end", 1001, 0)]]]


class Lists(Store):
    """A store of the values of sessions."""

    def write(self, frame: DataFrame, query_id: str, batch_id: int) -> None:
        rows = frame.select("key", F.to_json("values").alias("session_start"))
        super().write(rows, query_id, batch_id)


@pytest.fixture(params=["store", "files", "postgres", lakes.DELTA, lakes.FOLDERS])
def target(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> Iterator[tuple[Any, Callable[[], Rows]]]:
    """Give a sink of each kind, and what returns its rows."""
    match request.param:
        case "store":
            store = Lists(tmp_path / "store.db")
            yield ExactlyOnce(store.write, store.last_batch), lambda: listed(store)
        case "files":
            sink = Files("parquet", tmp_path / "visits")
            yield sink, lambda: values_in(spark.read.parquet(str(sink.path)))
        case "postgres":
            pytest.importorskip("psycopg")
            from sessionkit.addons.postgres import Postgres  # noqa: PLC0415 - a cell has none

            server = request.getfixturevalue("postgres")
            asked = 'SELECT key, "values" FROM visits'
            yield Postgres(server.dsn, "visits"), lambda: server.rows(asked)
        case name:
            lake = lakes.lake_of(name, spark, tmp_path)
            yield lake.sink("visits"), partial(lakes.rows_in, lake, "visits", "key", "values")


def listed(store: Store) -> Rows:
    return [(key, json.loads(values)) for key, values in store.rows()]


def values_in(frame: DataFrame) -> Rows:
    return sorted((row.key, [*row["values"]]) for row in frame.collect())


def run_in_parts(
    stream: FileStream,
    sink: Any,
    parts: Sequence[int] = PARTS,
    then: Callable[[], None] = lambda: None,
) -> Rows:
    """Run fifty micro-batches, with two repartitions between; return the rows of one batch."""
    for partitions, (since, until) in zip((3, 2, None), pairwise(parts), strict=True):
        stream.put(*tables()[since:until])
        stream.run_to(sink)
        if partitions is not None:
            repartition(stream.spark, stream.checkpoint, partitions)
            then()
    return values_in(sessionize(stream.batch(), stream.spec).where("key != 'end'"))


@pytest.mark.long
def test_fifty_micro_batches_give_equal_rows(
    target: tuple[Any, Callable[[], Rows]], spark: SparkSession, tmp_path: Path
) -> None:
    """Whatever the sink is: it never gets the micro-batches of the repartitions."""
    sink, rows = target
    stream = FileStream(spark, IN_BUCKETS, tmp_path / "stream", with_rejected=True)
    batch = run_in_parts(stream, Routes(session=sink, rejected=None))

    assert 82 == len(batch)
    assert batch == sorted(rows())


@pytest.mark.long
@pytest.mark.parametrize(
    ("spec", "settings"),
    [(IN_BUCKETS, {}), (IN_PAGES, {OFFSETS: "2"}), (IN_BUCKETS, {CHANGELOGS: "false"})],
    ids=["buckets", "pages", "no changelogs"],
)
def test_what_reads_the_state_reads_it_across_a_repartition(
    spec: Any, settings: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    """What was open after a micro-batch, and what has changed from one to another."""
    store = Lists(tmp_path / "store.db")
    stream = FileStream(spark, spec, tmp_path / "stream")

    def open_at(number: int) -> dict[str, Any]:
        frame = state_frame(stream.checkpoint, spec, batch=number, spark=spark)
        return {row["session_id"]: tuple(row) for row in frame.collect()}

    with changed(spark, settings):
        batch = run_in_parts(stream, ExactlyOnce(store.write, store.last_batch))
        check_checkpoint(stream.checkpoint, spec, deep=True, spark=spark)
        # The repartitions are 17 and 35.
        spans = [(10, 20), (16, 17), (16, 18), (17, 30), (20, 53), (34, 36), (35, 53)]
        for since, until in spans if CHANGELOGS not in settings else ():
            told = state_changes(
                stream.checkpoint, spec, since=since, until=until, spark=spark
            ).collect()
            found = open_at(since)
            for row in sorted(told):
                found.pop(row["session_id"], None)
                found |= {row["session_id"]: row[2:]} if row["change"] != "gone" else {}
            assert open_at(until) == found
            assert {17, 35}.isdisjoint(row["batch"] for row in told)
    assert batch == sorted(listed(store))


PLAIN, JOINED = "echo v1 > 35", "{ echo v1; grep -h '^{' 9.compact 1?; } > 19.compact"
"""As docs/how-to/restart.md has them, for the numbers of this test."""


@pytest.mark.long
def test_files_alone_need_an_entry_for_each_repartition(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's file sink would have a gap: refused before anything runs, and right with entries."""
    sink, refused = Files("parquet", tmp_path / "visits"), []
    stream, entries = FileStream(spark, IN_BUCKETS, tmp_path / "stream"), [JOINED, PLAIN]

    def add_entry() -> None:
        with pytest.raises(SpecError, match="has no entry for it") as error:
            stream.run_to(sink)
        refused.append(str(error.value))
        log = tmp_path / "visits" / "_spark_metadata"
        subprocess.run(["bash", "-c", entries.pop(0)], cwd=log, check=True)

    batch = run_in_parts(stream, sink, (0, 19, 34, 52), add_entry)
    assert ["micro-batch 19", "micro-batch 35"] == [
        text[: len("micro-batch 19")] for text in refused
    ]
    assert "with `migrate`" in refused[0]
    assert batch == values_in(spark.read.parquet(str(tmp_path / "visits")))
