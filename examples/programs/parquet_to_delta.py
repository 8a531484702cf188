"""
Each day, read the new files of a folder of Parquet, and write the visits that are over to Delta Lake.

    python parquet_to_delta.py /data/views /tables/visits /checkpoints/visits

It needs Java, and the extra `delta` with a pair that goes together: `delta-spark==4.4.0` and
`pyspark==4.2.0`. The checkpoint knows which files are read and which visits are open, so a visit
over midnight is one row, and a run that fails is simply run again. Write a file elsewhere and then
move it into the folder: a file is read once, as soon as it's there. As lines of cron, which tell
Spark its Java and Python; `flock` keeps a slow run and the next one apart:

    JAVA_HOME=/usr/lib/jvm/java-17
    PYSPARK_PYTHON=/jobs/.venv/bin/python
    0 3 * * * flock -n /tmp/visits.lock /jobs/.venv/bin/python /jobs/parquet_to_delta.py /data/views /tables/visits /checkpoints/visits

In Airflow, all on one line are the `bash_command` of a `BashOperator`, in a `DAG` with
`schedule="0 3 * * *"` and `max_active_runs=1`.
"""  # noqa: E501 (a line of cron is one line)

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

from sessionkit import SessionSpec
from sessionkit import aggregates as agg
from sessionkit.addons.delta import Delta
from sessionkit.spark import recommended_settings, reconcile, sessionize, start_query

SETTINGS: dict[str, Any] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # by default 50, for millions of files
    "spark.sql.session.timeZone": "UTC",
    **recommended_settings(cores=2),
}


@attrs.frozen
class View:
    """The columns that are read besides user and time."""

    page: str


VISITS = SessionSpec.aggregate(
    View,
    {"pages": agg.count(), "landing": agg.first("page"), "exit": agg.last("page")},
    keys={"user": str},
    event_time="ts",
    gap="30 minutes",
    watermark_delay="1 hour",
)


def run(spark: SparkSession, views: str, table: str, checkpoint: str) -> None:
    """Read what is new, write what is over, and print what has become of the events."""
    stream = spark.readStream.schema("user string, ts timestamp, page string").parquet(views)
    query = start_query(
        sessionize(stream, VISITS),
        sink=Delta(Path(table)),
        trigger="availableNow",
        checkpoint=checkpoint,
        spec=VISITS,
    )
    query.awaitTermination()
    print(reconcile(query).counts)


def main(arguments: Sequence[str]) -> None:
    """Run it in a session of Spark that knows Delta Lake."""
    builder = SparkSession.builder.appName("visits").config(map=SETTINGS)
    run(configure_spark_with_delta_pip(builder).getOrCreate(), *arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
