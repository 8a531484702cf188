"""The time of the micro-batch as a column of its rows, by which a table is read as it grows."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit import SessionSpec, Storage
from sessionkit import aggregates as agg
from sessionkit.spark import ForeachBatch, sessionize, start_query
from tests.support.streams import FileStream, needs_own_process


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


def test_a_micro_batch_that_runs_again_has_its_time(spark: SparkSession, tmp_path: Path) -> None:
    """It's the one in Spark's log of offsets, so a replay gives the same rows."""
    needs_own_process(spark)
    stream, found = FileStream(spark, VISITS, tmp_path), list[tuple[int, list[Any]]]()
    hours = [datetime(2026, 3, 8, hour, tzinfo=UTC) for hour in (10, 12)]
    stream.put(pa.table({"user": ["ann", "bob"], "ts": hours, "page": ["/", "/"]}))

    def keep(frame: DataFrame, number: int) -> None:
        if rows := [row.asDict() for row in frame.collect()]:
            found.append((number, rows))

    for _ in range(2):
        frame = sessionize(stream.events(), VISITS)
        query = start_query(
            frame.withColumn("updated_at", F.unix_millis(F.current_timestamp())),
            sink=ForeachBatch(keep),
            trigger="availableNow",
            checkpoint=stream.checkpoint,
            spec=VISITS,
        )
        query.awaitTermination()
        stream.forget_end_of(1)

    first, again = found
    assert first == again
    number, (row,) = first
    logged = (Path(stream.checkpoint) / "offsets" / str(number)).read_text("utf-8").splitlines()
    assert json.loads(logged[1])["batchTimestampMs"] == row["updated_at"]
