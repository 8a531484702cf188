"""Spark's checkpoint manager changes the partitions of a stopped query, which then goes on."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionkit.errors import StateCorruptedError
from sessionkit.spark import ExactlyOnce, check_checkpoint
from sessionkit.spark._settings import is_connect
from sessionkit.spark.checkpoints.changes import CHANGELOGS
from sessionkit.spark.jobs.transform_with_state import PROVIDER, ROCKSDB
from tests.support.hourly_query import SPEC, START, Query, Store
from tests.support.spark_settings import IN_PARTITIONS, changed, spark_release

RUNS = 5
SETTINGS = {**IN_PARTITIONS, "spark.sql.streaming.noDataMicroBatches.enabled": "false"}


@pytest.fixture(autouse=True)
def _two_partitions(spark: SparkSession) -> Iterator[None]:
    if is_connect(spark) or spark_release() < (4, 2):
        pytest.skip("not run: this Spark has no checkpoint manager")
    with changed(spark, SETTINGS):
        yield


def repartition(spark: SparkSession, query: Query, partitions: int) -> None:
    manager: Any = spark._streamingCheckpointManager
    manager.repartition(str(query.folder / "checkpoint"), partitions)


def test_a_query_goes_on_with_equal_rows(spark: SparkSession, tmp_path: Path) -> None:
    """From two partitions to three and back, in the middle of a stream; also the deep check."""
    query, store = Query(spark, tmp_path), Store(tmp_path / "store.db")
    sink, moves = ExactlyOnce(store.write, store.last_batch), {2: 3, 3: 2}
    with changed(spark, {PROVIDER: ROCKSDB, CHANGELOGS: "true"}):
        for number in range(RUNS):
            if number in moves:
                repartition(spark, query, moves[number])
            query.run(sink)
        check_checkpoint(query.stream.checkpoint, SPEC, deep=True, spark=spark)

    # As `collect` gives instants: naive, in the zone of the machine.
    starts = [(START + timedelta(hours=n)).astimezone() for n in range(RUNS - 2)]
    assert [
        (key, str(start.replace(tzinfo=None))) for key in ("ann", "bob") for start in starts
    ] == store.rows()


def test_what_another_store_leaves_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark plans the micro-batch before it looks at the store; without its entry, all goes on."""
    query, store = Query(spark, tmp_path), Store(tmp_path / "store.db")
    sink = ExactlyOnce(store.write, store.last_batch)
    query.run(sink)
    with pytest.raises(Exception, match="UNSUPPORTED_PROVIDER"):
        repartition(spark, query, 3)
    with pytest.raises(StateCorruptedError, match="from 2 to 3 partitions") as refused:
        query.start(sink)
    (tmp_path / "checkpoint" / "offsets" / "1").unlink()
    query.run(sink)

    assert "delete" in str(refused.value)
    assert (tmp_path / "checkpoint" / "commits" / "1").exists()
