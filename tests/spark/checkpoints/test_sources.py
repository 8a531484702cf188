"""The sources of a query at a start: their logs under both formats of the offset log, and names."""

from collections.abc import Callable, Iterator
from functools import reduce
from itertools import starmap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from sessionkit.errors import StateCorruptedError, StateError
from sessionkit.spark import (
    AtLeastOnce,
    Files,
    erase_key,
    migrate,
    read_erasures,
    read_state,
    sessionize,
    start_query,
)
from sessionkit.spark._logs import OFFSETS
from sessionkit.spark._settings import SOURCE_EVOLUTION
from sessionkit.spark.sinks.batches import drain
from tests.support.lakes import SPEC, events
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
    return run_frame(read(numbers_in(spark.readStream, folder / "in")), folder)


def numbers_in(reader: DataStreamReader, folder: Path) -> DataFrame:
    return reader.schema("number long").option("maxFilesPerTrigger", 1).parquet(str(folder))


def run_frame(frame: DataFrame, folder: Path) -> list[int]:
    query = start_query(
        frame,
        sink=Files("parquet", folder / "out"),
        trigger="availableNow",
        checkpoint=folder / CHECKPOINT,
    )
    query.awaitTermination()
    written = frame.sparkSession.read.parquet(str(folder / "out"))
    return sorted(row.number for row in written.collect())


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


@pytest.mark.since_spark("4.2", "sources have no names")
def test_sources_with_names_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    """With source evolution, each goes on where it stopped, in whatever order they are."""
    other = tmp_path / "other"
    write_files(other / "in", [pa.table({"number": [1]})])
    run(spark, other, lambda events: events)

    def put_and_run(first: int, *names: str) -> list[int]:
        for name in names:
            tables = [pa.table({"number": [int(name) + first + place]}) for place in range(2)]
            write_files(tmp_path / name, tables, first=first)
        readers = ((spark.readStream.name(f"from_{name}"), tmp_path / name) for name in names)
        return run_frame(reduce(DataFrame.union, starmap(numbers_in, readers)), tmp_path)

    with changed(spark, {SOURCE_EVOLUTION: "true"}):
        with pytest.raises(StateError, match="knows its sources by their numbers"):
            run_frame(numbers_in(spark.readStream.name("numbers"), other / "in"), other)
        assert [0, 1] == put_and_run(0, "0")
        assert [0, 1, 2, 3, 102, 103] == put_and_run(2, "100", "0")
        assert [*range(4), *range(102, 106)] == put_and_run(4, "100")
        with pytest.raises(StateError, match="were without the source from_0"):
            put_and_run(6, "100", "0")
    # Spark itself would end with a bare assertion.
    with pytest.raises(StateError, match="knows its sources by their names"):
        run_frame(numbers_in(spark.readStream, tmp_path / "100"), tmp_path)


@pytest.mark.long
@pytest.mark.since_spark("4.2", "sources have no names")
def test_a_seed_goes_and_requests_to_erase_join(spark: SparkSession, tmp_path: Path) -> None:
    """What sessionkit reads has names of its own; the seed is read by the first micro-batch."""
    old, new, visits = tmp_path / "old", tmp_path / "new", tmp_path / "in"
    write_files(visits, [events(("ann", 0, 1), ("bob", 0, 2))])
    columns = spark.read.parquet(str(visits)).schema

    def read() -> DataFrame:
        return spark.readStream.name("visits").schema(columns).parquet(str(visits))

    def run(rows: DataFrame, checkpoint: Path, **options: Any) -> list[tuple[str, list[int]]]:
        start_query(
            sessionize(rows, SPEC, **options),
            sink=AtLeastOnce(lambda frame, _: drain(frame)),
            trigger="availableNow",
            checkpoint=checkpoint,
            spec=SPEC,
        ).awaitTermination()
        found = read_state(checkpoint, SPEC, spark=spark)
        return sorted((one.key.key, one.state.values) for one in found)

    with changed(spark, {SOURCE_EVOLUTION: "true"}):
        run(read(), old)
        seed = migrate(old, SPEC, SPEC, tmp_path / "seed", spark=spark)
        write_files(visits, [events(("ann", 1, 3))], first=1)
        with_seed = run(seed.unread(read()), new, seed=seed)
        write_files(visits, [events(("bob", 2, 4))], first=2)
        without = run(read(), new, erase=read_erasures(new, SPEC, spark=spark))
        erase_key(new, SPEC, "ann", spark=spark)
        erased = run(read(), new, erase=read_erasures(new, SPEC, spark=spark))

    assert [("ann", [1, 3]), ("bob", [2])] == with_seed
    assert [("ann", [1, 3]), ("bob", [2, 4])] == without
    assert [("bob", [2, 4])] == erased
