"""The engine against a query that another engine runs: gaps and islands, in SQLite."""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from sessionkit import EventTimeGap
from sessionkit.testing.drivers.results import read_output
from sessionkit.testing.drivers.rows import input_frame
from tests.support.packs import run_whole
from tests.support.session_specs import collecting

GAP = timedelta(minutes=10)
GAP_US = GAP // timedelta(microseconds=1)
ISLANDS = """
WITH marked AS (
  SELECT *, coalesce(t > lag(t) OVER by_key + :gap, true) AS is_first
  FROM events WINDOW by_key AS (PARTITION BY key ORDER BY t)
), numbered AS (
  SELECT *, sum(is_first) OVER (PARTITION BY key ORDER BY t) AS session
  FROM marked
)
SELECT key, min(t), max(t) + :gap, json_group_array(value)
FROM numbered GROUP BY key, session ORDER BY key, min(t)
"""


@pytest.fixture(name="database")
def _database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        yield connection


def test_twenty_thousand_events_give_the_sessions_of_a_query(
    database: sqlite3.Connection,
) -> None:
    """Keys, bounds and members are equal, exact gaps and doubled instants among them."""
    random = Random(11)
    noon = datetime(2026, 3, 8, 12, tzinfo=UTC)
    rows = [
        {
            "key": f"k{random.randrange(400)}",
            "at": noon + timedelta(minutes=random.randrange(2_000)),
            "value": value,
            "gap": GAP,
        }
        for value in range(20_000)
    ]
    spec = collecting(EventTimeGap(GAP))

    frame = run_whole(spec, input_frame(spec, rows))

    sessions, _, counts, _ = read_output(spec, [frame])
    found = sorted((s.key.key, micros(s.start), micros(s.end), s.result.values) for s in sessions)
    assert islands(database, rows) == found
    assert (20_000, len(found)) == (counts.processed, counts.sessions)


def islands(database: sqlite3.Connection, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return key, start, end and values of each session that the query finds."""
    database.execute("CREATE TABLE events (key, t, value)")
    events = [(row["key"], micros(row["at"]), row["value"]) for row in rows]
    database.executemany("INSERT INTO events VALUES (?, ?, ?)", events)
    found = database.execute(ISLANDS, {"gap": GAP_US}).fetchall()
    return [(key, start, end, sorted(json.loads(values))) for key, start, end, values in found]


def micros(instant: datetime) -> int:
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
