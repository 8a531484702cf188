"""A spec that counts the views of forty users, for tests of what happens to a checkpoint."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import SparkSession

from sessionkit import EventTimeGap, Functions, SessionSpec, Storage
from tests.support.streams import FileStream

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
USERS = [f"user {number}" for number in range(40)]


@attrs.frozen
class View:
    number: int


@attrs.define
class Views:
    views: int = 0


def count(state: Views, event: View) -> None:
    state.views += event.number


def merge(left: Views, right: Views) -> Views:
    return Views(left.views + right.views)


def spec_of(layout: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec(
        keys={"user": str},
        event_time="at",
        logic=Functions(update=count, merge=merge),
        timeout=EventTimeGap("30m"),
        watermark_delay="10m",
        storage=Storage(bucket_count=8, layout=layout),
    )


def views(minute: int) -> pa.Table:
    times = [NOON + timedelta(minutes=minute)] * len(USERS)
    at = pa.array(times, pa.timestamp("us", tz="UTC"))
    return pa.table({"user": USERS, "at": at, "number": [1] * len(USERS)})


def begun(spark: SparkSession, spec: Any, folder: Path) -> FileStream:
    """Return a stopped query after two micro-batches."""
    stream = FileStream(spark, spec, folder)
    stream.put(views(0), views(1))
    stream.run()
    return stream
