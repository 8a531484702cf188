"""A shop's events with their known sessions, and a server's log, half of it out of order."""

import csv
import gzip
import re
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import pyarrow.compute as pc
import pytest

from sessionkit import SessionSpec
from sessionkit import aggregates as agg
from sessionkit.addons import presets
from sessionkit.testing import SessionDriver
from tests.support.in_sql import FUNNEL, PATH, PERCENTILE, TOP, in_sql

DATA: Final = Path(__file__).parents[3] / "shared" / "data"
SHOP: Final = DATA / "ecom" / "ecom.csv.gz"
LOGS: Final = DATA / "apache_logs" / "apache_logs.gz"
REASON: Final = "the data of third parties is beside the project, not in it"
LINE: Final = re.compile(
    r'(\S+) \S+ \S+ \[([^]]+)\] "(?:[^"\\]|\\.)*" \d+ \S+ "(?:[^"\\]|\\.)*" "((?:[^"\\]|\\.)*)"'
)
GAP: Final = timedelta(minutes=30)
# So far are the lines of the log behind those before them: the minute is the same in each hour.
DELAY: Final = timedelta(minutes=1)

needs_shop = pytest.mark.skipif(not SHOP.exists(), reason=REASON)
needs_logs = pytest.mark.skipif(not LOGS.exists(), reason=REASON)


@attrs.frozen
class Action:
    """What a user of the shop did."""

    action: str
    channel: str
    known: str
    hour: float
    """When it was in the day: the only number that the data has."""


@attrs.frozen
class Line:
    """A line of the log; only that it's there counts."""

    line: int


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


def logs() -> list[dict[str, Any]]:
    """Return the lines of the log as they were written, but for one that was cut off."""
    with gzip.open(LOGS, "rt", encoding="utf-8", errors="replace") as file:
        found = [LINE.match(line) for line in file]
    return [
        {
            "address": line[1],
            "agent": line[3],
            "ts": datetime.strptime(line[2], "%d/%b/%Y:%H:%M:%S %z").astimezone(UTC),
            "line": number,
        }
        for number, line in enumerate(line for line in found if line is not None)
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


@needs_shop
def test_the_events_of_a_shop_share_the_sessions_that_are_known() -> None:
    """Two events have one id if and only if they have one in the data."""
    found = rows_of(spec_of_shop(), [shop()])

    pairs = {(row["session_id"], row["known"]) for row in found}
    assert len(found) == 31_106
    assert 3_605 == len(pairs) == len({ours for ours, _ in pairs}) == len({own for _, own in pairs})


@needs_shop
def test_funnels_and_paths_of_a_shop_equal_a_query() -> None:
    """Seven micro-batches of a stream give what DuckDB's joins and windows find in all at once."""
    pytest.importorskip("duckdb")
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
    events = sorted(shop(), key=lambda event: event["ts"])
    cuts = [*range(0, len(events), 5_000), len(events)]
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


@needs_logs
@pytest.mark.long
def test_a_log_out_of_order_loses_nothing_however_it_is_cut() -> None:
    """As streams of random micro-batches: every line once, and the sessions of one batch."""
    spec: SessionSpec[Any, Any, Any] = SessionSpec.per_event(
        Line, keys={"address": str, "agent": str}, event_time="ts", gap=GAP, watermark_delay=DELAY
    )
    lines = logs()
    whole = by_line(rows_of(spec, [lines]))
    assert list(range(9_999)) == [line for line, *_ in whole]
    assert 1_861 == len({(row["address"], row["agent"]) for row in lines})
    assert 3_223 == len(naive_starts(lines)) == len({session for _, session, _ in whole})

    for seed in range(3):
        cuts = sorted(Random(seed).sample(range(len(lines)), 20))
        batches = [lines[start:stop] for start, stop in pairwise([0, *cuts, len(lines)])]
        assert whole == by_line(rows_of(spec, batches))


def by_line(rows: list[dict[str, Any]]) -> list[tuple[int, str, int]]:
    """Return, for each line, its session and which of its events it is."""
    return sorted((row["line"], row["session_id"], row["number"]) for row in rows)


def naive_starts(lines: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the lines that come longer than a gap after the last one of their visitor."""
    visits = sorted((row["address"], row["agent"], row["ts"]) for row in lines)
    return visits[:1] + [
        new for old, new in pairwise(visits) if old[:2] != new[:2] or new[2] - old[2] > GAP
    ]
