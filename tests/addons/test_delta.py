"""The sink Delta, on real tables: each row once, whatever runs again."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionkit import SpecError
from sessionkit.addons.delta import ACTIONS, Delta, _read, check_delta
from sessionkit.errors import UnsupportedError
from sessionkit.spark import start_query
from sessionkit.spark._settings import is_connect
from tests.support.lakes import SPEC, events
from tests.support.nothing_there import NothingThere
from tests.support.streams import FileStream, refused_by_sink


def found(spark: SparkSession, table: Path | str, *columns: str) -> list[Any]:
    frame = spark.table(Delta(table).identifier).select(*columns)
    return sorted(tuple(row) for row in frame.collect())


@pytest.mark.cell("no delta")
def test_a_session_of_spark_without_delta_lake_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Before the query starts, with the release to use."""
    with pytest.raises(UnsupportedError, match="delta-spark") as refused:
        check_delta(spark)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    with pytest.raises(UnsupportedError, match="delta-spark") as started:
        start_query(rows, sink=Delta("t"), trigger="availableNow", checkpoint=tmp_path)
    assert str(refused.value) == str(started.value)


@pytest.mark.cell("delta")
def test_an_older_checkpoint_or_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Delta would leave out what has a number that the table has had, also after a RESTORE."""
    stream = FileStream(spark, SPEC, tmp_path)
    table, checkpoint = tmp_path / "visits", Path(stream.checkpoint)
    stream.put(events(("ann", 0, 1)), events(("bob", 50, 2)))
    stream.run_to(Delta(table))
    shutil.copytree(checkpoint, tmp_path / "older")
    stream.put(*(events(("ann", 100 + 50 * number, 3 + number)) for number in range(6)))
    stream.run_to(Delta(table))
    rows = found(spark, table, "key", "values")
    assert (tmp_path / "visits" / "_delta_log" / "_last_checkpoint").exists()
    shutil.move(checkpoint, tmp_path / "newer")
    shutil.copytree(tmp_path / "older", checkpoint)
    with refused_by_sink(spark, "hasn't planned yet") as said:
        stream.run_to(Delta(table))
    _, _, since = said[0].partition("sink_since=")
    number = int(since.partition(";")[0])
    spark.sql(f"RESTORE TABLE {Delta(table).identifier} TO VERSION AS OF {number}")
    # On Connect, the sink is asked by a micro-batch, and the newer one has none left.
    for kept in ("older",) if is_connect(spark) else ("older", "newer"):
        shutil.rmtree(checkpoint)
        shutil.copytree(tmp_path / kept, checkpoint)
        with refused_by_sink(spark, "was restored since the query"):
            stream.run_to(Delta(table))
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "older", checkpoint)
    copied = Delta(tmp_path / "copied")
    with refused_by_sink(spark, "nor any other of its query"):
        stream.run_to(copied)
    spark.table(Delta(table).identifier).write.format("delta").saveAsTable(copied.identifier)
    stream.run_to(copied, sink_since=number)

    assert rows == found(spark, tmp_path / "copied", "key", "values")


def test_a_log_without_a_checkpoint_has_no_actions_there() -> None:
    """On Connect too, where a frame of files that aren't there comes without an error."""
    nowhere: Any = NothingThere()
    found: Any = _read(nowhere, "parquet", "/visits/_delta_log/*.checkpoint*")

    assert ([], f"{ACTIONS}, file_name string") == found


@pytest.mark.cell("delta")
def test_a_table_by_its_name_needs_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    """One that lacks a column is refused before the query starts."""
    spark.sql("CREATE TABLE lacking (value long) USING delta")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()

    def run(frame: DataFrame, name: str) -> None:
        start_query(
            frame,
            sink=Delta("lacking", key="value"),
            trigger="availableNow",
            checkpoint=tmp_path / name,
        ).awaitTermination()

    try:
        with refused_by_sink(spark, "lacking has no column `timestamp`; it has value"):
            run(rows, "first")
        run(rows.select("value"), "second")
        assert [(0,), (1,), (2,)] == found(spark, "lacking", "value")
    finally:
        spark.sql("DROP TABLE lacking")


@pytest.mark.cell("delta")
def test_a_table_whose_creation_was_cut_off_is_made(spark: SparkSession, tmp_path: Path) -> None:
    """Delta makes the folder of its log first, then files, and the first commit last."""
    place = tmp_path / "numbers [1]"
    (place / "_delta_log").mkdir(parents=True)
    (place / "part-00000.parquet").write_bytes(b"cut off")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()

    for _ in range(2):  # a restart reads the log
        start_query(
            rows.select("value"),
            sink=Delta(place),
            trigger="availableNow",
            checkpoint=tmp_path / "checkpoint",
        ).awaitTermination()

    assert [(0,), (1,), (2,)] == found(spark, place, "value")[:3]


@pytest.mark.parametrize(
    ("table", "identifier"),
    [
        ("visits", "visits"),
        ("web.visits", "web.visits"),
        ("/tables/vi`sits", "delta.`/tables/vi``sits`"),
        ("s3://bucket/visits", "delta.`s3://bucket/visits`"),
        (Path("visits"), "delta.`visits`"),
    ],
)
def test_a_path_is_told_from_a_name(table: str | Path, identifier: str) -> None:
    """By its slash, or its type."""
    assert identifier == Delta(table).identifier


def test_a_table_has_a_name() -> None:
    """The key may be one column."""
    with pytest.raises(SpecError, match="`table` must be the name or the path"):
        Delta("")
    assert Delta("t", "id") == Delta("t", ("id",))


def test_a_table_has_one_place() -> None:
    """By its path, as text or not; by its name, with catalog and database or without."""
    assert Delta("late").place == Delta("spark_catalog.default.`Late`").place
    assert Delta("/tables/late").place == Delta(Path("/tables/late")).place
    assert Delta("web.late").place != Delta("app.late").place


@pytest.mark.cell("delta")
def test_the_program_that_a_scheduler_starts_each_day(spark: SparkSession, tmp_path: Path) -> None:
    """A visit over midnight is one row, and a third run without files adds none; cat's is open."""
    from examples.programs.parquet_to_delta import run  # noqa: PLC0415 - it needs delta-spark

    views, table, checkpoint = (str(tmp_path / name) for name in ("views", "visits", "checkpoint"))
    monday = [("ann", "2026-03-02 23:50:00", "/shoes"), ("bob", "2026-03-02 10:10:00", "/hats")]
    tuesday = [("ann", "2026-03-03 00:10:00", "/thanks"), ("cat", "2026-03-03 10:00:00", "/shoes")]
    for day in (monday, tuesday, []):
        if day:
            rows = spark.createDataFrame(day, "user string, at string, page string")
            frame = rows.selectExpr("user", "timestamp(at || 'Z') AS ts", "page")
            frame.coalesce(1).write.mode("append").parquet(views)
        run(spark, views, table, checkpoint)

    expected = [("ann", 2, "/shoes", "/thanks"), ("bob", 1, "/hats", "/hats")]
    assert expected == found(spark, table, "user", "pages", "landing", "exit")
