"""A folder as one of several sinks: one run writes, and its attempts never mix."""

import shutil
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionkit import SpecError
from sessionkit.errors import SinkError
from sessionkit.spark.sinks import Batch
from sessionkit.spark.sinks.values import Files
from sessionkit.spark.sinks.writers import FolderWriter, check_layout


def found(spark: SparkSession, folder: Path) -> list[tuple[int, str, int]]:
    """Return the rows of a folder, as anyone reads them."""
    rows = spark.read.json(str(folder)).select("id", "text", "batch_id").collect()
    return sorted((row.id, row.text, row.batch_id) for row in rows)


def runs(folder: Path, frame: DataFrame) -> tuple[FolderWriter, Batch, FolderWriter, Batch]:
    """Return two runs of one query that have both come to one micro-batch, the later one last."""
    batch = Batch(frame, 0, "query", "earlier")
    writers = [FolderWriter(Files("json", folder)) for _ in range(2)]
    later = attrs.evolve(batch, run_id="later")
    assert not writers[0].is_written(batch)
    assert not writers[1].is_written(later)
    return writers[0], batch, writers[1], later


def test_only_the_last_run_writes(spark: SparkSession, tmp_path: Path) -> None:
    """A run that is still alive when the next one has begun writes nothing more."""
    frame = spark.createDataFrame([(1, "a")], "id long, text string")
    earlier, its, later, own = runs(tmp_path / "out", frame)
    with pytest.raises(SinkError, match="a later run has it"):
        earlier.write(its)
    assert [] == [*(tmp_path / "out").rglob("*.json")]

    later.write(own)
    assert later.is_written(own)
    assert not later.is_written(attrs.evolve(own, number=1))
    assert [(1, "a", 0)] == found(spark, tmp_path / "out")


def test_no_note_has_a_name_that_spark_says_it_ignores(spark: SparkSession, tmp_path: Path) -> None:
    """It logs a read of a path whose last part begins with `_` as ignored, and reads it."""
    *_, later, own = runs(
        tmp_path / "out", spark.createDataFrame([(1, "a")], "id long, text string")
    )
    later.write(own)
    folders = {note.parent for note in (tmp_path / "out").rglob("part-*.txt")}

    assert {"id", "0"} == {folder.name for folder in folders}
    assert {"_run", "_batches"} == {folder.parent.name for folder in folders}


def test_a_folder_that_is_gone_is_not_made_again(spark: SparkSession, tmp_path: Path) -> None:
    """The error says so, rather than that a later run has it."""
    writer = FolderWriter(Files("json", tmp_path / "out"))
    batch = Batch(spark.createDataFrame([(1, "a")], "id long, text string"), 0, "query", "run")
    assert not writer.is_written(batch)
    writer.write(batch)
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(SinkError, match="is gone, to which this query was writing"):
        writer.write(attrs.evolve(batch, number=1))
    assert not (tmp_path / "out").exists()


def test_a_run_that_is_writing_when_another_one_begins(spark: SparkSession, tmp_path: Path) -> None:
    """Both have the same rows, which are there once, and the earlier run ends."""
    if spark.conf.get("spark.master") == "local":
        pytest.skip("not run: this session has one core, and a task that waits has it")
    begun, go_on = tmp_path / "begun", tmp_path / "go on"

    def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begun.touch()
        while not go_on.exists():
            time.sleep(0.05)
        yield from batches

    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id long, text string")
    slow = frame.coalesce(1).mapInArrow(wait, "id long, text string")
    writer, batch = (
        FolderWriter(Files("json", tmp_path / "out")),
        Batch(slow, 0, "query", "earlier"),
    )
    assert not writer.is_written(batch)
    with ThreadPoolExecutor(1) as pool:
        earlier = pool.submit(writer.write, batch)
        while not begun.exists():
            time.sleep(0.05)
        later = FolderWriter(Files("json", tmp_path / "out"))
        own = attrs.evolve(batch, frame=frame, run_id="later")
        assert not later.is_written(own)
        later.write(own)
        assert [(1, "a", 0), (2, "b", 0)] == found(spark, tmp_path / "out")
        go_on.touch()
        with pytest.raises(SinkError, match="a later run has it"):
            earlier.result()

    assert later.is_written(own)
    assert [(1, "a", 0), (2, "b", 0)] == found(spark, tmp_path / "out")


def test_a_micro_batch_without_rows_is_known(spark: SparkSession, tmp_path: Path) -> None:
    """It leaves no folder of its own, and isn't written again; what is half written is."""
    frame = spark.createDataFrame([(1, "a")], "id long, text string")
    writer = FolderWriter(Files("json", tmp_path / "out", partition_by="text"))
    full, empty = Batch(frame, 0, "q", "r"), Batch(frame.where("false"), 1, "q", "r")
    assert not writer.is_written(full)
    writer.write(full)
    writer.write(attrs.evolve(full, run_id="r"))
    writer.write(empty)

    assert writer.is_written(empty)
    assert [(1, "a", 0)] == found(spark, tmp_path / "out")
    ledger, other = writer.ledger(frame, "q"), writer.ledger(frame, "another")
    assert ledger is not None
    assert other is not None
    assert (True, True, False) == tuple(ledger.has_from(number) for number in (0, 1, 2))
    assert not other.has_from(0)


def test_a_folder_has_one_layout(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads only what the log of its own sink names, and not the folders next to it."""
    frame = spark.createDataFrame([(1, "a")], "id long, text string")
    routed, alone = Files("json", tmp_path / "routed"), Files("json", tmp_path / "alone")
    batch = Batch(frame, 0, "q", "r")
    writer = FolderWriter(routed)
    writer.is_written(batch)
    writer.write(batch)
    (tmp_path / "alone" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "alone" / "_spark_metadata" / "0").touch()
    check_layout(spark, routed, alone=False)
    check_layout(spark, alone, alone=True)

    with pytest.raises(SpecError, match="has written as a sink of Routes, and here it's alone"):
        check_layout(spark, routed, alone=True)
    with pytest.raises(SpecError, match="has written alone, and here it's as a sink of Routes"):
        check_layout(spark, alone, alone=False)
