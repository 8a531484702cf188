"""One entrant at one rate: `python -m benchmarks.latency.child JOB`."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.child import spark_session
from benchmarks.latency.entrants import ENTRANTS
from benchmarks.latency.latencies import latencies

__all__ = ["Job", "main"]

TRAFFIC: Final = Path(__file__).with_name("Traffic.java")
USERS_A_RATE: Final = 2
"""So many users for each event in a second: half of a user's sessions have a few events."""


@attrs.frozen(kw_only=True)
class Job:
    """
    What one run does.

    Attributes:
        entrant: Who runs.
        rate: Events in a second.
        seconds: For how long events count, after as many seconds of `warm_up`.
        warm_up: How long before that, so that the JVM has compiled what it needs.
        servers: The broker.
        jars: The jars of Spark's connector.
        java: The command that runs a Java file with Kafka's classes.
        folder: For the checkpoint and the answer.
    """

    entrant: str
    rate: int
    seconds: int
    warm_up: int
    servers: str
    jars: list[str]
    java: list[str]
    folder: str


def main() -> None:
    """Run the job of the command line, and write what it found as JSON."""
    job = Job(**json.loads(sys.argv[1]))
    entrant = ENTRANTS[job.entrant]
    traffic = [*job.java, str(TRAFFIC)]
    subprocess.run([*traffic, "create", job.servers, "in", "out"], check=True)
    spark = spark_session({"spark.jars": ",".join(job.jars)})
    rows = entrant.rows(_events(_reader(spark.readStream, job, "in").load()))
    columns = [F.col("user"), F.col("last")]
    if entrant.kind == "close":
        columns.append(F.unix_millis("session_end"))
    writer = rows.select(F.concat_ws(",", *columns).alias("value")).writeStream.format("kafka")
    writer = writer.option("kafka.bootstrap.servers", job.servers).option("topic", "out")
    writer = writer.option("checkpointLocation", f"{job.folder}/checkpoint")
    query = writer.outputMode(entrant.mode).start()
    begun_ms = time.time() * 1000
    amount = [str(job.rate), str(job.warm_up + job.seconds), str(USERS_A_RATE * job.rate)]
    subprocess.run([*traffic, "send", job.servers, "in", *amount], check=True)
    query.processAllAvailable()
    took = [each["durationMs"]["triggerExecution"] for each in query.recentProgress[-100:]]
    query.stop()
    events = _read(spark, job, "in", ["user", "number", "time"])
    found = _read(spark, job, "out", ["user", "last", "end"][: len(columns)])
    spark.stop()
    found_ms = latencies(entrant.kind, events, found, int(begun_ms) + 1000 * job.warm_up)
    p50, p99 = np.percentile(found_ms, [50, 99]) / 1000
    answer = {"p50_s": p50, "p99_s": p99, "n": len(found_ms), "batch_s": np.median(took) / 1000}
    Path(job.folder, "answer.json").write_text(json.dumps(answer, default=float))


def _reader(reader: Any, job: Job, topic: str) -> Any:
    options = {"kafka.bootstrap.servers": job.servers, "subscribe": topic}
    return reader.format("kafka").options(**options).option("startingOffsets", "earliest")


def _events(records: DataFrame) -> DataFrame:
    parts = F.split(F.col("value").cast("string"), ",")
    return records.select(
        parts[0].cast("long").alias("user"),
        parts[1].cast("long").alias("number"),
        F.timestamp_millis(parts[2].cast("long")).alias("ts"),
    )


def _read(spark: SparkSession, job: Job, topic: str, names: list[str]) -> pd.DataFrame:
    """Return the records of a topic as numbers, with the broker's time of each."""
    parts = F.split(F.col("value").cast("string"), ",")
    columns = [parts[place].cast("long").alias(name) for place, name in enumerate(names)]
    at = F.unix_millis("timestamp").alias("at")
    found: pd.DataFrame = _reader(spark.read, job, topic).load().select(*columns, at).toPandas()
    return found


if __name__ == "__main__":
    main()
