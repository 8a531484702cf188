"""Sessions with a row for each event, on Spark: a stream that is restarted, a batch, the driver."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import SparkSession

from sessionkit import SessionRules, SessionSpec, Storage
from sessionkit.spark import check_checkpoint, sessionize
from sessionkit.testing import SessionDriver
from tests.support.streams import FileStream

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
END = NOON + timedelta(days=1)
SCHEMA = pa.schema(
    {
        "user": pa.string(),
        "event_time": pa.timestamp("us", tz="UTC"),
        "page": pa.string(),
        "seconds": pa.int64(),
    }
)


@attrs.frozen
class View:
    page: str
    seconds: int | None


SPEC: SessionSpec[Any, Any, Any] = SessionSpec.per_event(
    View,
    keys={"user": str},
    event_time="event_time",
    timeout=SessionRules("5 minutes", max_events=7),
    order="event_time",
    watermark_delay="2 hours",
    storage=Storage(bucket_count=2),
)


def rows(seed: int, number: int) -> list[dict[str, Any]]:
    """Make events of a few users, one of whom is nobody, some at one instant."""
    random = Random(seed)
    return [
        {
            "user": random.choice(["ann", "bob", "cid", None]),
            "event_time": NOON + timedelta(minutes=random.randint(0, 60)),
            "page": f"/{number}",
            "seconds": random.choice([None, 3]),
        }
        for number in range(number)
    ]


def table(*found: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(found), SCHEMA)


def test_stream_batch_and_driver_agree(spark: SparkSession, tmp_path: Path) -> None:
    """Each event comes once, with the id of its session and its number; bad rows come too."""
    last = {"user": "z", "event_time": END, "page": "/", "seconds": None}
    stream = FileStream(spark, SPEC, tmp_path, with_rejected=True)
    stream.put(table(*rows(1, 40)))
    stream.run()
    stream.put(table(*rows(2, 40), last))
    counts = stream.run()
    check_checkpoint(stream.checkpoint, stream.spec, spark=spark)
    found = [row.asDict() for row in stream.rows()]

    everything = spark.read.parquet(str(stream.source))
    batch = sessionize(everything, SPEC, with_rejected=True).where("user <> 'z' OR user IS NULL")
    assert sorted(map(repr, found)) == sorted(repr(row.asDict()) for row in batch.collect())
    assert all(count.is_balanced for count in counts)

    driver = SessionDriver(SPEC)
    for row in [*rows(1, 40), *rows(2, 40)]:
        driver.add_row(row)
    driver.run_batch()
    driver.advance_watermark_to(END)
    driver.run_until_idle()
    good = [row for row in found if row["kind"] == "session"]
    expected = driver.take_frame()
    names = ["session_id", "closed_by", "number", "page"]
    assert sorted(tuple(row[name] for name in names) for row in good) == sorted(
        expected[names].itertuples(index=False, name=None)
    )
    assert len(good) + sum(row["kind"] == "quarantined" for row in found) == 80
    assert all(row["event_time"] is not None for row in found)
