"""The time of the micro-batch as a column of its rows, by which a table is read as it grows."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit import SessionSpec, Storage
from sessionkit import aggregates as agg
from sessionkit.spark import AtLeastOnce, sessionize, start_query
from tests.support.streams import FileStream

HOUR_MS = 3_600_000


@attrs.frozen
class View:
    page: str


VISITS: SessionSpec[Any, Any, Any] = SessionSpec.aggregate(
    View,
    {"pages": agg.count()},
    keys={"user": str},
    event_time="ts",
    gap="30 minutes",
    watermark_delay="1 minute",
    storage=Storage(bucket_count=1),
)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> FileStream:
    """A query whose first two micro-batches will write one session."""
    stream = FileStream(spark, VISITS, tmp_path)
    put(stream, 10, 12)
    return stream


def put(stream: FileStream, *hours: int) -> None:
    times = [datetime(2026, 3, 8, hour, tzinfo=UTC) for hour in hours]
    stream.put(pa.table({"user": ["ann", "bob"], "ts": times, "page": ["/", "/"]}))


def run(stream: FileStream) -> tuple[int, list[Any]]:
    """Run all that there is; return the number and the rows of the one micro-batch with rows."""
    found = stream.folder / "found"
    found.unlink(missing_ok=True)

    def keep(frame: DataFrame, number: int) -> None:
        # In a file: on Connect, this runs in a process of the server.
        if rows := [row.asDict() for row in frame.collect()]:
            with found.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps([number, rows], default=str)}\n")

    frame = sessionize(stream.events(), VISITS)
    query = start_query(
        frame.withColumn("updated_at", F.unix_millis(F.current_timestamp())),
        sink=AtLeastOnce(keep),
        trigger="availableNow",
        checkpoint=stream.checkpoint,
        spec=VISITS,
    )
    query.awaitTermination()
    (batch,) = found.read_text("utf-8").splitlines()
    number, rows = json.loads(batch)
    return number, rows


def planned_at(stream: FileStream, number: int) -> tuple[int, Path]:
    """Return the time of a micro-batch in Spark's log of offsets, and the file that says it."""
    file = Path(stream.checkpoint, "offsets", str(number))
    return json.loads(file.read_text("utf-8").splitlines()[1])["batchTimestampMs"], file


def test_a_micro_batch_that_runs_again_has_its_time(stream: FileStream) -> None:
    """It's the one in Spark's log of offsets, so a replay gives the same rows."""
    number, rows = run(stream)
    stream.forget_end_of(number)

    assert (number, rows) == run(stream)
    assert planned_at(stream, number)[0] == rows[0]["updated_at"]


@pytest.mark.nightly
def test_a_clock_that_goes_back_gives_later_rows_an_earlier_time(stream: FileStream) -> None:
    """Nothing holds it, so a reader of rows after the latest that it has seen misses them."""
    number, _ = run(stream)
    at, file = planned_at(stream, number)
    file.write_text(file.read_text("utf-8").replace(str(at), str(at + HOUR_MS)), "utf-8")
    file.with_name(f".{number}.crc").unlink(missing_ok=True)
    stream.forget_end_of(number)
    _, (ahead,) = run(stream)
    put(stream, 14, 16)
    _, rows = run(stream)

    assert at + HOUR_MS == ahead["updated_at"]
    assert all(at < row["updated_at"] < ahead["updated_at"] for row in rows)
