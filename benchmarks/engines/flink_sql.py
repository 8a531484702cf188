"""Flink SQL finds the sessions of CSV files: the SESSION window over a bounded stream."""

import json
import sys
from datetime import timedelta
from pathlib import Path

import pandas as pd
from pyflink.table import EnvironmentSettings, TableEnvironment

SOURCE = """
CREATE TABLE events (
    {columns},
    ts AS TO_TIMESTAMP_LTZ(time_us / 1000, 3),
    WATERMARK FOR ts AS ts - INTERVAL '0 {delay}' DAY TO SECOND
) WITH ('connector' = 'filesystem', 'path' = '{files}', 'format' = 'csv')
"""
SINK = "CREATE TABLE sessions ({columns}) WITH ({sink})"
INSERT = """
INSERT INTO sessions
SELECT user_id, min(time_us), max(time_us) + {gap_us}, count(*), sum(seconds)
FROM SESSION(TABLE events PARTITION BY user_id, DESCRIPTOR(ts), INTERVAL '{gap_s}' SECONDS)
GROUP BY user_id, window_start, window_end
"""
SOURCE_COLUMNS = "user_id STRING, time_us BIGINT, seconds DOUBLE"
SINK_COLUMNS = "user_id STRING, start_us BIGINT, end_us BIGINT, events BIGINT, seconds DOUBLE"
NAMES = ["user_id", "start_us", "end_us", "events", "seconds"]


def main() -> None:
    """Run the job of the command line."""
    job = json.loads(sys.argv[1])
    settings = EnvironmentSettings.in_streaming_mode()
    environment = TableEnvironment.create(settings)
    environment.get_config().set("parallelism.default", "2")
    environment.get_config().set("table.local-time-zone", "UTC")
    delay = timedelta(seconds=job["delay_s"])
    files = Path(job["files"][0]).parent
    source = SOURCE.format(columns=SOURCE_COLUMNS, delay=delay, files=files)
    environment.execute_sql(source)
    rows = Path(job["answer"]).parent / "sessions"
    sink = (
        f"'connector' = 'filesystem', 'path' = '{rows}', 'format' = 'csv'"
        if job["rows"]
        else "'connector' = 'blackhole'"
    )
    environment.execute_sql(SINK.format(columns=SINK_COLUMNS, sink=sink))
    gap_us = job["gap_us"]
    insert = INSERT.format(gap_us=gap_us, gap_s=gap_us // 1_000_000)
    environment.execute_sql(insert).wait()
    if job["rows"]:
        parts = [path for path in rows.rglob("*") if path.is_file() and path.stat().st_size]
        found = pd.concat([pd.read_csv(path, names=NAMES) for path in parts])
        found.to_parquet(job["rows"], index=False)
    Path(job["answer"]).write_text("[]")


if __name__ == "__main__":
    main()
