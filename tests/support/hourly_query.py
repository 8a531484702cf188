"""A query that reads one more hour in each run, and a store of a user's own."""

import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sessionkit import EventTimeGap, Storage
from tests.support.session_specs import collecting
from tests.support.streams import FileStream, refused_by_sink, with_gap

START = datetime(2026, 3, 8, 6, 50, tzinfo=UTC)
SPEC = collecting(EventTimeGap("10 minutes"), storage=Storage(bucket_count=2))


def hour(number: int) -> pa.Table:
    """Return the events of an hour, which close the sessions of the one before."""
    at = [START + timedelta(hours=number, minutes=minute) for minute in (0, 5)]
    rows = [{"key": key, "at": time, "value": number} for key in ("ann", "bob") for time in at]
    fields = {"key": pa.string(), "at": pa.timestamp("us", "UTC"), "value": pa.int64()}
    return pa.Table.from_pylist(rows, pa.schema(fields))


class Store:
    """A user's own store, which is a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as store, store:
            store.execute("CREATE TABLE IF NOT EXISTS done (query TEXT, batch INTEGER)")
            store.execute("CREATE TABLE IF NOT EXISTS visits (key TEXT, at TEXT)")

    def last_batch(self, query_id: str) -> int | None:
        """Return the last micro-batch of a query."""
        asked = "SELECT max(batch) FROM done WHERE query = ?"
        with closing(sqlite3.connect(self.path)) as store:
            last: int | None = store.execute(asked, [query_id]).fetchone()[0]
        return last

    def write(self, frame: DataFrame, query_id: str, batch_id: int) -> None:
        rows = [(row.key, str(row.session_start)) for row in frame.collect()]
        with closing(sqlite3.connect(self.path)) as store, store:
            store.executemany("INSERT INTO visits VALUES (?, ?)", rows)
            store.execute("INSERT INTO done VALUES (?, ?)", [query_id, batch_id])

    def rows(self) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as store:
            return sorted(store.execute("SELECT key, at FROM visits"))


class Query:
    """A query that reads one more hour in each run, and whose files can be copied."""

    def __init__(self, spark: SparkSession, folder: Path, *, with_rejected: bool = False) -> None:
        self.stream = FileStream(spark, SPEC, folder, with_rejected=with_rejected, shape=with_gap)
        self.folder = folder

    def run(self, sink: Any, **arguments: Any) -> None:
        self.stream.put(hour(len(list(self.stream.source.glob("*.parquet")))))
        self.start(sink, **arguments)

    def start(self, sink: Any, **arguments: Any) -> None:
        self.stream.run_to(sink, **arguments)

    def copy(self, name: str, *, to: str) -> None:
        shutil.rmtree(self.folder / to, ignore_errors=True)
        shutil.copytree(self.folder / name, self.folder / to)

    def refusal(self, sink: Any, **arguments: Any) -> tuple[str, str]:
        """Return message and hint of a refused start; on Connect, of a first micro-batch."""
        with refused_by_sink(self.stream.spark) as said:
            self.start(sink, **arguments)
        message, _, hint = said[0].partition("\n\nHint: ")
        return message, hint
