"""
From where the buyers of a shop come, and where the others are lost.

    python -m examples.shop                                 files, and a PostgreSQL for this run
    python -m examples.shop --events LOG.csv                a log of your own
    python -m examples.shop --database postgresql://...     a PostgreSQL of your own
    python -m examples.shop --database ... --kafka HOST:PORT    the topic `actions`, until Ctrl+C
"""

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, LiteralString

import psycopg
import pyarrow as pa
from pyspark.sql import SparkSession

from examples.embedded_postgres import running_postgres
from examples.running import (
    KAFKA_CONNECTOR,
    emptied,
    log_of,
    parser_of,
    show,
    show_counts,
    start_spark,
    write_report,
)
from examples.shop import job
from examples.shop.events import made_up, read_log, write
from examples.shop.spec import LOOKBACK, STEPS
from sessionkit.addons.sources import JsonLines, KafkaTopics

__all__ = ["REPORT", "main", "run"]

FILES: Final = 6
REPORT: Final[Mapping[str, Any]] = {
    "dimensions": ("credit", "channel"),
    "funnel": "far",
    "steps": tuple(STEPS),
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
    with psycopg.connect(database) as connection:
        for column, title in (
            ("channel", "Visits and sales by the channel that won the user"),
            ("credit", f"... and by the last source within {LOOKBACK.days} days"),
        ):
            query = psycopg.sql.SQL(SHARES).format(by=psycopg.sql.Identifier(column))
            show(title, connection.execute(query).fetchall(), column, "visits", "sales", "%")
    return write_report(database, out, "A shop", table="visits", **REPORT)


def main() -> int:
    """Run it on a local Spark; return the exit code."""
    parser = parser_of("shop", __doc__)
    parser.add_argument("--database", help="the address of a PostgreSQL")
    parser.add_argument("--kafka", help="the brokers to read from, instead of files")
    asked = parser.parse_args()
    out = emptied(asked.out)
    settings = {"spark.jars.packages": KAFKA_CONNECTOR} if asked.kafka else {}
    spark = start_spark("shop", settings)
    server = nullcontext() if asked.database else running_postgres()
    try:
        with server as embedded:
            database = embedded.dsn if embedded else asked.database
            if asked.kafka:
                follow(spark, asked.kafka, database, out)
            else:
                log = log_of("ecom/ecom.csv.gz", asked.events)
                run(spark, read_log(log) if log else made_up(), database, out)
            conclude(database, out)
    finally:
        spark.stop()
    return 0


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
