"""A file sink that has micro-batches of another query is refused: Spark would drop rows."""

from fnmatch import fnmatchcase
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionkit import SpecError
from sessionkit.spark.query import start_query
from sessionkit.spark.sinks.marks import numbers_from
from sessionkit.spark.sinks.values import Files
from tests.support.spark_settings import changed
from tests.support.streams import write_files


@pytest.mark.parametrize("least", [0, 1, 8, 9, 10, 19, 90, 99, 100, 137, 909])
def test_a_glob_finds_the_numbers_from_one_on(least: int) -> None:
    """Exactly these names match, whether a file has one micro-batch or is compacted."""
    choices = numbers_from(least).removeprefix("{").removesuffix("}*").split(",")
    found = {
        (number, suffix)
        for number in range(1200)
        for suffix in ("", ".compact")
        if any(fnmatchcase(f"{number}{suffix}", f"{choice}*") for choice in choices)
    }

    assert {(number, suffix) for number, suffix in found if number < least} == set()
    assert {number for number, suffix in found if not suffix} == {*range(least, 1200)}
    assert {number for number, suffix in found if suffix} == {*range(least, 1200)}


class Numbers:
    """A query over files of numbers, one file a micro-batch, to a folder under a checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder

    def put(self, first: int, count: int, *, source: str = "in") -> None:
        tables = [pa.table({"id": [number]}) for number in range(first, first + count)]
        write_files(self.folder / source, tables, first=first)

    def read(self, source: str) -> DataFrame:
        reader = self.spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
        return reader.parquet(f"{self.folder}/{source}")

    def run(self, checkpoint: str, *, out: str = "out", source: str = "in") -> None:
        """Start the query, checked, and wait for its end."""
        start_query(
            self.read(source),
            sink=Files("parquet", self.folder / out),
            trigger="availableNow",
            checkpoint=self.folder / checkpoint,
        ).awaitTermination()

    def run_unchecked(self, checkpoint: str, *, out: str = "out", source: str = "in") -> None:
        writer = self.read(source).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", f"{self.folder}/{checkpoint}")
        query = writer.trigger(availableNow=True).start(f"{self.folder}/{out}")
        query.awaitTermination()

    def rows(self, out: str = "out") -> list[int]:
        return sorted(row.id for row in self.spark.read.parquet(f"{self.folder}/{out}").collect())

    def refusal(self, checkpoint: str, *, out: str = "out") -> tuple[str, str]:
        """Return message and hint of a refused start."""
        with pytest.raises(SpecError) as refused:
            self.run(checkpoint, out=out)
        message, _, hint = str(refused.value).partition("\n\nHint: ")
        return message, hint


@pytest.fixture
def numbers(spark: SparkSession, tmp_path: Path) -> Numbers:
    """A query with two micro-batches to come."""
    numbers = Numbers(spark, tmp_path)
    numbers.put(0, 2)
    return numbers


def test_a_new_checkpoint_over_a_folder_of_another_query_is_refused(
    numbers: Numbers, tmp_path: Path
) -> None:
    """It is refused, before anything is written; Spark itself drops the rows and says nothing."""
    numbers.run("first")
    numbers.put(100, 1, source="more")
    message, hint = numbers.refusal("second")
    numbers.run("first")

    assert f"the folder {tmp_path}/out has micro-batches" in message
    assert f"the checkpoint {tmp_path}/second hasn't planned yet" in message
    assert "a folder of its own" in hint
    assert not (tmp_path / "second").exists()
    assert [0, 1] == numbers.rows()
    numbers.run_unchecked("second", source="more")
    assert [0, 1] == numbers.rows()


def test_a_checkpoint_that_came_less_far_than_the_folder_is_refused(numbers: Numbers) -> None:
    """The folder has a micro-batch that this query comes to next, so its rows would be dropped."""
    numbers.run("ahead")
    numbers.put(100, 1, source="more")
    numbers.run("other", out="elsewhere", source="more")

    message, _ = numbers.refusal("other")
    assert "other hasn't planned yet" in message


def test_a_query_goes_on_over_its_own_folder(numbers: Numbers, tmp_path: Path) -> None:
    """So it does where a micro-batch reached the folder, and the checkpoint doesn't know yet."""
    numbers.run("first")
    for name in ("1", ".1.crc"):
        (tmp_path / "first" / "commits" / name).unlink()
    numbers.put(2, 1)
    numbers.run("first")

    assert [0, 1, 2] == numbers.rows()


def test_a_compacted_log_says_enough_of_a_folder(
    numbers: Numbers, spark: SparkSession, tmp_path: Path
) -> None:
    """Spark joins the log's files, and deletes the old ones: what's left says enough."""
    settings = {
        "spark.sql.streaming.fileSink.log.compactInterval": "2",
        "spark.sql.streaming.fileSink.log.cleanupDelay": "1ms",
        "spark.sql.streaming.minBatchesToRetain": "1",
    }
    numbers.put(2, 4)
    with changed(spark, settings):
        numbers.run("first")
    left = {path.name for path in (tmp_path / "out" / "_spark_metadata").glob("[0-9]*")}

    assert "0" not in left
    assert "5.compact" in left
    message, _ = numbers.refusal("second")
    assert "has micro-batches" in message


def test_another_folder_than_before_is_refused(numbers: Numbers, tmp_path: Path) -> None:
    """It is refused: Spark writes to it, and can't read what it wrote."""
    numbers.run("first")
    numbers.put(2, 1)
    message, hint = numbers.refusal("first", out="elsewhere")

    assert f"the folder {tmp_path}/elsewhere doesn't have micro-batch 1" in message
    assert f"the checkpoint {tmp_path}/first has finished" in message
    assert "the place that the query wrote to" in hint
    numbers.run_unchecked("first", out="elsewhere")
    with pytest.raises(Exception, match="_spark_metadata/0 doesn't exist"):
        numbers.rows("elsewhere")
