"""
What people do on a web site, with the visits of programs marked and not deleted.

    python -m examples.web                        requests that are made up, or those next to it
    python -m examples.web --events access.log    a log of your own, in Apache's combined format
    python -m examples.web --engine sail          without Java, as one batch
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.running import (
    cut,
    emptied,
    find_sessions,
    log_of,
    parser_of,
    show,
    show_counts,
    start_engine,
    write_files,
    write_report,
)
from examples.web.events import made_up, read_log
from examples.web.spec import VISITS
from sessionkit.spark import sessionize

__all__ = ["REPORT", "main", "run"]

FILES: Final = 4
REPORT: Final[Mapping[str, Any]] = {"dimensions": "visitor"}


def marked(visits: DataFrame) -> DataFrame:
    """Say who visits: a person, or a program and how it's known."""
    who = F.lit("person")
    for sign in ("age", "rate", "name"):  # the last one counts most
        who = F.when(F.col(f"bot_by_{sign}"), f"program, by its {sign}").otherwise(who)
    return visits.withColumn("visitor", who)


def run(spark: SparkSession, hits: pa.Table, out: Path, *, files: int = FILES) -> Path:
    """Turn the requests into a folder of visits, and show these; return the report."""
    visits = out / "visits"
    with TemporaryDirectory(prefix="web-") as scratch:
        write_files(cut(hits, files), Path(scratch, "hits"))
        query = find_sessions(
            spark,
            Path(scratch, "hits"),
            lambda events: marked(sessionize(events, VISITS)),
            visits,
            spec=VISITS,
            checkpoint=out / "checkpoint",
        )
        if query is not None:
            show_counts(query)
    found = spark.read.parquet(str(visits))
    by_visitor = found.groupBy("visitor").agg(
        F.count("*"), F.sum("hits"), F.round(F.avg(F.col("engaged_for").cast("long")), 1)
    )
    titles = ("visitor", "visits", "requests", "engaged, in s")
    show("Who visits", by_visitor.orderBy("visitor").collect(), *titles)
    entries = found.where("visitor = 'person'").groupBy("entry", "exit").count()
    most = entries.orderBy(F.desc("count"), "entry", "exit").limit(5).collect()
    show("Where people come in and go out", most, "entry", "exit", "visits")
    return write_report(visits, out, "A web site", **REPORT)


def main() -> int:
    """Run it on a local Spark, or on Sail; return the exit code."""
    asked = parser_of("web", __doc__, takes_sail=True).parse_args()
    log = log_of("apache_logs/apache_logs.gz", asked.events)
    spark = start_engine("web", asked.engine)
    try:
        run(spark, read_log(log) if log else made_up(), emptied(asked.out))
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
