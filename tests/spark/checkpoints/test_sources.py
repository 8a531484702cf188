"""The logs of file sources at a start, in both formats of Spark's offset log."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionkit.errors import StateCorruptedError
from sessionkit.spark import Files, start_query
from sessionkit.spark._logs import OFFSETS
from tests.support.spark_settings import changed
from tests.support.streams import write_files

CHECKPOINT = "checkpoint"


@pytest.fixture(name="numbers", params=["1", "2"])
def _numbers(spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Write two files of a number each; Spark 4.2 and later know format 2."""
    write_files(tmp_path / "in", [pa.table({"number": [1]}), pa.table({"number": [2]})])
    with changed(spark, {OFFSETS: request.param}):
        yield tmp_path


def run(spark: SparkSession, folder: Path, read: Callable[[DataFrame], DataFrame]) -> list[int]:
    """Run a query over all files, a file a micro-batch; return what it has written so far."""
    events = spark.readStream.schema("number long").option("maxFilesPerTrigger", 1)
    query = start_query(
        read(events.parquet(str(folder / "in"))),
        sink=Files("parquet", folder / "out"),
        trigger="availableNow",
        checkpoint=folder / CHECKPOINT,
    )
    query.awaitTermination()
    return sorted(row.number for row in spark.read.parquet(str(folder / "out")).collect())


def test_a_log_that_has_lost_its_end_is_named(spark: SparkSession, numbers: Path) -> None:
    """Spark would give the next file the number of the last one, and never read it."""
    run(spark, numbers, lambda events: events)
    write_files(numbers / "in", [pa.table({"number": [3]})], first=2)
    lost = numbers / CHECKPOINT / "sources" / "0" / "1"
    kept = lost.read_bytes()
    lost.unlink()

    with pytest.raises(StateCorruptedError, match=r"and .*/sources/0/1 is missing"):
        run(spark, numbers, lambda events: events)
    lost.write_bytes(kept)
    assert [1, 2, 3] == run(spark, numbers, lambda events: events)


def test_a_stream_united_with_itself_goes_on(spark: SparkSession, numbers: Path) -> None:
    """It has one log, and a second stream over the same files would have one of its own."""
    run(spark, numbers, lambda events: events.union(events))
    write_files(numbers / "in", [pa.table({"number": [3]})], first=2)

    assert [1, 1, 2, 2, 3, 3] == run(spark, numbers, lambda events: events.union(events))
    assert ["0"] == [log.name for log in (numbers / CHECKPOINT / "sources").iterdir()]
