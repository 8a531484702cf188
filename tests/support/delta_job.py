"""
Two queries of one session that write to two tables of Delta, as a program that may be killed.

`python delta_job.py FOLDER KEYED` reads the files of `FOLDER/events/one` and `/two`, one a
micro-batch, until both queries have read all of them. Where `KEYED` is `yes`, one of the two merges
its rows. Where Spark is, the variables of the shell say.
"""

import os
import sys
from importlib.metadata import version
from importlib.util import find_spec
from typing import Final

from pyspark.sql import SparkSession

from sessionkit.addons.delta import Delta
from sessionkit.spark import start_query

SETTINGS: Final[dict[str, bool | float | int | str | None]] = {
    "spark.databricks.delta.snapshotPartitions": 2,
    "spark.jars.packages": (
        f"io.delta:delta-spark_2.13:{version('delta-spark')}" if find_spec("delta") else ""
    ),
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.shuffle.partitions": 2,
    "spark.ui.enabled": "false",
}
"""Those of a session with Delta Lake; a server has them already."""


def main(folder: str, keyed: str) -> None:
    """Run both queries until they have read what is there."""
    own = {} if "SPARK_REMOTE" in os.environ else SETTINGS
    spark = SparkSession.builder.config(map=own).getOrCreate()
    keys = {"one": (), "two": "value" if keyed == "yes" else ()}
    queries = [
        start_query(
            spark.readStream.schema("value long")
            .option("maxFilesPerTrigger", 1)
            .parquet(f"{folder}/events/{name}"),
            sink=Delta(f"{folder}/{name}", key=key),
            trigger="availableNow",
            checkpoint=f"{folder}/checkpoints/{name}",
        )
        for name, key in keys.items()
    ]
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
