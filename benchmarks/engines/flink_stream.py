"""PyFlink finds the sessions of CSV files: session windows of the DataStream API, in Python."""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flink_rows import save
from pyflink.common import Duration, Row, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import ProcessWindowFunction
from pyflink.datastream.window import EventTimeSessionWindows
from pyflink.table import StreamTableEnvironment

SOURCE = """
CREATE TABLE events ({columns})
WITH ('connector' = 'filesystem', 'path' = '{files}', 'format' = 'csv')
"""
SINK = """
CREATE TABLE sessions ({columns}) WITH ({sink})
"""
EVENTS = {
    "sessions": "user_id STRING, time_us BIGINT, seconds DOUBLE",
    "bids": "bidder BIGINT, time_us BIGINT",
}
SESSIONS = {
    "sessions": "user_id STRING, start_us BIGINT, end_us BIGINT, events BIGINT, seconds DOUBLE",
    "bids": "bidder BIGINT, start_us BIGINT, end_us BIGINT, bids BIGINT",
}
KEYS = {"sessions": Types.STRING(), "bids": Types.LONG()}
ROWS = {
    "sessions": Types.ROW_NAMED(
        ["user_id", "start_us", "end_us", "events", "seconds"],
        [Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG(), Types.DOUBLE()],
    ),
    "bids": Types.ROW_NAMED(
        ["bidder", "start_us", "end_us", "bids"],
        [Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG()],
    ),
}


class EventTime(TimestampAssigner):
    """Reads the time of an event."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return it in milliseconds."""
        return int(value[1]) // 1000


class Close(ProcessWindowFunction):
    """Makes a row of a session that is over."""

    def __init__(self, gap_us: int) -> None:
        self.gap_us = gap_us

    def process(self, key: str, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        """Return the row."""
        events = list(elements)
        times_us = [time_us for _, time_us, _ in events]
        seconds = sum(spent for _, _, spent in events)
        yield Row(key, min(times_us), max(times_us) + self.gap_us, len(events), seconds)


class CloseBids(ProcessWindowFunction):
    """Counts the bids of a session that is over."""

    def process(self, key: int, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        """Return the row; the window is in milliseconds, as the bids are."""
        window = context.window()
        bids = sum(1 for _ in elements)
        yield Row(key, window.start * 1000, window.end * 1000, bids)


def main() -> None:
    """Run the job of the command line."""
    job = json.loads(sys.argv[1])
    task = job["task"]
    environment = StreamExecutionEnvironment.get_execution_environment()
    environment.set_parallelism(2)
    tables = StreamTableEnvironment.create(environment)
    tables.get_config().set("python.executable", sys.executable)
    tables.execute_sql(SOURCE.format(columns=EVENTS[task], files=Path(job["files"][0]).parent))
    rows = Path(job["answer"]).parent / "sessions"
    sink = (
        f"'connector' = 'filesystem', 'path' = '{rows}', 'format' = 'csv'"
        if job["rows"]
        else "'connector' = 'blackhole'"
    )
    tables.execute_sql(SINK.format(columns=SESSIONS[task], sink=sink))
    watermarks = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(job["delay_s"]))
    gap_ms = job["gap_us"] // 1000
    sessions = (
        tables.to_data_stream(tables.from_path("events"))
        .assign_timestamps_and_watermarks(watermarks.with_timestamp_assigner(EventTime()))
        .key_by(lambda event: event[0], key_type=KEYS[task])
        .window(EventTimeSessionWindows.with_gap(Time.milliseconds(gap_ms)))
        # With `aggregate`, windows that merge lose events in PyFlink 2.3.
        .process(CloseBids() if task == "bids" else Close(job["gap_us"]), output_type=ROWS[task])
    )
    tables.from_data_stream(sessions).execute_insert("sessions").wait()
    if job["rows"]:
        save(rows, job["rows"], task)
    Path(job["answer"]).write_text("[]")
    # The job is over, but PyFlink's own end keeps a core busy for ten minutes.
    os._exit(0)


if __name__ == "__main__":
    main()
