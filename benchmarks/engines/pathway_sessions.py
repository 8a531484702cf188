"""Pathway finds the sessions of files: its session window over a static table."""

import json
import os
import sys
from pathlib import Path

os.environ["PATHWAY_THREADS"] = "2"

import pandas as pd
import pathway as pw


def read(files: list[str]) -> pd.DataFrame:
    """Return the events, with times as microseconds."""
    frames = [pd.read_parquet(path, columns=["user_id", "ts", "seconds"]) for path in files]
    events = pd.concat(frames, ignore_index=True)
    return events.assign(ts=events["ts"].dt.as_unit("us").astype("int64"))


def main() -> None:
    """Run the job of the command line."""
    job = json.loads(sys.argv[1])
    gap_us = job["gap_us"]
    events = pw.debug.table_from_pandas(read(job["files"]))
    # It joins events that are less than the gap apart; the others join at the gap itself.
    window = pw.temporal.session(max_gap=gap_us + 1)
    sessions = events.windowby(events.ts, window=window, instance=events.user_id).reduce(
        user_id=pw.this._pw_instance,  # noqa: SLF001 - Pathway's own name for it
        start_us=pw.reducers.min(pw.this.ts),
        last_us=pw.reducers.max(pw.this.ts),
        events=pw.reducers.count(),
        seconds=pw.reducers.sum(pw.this.seconds),
    )
    rows = pw.debug.table_to_pandas(sessions, include_id=False)
    if job["rows"]:
        rows = rows.assign(end_us=rows["last_us"] + gap_us)
        rows.astype({"user_id": str}).to_parquet(job["rows"])
    Path(job["answer"]).write_text("[]")


if __name__ == "__main__":
    main()
