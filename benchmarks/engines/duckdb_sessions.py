"""DuckDB finds the sessions of files: gaps and islands by window functions."""

import json
import sys
import time
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

SQL = """
WITH marked AS (
    SELECT {keys}, epoch_us(ts) AS time_us, seconds,
           coalesce(epoch_us(ts) - lag(epoch_us(ts)) OVER of_user > $gap_us, false) AS begins
    FROM read_parquet($files)
    WINDOW of_user AS (PARTITION BY {keys} ORDER BY ts)
), islands AS (
    SELECT *, count(*) FILTER (begins) OVER (
        PARTITION BY {keys} ORDER BY time_us ROWS UNBOUNDED PRECEDING
    ) AS island
    FROM marked
)
SELECT {keys}, min(time_us) AS start_us, max(time_us) + $gap_us AS end_us,
       count(*) AS events, sum(seconds) AS seconds
FROM islands
GROUP BY {keys}, island
"""


def main() -> None:
    """Run the job of the command line."""
    job = json.loads(sys.argv[1])
    sql = SQL.format(keys=", ".join(job["keys"]))
    connection = duckdb.connect(config={"threads": 2})
    batches = []
    for _ in range(job["repetitions"]):
        begun = time.time()
        found = connection.execute(sql, {"files": job["files"], "gap_us": job["gap_us"]})
        rows = found.to_arrow_table()
        took_s = time.time() - begun
        batches.append({"begun": begun, "took_s": took_s, "seconds": took_s})
    if job["rows"]:
        pq.write_table(rows, job["rows"])
    Path(job["answer"]).write_text(json.dumps(batches))


if __name__ == "__main__":
    main()
