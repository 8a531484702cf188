"""
How long users were logged in, when the log-out may arrive out of order, or never.

Run it with `python -m examples.logins`. These sessions have an explicit end, so a gap between
events isn't enough: a record says that a session started, is alive, or ended. A session ends when
the watermark has passed its log-out, because no earlier record can follow. If the log-out is lost,
it ends after half an hour without a sign of life.
"""

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Row, SparkSession

from examples.local_spark import start_spark
from sessionkit import EventTimeGap, KeyState, KeyTimes, StatefulSpec
from sessionkit.spark import apply_with_state

__all__ = ["LOGINS", "Action", "Login", "Period", "Record", "arrivals", "main", "run"]


class Action(Enum):
    """What a record says."""

    LOG_IN = "log in"
    ALIVE = "alive"
    LOG_OUT = "log out"


@attrs.frozen
class Record:
    """A record of the access log: the columns to read besides user and session."""

    at: datetime
    action: Action


@attrs.frozen
class Login:
    """What is known about a session so far."""

    began: datetime | None
    last: datetime
    ended: datetime | None


@attrs.frozen
class Period:
    """One result row: how long a user was logged in, as far as the records show."""

    began: datetime | None  # None if the log-in was lost
    ended: datetime  # the last sign of life if the log-out was lost
    duration: timedelta | None
    outcome: str


def added(login: Login | None, record: Record) -> Login:
    """Add a record. The final result is the same for any order of records."""
    if login is None:
        login = Login(began=None, last=record.at, ended=None)
    login = attrs.evolve(login, last=max(login.last, record.at))
    if record.action is Action.LOG_IN:
        return attrs.evolve(login, began=record.at)
    if record.action is Action.LOG_OUT:
        return attrs.evolve(login, ended=record.at)
    return login


def process(key: Any, records: list[Record], state: KeyState[Login], times: KeyTimes) -> None:
    """Add the records of a session, and wait until the watermark has passed its log-out."""
    login = state.get(None)
    for record in records:
        login = added(login, record)
        state.set(login)
        if login.ended is not None:
            times.set_event_timer("log-out", login.ended)


def on_timer(key: Any, name: str, state: KeyState[Login], times: KeyTimes) -> Period:
    """Report a session that has ended, and delete its state."""
    login = state.get()
    state.remove()
    ended = login.last if login.ended is None else login.ended
    duration = None if login.began is None else ended - login.began
    return Period(login.began, ended, duration, "lost" if login.ended is None else "logged out")


LOGINS = StatefulSpec(
    keys={"user": str, "session": int},
    event_time="at",
    process=process,
    on_timer=on_timer,
    timeout=EventTimeGap("30 minutes"),
    watermark_delay="10 minutes",
)


def _record(clock: str, user: str, session: int, action: Action) -> dict[str, Any]:
    at = datetime.fromisoformat(f"2026-03-09T{clock}").replace(tzinfo=UTC)
    return {"user": user, "session": session, "at": at, "action": action.value}


def arrivals() -> list[list[dict[str, Any]]]:
    """Return the records in order of arrival, one list for each file."""
    return [
        [
            _record("08:00", "ann", 1, Action.LOG_IN),
            _record("08:01", "bob", 2, Action.LOG_IN),
            _record("08:05", "cid", 3, Action.LOG_OUT),  # before its log-in
        ],
        [
            _record("07:58", "cid", 3, Action.LOG_IN),
            _record("08:10", "ann", 1, Action.ALIVE),
            _record("08:11", "bob", 2, Action.ALIVE),  # the last record of bob
        ],
        [_record("08:20", "ann", 1, Action.LOG_OUT)],
        [_record("09:00", "dan", 4, Action.LOG_IN)],
    ]


def write(arrived: Sequence[Sequence[dict[str, Any]]], folder: Path) -> None:
    """Write one file for each list; Spark reads files in order of their modification times."""
    folder.mkdir()
    schema = pa.schema(
        {
            "user": pa.string(),
            "session": pa.int64(),
            "at": pa.timestamp("us", tz="UTC"),
            "action": pa.string(),
        }
    )
    for number, records in enumerate(arrived):
        path = folder / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(list(records), schema), path)
        os.utime(path, (number + 1, number + 1))


def run(spark: SparkSession, folder: Path) -> list[Row]:
    """Stream the records, one file per micro-batch; return the periods, sorted by user."""
    source, saved = folder / "records", folder / "periods"
    write(arrivals(), source)
    reader = spark.readStream.schema(spark.read.parquet(str(source)).schema)
    query = (
        apply_with_state(reader.option("maxFilesPerTrigger", 1).parquet(str(source)), LOGINS)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(saved))
    )
    query.awaitTermination()
    return spark.read.parquet(str(saved)).orderBy("user").collect()


def main() -> int:
    """Run it on a local Spark; return the exit code."""
    spark = start_spark("log-ins")
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with TemporaryDirectory(prefix="logins-") as scratch:
            for row in run(spark, Path(scratch)):
                print(f"{row.user}: {row.outcome}, after {row.duration}")
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
