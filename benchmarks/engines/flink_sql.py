"""Flink SQL finds the sessions of CSV files: the SESSION window over a bounded stream."""

import json
import sys
from datetime import timedelta
from pathlib import Path

from flink_rows import save
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
SELECT {rows}
FROM SESSION(TABLE events PARTITION BY {key}, DESCRIPTOR(ts), INTERVAL '{gap_s}' SECONDS)
GROUP BY {key}, window_start, window_end
"""
SESSIONS = {
    "key": "user_id",
    "source": "user_id STRING, time_us BIGINT, seconds DOUBLE",
    "sink": "user_id STRING, start_us BIGINT, end_us BIGINT, events BIGINT, seconds DOUBLE",
    "rows": "user_id, min(time_us), max(time_us) + {gap_us}, count(*), sum(seconds)",
}
BIDS = {
    "key": "bidder",
    "source": "bidder BIGINT, time_us BIGINT",
    "sink": "bidder BIGINT, start_time TIMESTAMP(3), end_time TIMESTAMP(3), bids BIGINT",
    "rows": "bidder, window_start, window_end, count(*)",
}


def main() -> None:
    """Run the job of the command line."""
    job = json.loads(sys.argv[1])
    task = BIDS if job["task"] == "bids" else SESSIONS
    settings = EnvironmentSettings.in_streaming_mode()
    environment = TableEnvironment.create(settings)
    environment.get_config().set("parallelism.default", "2")
    environment.get_config().set("table.local-time-zone", "UTC")
    delay = timedelta(seconds=job["delay_s"])
    files = Path(job["files"][0]).parent
    source = SOURCE.format(columns=task["source"], delay=delay, files=files)
    environment.execute_sql(source)
    rows = Path(job["answer"]).parent / "sessions"
    sink = (
        f"'connector' = 'filesystem', 'path' = '{rows}', 'format' = 'csv'"
        if job["rows"]
        else "'connector' = 'blackhole'"
    )
    environment.execute_sql(SINK.format(columns=task["sink"], sink=sink))
    gap_us = job["gap_us"]
    found = task["rows"].format(gap_us=gap_us)
    insert = INSERT.format(rows=found, key=task["key"], gap_s=gap_us // 1_000_000)
    environment.execute_sql(insert).wait()
    if job["rows"]:
        save(rows, job["rows"], job["task"])
    Path(job["answer"]).write_text("[]")


if __name__ == "__main__":
    main()
