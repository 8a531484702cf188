"""Flink SQL finds the sessions of CSV files: the SESSION window over a bounded stream."""

import json
import sys
from pathlib import Path

from flink_rows import save
from pyflink.table import EnvironmentSettings, TableEnvironment

SOURCE = """
CREATE TABLE events (
    user_id STRING, time_us BIGINT, seconds DOUBLE,
    ts AS TO_TIMESTAMP_LTZ(time_us / 1000, 3),
    WATERMARK FOR ts AS ts - INTERVAL '1' HOUR
) WITH ('connector' = 'filesystem', 'path' = '{files}', 'format' = 'csv')
"""
SINK = """
CREATE TABLE sessions (
    user_id STRING, start_us BIGINT, end_us BIGINT, events BIGINT, seconds DOUBLE
) WITH ({sink})
"""
INSERT = """
INSERT INTO sessions
SELECT user_id, min(time_us), max(time_us) + {gap_us}, count(*), sum(seconds)
FROM SESSION(TABLE events PARTITION BY user_id, DESCRIPTOR(ts), INTERVAL '{gap_s}' SECONDS)
GROUP BY user_id, window_start, window_end
"""


def main() -> None:
    """Run the job of the command line."""
    job = json.loads(sys.argv[1])
    settings = EnvironmentSettings.in_streaming_mode()
    environment = TableEnvironment.create(settings)
    environment.get_config().set("parallelism.default", "2")
    environment.execute_sql(SOURCE.format(files=Path(job["files"][0]).parent))
    rows = Path(job["answer"]).parent / "sessions"
    sink = (
        f"'connector' = 'filesystem', 'path' = '{rows}', 'format' = 'csv'"
        if job["rows"]
        else "'connector' = 'blackhole'"
    )
    environment.execute_sql(SINK.format(sink=sink))
    gap_us = job["gap_us"]
    insert = INSERT.format(gap_us=gap_us, gap_s=gap_us // 1_000_000)
    environment.execute_sql(insert).wait()
    if job["rows"]:
        save(rows, job["rows"])
    Path(job["answer"]).write_text("[]")


if __name__ == "__main__":
    main()
