"""
Which sensors fall silent, and for how long: alerts by the engine's own clock.

    python -m examples.devices    sensors that are made up, for about ten seconds

It is a stream by nature, so `--engine sail`, which runs batches, says that it needs Spark.
"""

import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from examples.devices.spec import sensors
from examples.running import emptied, parser_of, show, start_engine, write_report
from sessionkit.errors import UnsupportedError
from sessionkit.spark import AtLeastOnce, apply_with_state, start_query

__all__ = ["REPORT", "main", "run"]

COLUMNS: Final = "sensor string, read_at timestamp, celsius double"
READINGS: Final = pa.schema(
    {"sensor": pa.string(), "read_at": pa.timestamp("us", tz="UTC"), "celsius": pa.float64()}
)
ROOMS: Final = ("attic", "cellar", "kitchen", "stairs")
WEAK: Final = ("cellar", "stairs")
PAUSE: Final = 0.5
REPORT: Final[Mapping[str, Any]] = {"dimensions": "sensor"}
PATIENCE: Final = timedelta(minutes=3)


@attrs.define
class Log:
    """What the alerts have said: which sensors are silent, and the outages that are over."""

    silent: dict[str, datetime] = attrs.field(factory=dict)
    outages: list[dict[str, Any]] = attrs.field(factory=list)

    def add(self, batch: DataFrame, number: int) -> None:
        """Print the alerts of a micro-batch, and keep them."""
        for row in batch.collect():
            print(f"{row.sensor}: {row.status}, last heard at {row.heard:%H:%M:%S}", flush=True)
            if row.status == "silent":
                self.silent[row.sensor] = row.heard
            elif row.sensor in self.silent:
                now = datetime.now(UTC)
                self.outages.append(
                    {
                        "sensor": row.sensor,
                        "session_id": f"{row.sensor}-{number}",
                        "session_start": self.silent.pop(row.sensor).astimezone(UTC),
                        "session_end": now,
                        "last_event_time": now,  # an outage has no gap behind it
                        "outcome": row.status,
                    }
                )


def send(folder: Path, *names: str) -> None:
    """Write a file with one reading of each of these sensors."""
    now = datetime.now(UTC)
    rows = [{"sensor": name, "read_at": now, "celsius": 4.0 + len(name)} for name in names]
    number = len(list(folder.glob("*.parquet")))
    # The query must not see a partial file; it ignores files whose names start with a dot.
    unfinished = folder / ".unfinished"
    pq.write_table(pa.Table.from_pylist(rows, READINGS), unfinished)
    unfinished.rename(folder / f"{number:04}.parquet")


def send_until(
    happened: Callable[[], bool], query: StreamingQuery, folder: Path, *names: str
) -> None:
    """Have sensors send twice a second until something has happened."""
    limit = time.monotonic() + PATIENCE.total_seconds()
    while not happened():
        if not query.isActive:
            query.awaitTermination()  # raises the error of the query
        if time.monotonic() > limit:
            found = f"nothing has happened for {PATIENCE}"
            raise TimeoutError(found)
        send(folder, *names)
        time.sleep(PAUSE)


def run(spark: SparkSession, out: Path, *, silence: timedelta) -> list[dict[str, Any]]:
    """Let two sensors fall silent and recover; write the report, and return the outages."""
    log = Log()
    with TemporaryDirectory(prefix="devices-") as scratch:
        folder = Path(scratch)
        send(folder, *ROOMS)
        query = start_query(
            apply_with_state(
                spark.readStream.schema(COLUMNS).parquet(scratch), sensors(silence=silence)
            ),
            sink=AtLeastOnce(log.add),
            trigger="1 second",
            checkpoint=out / "checkpoint",
        )
        try:
            awake = [room for room in ROOMS if room not in WEAK]
            send_until(lambda: {*WEAK} <= log.silent.keys(), query, folder, *awake)
            send_until(lambda: len(log.outages) >= len(WEAK), query, folder, *ROOMS)
        finally:
            query.stop()
    rows = [(row["sensor"], row["session_end"] - row["session_start"]) for row in log.outages]
    show("Outages", sorted(rows), "sensor", "for")
    write_report(pa.Table.from_pylist(log.outages), out, "Silent sensors", **REPORT)
    return log.outages


def main() -> int:
    """Run it on a local Spark; return the exit code."""
    asked = parser_of("devices", __doc__, takes_events=False, takes_sail=True).parse_args()
    print("These events are MADE UP, as the clock goes.", flush=True)
    spark = start_engine("devices", asked.engine)
    try:
        run(spark, emptied(asked.out), silence=timedelta(seconds=3))
    except UnsupportedError as error:
        sys.exit(str(error))
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
