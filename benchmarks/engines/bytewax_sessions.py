"""Bytewax finds the sessions of files: its session windower, with a fold of count and sum."""

import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.operators.windowing import EventClock, SessionWindower, fold_window
from bytewax.testing import TestingSink, TestingSource, cluster_main

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WORKERS = 2
# The files are read in any order: the watermark must not pass an event.
PATIENCE = timedelta(hours=1)

Total = tuple[int, int, int, float]


def read(files: Iterable[str]) -> list[tuple[str, tuple[datetime, float]]]:
    """Return the events: a user, a time and seconds."""
    events = pa.concat_tables(
        pq.read_table(path, columns=["user_id", "ts", "seconds"]) for path in files
    )
    columns = [events[name].to_pylist() for name in ("user_id", "ts", "seconds")]
    return [(user, (at.astimezone(UTC), spent)) for user, at, spent in zip(*columns, strict=True)]


def micros(at: datetime) -> int:
    """Return a time as microseconds since 1970."""
    return (at - EPOCH) // timedelta(microseconds=1)


def fold(total: Total, event: tuple[datetime, float]) -> Total:
    """Fold one event."""
    start, last, events, seconds = total
    time_us = micros(event[0])
    return min(start, time_us), max(last, time_us), events + 1, seconds + event[1]


def merge(left: Total, right: Total) -> Total:
    """Join two sessions."""
    return (
        min(left[0], right[0]),
        max(left[1], right[1]),
        left[2] + right[2],
        left[3] + right[3],
    )


def main() -> None:
    """Run the job of the command line."""
    job = json.loads(sys.argv[1])
    found: list[Any] = []
    flow = Dataflow("sessions")
    source = TestingSource(read(job["files"]), batch_size=1000)
    events = op.input("events", flow, source)
    windows = fold_window(
        "sessions",
        events,
        EventClock(ts_getter=lambda event: event[0], wait_for_system_duration=PATIENCE),
        SessionWindower(gap=timedelta(microseconds=job["gap_us"])),
        lambda: (sys.maxsize, 0, 0, 0.0),
        fold,
        merge,
    )
    op.output("rows", windows.down, TestingSink(found))
    cluster_main(flow, [], 0, worker_count_per_proc=WORKERS)
    if job["rows"]:
        rows = [
            {"user_id": user, "start_us": s, "end_us": e + job["gap_us"], "events": n, "seconds": t}
            for user, (_, (s, e, n, t)) in found
        ]
        pq.write_table(pa.Table.from_pylist(rows), job["rows"])
    Path(job["answer"]).write_text("[]")


if __name__ == "__main__":
    main()
