"""The engine against a query that another engine runs: gaps and islands, in DuckDB."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random

import duckdb
import pyarrow as pa
import pytest

from sessionkit import EventTimeGap
from sessionkit._engine.worker import worker_of
from sessionkit.testing.drivers.frames import input_frame
from sessionkit.testing.drivers.results import read_rows
from tests.support.session_specs import collecting

GAP = timedelta(minutes=10)
ISLANDS = """
WITH marked AS (
  SELECT *, coalesce(t > (lag(t) OVER by_key) + INTERVAL 10 MINUTE, true) AS is_first
  FROM events WINDOW by_key AS (PARTITION BY key ORDER BY t)
), numbered AS (
  SELECT *, count(*) FILTER (WHERE is_first) OVER (PARTITION BY key ORDER BY t) AS session
  FROM marked
)
SELECT key, epoch_us(min(t)), epoch_us(max(t) + INTERVAL 10 MINUTE), list_sort(list(value))
FROM numbered GROUP BY key, session ORDER BY ALL
"""


@pytest.fixture(name="database")
def _database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def test_twenty_thousand_events_give_the_sessions_of_a_query(
    database: duckdb.DuckDBPyConnection,
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

    frame = worker_of(spec, with_rejected=True).whole(
        [input_frame(spec, rows, [False] * len(rows))], 0
    )

    sessions, _, counts = read_rows(spec, [frame])
    found = sorted((s.key.key, micros(s.start), micros(s.end), s.result.values) for s in sessions)
    columns = {"t": "at", "key": "key", "value": "value"}
    events = pa.table({name: [row[of] for row in rows] for name, of in columns.items()})
    database.register("events", events)
    assert database.execute(ISLANDS).fetchall() == found
    assert (20_000, len(found)) == (counts.processed, counts.sessions)


def micros(instant: datetime) -> int:
    """Return microseconds since the epoch."""
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
