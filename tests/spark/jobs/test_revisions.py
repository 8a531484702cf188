"""Early and late results on Spark: the table that rows are upserted into, across a restart."""

from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionkit import Lateness, Results, SessionRules, SessionSpec, Storage
from sessionkit import aggregates as agg
from sessionkit.spark import sessionize
from sessionkit.testing import SessionDriver, at
from tests.support.naive_revisions import Table
from tests.support.steps import batches_of
from tests.support.streams import write_files

SCHEMA = pa.schema({"key": pa.string(), "at": pa.timestamp("us", tz="UTC"), "value": pa.int64()})
# The second batch moves a start back, the third bridges two sessions, and the last is late.
STRETCHES = [[{"a": [10, 40], "b": [30]}, {"a": [5]}], [{"a": [20, 30], "b": [70]}, {"a": [8]}]]


@attrs.frozen
class Reading:
    value: int


def rows_of(batch: dict[str, list[int]]) -> list[dict[str, Any]]:
    return [
        {"key": key, "at": at(f"12:{s // 60:02}:{s % 60:02}"), "value": s}
        for key, seconds in batch.items()
        for s in seconds
    ]


def spec_of(layout: Any = "buckets") -> SessionSpec[Any, Any, Any]:
    """Return a spec with both kinds of revisions, and a rule."""
    rules = SessionRules("10 seconds", midnight="UTC")
    return SessionSpec.aggregate(
        Reading,
        {"values": agg.collect("value", at_most=100)},
        keys={"key": str},
        event_time="at",
        timeout=rules,
        watermark_delay="20 seconds",
        results=Results(emit="on_update"),
        lateness=Lateness(allowed="1 hour"),
        storage=Storage(layout=layout, bucket_count=2),
    )


@pytest.mark.parametrize("layout", ["buckets", pytest.param("pages", marks=pytest.mark.long)])
def test_a_stream_shows_what_the_driver_does(
    layout: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Row by row and batch by batch; `closed_by` is null until a row is final."""
    spec = spec_of(layout)
    stream, driver, table = batches_of(spark, spec, SCHEMA, tmp_path), SessionDriver(spec), Table()
    expected = []
    for stretch in STRETCHES:
        stream.run(map(rows_of, stretch))
        driver = SessionDriver.restore(spec, driver.snapshot())
        for batch in stretch:
            for row in rows_of(batch):
                driver.add_row(row)
            expected += driver.run_batch().rows
        expected += [row for result in driver.run_until_idle() for row in result.rows]
    found = [row for rows in stream.rows.values() for row in rows]
    assert sorted(map(seen_on_spark, found)) == sorted(map(seen, expected))
    table.upsert(expected)
    assert [(5, [5, 8, 10, 20, 30, 40], True), (30, [30], True), (70, [70], False)] == sorted(
        (row.session_start.second + 60 * row.session_start.minute, row.result.values, row.is_final)
        for row in table.rows.values()
    )


def test_a_batch_gives_each_session_once(spark: SparkSession, tmp_path: Path) -> None:
    """The rows and ids that are in the table in the end, each the first and final one."""
    spec = spec_of()
    rows = [row for stretch in STRETCHES for batch in stretch for row in rows_of(batch)]
    driver = SessionDriver.backfill(spec, rows, until=at("13:00"))
    write_files(tmp_path, [pa.Table.from_pylist(rows, SCHEMA)])

    found = sessionize(spark.read.parquet(str(tmp_path)), spec).collect()

    assert {row["session_id"] for row in found} == {row.session_id for row in driver.take_rows()}
    assert {("gap", 1, True, 0)} == {
        (row["closed_by"], row["revision"], row["is_final"], len(row["supersedes"]))
        for row in found
    }


def seen(row: Any) -> tuple[Any, ...]:
    """Return what a row of the driver says."""
    replaced = (row.session_id, row.revision, row.is_final, [*row.supersedes])
    return (str(row.closed_by), *replaced, row.result.values)


def seen_on_spark(row: dict[str, Any]) -> tuple[Any, ...]:
    names = ("session_id", "revision", "is_final", "supersedes", "values")
    return (str(row["closed_by"]), *(row[name] for name in names))
