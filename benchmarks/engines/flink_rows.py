"""What both programs for Flink share: rows that Flink has written as CSV become Parquet."""

from pathlib import Path

import pandas as pd

__all__ = ["save"]

COLUMNS = ["user_id", "start_us", "end_us", "events", "seconds"]


def save(folder: Path, target: str) -> None:
    """Read the files of a folder, and write them as one."""
    parts = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    frames = [pd.read_csv(path, names=COLUMNS) for path in parts]
    pd.concat(frames).to_parquet(target, index=False)
