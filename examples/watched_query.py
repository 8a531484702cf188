"""
Watch a query in the terminal: visits to a made-up site, with some late and some broken views.

    python -m examples.watched_query               watch it for half a minute
"""

from _thread import interrupt_main
from argparse import ArgumentParser
from tempfile import mkdtemp
from threading import Timer
from typing import Final

import attrs
from pyspark.sql import DataFrame, SparkSession

from examples.running import start_spark
from sessionkit import SessionSpec
from sessionkit.addons.monitor import watch
from sessionkit.spark import sessionize

__all__ = ["VISITS", "main", "views"]

COHORTS: Final = 20
USERS_OF_A_COHORT: Final = 25


@attrs.frozen
class View:
    """A page view."""

    page: str


@attrs.define
class Visit:
    """The pages of a visit."""

    pages: int = 0

    def update(self, view: View) -> None:
        """Count a page."""
        if view.page == "/broken":
            raise ValueError(view.page)
        self.pages += 1

    def merge(self, later: "Visit") -> None:
        """Add the pages of a later part."""
        self.pages += later.pages


VISITS: Final = SessionSpec.of(
    Visit,
    keys={"user": str},
    event_time="at",
    gap="5 seconds",
    watermark_delay="3 seconds",
    on_error="reject",
)


def views(spark: SparkSession, rows_per_second: int) -> DataFrame:
    """
    Return a stream of views.

    There are 20 cohorts of 25 users, and each is there for three seconds a minute. One view in 200
    comes late, and one in 500 is of a page that breaks.
    """
    rows = spark.readStream.format("rate").option("rowsPerSecond", rows_per_second).load()
    return rows.selectExpr(
        f"concat_ws('-', 'user', int(unix_seconds(timestamp) / 3) % {COHORTS}, "
        f"pmod(hash(value), {USERS_OF_A_COHORT})) AS user",
        "if(value % 200 = 0, timestamp - INTERVAL 30 seconds, timestamp) AS at",
        "if(value % 500 = 1, '/broken', concat('/', value % 7)) AS page",
    )


def main(arguments: list[str] | None = None) -> None:
    """Run the query, and show it."""
    parser = ArgumentParser("python -m examples.watched_query")
    parser.add_argument("--seconds", type=int, default=30, help="how long to watch it")
    asked = parser.parse_args(arguments)
    spark = start_spark("watched")
    query = (
        sessionize(views(spark, 1_000), VISITS)
        .writeStream.format("noop")
        .queryName("visits")
        .option("checkpointLocation", mkdtemp())
        .trigger(processingTime="1 second")
        .start()
    )
    timer = Timer(asked.seconds, interrupt_main)
    timer.start()
    watch(query)
    timer.cancel()
    query.stop()


if __name__ == "__main__":
    main()
