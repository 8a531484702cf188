"""What both programs for Flink share: rows that Flink has written as CSV become Parquet."""

from pathlib import Path

import pandas as pd

__all__ = ["save"]

COLUMNS = {
    "sessions": ["user_id", "start_us", "end_us", "events", "seconds"],
    "bids": ["bidder", "start_us", "end_us", "bids"],
}


def save(folder: Path, target: str, task: str) -> None:
    """Read the files of a folder, and write them as one; times may be text."""
    parts = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    rows = pd.concat([pd.read_csv(path, names=COLUMNS[task]) for path in parts])
    for name in ("start_us", "end_us"):
        if not pd.api.types.is_integer_dtype(rows[name]):
            times = pd.to_datetime(rows[name], format="ISO8601")
            rows[name] = times.astype("datetime64[us]").astype("int64")
    rows.to_parquet(target, index=False)
