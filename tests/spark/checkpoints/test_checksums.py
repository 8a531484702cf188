"""Spark's own checksums of the files of state, and its repair of snapshots, under our tools."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest
from pyspark.sql import SparkSession

from sessionkit.errors import StateCorruptedError
from sessionkit.spark import (
    check_checkpoint,
    erase_key,
    migrate,
    state_changes,
    state_frame,
)
from sessionkit.spark.checkpoints.changes import CHANGELOGS
from sessionkit.spark.checkpoints.state_reader import FORMAT
from sessionkit.spark.jobs.transform_with_state import PROVIDER, ROCKSDB
from tests.support import counted_views
from tests.support.counted_views import USERS, spec_of
from tests.support.erased_visits import KEY, SPEC, users, views
from tests.support.faults.disks import DAMAGES
from tests.support.spark_settings import changed, spark_release
from tests.support.streams import FileStream

pytestmark = [
    pytest.mark.long,
    pytest.mark.since_spark("4.1", "before 4.1, Spark has no checksums of state"),
]

CHECKSUMS: Final = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
SUM: Final = ".crc"
SUMMED: Final = (".delta", ".snapshot", ".changelog", ".zip")
REPAIR: Final = "spark.sql.streaming.stateStore.autoSnapshotRepair.enabled"
REPAIRED: Final = {
    "default": "numSnapshotsAutoRepaired",
    "RocksDB": "rocksdbNumSnapshotsAutoRepaired",
    "RocksDB-2": "rocksdbNumSnapshotsAutoRepaired",
}
"""The count of repaired snapshots in the progress of a query."""
SNAPSHOTS: Final = {
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.unloadOnCommit": "true",
}
"""A snapshot after every other micro-batch or so, before the next one begins."""
STORES: Final = {
    "default": {},
    "RocksDB": {PROVIDER: ROCKSDB, CHANGELOGS: "true"},
    "RocksDB-2": {PROVIDER: ROCKSDB, CHANGELOGS: "true", FORMAT: "2"},
}


@pytest.fixture(params=STORES)
def store(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """Let queries keep their state in one of Spark's stores, the last with format 2 of state."""
    with changed(spark, {CHECKSUMS: "true", **SNAPSHOTS, **STORES[request.param]}):
        yield request.param


def needs_sums(store: str) -> None:
    """Skip where Spark keeps no checksums: since 4.2, it does only under format 2 of the state."""
    if store != "RocksDB-2" and (4, 2) <= spark_release():
        pytest.skip("this Spark has no checksums of the files of this store")


def state_files(checkpoint: str) -> list[Path]:
    files = Path(checkpoint).glob("state/*/*/*")
    return [file for file in files if file.suffix in SUMMED and file.name[0] != "."]


def with_sum(file: Path) -> Path:
    return file.with_name(f"{file.name}{SUM}")


def newest(checkpoint: str, *suffixes: str) -> Path:
    """Return the newest file of a kind of the second partition."""
    files = [file for file in state_files(checkpoint) if file.suffix in suffixes]
    files = [file for file in files if file.parent.name == "1"]
    return max(files, key=lambda file: int(file.stem.partition("_")[0]))


def test_a_query_goes_on_after_each_tool(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """A checkpoint that was read, erased from and migrated has the checksums that Spark expects."""
    needs_sums(store)
    stream = FileStream(spark, SPEC, tmp_path / "old", with_rejected=True, erases=True)
    stream.put(views((KEY, 0, "/"), ("bob", 1, "/")), views((KEY, 2, "/")))
    stream.run()
    erase_key(stream.checkpoint, SPEC, KEY, spark=spark)
    stream.put(views(("bob", 2, "/")), views(("cy", 3, "/")))
    stream.run()
    check_checkpoint(stream.checkpoint, SPEC, deep=True, spark=spark)
    changes = state_changes(stream.checkpoint, SPEC, since=-1, spark=spark)
    assert "gone" in {row["change"] for row in changes.collect() if row["key"]["user"] == KEY}
    erase_key(stream.checkpoint, SPEC, "cy", spark=spark)
    seed = migrate(stream.checkpoint, SPEC, SPEC, tmp_path / "seed", spark=spark)
    files = stream.source
    new = FileStream(spark, SPEC, tmp_path / "new", shape=seed.unread, seed=seed, files=files)
    stream.put(views(("dan", 4, "/")))
    for query in (stream, new):
        query.run()
        assert ["bob 2", "dan 1"] == users(query)
        check_checkpoint(query.checkpoint, SPEC, deep=True, spark=spark)
        assert {True} == {with_sum(file).exists() for file in state_files(query.checkpoint)}


def begun(spark: SparkSession, folder: Path) -> FileStream:
    stream = FileStream(spark, spec_of("buckets"), folder)
    stream.put(*map(counted_views.views, (0, 5, 20, 25)))
    stream.run()
    return stream


def copied(stream: FileStream, folder: Path) -> FileStream:
    """Return a query over a copy, without the checksums that a local file system keeps."""
    copy = attrs.evolve(stream, folder=folder)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(stream.folder, folder, ignore=shutil.ignore_patterns(".*.crc"))
    return copy


def check(stream: FileStream) -> None:
    check_checkpoint(stream.checkpoint, stream.spec, deep=True, spark=stream.spark)


def test_checksums_find_what_was_exchanged(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """A damaged checksum is as bad as a damaged file; one that is missing is no damage."""
    needs_sums(store)
    stream = begun(spark, tmp_path / "base")
    copy = copied(stream, tmp_path / "copy")
    path = newest(copy.checkpoint, ".delta", ".changelog")
    number = int(path.stem.partition("_")[0]) - 1
    (older,) = path.parent.glob(f"{number}[._]*{path.suffix}")
    shutil.copyfile(older, path)
    with pytest.raises(StateCorruptedError, match="CHECKSUM_VERIFICATION_FAILED") as refused:
        state_frame(copy.checkpoint, copy.spec, spark=spark).collect()
    assert str(path) in str(refused.value)
    for name, harm in DAMAGES.items():
        copy = copied(stream, tmp_path / "copy")
        harm(with_sum(newest(copy.checkpoint, ".delta", ".changelog")))
        if name == "missing":
            check(copy)
            continue
        with pytest.raises(StateCorruptedError):
            check(copy)


def test_a_damaged_snapshot_is_repaired(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """Spark 4.2 reads an earlier one and the changes since; before, and with it off, it raises."""
    stream = begun(spark, tmp_path)
    path = newest(stream.checkpoint, ".snapshot", ".zip")
    DAMAGES["one bit"](path)
    path.with_name(f".{path.name}{SUM}").unlink(missing_ok=True)
    with changed(spark, {REPAIR: "false"}), pytest.raises(StateCorruptedError):
        check(stream)
    if spark_release() < (4, 2):
        return
    check(stream)
    stream.put(counted_views.views(40), counted_views.views(130))
    first, *_ = stream.progress()
    assert {(user, 5) for user in USERS} == {(row["user"], row["views"]) for row in stream.rows()}
    metrics = first["stateOperators"][0]["customMetrics"]
    assert 1 == metrics[REPAIRED[store]]
