"""
Visits to a website by section, with a table that maps pages to sections.

Run it with `python -m examples.enriched_visits`. The stream of page views is first joined with the
table. A join of a stream with a static table keeps no state, so sessions can follow in the same
query. It is a left join: a view of an unknown page is kept, without a section. The table has one
row per page; two rows would turn one view into two.
"""

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession

from examples.local_spark import start_spark
from sessionkit import Functions, Session, SessionSpec
from sessionkit.spark import sessionize

__all__ = ["VISITS", "View", "Visit", "VisitRow", "enriched", "main", "run", "write"]

UNKNOWN = "(unknown)"
PAGES = {"/": "home", "/shoes": "shop", "/hats": "shop", "/jobs": "company"}
START = datetime(2026, 3, 9, 8, tzinfo=UTC)
VIEWS = pa.schema(
    {
        "user_id": pa.string(),
        "ts": pa.timestamp("us", tz="UTC"),
        "url": pa.string(),
        "seconds": pa.float64(),
    }
)


@attrs.frozen
class View:
    """A page view after the join; without a section if the table doesn't contain the page."""

    section: str | None
    seconds: float


@attrs.define
class Visit:
    """The state of an open visit: the reading time of each section."""

    pages: int = 0
    reading: dict[str, float] = attrs.field(factory=dict)


@attrs.frozen
class VisitRow:
    """One result row: the section that was read longest, and for how long."""

    pages: int
    section: str
    seconds: float


def update(visit: Visit, view: View) -> None:
    """Add a view."""
    section = view.section or UNKNOWN
    visit.pages += 1
    visit.reading[section] = visit.reading.get(section, 0.0) + view.seconds


def merge(left: Visit, right: Visit) -> Visit:
    """Merge two visits that a late view connects."""
    sections = left.reading.keys() | right.reading.keys()
    reading = {
        name: left.reading.get(name, 0.0) + right.reading.get(name, 0.0) for name in sections
    }
    return Visit(left.pages + right.pages, reading)


def finish(session: Session, visit: Visit) -> VisitRow:
    """Return the row of a visit that has ended; on a tie, the first section by name."""
    section = min(visit.reading, key=lambda name: (-visit.reading[name], name))
    return VisitRow(visit.pages, section, visit.reading[section])


VISITS = SessionSpec(
    keys={"user_id": str},
    event_time="ts",
    logic=Functions(update=update, merge=merge, finish=finish),
    timeout="30 minutes",
    watermark_delay="10 minutes",
)


def enriched(views: DataFrame, pages: DataFrame) -> DataFrame:
    """Add the section of its page to each view."""
    return views.join(pages, "url", "left")


def arrivals() -> list[list[tuple[str, int, str, float]]]:
    """Return page views as user, minute, page and seconds: one list for each file."""
    return [
        [("ann", 0, "/", 5.0), ("bob", 2, "/jobs", 60.0), ("cid", 3, "/", 9.0)],
        [("ann", 7, "/shoes", 50.0), ("bob", 9, "/new", 70.0), ("ann", 4, "/hats", 20.0)],
        [("dan", 90, "/", 1.0)],
    ]


def write(folder: Path) -> None:
    """Write the table of pages, and the views, one file for each list."""
    pq.write_table(pa.table({"url": [*PAGES], "section": [*PAGES.values()]}), folder / "pages")
    (folder / "views").mkdir()
    for number, views in enumerate(arrivals()):
        rows = [
            (user, START + timedelta(minutes=minute), url, seconds)
            for user, minute, url, seconds in views
        ]
        columns = [list(column) for column in zip(*rows, strict=True)]
        path = folder / "views" / f"{number}.parquet"
        pq.write_table(pa.table(columns, schema=VIEWS), path)
        # Spark reads files in the order of their modification times.
        os.utime(path, (number + 1, number + 1))


def run(spark: SparkSession, folder: Path) -> list[Row]:
    """Stream the views, one file per micro-batch; return the visits that have ended, by user."""
    write(folder)
    pages = spark.read.parquet(str(folder / "pages"))
    source = str(folder / "views")
    reader = spark.readStream.schema(spark.read.parquet(source).schema)
    views = reader.option("maxFilesPerTrigger", 1).parquet(source)
    query = (
        sessionize(enriched(views, pages), VISITS)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "visits"))
    )
    query.awaitTermination()
    return spark.read.parquet(str(folder / "visits")).orderBy("user_id").collect()


def main() -> int:
    """Run it on a local Spark; return the exit code."""
    spark = start_spark("enriched visits")
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with TemporaryDirectory(prefix="enriched-visits-") as scratch:
            for row in run(spark, Path(scratch)):
                print(f"{row.user_id}: {row.pages} pages, most of the time {row.section}")
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
