"""A query that erases a key, and in which an event can kill: one whose address is a file."""

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa
from pyspark.sql import SparkSession

from sessionkit import SessionSpec, Storage
from tests.support.spark_settings import FOR_TINY_BATCHES
from tests.support.streams import FileStream
from tests.support.visits import NOON

KEY: Final = "ann-7f3a9c51"


@attrs.frozen
class View:
    url: str


@attrs.define
class Visit:
    urls: list[str] = attrs.field(factory=list)

    def update(self, view: View) -> None:
        _end(view.url)
        self.urls.append(view.url)

    def merge(self, other: "Visit") -> None:
        self.urls += other.urls


SPEC: Final = SessionSpec.of(
    Visit,
    keys={"user": str},
    event_time="at",
    gap="30 minutes",
    watermark_delay="10 minutes",
    storage=Storage(bucket_count=1),
)


def views(*rows: tuple[str, float, str]) -> pa.Table:
    """Return page views: the user, how many minutes after noon, and the address."""
    users, minutes, urls = zip(*rows, strict=True)
    at = [NOON + timedelta(minutes=minute) for minute in minutes]
    return pa.table({"user": users, "url": urls, "at": pa.array(at, pa.timestamp("us", "UTC"))})


def users(stream: FileStream) -> list[str]:
    """Return whose sessions are open, with how many events each."""
    return sorted(f"{session.key.user} {session.events}" for session in stream.open())


def _end(url: str) -> None:
    """Kill this worker, or the JVM that started it, as the file says which the event names."""
    path = Path(url)
    if len(url) > 1 and path.exists():
        victim = path.read_text()
        path.unlink()
        pids = [os.getpid(), os.getppid()]
        pids.append(int(Path(f"/proc/{pids[1]}/stat").read_text().rpartition(")")[2].split()[1]))
        os.kill(pids[0] if victim == "worker" else pids[2], signal.SIGKILL)


def run_once(folder: str) -> None:
    """Run the query in a process of its own."""
    settings: dict[str, Any] = {
        **FOR_TINY_BATCHES,
        "spark.ui.enabled": "false",
        "spark.master": "local[1]",
    }
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    FileStream(spark, SPEC, Path(folder), with_rejected=True, erases=True).run()
