"""
Report when a sensor goes silent, and when it recovers: a timer in processing time.

Run it with `python -m examples.silent_sensors`. Silence is the absence of events, so no event and
no watermark can show it; only the engine's own clock can. Each reading resets the timer; if none
arrives in time, the timer goes off, once. A sensor that stays silent for a week is given up, and
its state is deleted.
"""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from examples.local_spark import start_spark
from sessionkit import KeyState, KeyTimes, ProcessingTimeGap, StatefulSpec, by_processing_time
from sessionkit.spark import apply_with_state

__all__ = ["GIVEN_UP", "Alert", "Reading", "Sensor", "main", "run", "sensors"]

GIVEN_UP = timedelta(days=7)
COLUMNS = "sensor string, read_at timestamp, celsius double"
READINGS = pa.schema(
    {"sensor": pa.string(), "read_at": pa.timestamp("us", tz="UTC"), "celsius": pa.float64()}
)
PAUSE = 0.5
PATIENCE = timedelta(minutes=3)


@attrs.frozen
class Reading:
    """A reading: the column to read besides sensor and time."""

    celsius: float


@attrs.frozen
class Sensor:
    """What is known about a sensor."""

    heard: datetime  # the processing time of its last readings
    celsius: float
    is_silent: bool = False


@attrs.frozen
class Alert:
    """One result row: the new status of a sensor, and its last reading before that."""

    status: str
    heard: datetime
    celsius: float


def sensors(*, silence: timedelta) -> StatefulSpec[Reading, Sensor, Alert]:
    """Return a spec in which a sensor is silent after this long without readings."""

    def process(
        key: Any, readings: list[Reading], state: KeyState[Sensor], times: KeyTimes
    ) -> Alert | None:
        before = state.get(None)
        now = times.processing_time
        state.set(Sensor(now, readings[-1].celsius))
        times.set_processing_timer("silence", now + silence)
        if before is not None and before.is_silent:
            return Alert("recovered", before.heard, before.celsius)
        return None

    def on_timer(key: Any, name: str, state: KeyState[Sensor], times: KeyTimes) -> Alert:
        sensor = state.get()
        if name == "silence":
            state.set(attrs.evolve(sensor, is_silent=True))
            return Alert("silent", sensor.heard, sensor.celsius)
        return Alert("given up", sensor.heard, sensor.celsius)

    return StatefulSpec(
        keys={"sensor": str},
        event_time="read_at",  # sorts the readings; there's no watermark
        process=process,
        on_timer=by_processing_time(on_timer),
        timeout=ProcessingTimeGap(GIVEN_UP),
    )


def report(folder: Path, *names: str) -> None:
    """Write a file with one reading of each of these sensors."""
    folder.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    rows = [{"sensor": name, "read_at": now, "celsius": 4.0 + len(name)} for name in names]
    number = len(list(folder.glob("*.parquet")))
    # The query must not see a partial file; it ignores files whose names start with a dot.
    unfinished = folder / ".unfinished"
    pq.write_table(pa.Table.from_pylist(rows, READINGS), unfinished)
    unfinished.rename(folder / f"{number:04}.parquet")


def report_until(
    happened: Callable[[], bool], query: StreamingQuery, folder: Path, *names: str
) -> None:
    """Have sensors report twice a second until something has happened."""
    limit = time.monotonic() + PATIENCE.total_seconds()
    while not happened():
        if not query.isActive:
            query.awaitTermination()  # raises the error of the query
        if time.monotonic() > limit:
            found = f"nothing has happened for {PATIENCE}"
            raise TimeoutError(found)
        report(folder, *names)
        time.sleep(PAUSE)


def run(spark: SparkSession, folder: Path, *, silence: timedelta) -> list[Row]:
    """Let the cellar go silent and recover; print the alerts, and return them."""
    source, alerts = folder / "readings", list[Row]()

    def show(batch: DataFrame, number: int) -> None:
        for row in batch.collect():
            alerts.append(row)
            print(f"{row.sensor} {row.status}, last heard at {row.heard:%H:%M:%S}", flush=True)

    def has(status: str) -> Callable[[], bool]:
        return lambda: ("cellar", status) in [(row.sensor, row.status) for row in alerts]

    report(source, "attic", "cellar")
    readings = spark.readStream.schema(COLUMNS).parquet(str(source))
    query = (
        apply_with_state(readings, sensors(silence=silence))
        .writeStream.foreachBatch(show)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    try:
        report_until(has("silent"), query, source, "attic")
        report_until(has("recovered"), query, source, "attic", "cellar")
    finally:
        query.stop()
    return alerts


def main() -> int:
    """Run it on a local Spark; return the exit code."""
    spark = start_spark("silent sensors")
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with TemporaryDirectory(prefix="silent-sensors-") as scratch:
            run(spark, Path(scratch), silence=timedelta(seconds=5))
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
