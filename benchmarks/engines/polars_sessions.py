"""Polars finds the sessions of files: gaps and islands on sorted rows, lazily."""

import json
import os
import sys
import time
from pathlib import Path

os.environ["POLARS_MAX_THREADS"] = "2"

import polars as pl


def sessions(files: list[str], keys: list[str], gap_us: int) -> pl.DataFrame:
    """Return the sessions."""
    events = pl.scan_parquet(files).select(*keys, pl.col("ts").to_physical(), "seconds")
    ordered = events.sort(*keys, "ts")
    is_same_key = pl.all_horizontal(pl.col(key) == pl.col(key).shift(1) for key in keys)
    joins = is_same_key & (pl.col("ts").diff() <= gap_us)
    islands = ordered.with_columns(island=(~joins.fill_null(value=False)).cum_sum())
    return (
        islands.group_by("island")
        .agg(
            *(pl.col(key).first() for key in keys),
            start_us=pl.col("ts").min(),
            end_us=pl.col("ts").max() + gap_us,
            events=pl.len().cast(pl.Int64),
            seconds=pl.col("seconds").sum(),
        )
        .drop("island")
        .collect()
    )


def main() -> None:
    """Run the job of the command line."""
    job = json.loads(sys.argv[1])
    batches = []
    for _ in range(job["repetitions"]):
        begun = time.time()
        rows = sessions(job["files"], job["keys"], job["gap_us"])
        took_s = time.time() - begun
        batches.append({"begun": begun, "took_s": took_s, "seconds": took_s})
    if job["rows"]:
        rows.write_parquet(job["rows"])
    Path(job["answer"]).write_text(json.dumps(batches))


if __name__ == "__main__":
    main()
