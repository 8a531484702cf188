"""What micro-batches have changed, read from a checkpoint."""

from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from sessionkit import SessionkitError, Storage
from sessionkit.errors import UnsupportedError
from sessionkit.spark import state_changes, state_frame
from sessionkit.spark._logs import Logs
from sessionkit.spark.checkpoints.changes import CHANGELOGS, check_feed, in_batch_order
from sessionkit.spark.checkpoints.state_reader import FORMAT
from sessionkit.spark.jobs.transform_with_state import PROVIDER, ROCKSDB, check_operator
from tests.support.spark_settings import changed
from tests.support.streams import FileStream
from tests.support.visits import SESSIONS, views

IN_ROCKSDB = {PROVIDER: ROCKSDB, CHANGELOGS: "true"}
SESSIONS_IN_PAGES = attrs.evolve(SESSIONS, storage=Storage(layout="pages", bucket_count=2))
SESSIONS_IN_BUCKETS = attrs.evolve(SESSIONS, storage=Storage(bucket_count=2))
FIRST, SECOND = views(("ann", 0), ("bob", 0), ("cy", 0)), views(("ann", 1), ("ann", 50), ("d", 60))


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        pytest.param(SESSIONS_IN_PAGES, IN_ROCKSDB, marks=pytest.mark.nightly),
        pytest.param(SESSIONS_IN_BUCKETS, IN_ROCKSDB, marks=pytest.mark.long),
        pytest.param(SESSIONS_IN_BUCKETS, {}, marks=pytest.mark.long),
        pytest.param(SESSIONS_IN_PAGES, {**IN_ROCKSDB, FORMAT: "2"}, marks=pytest.mark.long),
    ],
)
def test_changes_lead_from_one_micro_batch_to_another(
    spec: Any, settings: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    """They leave nothing out, and have nothing that stayed as it was."""
    check_operator(spark, spec)
    stream = FileStream(spark, spec, tmp_path)
    stream.put(FIRST, SECOND)

    def at(number: int) -> dict[str, Any]:
        frame = state_frame(stream.checkpoint, spec, batch=number, spark=spark)
        return {row["session_id"]: tuple(row) for row in frame.collect()}

    with changed(spark, settings):
        last = len(stream.run()) - 1
        changes = state_changes(stream.checkpoint, spec, since=0, spark=spark).collect()
        before, after = at(0), at(last)

    for row in sorted(changes):
        before.pop(row["session_id"], None)
        before |= {row["session_id"]: row[2:]} if row["change"] != "gone" else {}
    assert before == after
    assert [
        (1, "changed", "ann", 2),
        (1, "new", "ann", 1),
        (1, "new", "d", 1),
        (2, "gone", "ann", 2),
        (2, "gone", "bob", 1),
        (2, "gone", "cy", 1),
    ] == sorted((row[0], row[1], row["key"][0], row["events"]) for row in changes)
    with pytest.raises(SessionkitError, match="`since` is micro-batch 2, and `until` is 1"):
        state_changes(stream.checkpoint, spec, since=2, until=1, spark=spark)


@pytest.mark.parametrize("places", [[(1, 0), (1, 2), (1, 1)], [(1, 0), (2, 0), (1, 1)]])
def test_rows_that_an_engine_has_not_sorted_are_refused(places: list[tuple[int, int]]) -> None:
    """A bucket that comes twice, or an earlier micro-batch after a later one, is out of order."""

    def rows(places: list[tuple[int, int]]) -> list[dict[str, Any]]:
        return [{"key": {"bucket": bucket}, "batch": batch} for bucket, batch in places]

    assert rows(sorted(places)) == [*in_batch_order(rows(sorted(places)))]
    with pytest.raises(SessionkitError, match="micro-batch 1 of a bucket comes out of order"):
        [*in_batch_order(rows(places))]


def test_changes_that_spark_does_not_know_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """RocksDB writes them only with a setting, which may have come later."""
    partition = tmp_path / "state" / "0" / "0"
    (partition / "SSTs").mkdir(parents=True)
    for name in ("1.zip", "2.zip", "3.changelog", "3.zip", "4_ab12.changelog", "SSTs/5.sst"):
        (partition / name).write_text("what it has doesn't matter")

    logs = Logs(str(tmp_path), {}, {})
    check_feed(logs, [(2, 3)], spark)
    with pytest.raises(UnsupportedError, match=r"micro-batch 1 has .*\n\nHint: pass since=1: it"):
        check_feed(logs, [(0, 1), (3, 3)], spark)
    with pytest.raises(UnsupportedError, match=r"no 5\.delta or .*\n\nHint: set .* to true where"):
        check_feed(logs, [(2, 4)], spark)
