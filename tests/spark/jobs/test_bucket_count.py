"""Into how many buckets a stream hashes its keys, and what a restart makes of another number."""

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionkit import EventTimeGap, Storage
from sessionkit.errors import StateError
from sessionkit.spark import Files, migrate, start_query
from sessionkit.spark._grouping import for_stream
from sessionkit.spark._settings import PARTITIONS
from sessionkit.spark.checkpoints.state_reader import reads_state, stored_groups
from tests.support.session_specs import collecting
from tests.support.spark_settings import changed
from tests.support.streams import FileStream, with_gap

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
SPEC = collecting(EventTimeGap("10 minutes"))
BUCKETS_DIFFER = (
    "(16 in the spec, 8 in the|8 buckets, and the frame has 16).*\n\nHint: pass storage"
)


def minutes(*at: int) -> pa.Table:
    """Return an event of each of forty keys at some minutes."""
    rows = [(f"key {key}", NOON + timedelta(minutes=minute)) for minute in at for key in range(40)]
    keys, instants = zip(*rows, strict=True)
    return pa.table(
        {
            "key": keys,
            "at": pa.array(instants, pa.timestamp("us", tz="UTC")),
            "value": list(range(len(rows))),
            "number": list(range(len(rows))),
        }
    )


def counts_stored(stream: FileStream) -> set[int]:
    """Return the number of buckets of each row of state."""
    rows = stored_groups(stream.checkpoint, stream.spark).select("state.bucket_count")
    return {count for (count,) in rows.collect()}


@pytest.mark.parametrize(
    ("setting", "buckets"), [(1, 4), (2, 8), (8, 32), (16, 64), (40, 64), (64, 64), (200, 200)]
)
def test_a_stream_has_four_buckets_for_each_shuffle_partition(
    spark: SparkSession, setting: int, buckets: int
) -> None:
    """Four a shuffle partition, up to 64; beyond 64 partitions one each."""
    with changed(spark, {PARTITIONS: str(setting)}):
        for storage, expected in (
            (Storage(), buckets),
            (Storage(layout="pages"), buckets),
            (Storage(bucket_count=3), 3),
        ):
            found = for_stream(attrs.evolve(SPEC, storage=storage), spark)
            assert expected == found.storage.buckets
    assert SPEC.storage.bucket_count is None
    assert 64 == SPEC.storage.buckets


@pytest.mark.parametrize("layout", ["buckets", pytest.param("pages", marks=pytest.mark.long)])
def test_a_restart_under_another_setting_says_what_to_pass(
    spark: SparkSession, tmp_path: Path, layout: Any
) -> None:
    """What reads the checkpoint takes the number from there; with the number, the query goes on."""
    stream = FileStream(
        spark, attrs.evolve(SPEC, storage=Storage(layout=layout)), tmp_path, shape=with_gap
    )
    stream.put(minutes(0, 3))
    stream.run()
    if reads_state(spark):
        assert {8} == counts_stored(stream)

    stream.put(minutes(5))
    with changed(spark, {PARTITIONS: "3"}), stream.state_store():
        if reads_state(spark):
            assert 40 == len(stream.open())
        with pytest.raises(Exception, match="`bucket_count` is 12 in the spec, 8 in the") as found:
            stream.run()
        assert "Hint: pass storage=Storage(bucket_count=8), as it was started" in str(found.value)
        stream.put(minutes(60))
        attrs.evolve(
            stream, spec=attrs.evolve(SPEC, storage=Storage(layout=layout, bucket_count=8))
        ).run()

    rows = sorted((row["key"], len(row["values"])) for row in stream.rows())
    assert sorted((f"key {key}", 3) for key in range(40)) == rows


@pytest.mark.parametrize("has_spec", [True, False])
def test_a_start_under_another_setting_is_refused(
    spark: SparkSession, tmp_path: Path, *, has_spec: bool
) -> None:
    """A key whose new bucket has no state would otherwise get a second one, and both be stored."""
    stream = FileStream(spark, SPEC, tmp_path, shape=with_gap)
    one = minutes(0).slice(0, 1)
    stream.put(one)
    stream.run()
    stream.put(one)
    spec, sink = SPEC if has_spec else None, Files("parquet", str(tmp_path / "out"))
    start: Any = partial(start_query, sink=sink, trigger="availableNow", spec=spec)
    with changed(spark, {PARTITIONS: "4"}), stream.state_store():
        rows = stream.output()
        if has_spec and not reads_state(spark):
            pytest.skip("not run: Spark 3.5 compares the counts by its log, in the other case")
        with pytest.raises(StateError, match=BUCKETS_DIFFER):
            start(rows, checkpoint=stream.checkpoint)
    start(stream.output(), checkpoint=stream.checkpoint).awaitTermination()
    if reads_state(spark):
        assert {8} == counts_stored(stream)


@pytest.mark.nightly
def test_a_stream_after_a_seed_has_the_bucket_count_of_the_seed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A stream that begins with a seed hashes its keys as the seed does, under any setting."""
    old = FileStream(spark, SPEC, tmp_path / "old", files=tmp_path / "in", shape=with_gap)
    old.put(minutes(0, 3))
    old.run()
    if not reads_state(spark):
        pytest.skip("Spark 3.5 can't read state")
    longer = collecting(EventTimeGap("30 minutes"))
    with changed(spark, {PARTITIONS: "5"}):
        seed = migrate(old.checkpoint, SPEC, longer, str(tmp_path / "seed"), spark=spark)

    new = FileStream(
        spark,
        longer,
        tmp_path / "new",
        files=tmp_path / "in",
        seed=seed,
        shape=lambda rows: with_gap(seed.unread(rows)),
    )
    new.put(minutes(25), minutes(120))
    new.run_to(Files("parquet", str(tmp_path / "new" / "out")))

    assert {20} == counts_stored(new)
    closed = sorted((row["key"], len(row["values"])) for row in new.rows())
    assert sorted((f"key {key}", n) for key in range(40) for n in (1, 2)) == closed
