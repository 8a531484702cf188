"""
From where the buyers of a shop come, and where the others are lost.

    python -m examples.shop                                 files, and a PostgreSQL for this run
    python -m examples.shop --events LOG.csv                a log of your own
    python -m examples.shop --database postgresql://...     a PostgreSQL of your own
    python -m examples.shop --database ... --kafka HOST:PORT    the topic `actions`, until Ctrl+C
    python -m examples.shop --engine sail                   without Java, one batch to a folder
"""

import sys
from argparse import Namespace
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, LiteralString

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples.running import (
    KAFKA_CONNECTOR,
    cut,
    emptied,
    log_of,
    parser_of,
    show,
    show_counts,
    start_engine,
    write_files,
    write_report,
)
from examples.shop import job
from examples.shop.events import made_up, read_log, write
from examples.shop.spec import LOOKBACK, STEPS, VISITS
from sessionkit.addons.sources import JsonLines, KafkaTopics
from sessionkit.spark import sessionize

__all__ = ["REPORT", "main", "run"]

FILES: Final = 6
REPORT: Final[Mapping[str, Any]] = {
    "dimensions": ("credit", "channel"),
    "funnel": "far",
    "steps": tuple(STEPS),
}
TITLES: Final = {
    "channel": "Visits and sales by the channel that won the user",
    "credit": f"... and by the last source within {LOOKBACK.days} days",
}
SHARES: Final[LiteralString] = """
    SELECT coalesce({by}, 'direct'), count(*), count(*) FILTER (WHERE bought),
        round(100.0 * count(*) FILTER (WHERE bought) / count(*), 1)
    FROM visits GROUP BY 1 ORDER BY 1
"""


def run(
    spark: SparkSession, events: pa.Table, database: str, out: Path, *, files: int = FILES
) -> None:
    """Stream files of events into the database."""
    with TemporaryDirectory(prefix="shop-") as scratch:
        write(events, Path(scratch, "log"), files=files)
        source = JsonLines(str(Path(scratch, "log")), options={"maxFilesPerTrigger": 1})
        query = job.start(
            spark, source, database, checkpoint=out / "checkpoint", trigger="availableNow"
        )
        query.awaitTermination()
    show_counts(query)


def conclude(database: str, out: Path) -> Path:
    """Print what came out, and write the report."""
    import psycopg  # noqa: PLC0415 - a batch on Sail has no database

    with psycopg.connect(database) as connection:
        for column, title in TITLES.items():
            query = psycopg.sql.SQL(SHARES).format(by=psycopg.sql.Identifier(column))
            show(title, connection.execute(query).fetchall(), column, "visits", "sales", "%")
    return write_report(database, out, "A shop", table="visits", **REPORT)


def run_batch(spark: SparkSession, events: pa.Table, out: Path) -> Path:
    """Turn all events into a folder of visits, and print the same; return the report."""
    visits = out / "visits"
    with TemporaryDirectory(prefix="shop-") as scratch:
        write_files(cut(events, FILES), Path(scratch, "log"))
        found = sessionize(spark.read.parquet(f"{scratch}/log"), VISITS)
        found.write.parquet(str(visits))
    sales = F.sum(F.col("bought").cast("int"))
    share = F.round(100 * sales / F.count("*"), 1)
    for column, title in TITLES.items():
        by = F.coalesce(column, F.lit("direct")).alias(column)
        rows = spark.read.parquet(str(visits)).groupBy(by).agg(F.count("*"), sales, share)
        show(title, rows.orderBy(column).collect(), column, "visits", "sales", "%")
    return write_report(visits, out, "A shop", **REPORT)


def main() -> int:
    """Run it on a local Spark, or on Sail; return the exit code."""
    parser = parser_of("shop", __doc__, takes_sail=True)
    parser.add_argument("--database", help="the address of a PostgreSQL")
    parser.add_argument("--kafka", help="the brokers to read from, instead of files")
    asked = parser.parse_args()
    if asked.engine == "sail" and (asked.kafka or asked.database):
        parser.error("--kafka and --database take a stream, which needs Spark: leave them out")
    settings = {"spark.jars.packages": KAFKA_CONNECTOR} if asked.kafka else {}
    spark = start_engine("shop", asked.engine, settings)
    try:
        if asked.engine == "sail":
            run_batch(spark, events_of(asked.events), emptied(asked.out))
        else:
            run_stream(spark, asked, emptied(asked.out))
    finally:
        spark.stop()
    return 0


def run_stream(spark: SparkSession, asked: Namespace, out: Path) -> None:
    """Stream what is asked for into a database, and conclude."""
    from examples.embedded_postgres import running_postgres  # noqa: PLC0415 - as above

    with nullcontext() if asked.database else running_postgres() as embedded:
        database = embedded.dsn if embedded else asked.database
        if asked.kafka:
            follow(spark, asked.kafka, database, out)
        else:
            run(spark, events_of(asked.events), database, out)
        conclude(database, out)


def events_of(events: Path | None) -> pa.Table:
    """Return the events of a log, or made-up ones."""
    log = log_of("ecom/ecom.csv.gz", events)
    return read_log(log) if log else made_up()


def follow(spark: SparkSession, brokers: str, database: str, out: Path) -> None:
    """Stream a topic into the database, until somebody presses Ctrl+C."""
    source = KafkaTopics(brokers, "actions")
    query = job.start(spark, source, database, checkpoint=out / "checkpoint", trigger="10s")
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()


if __name__ == "__main__":
    sys.exit(main())
