"""A folder as one of several sinks: one run writes, and its attempts never mix."""

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionkit import SpecError
from sessionkit.errors import SinkError
from sessionkit.spark.sinks import Batch
from sessionkit.spark.sinks.marks import Folder, Note
from sessionkit.spark.sinks.values import Files
from sessionkit.spark.sinks.writers import FolderWriter, check_layout
from tests.support.figures import FIGURES, Record
from tests.support.two_runs import Killed, Turns, explained_by


def found(spark: SparkSession, folder: Path) -> list[tuple[int, str, int]]:
    """Return the rows of a folder, as anyone reads them, and `Files.read`."""
    plain, marked = (
        sorted((row.id, row.text, row.batch_id) for row in rows.collect())
        for rows in (spark.read.json(str(folder)), Files("json", folder).read(spark))
    )
    assert plain == marked
    return marked


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

    assert {"_runs", "0"} == {folder.parent.name for folder in folders}
    assert {"_runs", "_batches"} == {folder.parents[1].name for folder in folders} - {
        "query_id=query"
    } | {"_runs"}
    assert not any(folder.name.startswith("_") for folder in folders)


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


def slow(frame: DataFrame, begun: Path, go_on: Path) -> DataFrame:
    """Return a frame whose rows come when a file is there."""

    def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begun.touch()
        while not go_on.exists():
            time.sleep(0.05)
        yield from batches

    return frame.coalesce(1).mapInArrow(wait, "id long, text string")


@pytest.mark.parametrize("texts", ["ab", "xyz"])
def test_a_run_ends_where_a_later_one_has_begun(
    texts: str, spark: SparkSession, tmp_path: Path
) -> None:
    """What the later one has marked stays, also with other rows; and the earlier run ends."""
    if spark.conf.get("spark.master") == "local":
        pytest.skip("not run: this session has one core, and a task that waits has it")
    begun, go_on, out = tmp_path / "begun", tmp_path / "go on", tmp_path / "out"
    frame, other = (
        spark.createDataFrame([*enumerate(each)], "id long, text string") for each in ("ab", texts)
    )
    writer, batch = FolderWriter(Files("json", out)), Batch(frame, 0, "query", "earlier")
    assert not writer.is_written(batch)
    with ThreadPoolExecutor(1) as pool:
        held = attrs.evolve(batch, frame=slow(frame, begun, go_on))
        earlier = pool.submit(writer.write, held)
        while not begun.exists():
            time.sleep(0.05)
        later = FolderWriter(Files("json", out))
        own = attrs.evolve(batch, frame=other, run_id="later")
        assert not later.is_written(own)
        later.write(own)
        rows = found(spark, out)
        go_on.touch()
        with pytest.raises(SinkError, match="a later run has it"):
            earlier.result()

    assert later.is_written(own)
    assert [(number, text, 0) for number, text in enumerate(texts)] == rows
    assert rows == found(spark, out)


def test_what_a_killed_run_has_left_is_removed(spark: SparkSession, tmp_path: Path) -> None:
    """Files without a note that they are complete go; complete ones are marked as they are."""
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id long, text string")
    sink, folder = Files("json", tmp_path / "out", partition_by="text"), tmp_path / "out"
    first = FolderWriter(sink)
    batch = Batch(frame, 0, "q", "r")
    assert not first.is_written(batch)
    first.write(batch)
    left = attrs.evolve(batch, number=1)
    first.folder(left).save(
        frame, 1, 7 * 10**21, "json", options={}, partition_by=("text",)
    )  # and then it was killed
    second = FolderWriter(sink)
    assert not second.is_written(left)
    second.write(left)
    assert [(n, "ab"[n - 1], batch) for n in (1, 2) for batch in (0, 1)] == found(spark, folder)

    third = FolderWriter(sink)
    name = third.folder(batch).save(
        frame.limit(1), 2, 8 * 10**21, "json", options={}, partition_by=("text",)
    )
    third.folder(batch).add(2, Note(8 * 10**21, name, "", is_mark=False))
    assert third.is_written(attrs.evolve(batch, number=2))
    assert 1 == len([row for row in found(spark, folder) if row[2] == 2])


def test_a_folder_of_an_earlier_release_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """Its marks are the ids of runs, and its files are in the folder of the query."""
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id long, text string")
    of_query = tmp_path / "out" / "query_id=q"
    for number in (0, 1):
        files = frame.write.mode("append").json
        files(f"{of_query}/batch_id={number}")
    spark.createDataFrame([(str(UUID(int=7)),)], "run string").write.text(f"{of_query}/_batches/0")
    spark.createDataFrame([(str(UUID(int=7)),)], "run string").write.text(f"{of_query}/_run/id")
    writer, batch = FolderWriter(Files("json", tmp_path / "out")), Batch(frame, 0, "q", "r")

    assert writer.is_written(batch)
    assert [0, 0] == [row.batch_id for row in writer.sink.read(spark).collect()]
    half = attrs.evolve(batch, number=1)
    assert not writer.is_written(half)
    writer.write(half)
    assert [(1, "a", 0), (1, "a", 1), (2, "b", 0), (2, "b", 1)] == found(spark, tmp_path / "out")
    assert {"q"} == {row.query_id for row in writer.sink.read(spark).collect()}


def test_a_micro_batch_without_rows_is_known(spark: SparkSession, tmp_path: Path) -> None:
    """It leaves no folder of its own, and isn't written again."""
    frame = spark.createDataFrame([(1, "a")], "id long, text string")
    writer = FolderWriter(Files("json", tmp_path / "out", partition_by="text"))
    full, empty = Batch(frame, 0, "q", "r"), Batch(frame.where("false"), 1, "q", "r")
    for batch in (full, empty):
        assert not writer.is_written(batch)
        writer.write(batch)

    assert writer.is_written(empty)
    assert [(1, "a", 0)] == found(spark, tmp_path / "out")
    ledger, other = writer.ledger(frame, "q"), writer.ledger(frame, "another")
    assert ledger is not None
    assert other is not None
    assert (True, True, False) == tuple(ledger.has_from(number) for number in (0, 1, 2))
    assert not other.has_from(0)


def test_a_clock_that_was_ahead_keeps_no_later_run_out(spark: SparkSession, tmp_path: Path) -> None:
    """The later run takes a number above those that are there."""
    frame = spark.createDataFrame([(1, "a")], "id long, text string")
    writer, batch = FolderWriter(Files("json", tmp_path / "out")), Batch(frame, 0, "q", "r")
    writer.folder(batch).add_run(9 * 10**21)
    assert not writer.is_written(batch)
    writer.write(batch)

    assert [(1, "a", 0)] == found(spark, tmp_path / "out")


@attrs.define
class HeldWriter(FolderWriter):
    """A writer whose steps come in turn."""

    name: str = ""
    turns: Turns = attrs.field(kw_only=True)

    def folder(self, batch: Batch) -> Folder:
        folder = super().folder(batch)
        return HeldFolder(folder.spark, folder.path, folder.query_id, self.name, self.turns)


@attrs.frozen
class HeldFolder(Folder):
    name: str
    turns: Turns

    def has_run_from(self, run: int) -> bool:
        self.turns.step(self.name, "look for a later run")
        return super().has_run_from(run)

    def about(self, number: int) -> list[Note]:
        self.turns.step(self.name, f"look at {number}")
        return super().about(number)

    def save(self, rows: DataFrame, number: int, *args: Any, **options: Any) -> str:
        self.turns.step(self.name, f"save {number}")
        return super().save(rows, number, *args, **options)

    def clear(self, number: int, kept: str) -> None:
        self.turns.step(self.name, f"clear {number}")
        super().clear(number, kept)

    def _write(self, name: str, text: str) -> None:
        self.turns.step(self.name, f"write {name}")
        super()._write(name, text)


ORDERS = 12


@pytest.mark.nightly
def test_a_micro_batch_has_the_rows_of_one_of_two_runs_on_spark(
    spark: SparkSession, tmp_path: Path, record_property: Record
) -> None:
    """A marked micro-batch has the rows of one run, whole, in any order of steps and with kills."""
    ends = Counter[str]()
    frames = {
        run: spark.createDataFrame([(number, run) for number in range(3)], "id long, text string")
        for run in "AB"
    }
    for seed in range(ORDERS):
        sink, seen = Files("json", tmp_path / str(seed)), dict[int, Any]()
        turns = Turns(seed, 0.03)

        def run(name: str, sink: Files = sink, turns: Turns = turns) -> str:
            writer = HeldWriter(sink, name, turns=turns)
            for number in range(2):
                batch = Batch(frames[name], number, "q", name)
                if not writer.is_written(batch):
                    writer.write(batch)
            return "finished"

        with explained_by(turns):
            found = turns.run({name: partial(run, name) for name in "AB"})
            last = FolderWriter(sink)
            for number in range(2):
                batch = Batch(frames["A"], number, "q", "last")
                if not last.is_written(batch):
                    last.write(batch)
            for row in sink.read(spark).collect():
                seen.setdefault(row.batch_id, []).append((row.id, row.text))
            for rows in seen.values():
                assert 3 == len(rows), seen
                assert 1 == len({text for _, text in rows}), seen
            assert {0, 1} == {*seen}
        for end in found.values():
            assert isinstance(end, str | SinkError | Killed), end
            ends[type(end).__name__] += 1
    record_property(FIGURES, f"{ORDERS} orders of two runs on Spark: {dict(ends)}")
    assert ends["SinkError"]


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
