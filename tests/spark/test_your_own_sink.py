"""The sink of docs/how-to/your-own-sink.md, which people copy: each row once, whatever fails."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from sessionkit import SpecError, aggregates
from sessionkit.spark import sessions, start_query
from tests.support.pages import run_blocks

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "your-own-sink.md"
EVENTS = "user string, ts timestamp"

pytestmark = pytest.mark.spark


@attrs.frozen
class Job:
    """A job that writes to the sink of the page, and the folder in which it works."""

    spark: SparkSession
    folder: Path
    sink: Any

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def arrive(self, user: str, hour: int) -> None:
        """Write an event."""
        frame = self.spark.createDataFrame([(user, datetime(2026, 3, 8, hour, tzinfo=UTC))], EVENTS)
        frame.write.mode("append").json(f"{self.folder}/views")

    def run(self) -> list[str]:
        """Read what is there, and end; return the users whose sessions the table has."""
        views = self.spark.readStream.schema(EVENTS).json(f"{self.folder}/views")
        found = sessions(
            views, keys="user", event_time="ts", gap="30 minutes", watermark_delay="10 minutes"
        )
        rows = found.agg(pages=aggregates.count()).select("session_id", "user", "pages")
        start_query(
            rows, sink=self.sink, trigger="availableNow", checkpoint=self.checkpoint
        ).awaitTermination()
        with self.sink.transaction() as store:
            return [user for (user,) in store.execute("SELECT user FROM visits ORDER BY 1")]


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    """Give a job that has run once, and has ended one session."""
    sink = run_blocks(PAGE)["Sqlite"](str(tmp_path / "shop.db"), "visits")
    job = Job(spark, tmp_path, sink)
    job.arrive("ann", 9)
    job.arrive("bob", 11)
    assert ["ann"] == job.run()
    return job


def test_a_micro_batch_that_runs_again_adds_no_row(job: Job) -> None:
    """As after a crash between the transaction and Spark's own log, whose last entries go."""
    for entry in (job.checkpoint / "commits").iterdir():
        if entry.name.strip(".").partition(".")[0] != "0":
            entry.unlink()
    assert ["ann"] == job.run()


def test_a_checkpoint_that_is_older_than_the_table_is_refused(job: Job) -> None:
    """Spark would give numbers again that the table has, to other rows."""
    older = shutil.copytree(job.checkpoint, job.folder / "older")
    job.arrive("cat", 13)
    assert ["ann", "bob"] == job.run()

    shutil.rmtree(job.checkpoint)
    shutil.copytree(older, job.checkpoint)
    with pytest.raises(SpecError, match="hasn't planned yet"):
        job.run()


def test_a_column_that_the_store_cannot_hold_is_refused(job: Job) -> None:
    """Before the query starts."""
    job.arrive("dan", 15)
    views = job.spark.readStream.schema(EVENTS).json(f"{job.folder}/views")
    with pytest.raises(SpecError, match="SQLite has no type for `ts`: timestamp"):
        start_query(views, sink=job.sink, checkpoint=job.folder / "other", trigger="availableNow")
