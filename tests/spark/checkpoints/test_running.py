"""What a query remembers, and what it changes, read while it runs."""

from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from sessionkit import SessionkitError, Storage
from sessionkit.spark import read_state, state_changes, state_frame
from sessionkit.spark.checkpoints.changes import CHANGELOGS
from sessionkit.spark.checkpoints.state_reader import reads_state
from tests.support.spark_settings import changed
from tests.support.streams import FileStream
from tests.support.visits import SESSIONS, views


@pytest.mark.parametrize("layout", ["buckets", pytest.param("pages", marks=pytest.mark.long)])
def test_open_sessions_are_read_while_the_query_runs(
    layout: Any, spark: SparkSession, tmp_path: Path
) -> None:
    """After its last finished micro-batch, or an earlier one that Spark still has; and changes."""
    if not reads_state(spark):
        pytest.skip("Spark 3.5 can't read state")
    spec = attrs.evolve(SESSIONS, storage=Storage(layout=layout, bucket_count=2))
    stream = FileStream(spark, spec, tmp_path)
    stream.put(views(("ann", 0), ("bob", 0)), views(("ann", 1)))

    def users(**which: Any) -> list[str]:
        found = read_state(stream.checkpoint, spec, spark=spark, **which)
        return sorted(f"{one.key.user} {one.events}" for one in found)

    with stream.state_store(), changed(spark, {CHANGELOGS: "true"}):
        written = stream.output().writeStream.format("noop")
        query = written.option("checkpointLocation", stream.checkpoint).start()
    try:
        query.processAllAvailable()
        assert ["ann 2", "bob 1"] == users()
        stream.put(views(("bob", 2)))
        query.processAllAvailable()
        assert ["ann 2", "bob 2"] == users()
        assert ["ann 1", "bob 1"] == users(batch=0)
        assert ["ann 1"] == users(batch=0, key="ann")
        with pytest.raises(SessionkitError, match="the end of micro-batch 99: it has 0 to"):
            state_frame(stream.checkpoint, spec, batch=99, spark=spark)
        changes = state_changes(stream.checkpoint, spec, since=0, spark=spark).collect()
        assert [("changed", "ann", 2), ("changed", "bob", 2)] == [
            (row["change"], row["key"]["user"], row["events"]) for row in sorted(changes)
        ]
        assert query.isActive
    finally:
        query.stop()
