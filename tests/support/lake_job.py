"""
Two queries of one session that write to two tables of a lake, as a program that may be killed.

`python lake_job.py FOLDER KEYED LAKE` reads the files of `FOLDER/events/one` and `/two`, one a
micro-batch, until both queries have read all of them. Where `KEYED` is `yes`, one of the two merges
its rows. `LAKE` is `delta` or `iceberg`. Where Spark is, the variables of the shell say.
"""

import os
import sys
from typing import Literal, TypeAlias

from pyspark.sql import SparkSession

from sessionkit.addons.delta import Delta
from sessionkit.addons.iceberg import Iceberg
from sessionkit.spark import start_query
from tests.support.spark_settings import lake_settings, quick_settings

LakeName: TypeAlias = Literal["delta", "iceberg"]


def settings(folder: str) -> dict[str, str]:
    """Return the settings of a session with a lake in a folder; a server has them already."""
    added = {"spark.sql.streaming.pollingDelay": "20ms", "spark.ui.enabled": "false"}
    return {**quick_settings(), **added, **lake_settings(f"{folder}/warehouse")}


def table_in(folder: str, name: str, lake: LakeName) -> str:
    """Return where the files of a table are."""
    return f"{folder}/warehouse/folders/shop/{name}" if lake == "iceberg" else f"{folder}/{name}"


def main(folder: str, keyed: str, lake: LakeName) -> None:
    """Run both queries until they have read what is there."""
    options = {} if "SPARK_REMOTE" in os.environ else settings(folder)
    builder = SparkSession.builder
    for name, value in options.items():
        builder.config(name, value)
    spark = builder.getOrCreate()
    queries = []
    for name, key in {"one": (), "two": "value" if keyed == "yes" else ()}.items():
        sink = (
            Delta(table_in(folder, name, "delta"), key=key)
            if lake == "delta"
            else (Iceberg(f"folders.shop.{name}", key=key))
        )
        events = spark.readStream.schema("value long").option("maxFilesPerTrigger", 1)
        queries.append(
            start_query(
                events.parquet(f"{folder}/events/{name}"),
                sink=sink,
                trigger="availableNow",
                checkpoint=f"{folder}/checkpoints/{name}",
            )
        )
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], "delta" if sys.argv[3] == "delta" else "iceberg")
