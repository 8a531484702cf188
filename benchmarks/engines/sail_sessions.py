"""sessionkit on Sail, in the process and without Java, with aggregates or with functions."""

import json
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
from pysail.spark import SparkConnectServer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.entrants.aggregates import totals
from benchmarks.entrants.functions import visits
from benchmarks.workloads import WORKLOADS
from sessionkit.spark import sessionize

SPECS = {"aggregates": totals, "functions": visits}


def comparable(rows: DataFrame, keys: list[str]) -> DataFrame:
    """Return the columns that are compared."""
    starts, ends = (F.unix_micros(f"session_{name}") for name in ("start", "end"))
    return rows.select(*keys, starts.alias("start_us"), ends.alias("end_us"), "events", "seconds")


def main() -> None:
    """Run the job of the command line."""
    job = json.loads(sys.argv[1])
    server = SparkConnectServer()
    server.start()
    _, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    for name, value in job["settings"].items():
        spark.conf.set(name, value)
    spec = SPECS[job["logic"]](WORKLOADS[job["workload"]])
    batches = []
    for _ in range(job["repetitions"]):
        begun = time.time()
        rows = sessionize(spark.read.parquet(*job["files"]), spec)
        # As on Spark: on their way to the client, Sail would compress all rows.
        rows.write.format("noop").mode("overwrite").save()
        took_s = time.time() - begun
        batches.append({"begun": begun, "took_s": took_s, "seconds": took_s})
    if job["rows"]:
        pq.write_table(comparable(rows, job["keys"]).toArrow(), job["rows"])
    Path(job["answer"]).write_text(json.dumps(batches))
    spark.stop()
    server.stop()


if __name__ == "__main__":
    main()
