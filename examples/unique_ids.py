"""
Keep each order once, even if its message arrives again: with and without a watermark.

Run it with `python -m examples.unique_ids`. A producer resends messages that it thinks were lost.
Six hourly files are streamed twice: once with every id kept in state forever, and once for at
least an hour. An id that comes back after five hours shows what the second run forgets.
"""

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from examples.running import start_spark
from sessionkit.spark.dedup import Deduplication, drop_duplicates_by_key, drop_duplicates_within

__all__ = ["FOREVER", "WITHIN_AN_HOUR", "deliveries", "main", "remembered", "run"]

Message: TypeAlias = tuple[str, datetime]

NEW_IDS = 100
REPEATED = 20
HOURS = 6
MORNING = datetime(2026, 3, 8, 6, tzinfo=UTC)
COLUMNS = "order_id string, sent timestamp"
INSTANT = pa.timestamp("us", tz="UTC")

FOREVER = drop_duplicates_by_key("order_id", event_time="sent", unbounded_state=True)
WITHIN_AN_HOUR = drop_duplicates_within("1 hour", keys="order_id", event_time="sent")


def deliveries() -> Iterator[list[Message]]:
    """Yield the messages of each hour: new orders, and repeats of the last few before."""
    minute = timedelta(minutes=60) / NEW_IDS
    before: list[Message] = []
    for hour in range(HOURS):
        start = MORNING + timedelta(hours=hour)
        new = [(f"{hour}-{place:03}", start + place * minute) for place in range(NEW_IDS)]
        # A repeat has a new timestamp, so the rows aren't equal.
        repeats = [(name, start + place * minute) for place, (name, _) in enumerate(before)]
        forgotten = [("0-000", start)] if hour == HOURS - 1 else []
        yield [*new, *repeats, *forgotten]
        before = new[-REPEATED:]


def write(folder: Path) -> None:
    """Write one file per hour; Spark reads files in order of their modification times."""
    folder.mkdir()
    for hour, messages in enumerate(deliveries()):
        names, times = zip(*messages, strict=True)
        path = folder / f"hour-{hour}.parquet"
        pq.write_table(pa.table({"order_id": names, "sent": pa.array(times, INSTANT)}), path)
        os.utime(path, (hour + 1, hour + 1))


def remembered(
    spark: SparkSession, rule: Deduplication, source: Path, folder: Path
) -> tuple[list[str], list[int]]:
    """Stream the files; return the ids that were kept, and the state's size after each file."""
    reader = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    query = (
        rule.apply(reader.parquet(str(source)))
        .writeStream.format("parquet")
        .outputMode("append")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "unique"))
    )
    query.awaitTermination()
    sizes = [
        progress["stateOperators"][0]["numRowsTotal"]
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]
    kept = spark.read.parquet(str(folder / "unique")).collect()
    return sorted(row["order_id"] for row in kept), sizes


def run(spark: SparkSession, folder: Path) -> None:
    """Compare the two definitions."""
    write(folder / "messages")
    total = sum(map(len, deliveries()))
    print(f"{total} messages of {NEW_IDS * HOURS} orders, in {HOURS} files.\n")
    rules = {"Unique forever": FOREVER, "Unique within an hour": WITHIN_AN_HOUR}
    for place, (title, rule) in enumerate(rules.items()):
        kept, sizes = remembered(spark, rule, folder / "messages", folder / str(place))
        twice = sorted({name for name in kept if kept.count(name) > 1})
        print(title)
        print(f"  messages kept: {len(kept)}; orders kept twice: {', '.join(twice) or 'none'}")
        print(f"  ids in state after each file: {', '.join(map(str, sizes))}\n")


def main() -> int:
    """Run it on a local Spark; return the exit code."""
    spark = start_spark("unique ids")
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with TemporaryDirectory(prefix="unique-ids-") as scratch:
            run(spark, Path(scratch))
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
