"""The sink Iceberg: what Iceberg alone needs."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from sessionkit import SpecError
from sessionkit.addons.iceberg import (
    CONFLICTS,
    SETTINGS,
    BranchedTable,
    Iceberg,
    IcebergWriter,
    check_catalog,
    check_extensions,
    check_merge,
)
from sessionkit.addons.tables import Upsert
from sessionkit.errors import UnsupportedError
from sessionkit.spark import start_query
from sessionkit.spark.sinks import Batch
from tests.support.lakes import DATABASE, FOLDERS, SPEC, IcebergSchema, events, lake_of, rows_in
from tests.support.streams import FileStream, refused_by_sink


@pytest.fixture(params=[FOLDERS, DATABASE])
def lake(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> IcebergSchema:
    """Give a schema of a catalog."""
    lake = lake_of(request.param, spark, tmp_path)
    assert isinstance(lake, IcebergSchema)
    return lake


def test_a_catalog_of_another_kind_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Before the query starts, with the settings or the release to use."""
    with pytest.raises(UnsupportedError, match="spark_catalog` isn't one of Iceberg's") as refused:
        check_catalog(spark, "nowhere.visits")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    with pytest.raises(UnsupportedError, match="isn't one of Iceberg's") as started:
        start_query(
            rows, sink=Iceberg("nowhere.visits"), trigger="availableNow", checkpoint=tmp_path
        )

    assert "Hint:" in str(refused.value)
    assert str(refused.value) == str(started.value)


def test_a_merge_that_leaves_no_mark_is_refused() -> None:
    """On Spark 3.5, the snapshot of a MERGE has no number; rows that are added have one."""
    check_merge("4.0.1", "the table t")
    with pytest.raises(UnsupportedError, match="Spark 3.5.9 can't keep the number") as refused:
        check_merge("3.5.9", "the table t")

    assert "Hint: use Spark 4, or pass key=()" in str(refused.value)


def test_a_table_that_is_rolled_back_is_refused_until_the_checkpoint_is(
    lake: IcebergSchema, tmp_path: Path
) -> None:
    """What the table had counts only as far as it has it now."""
    spark, table = lake.spark, lake.name("numbers")
    folder, checkpoint = tmp_path / "events", tmp_path / "checkpoint"
    reader = spark.readStream.schema("value long").option("maxFilesPerTrigger", 1)

    def run(*values: int) -> None:
        for value in values:
            spark.range(value, value + 1).selectExpr("id AS value").coalesce(1).write.mode(
                "append"
            ).parquet(str(folder))
        frame = reader.parquet(str(folder))
        start_query(
            frame, sink=Iceberg(table, key=()), trigger="availableNow", checkpoint=checkpoint
        ).awaitTermination()

    run(1)
    first = spark.table(f"{table}.snapshots").orderBy("committed_at").collect()[-1].snapshot_id
    run(2, 3)
    assert [(1,), (2,), (3,)] == rows_in(lake, "numbers", "value")
    spark.sql(f"CALL {table.split('.')[0]}.system.rollback_to_snapshot('{table}', {first})")
    with refused_by_sink(spark, "it is older than the checkpoint"):
        run(4)


def test_a_micro_batch_that_another_run_has_written_is_there(lake: IcebergSchema) -> None:
    """Each query has its own numbers, and so has each kind of its rows."""
    frame = lake.spark.createDataFrame([(1,)], "value long")
    sink = Iceberg(lake.name("t"), key=())
    writer, other = (IcebergWriter(sink, Upsert("t", ("value",)), kind) for kind in ("a", "b"))
    batch = Batch(frame, 7, "query", "run")
    assert not writer.is_written(batch)
    writer.write(batch)

    assert writer.is_written(batch)
    assert not other.is_written(batch)
    assert not writer.is_written(Batch(frame, 8, "query", "run"))
    assert not writer.is_written(Batch(frame, 7, "another query", "run"))


@pytest.mark.parametrize("key", [(), ("id",)], ids=["added", "merged"])
def test_a_micro_batch_that_meets_another_commit_is_tried_again(
    key: tuple[str, ...], lake: IcebergSchema
) -> None:
    """Whatever was committed meanwhile, the branch begins anew, and the row is there once."""
    spark, table = lake.spark, lake.name("t")
    frames = [spark.createDataFrame([(one, one)], "id long, n long") for one in range(3)]
    upsert = Upsert(table, ("id", "n"), key)
    writer = IcebergWriter(Iceberg(table, key=key), upsert, "all")
    writer.write(Batch(frames[0], 0, "query", "run"))
    met = list[str]()

    class Meeting(BranchedTable):
        def publish(self, spark: SparkSession) -> None:
            if not met:
                met.append(self.branch)
                frames[1].writeTo(self.name).append()
            super().publish(spark)

    meeting = Meeting(table, "t", "iceberg", SETTINGS, CONFLICTS)
    writer = IcebergWriter(writer.sink, upsert, "all", meeting)
    writer.write(Batch(frames[2], 1, "query", "later"))

    assert ["sessionkit_query_all_later"] == met
    assert [(0, 0), (1, 1), (2, 2)] == rows_in(lake, "t", "id", "n")
    refs = spark.sql(f"SELECT name FROM {table}.refs").collect()  # noqa: S608
    assert {"main", *met} == {name for (name,) in refs}


def test_a_table_of_ones_own_needs_no_snapshot(lake: IcebergSchema) -> None:
    """A branch of a table without one begins with an empty one."""
    spark, table = lake.spark, lake.name("t")
    spark.sql(f"CREATE TABLE {table} (id bigint) USING iceberg")
    writer = IcebergWriter(Iceberg(table, key=()), Upsert(table, ("id",)), "all")
    for number in range(2):
        frame = spark.createDataFrame([(number,)], "id long")
        writer.write(Batch(frame, number, "query", "run"))

    assert [(0,), (1,)] == rows_in(lake, "t", "id")


def test_a_session_without_the_extensions_is_refused() -> None:
    """Only they can make a branch."""

    class Plain:
        def sql(self, text: str) -> None:
            raise ParseException(f"[PARSE_SYNTAX_ERROR] Syntax error at or near 'BRANCH': {text}")

    plain: Any = Plain()
    with pytest.raises(UnsupportedError, match="needs Iceberg's SQL extensions") as refused:
        check_extensions(plain, "lake")

    assert "Hint: set spark.sql.extensions=org.apache.iceberg.spark" in str(refused.value)


def test_a_table_may_say_what_is_never_null(lake: IcebergSchema, tmp_path: Path) -> None:
    """Iceberg's own sink refuses a column that may be null; this one writes to the table too."""
    spark, table = lake.spark, lake.name("visits")
    spark.sql(
        f"CREATE TABLE {table} (key string NOT NULL, session_id string NOT NULL,"
        " session_start timestamp NOT NULL, session_end timestamp NOT NULL,"
        " last_event_time timestamp NOT NULL, values array<bigint> NOT NULL) USING iceberg"
    )
    own, other = (FileStream(spark, SPEC, tmp_path / name) for name in ("own", "other"))
    own.put(events(("ann", 0, 1), ("end", 100, 2)))
    writer = own.output().writeStream.option("checkpointLocation", own.checkpoint)
    writer.trigger(availableNow=True).toTable(table).awaitTermination()
    other.put(events(("bob", 0, 3), ("end", 100, 4)), events(("end", 200, 5)))
    other.run_to(lake.sink("visits"))

    assert [("ann", [1]), ("bob", [3]), ("end", [4])] == rows_in(lake, "visits", "key", "values")


def test_a_table_has_a_name_and_one_place() -> None:
    """A path isn't one; backticks change nothing."""
    for wrong in ("", "/tables/visits"):
        with pytest.raises(SpecError, match="`table` must be the name"):
            Iceberg(wrong)
    assert Iceberg("lake.`shop`.t").place == Iceberg("lake.shop.t").place
    assert Iceberg("t", "id") == Iceberg("t", ("id",))
