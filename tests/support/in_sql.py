"""What an analyst would write instead of aggregates: sessions in SQL, run by DuckDB."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

ISLANDS: Final = """
WITH marked AS (
  SELECT *, coalesce(ts > lag(ts) OVER by_key + $gap, true)::INT AS is_first
  FROM events WINDOW by_key AS (PARTITION BY key ORDER BY ts)
), numbered AS (
  SELECT *, sum(is_first) OVER (PARTITION BY key ORDER BY ts) AS session FROM marked
), following AS (
  SELECT *, lag(kind) OVER (PARTITION BY key, session ORDER BY ts, kind) AS before FROM numbered
)
"""
FUNNEL: Final = """
SELECT seen.key, seen.session, max(CASE
  WHEN seen.kind != $steps[1] THEN 0
  WHEN carted.ts IS NULL THEN 1 WHEN bought.ts IS NULL THEN 2 ELSE 3
END)
FROM numbered seen
LEFT JOIN numbered carted ON carted.key = seen.key AND carted.session = seen.session
  AND carted.kind = $steps[2] AND carted.ts BETWEEN seen.ts AND seen.ts + $within
LEFT JOIN numbered bought ON bought.key = seen.key AND bought.session = seen.session
  AND bought.kind = $steps[3] AND bought.ts BETWEEN carted.ts AND seen.ts + $within
GROUP BY ALL
"""
"""A chain is a join: each step is at the same time as the one before, or later."""
PATH: Final = """
SELECT key, session,
  list(kind ORDER BY ts, kind) FILTER (kind IS DISTINCT FROM before),
  count(*) FILTER (before = $steps[1] AND kind = $steps[2])
FROM following GROUP BY ALL
"""
"""A value is left out where it is that of the event before."""
TOP: Final = """
, counted AS (SELECT key, session, kind, count(*) AS number FROM numbered GROUP BY ALL)
SELECT key, session, list(kind ORDER BY number DESC, kind)[:2] FROM counted GROUP BY ALL
"""
PERCENTILE: Final = "SELECT key, session, quantile_disc(kind, 0.9) FROM numbered GROUP BY ALL"


def in_sql(query: str, events: Iterable[tuple[str, datetime, Any]], **given: Any) -> list[Any]:
    """Return what a query says of each session of events, by key and start; a kind is any value."""
    import duckdb  # noqa: PLC0415 (tests that use it skip without it)

    keys, times, kinds = zip(*events, strict=True)
    instants = [time.replace(tzinfo=None) for time in times]
    columns = {"key": keys, "ts": pa.array(instants, pa.timestamp("us")), "kind": kinds}
    with duckdb.connect() as connection:
        connection.register("events", pa.table({k: pa.array(v) for k, v in columns.items()}))
        found = connection.execute(f"{ISLANDS} {query}", given).fetchall()
    return [row[2:] for row in sorted(found, key=lambda row: row[:2])]
