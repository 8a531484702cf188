"""The sink Delta, on real tables: each row once, whatever runs again."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from sessionkit import Inputs, SessionSpec, Storage
from sessionkit.addons.delta import Delta, check_delta, check_types
from sessionkit.errors import SinkError, SpecError, UnsupportedError
from sessionkit.spark import Routes, start_query
from sessionkit.spark.sinks import Batch
from tests.support.streams import FileStream
from tests.support.table_sinks import writer_of

START = datetime(2026, 3, 8, 6, 50, tzinfo=UTC)
REVISED = "session_id string, n int, revision long, supersedes array<string>"


@attrs.frozen
class Reading:
    value: int


@attrs.define
class Readings:
    values: list[int] = attrs.field(factory=list)

    def update(self, reading: Reading) -> None:
        self.values = sorted([*self.values, reading.value])

    def merge(self, other: "Readings") -> None:
        self.values = sorted([*self.values, *other.values])


SPEC = SessionSpec.of(
    Readings,
    keys={"key": str},
    event_time="at",
    gap="10 minutes",
    watermark_delay="0 seconds",
    storage=Storage(bucket_count=2),
    inputs=Inputs(passthrough={"line": int}),
)


@pytest.fixture
def delta(spark: SparkSession) -> SparkSession:
    """Give Spark with Delta Lake; tests are skipped where it runs without."""
    try:
        check_delta(spark)
    except UnsupportedError as error:
        pytest.skip(f"not run: {error.args[0].splitlines()[0]}")
    return spark


def events(*rows: tuple[str | None, int, int]) -> pa.Table:
    keys, minutes, values = zip(*rows, strict=True)
    at = [START + timedelta(minutes=minute) for minute in minutes]
    return pa.table(
        {
            "key": pa.array(keys, pa.string()),
            "at": pa.array(at, pa.timestamp("us", "UTC")),
            "value": pa.array(values, pa.int64()),
            "line": pa.array([value * 100 for value in values], pa.int64()),
        }
    )


def found(spark: SparkSession, table: Path | str, *columns: str) -> list[Any]:
    frame = spark.table(Delta(table).identifier).select(*columns)
    return sorted(tuple(row) for row in frame.collect())


def transactions(spark: SparkSession, table: Path) -> int:
    """Return how many transactions a table has had."""
    return int(spark.sql(f"DESCRIBE HISTORY {Delta(table).identifier}").count())


def test_a_session_of_spark_without_delta_lake_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Before the query starts, with the release to use."""
    try:
        check_delta(spark)
    except UnsupportedError as error:
        refused = error
    else:
        pytest.skip("not run: this Spark has Delta Lake")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    with pytest.raises(UnsupportedError, match="delta-spark") as started:
        start_query(rows, sink=Delta("t"), trigger="availableNow", checkpoint=tmp_path)
    assert str(refused) == str(started.value)


def test_a_replayed_batch_changes_nothing(delta: SparkSession, tmp_path: Path) -> None:
    """Sessions are replaced and rejected rows added once."""
    stream = FileStream(delta, SPEC, tmp_path, with_rejected=True)
    stream.put(
        events(("ann", 0, 1), ("bob", 1, 2), (None, 2, 3), ("ann", 5, 4), ("end", 100, 5)),
        events(("ann", 1, 6), (None, 101, 7)),
    )
    visits, others = tmp_path / "visits", tmp_path / "others"
    sink = Routes(session=Delta(visits), rejected=Delta(others))

    def run() -> tuple[Any, ...]:
        stream.run_to(sink)
        return (
            found(delta, visits, "key", "values"),
            found(delta, others, "kind", "line"),
            [transactions(delta, table) for table in (visits, others)],
        )

    first = run()
    for number in (2, 1):
        stream.forget_end_of(number)

    assert [("ann", [1, 4]), ("bob", [2])] == first[0]
    assert [("late", 600), ("quarantined", 300), ("quarantined", 700)] == first[1]
    assert first == run()


def test_the_highest_revision_stays(delta: SparkSession, tmp_path: Path) -> None:
    """Within a micro-batch and over several, in any order, and without what is superseded."""
    table = tmp_path / "revised"
    schema = delta.createDataFrame([], REVISED).schema
    writer = writer_of(Delta(table, ("session_id", "n")), schema)

    def write(number: int, *rows: tuple[str, int, int, list[str]]) -> list[Any]:
        writer.write(Batch(delta.createDataFrame([*rows], REVISED), number, "query", "run"))
        return found(delta, table, "session_id", "n", "revision")

    assert [("a", 0, 2), ("b", 0, 1), ("b", 1, 1)] == write(
        0, ("a", 0, 2, []), ("a", 0, 1, []), ("a", 1, 1, []), ("b", 0, 1, []), ("b", 1, 1, [])
    )
    second: Any = (("a", 0, 1, []), ("b", 0, 2, []), ("c", 0, 3, []))
    assert [("a", 0, 2), ("b", 0, 2), ("c", 0, 3)] == write(1, *second)
    assert [("d", 0, 3)] == write(2, ("d", 0, 3, ["a", "b", "e"]), ("e", 0, 1, ["c"]))
    assert [("d", 0, 3)] == write(1, *second)  # by a run that should be over


@pytest.mark.parametrize("columns", ["", ", revision long, is_final boolean"])
def test_a_second_session_with_one_id_is_refused(
    delta: SparkSession, tmp_path: Path, columns: str
) -> None:
    """It would take the place of the first one; a micro-batch that comes again changes nothing."""
    table, schema = tmp_path / "sessions", f"session_id string, session_start int{columns}"
    rows = delta.createDataFrame([], schema).schema
    writer = writer_of(Delta(table), rows, of_results=True)
    more: Any = (1, True) if columns else ()

    def batch(number: int, *rows: Any) -> Batch:
        return Batch(delta.createDataFrame([*rows], schema), number, "query", "run")

    first = batch(0, ("a", 1, *more), ("b", 2, *more))
    writer.write(first)
    writer.write(first)
    with pytest.raises(SinkError, match="session_start: 1") as refused:
        writer.write(batch(1, ("a", 3, *more), ("c", 4, *more)))

    assert "session_start: 3" in str(refused.value)
    assert [("a", 1), ("b", 2)] == found(delta, table, "session_id", "session_start")
    writer.write(batch(1, ("c", 4, *more)))
    if columns:
        writer.write(batch(2, ("a", 1, 2, True)))
        assert [("a", 2), ("b", 1), ("c", 1)] == found(delta, table, "session_id", "revision")


def test_an_older_checkpoint_or_table_is_refused(delta: SparkSession, tmp_path: Path) -> None:
    """Delta would leave out what has a number that the table has had, also after a RESTORE."""
    stream = FileStream(delta, SPEC, tmp_path)
    table, checkpoint = tmp_path / "visits", Path(stream.checkpoint)
    stream.put(events(("ann", 0, 1)), events(("bob", 50, 2)))
    stream.run_to(Delta(table))
    shutil.copytree(checkpoint, tmp_path / "older")
    stream.put(*(events(("ann", 100 + 50 * number, 3 + number)) for number in range(6)))
    stream.run_to(Delta(table))
    rows = found(delta, table, "key", "values")
    assert (tmp_path / "visits" / "_delta_log" / "_last_checkpoint").exists()
    shutil.move(checkpoint, tmp_path / "newer")
    shutil.copytree(tmp_path / "older", checkpoint)
    with pytest.raises(SpecError, match="hasn't planned yet") as refused:
        stream.run_to(Delta(table))
    _, _, since = str(refused.value).partition("sink_since=")
    number = int(since.partition(";")[0])
    delta.sql(f"RESTORE TABLE {Delta(table).identifier} TO VERSION AS OF {number}")
    for kept in ("older", "newer"):
        shutil.rmtree(checkpoint)
        shutil.copytree(tmp_path / kept, checkpoint)
        with pytest.raises(SpecError, match="was restored since the query"):
            stream.run_to(Delta(table))
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "older", checkpoint)
    copied = Delta(tmp_path / "copied")
    with pytest.raises(SpecError, match="nor any other of its query"):
        stream.run_to(copied)
    delta.table(Delta(table).identifier).write.format("delta").saveAsTable(copied.identifier)
    stream.run_to(copied, sink_since=number)

    assert rows == found(delta, tmp_path / "copied", "key", "values")


def test_a_column_that_a_table_cannot_take_is_refused(delta: SparkSession, tmp_path: Path) -> None:
    """Before the query starts; so is one whose name is the sink's own."""
    delta.sql(f"CREATE TABLE {Delta(tmp_path / 't').identifier} (parts string) USING delta")
    rows = delta.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    for columns, reason in (
        ("struct(value) AS parts", "column `parts` of the table .* is string"),
        ("value AS _Sessionkit_Deletes", "has a name as the sink Delta gives to its own"),
    ):
        with pytest.raises(SpecError, match=reason):
            start_query(
                rows.selectExpr(columns),
                sink=Delta(tmp_path / "t", key=()),
                trigger="availableNow",
                checkpoint=tmp_path / "checkpoint",
            )


def test_rows_with_one_key_replace_each_other_or_are_refused(
    delta: SparkSession, tmp_path: Path
) -> None:
    """Without revisions, neither of two rows in a micro-batch is the right one."""
    table = tmp_path / "keyed"
    columns = "id long, text string"
    writer = writer_of(Delta(table, "id"), delta.createDataFrame([], columns).schema)

    def batch(number: int, *rows: tuple[int, str]) -> Batch:
        return Batch(delta.createDataFrame([*rows], columns), number, "q", "r")

    writer.write(batch(0, (1, "a"), (2, "b")))
    writer.write(batch(1, (2, "c"), (3, "d")))
    with pytest.raises(SinkError, match=r"two rows of a micro-batch have the same \(id\)"):
        writer.write(batch(2, (4, "e"), (4, "f")))

    assert [(1, "a"), (2, "c"), (3, "d")] == found(delta, table, "id", "text")


def test_a_table_by_its_name_needs_the_columns(delta: SparkSession, tmp_path: Path) -> None:
    """One that lacks a column is refused before the query starts."""
    delta.sql("CREATE TABLE lacking (value long) USING delta")
    rows = delta.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()

    def run(frame: DataFrame, name: str) -> None:
        start_query(
            frame,
            sink=Delta("lacking", key="value"),
            trigger="availableNow",
            checkpoint=tmp_path / name,
        ).awaitTermination()

    try:
        with pytest.raises(SpecError, match="lacking has no column `timestamp`; it has value"):
            run(rows, "first")
        run(rows.select("value"), "second")
        assert [(0,), (1,), (2,)] == found(delta, "lacking", "value")
    finally:
        delta.sql("DROP TABLE lacking")


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


@pytest.mark.parametrize(
    "kind",
    [
        T.DayTimeIntervalType(),
        T.ArrayType(T.DayTimeIntervalType()),
        T.MapType(T.StringType(), T.StructType([T.StructField("took", T.DayTimeIntervalType())])),
    ],
)
def test_an_interval_is_refused(kind: T.DataType) -> None:
    """Also inside of a column, but not where only a name says so."""
    fine = T.StructField("interval ", T.StructType([T.StructField("interval day", T.LongType())]))
    check_types(T.StructType([fine]))
    with pytest.raises(SpecError, match="Delta has no type for `took`"):
        check_types(T.StructType([fine, T.StructField("took", kind)]))


def test_a_table_has_one_place() -> None:
    """By its path, as text or not; by its name, with catalog and database or without."""
    assert Delta("late").place == Delta("spark_catalog.default.`Late`").place
    assert Delta("/tables/late").place == Delta(Path("/tables/late")).place
    assert Delta("web.late").place != Delta("app.late").place
