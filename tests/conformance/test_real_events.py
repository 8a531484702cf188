"""A shop's events with their known sessions; tests/examples has a server's log."""

import csv
import gzip
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sessionkit import SessionSpec
from sessionkit import aggregates as agg
from sessionkit.addons import presets
from sessionkit.testing import SessionDriver

DATA: Final = Path(__file__).parents[3] / "shared" / "data"
SHOP: Final = DATA / "ecom" / "ecom.csv.gz"
REASON: Final = "the data of third parties is kept outside of the project"
GAP: Final = timedelta(minutes=30)

needs_shop = pytest.mark.skipif(not SHOP.exists(), reason=REASON)


@attrs.frozen
class Action:
    """What a user of the shop did."""

    action: str
    channel: str
    known: str
    hour: float
    """When it was in the day: the only number that the data has."""


@cache
def shop() -> list[dict[str, Any]]:
    with gzip.open(SHOP, "rt", encoding="utf-8") as file:
        return [
            {
                "user": row["user_id"],
                "ts": ts,
                "action": row["event"],
                "channel": row["acquisition_channel"],
                "known": row["session_id"],
                "hour": ts.hour + ts.minute / 60,
            }
            for row in csv.DictReader(file)
            for ts in [datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC)]
        ]


def rows_of(
    spec: SessionSpec[Any, Any, Any], batches: list[list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Run batches through the driver, and then the end of all sessions; return their rows."""
    driver = SessionDriver(spec)
    for batch in batches:
        for row in batch:
            driver.add_row(row)
        driver.run_batch()
    driver.advance_watermark_to(datetime(2100, 1, 1, tzinfo=UTC))
    driver.run_until_idle()
    assert not driver.take_rejections()
    assert driver.counts.is_balanced
    assert driver.counts.processed == sum(map(len, batches))
    frame = driver.take_frame()
    return [dict(zip(frame.columns, row, strict=True)) for row in frame.itertuples(index=False)]


def spec_of_shop(*aggregates: Any) -> SessionSpec[Any, Any, Any]:
    """Return the sessions of the shop: their events, or what is asked of them."""
    settings: dict[str, Any] = {
        "keys": {"user": str},
        "event_time": "ts",
        "timeout": presets.segment(),
        "watermark_delay": "1 day",
    }
    if aggregates:
        return SessionSpec.aggregate(Action, *aggregates, **settings)
    return SessionSpec.per_event(Action, **settings)


@pytest.mark.nightly
@needs_shop
def test_the_events_of_a_shop_share_the_sessions_that_are_known() -> None:
    """Two events have one id if and only if they have one in the data."""
    found = rows_of(spec_of_shop(), [shop()])

    pairs = {(row["session_id"], row["known"]) for row in found}
    assert len(found) == 31_106
    assert 3_605 == len(pairs) == len({ours for ours, _ in pairs}) == len({own for _, own in pairs})


@needs_shop
def test_funnels_and_paths_of_a_shop_equal_a_query() -> None:
    """Micro-batches of a stream give what DuckDB's joins and windows find in all at once."""
    steps = ["product_view", "add_to_cart", "purchase"]
    funnel = {name: pc.field("action") == name for name in steps}
    asked = {
        "far": agg.funnel(funnel),
        "soon": agg.funnel(funnel, within="3 minutes"),
        "path": agg.path("action"),
        "steps": agg.steps("action", steps[0], steps[1]),
        "top": agg.top("action", 2),
        "hour": agg.percentile("hour", 0.9),
    }
    some = [event for event in shop() if event["user"][-1] in "159"]
    events = sorted(some, key=lambda event: event["ts"])
    cuts = [*range(0, len(events), 2_000), len(events)]
    found = rows_of(spec_of_shop(asked), [events[start:stop] for start, stop in pairwise(cuts)])
    found.sort(key=lambda row: (row["user"], row["session_start"]))

    def by_query(query: str, of: str = "action", **given: Any) -> list[Any]:
        rows = [(event["user"], event["ts"], event[of]) for event in events]
        return in_sql(query, rows, gap=GAP, **given)

    for name, within in [("far", timedelta(days=1)), ("soon", timedelta(minutes=3))]:
        expected = by_query(FUNNEL, within=within, steps=steps)
        assert expected == [(row[name],) for row in found]
        assert {0, 1, 2, 3} == {row[name] for row in found}
    expected = by_query(PATH, steps=steps[:2])
    assert expected == [(list(row["path"]), row["steps"]) for row in found]
    assert by_query(TOP) == [(list(row["top"]),) for row in found]
    hours = [hour for (hour,) in by_query(PERCENTILE, of="hour")]
    assert [row["hour"] for row in found] == pytest.approx(hours, rel=0.01)


# -- what an analyst would write instead of aggregates: sessions in SQL, run by DuckDB

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
    duckdb = pytest.importorskip("duckdb")
    keys, times, kinds = zip(*events, strict=True)
    instants = [time.replace(tzinfo=None) for time in times]
    columns = {"key": keys, "ts": pa.array(instants, pa.timestamp("us")), "kind": kinds}
    with duckdb.connect() as connection:
        connection.register("events", pa.table({k: pa.array(v) for k, v in columns.items()}))
        found = connection.execute(f"{ISLANDS} {query}", given).fetchall()
    return [row[2:] for row in sorted(found, key=lambda row: row[:2])]
