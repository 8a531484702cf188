"""Funnels and paths against queries that an analyst would write, run by DuckDB on all events."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sessionkit import SessionSpec
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver

duckdb = pytest.importorskip("duckdb")

NOON: Final = datetime(2026, 3, 8, 12, tzinfo=UTC)
ISLANDS: Final = """
WITH marked AS (
  SELECT *, coalesce(ts > lag(ts) OVER by_key + INTERVAL 10 MINUTE, true)::INT AS is_first
  FROM events WINDOW by_key AS (PARTITION BY key ORDER BY ts)
), numbered AS (
  SELECT *, sum(is_first) OVER (PARTITION BY key ORDER BY ts) AS session FROM marked
)
"""
FUNNEL: Final = """
SELECT seen.key, seen.session, max(CASE
  WHEN seen.kind != 'view' THEN 0 WHEN carted.ts IS NULL THEN 1 WHEN bought.ts IS NULL THEN 2 ELSE 3
END)
FROM numbered seen
LEFT JOIN numbered carted ON carted.key = seen.key AND carted.session = seen.session
  AND carted.kind = 'cart' AND carted.ts BETWEEN seen.ts AND seen.ts + $within
LEFT JOIN numbered bought ON bought.key = seen.key AND bought.session = seen.session
  AND bought.kind = 'buy' AND bought.ts BETWEEN carted.ts AND seen.ts + $within
GROUP BY ALL
"""
PATH: Final = """
, following AS (
  SELECT *, lag(kind) OVER (PARTITION BY key, session ORDER BY ts, kind) AS before FROM numbered
)
SELECT key, session, list(kind ORDER BY ts, kind) FILTER (kind IS DISTINCT FROM before)
FROM following GROUP BY ALL
"""
STEPS: Final = {name: pc.field("kind") == name for name in ("view", "cart", "buy")}


@attrs.frozen
class Act:
    kind: str


def events(seed: int) -> list[tuple[str, datetime, Act]]:
    """Return events of which many are at one instant, and in no order."""
    random = Random(seed)
    return [
        (
            f"k{random.randrange(60)}",
            NOON + timedelta(minutes=random.randrange(600)),
            Act(random.choice(["view", "view", "cart", "buy", "other"])),
        )
        for _ in range(3_000)
    ]


def by_session(rows: Sequence[tuple[str, datetime, Act]], **aggregates: agg.Aggregate) -> list[Any]:
    """Return the rows of all sessions, by key and start, from micro-batches of 500 events."""
    spec = SessionSpec.aggregate(
        Act, aggregates, keys={"key": str}, event_time="ts", gap="10m", watermark_delay="1 day"
    )
    driver = SessionDriver(spec)
    for start in range(0, len(rows), 500):
        for key, ts, act in rows[start : start + 500]:
            driver.add(key, ts, act)
        driver.run_batch()
    found = sorted(driver.open_sessions(), key=lambda one: (one.key.key, one.start))
    return [attrs.astuple(one.state, recurse=False) for one in found]


def by_query(rows: Sequence[tuple[str, datetime, Act]], query: str, **given: Any) -> list[Any]:
    columns: Mapping[str, Any] = {
        "key": [key for key, _, _ in rows],
        "ts": pa.array([ts.replace(tzinfo=None) for _, ts, _ in rows], pa.timestamp("us")),
        "kind": [act.kind for _, _, act in rows],
    }
    with duckdb.connect() as connection:
        connection.register("events", pa.table(columns))
        found = connection.execute(f"{ISLANDS} {query}", given).fetchall()
    return [row[2:] for row in sorted(found, key=lambda row: row[:2])]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("within", [None, 8])
def test_funnels_equal_a_query(seed: int, within: int | None) -> None:
    """A chain is a join: each step at the same time as the one before, or later."""
    rows, span = events(seed), timedelta(minutes=within) if within else None

    found = by_session(rows, far=agg.funnel(STEPS, within=span))

    assert by_query(rows, FUNNEL, within=span or timedelta(days=1)) == found
    assert {(reached,) for reached in range(4)} == set(found)


@pytest.mark.parametrize("seed", range(3))
def test_paths_equal_a_query(seed: int) -> None:
    """A value is left out where it is that of the event before."""
    rows = events(seed)

    assert by_query(rows, PATH) == by_session(rows, path=agg.path("kind"))
