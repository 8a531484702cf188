"""The verdicts on events, on Spark: as a stream and as a batch they are what the driver says."""

from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionkit.spark import sessionize
from sessionkit.testing import SessionDriver
from tests.support.naive_rules import Click
from tests.support.random_verdicts import END, GAP, Stream, row_of, stream_of
from tests.support.steps import batches_of
from tests.support.streams import write_files

SCHEMA: Final = pa.schema(
    {
        "key": pa.string(),
        "at": pa.timestamp("us", tz="UTC"),
        "value": pa.int64(),
        "ends": pa.bool_(),
        "begins": pa.bool_(),
        "keeps": pa.bool_(),
        "campaign": pa.string(),
        "seq": pa.int64(),
        "opens": pa.bool_(),
        "name": pa.int64(),
        "refused": pa.bool_(),
        "gap": pa.float64(),
    }
)
LAST: Final = [Click("z", END, 0, GAP)]
"""A micro-batch after all others, so that the sessions of a stream close."""
SEEDS: Final = [30, 78, 541]
"""Streams in which all five reasons meet, of each order and each judgement."""


def of_rows(rows: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Return the sessions, and the verdicts on the events that don't count."""
    closed = [row for row in rows if row["kind"] == "session" and row["key"] == "a"]
    sessions = sorted((row["session_id"], *sorted(row["items"])) for row in closed)
    rejected = [row for row in rows if row["kind"] != "session" and row["event"]]
    return sessions, sorted((row["kind"], row["event"]["value"]) for row in rejected)


def on_driver(stream: Stream, cut: list[list[Click]]) -> tuple[list[Any], list[Any]]:
    driver, sessions = SessionDriver(stream.spec), dict[str, Any]()
    for batch in [*cut, LAST]:
        for event in batch:
            driver.add_row(row_of(event))
        driver.run_batch()
    driver.run_until_idle()
    for row in driver.take_rows():
        sessions |= {row.session_id: row} if row.key[0] == "a" else {}
    rejected = [(one.kind, one.event["value"]) for one in driver.take_rejections() if one.event]
    found = sorted((name, *sorted(row.result.items)) for name, row in sessions.items())
    return found, sorted(rejected)


def compare(seed: int, spark: SparkSession, folder: Path) -> None:
    """Run a stream on Spark, and its events as a batch, and on the driver."""
    stream = stream_of(seed)
    cut = [list(batch) for batch in stream.cut if batch]
    batches = batches_of(spark, stream.spec, SCHEMA, folder / "stream")
    batches.run([list(map(row_of, batch)) for batch in [*cut, LAST]])
    of_stream = of_rows([row for rows in batches.rows.values() for row in rows])
    assert of_stream == on_driver(stream, cut), f"stream {seed}"

    events = [event for batch in cut for event in batch]
    table = pa.Table.from_pylist([row_of(event) for event in events], SCHEMA)
    write_files(folder / "batch", [table])
    frame = spark.read.parquet(str(folder / "batch"))
    rows = sessionize(frame, stream.spec, with_rejected=True).collect()
    of_batch = of_rows([row.asDict(recursive=True) for row in rows])
    # A batch takes all events at once: so nothing is over, and no id forgotten, before its end.
    at_once = attrs.evolve(stream, delay=timedelta(days=1))
    assert of_batch == on_driver(at_once, [events]), f"batch {seed}"


@pytest.mark.parametrize("seed", SEEDS)
def test_spark_judges_events_as_the_driver_does(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    compare(seed, spark, tmp_path)


@pytest.mark.long
def test_spark_judges_many_streams_as_the_driver_does(spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(100, 140):
        compare(seed, spark, tmp_path / str(seed))
