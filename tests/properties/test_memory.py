"""What is remembered of a key across its sessions, against SQL and against a loop."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import attrs
import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import Inputs, Lateness, Memory, Results, Session, SessionSpec, Storage
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver

DAY = datetime(2026, 3, 8, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
GAP = 30 * MINUTE
LATEST = 60
"""By how many minutes an event comes late at most: never too late."""


Event: TypeAlias = tuple[str, int, str | None]
"""A key, a minute and a source."""
Row: TypeAlias = dict[str, Any]

event = st.tuples(st.sampled_from("ab"), st.integers(0, 900), st.sampled_from(["mail", "ad", None]))
streams = st.lists(event, min_size=1, max_size=40, unique_by=lambda one: one[:2])
lookbacks = st.sampled_from([None, timedelta(hours=1), timedelta(hours=3)])


@attrs.frozen
class View:
    source: str | None


@attrs.define
class Visit:
    """What the aggregate of the other spec says, and what `finish` is told."""

    source: str | None = None
    told: str = ""

    def update(self, view: View) -> None:
        self.source = view.source or self.source

    def finish(self, session: Session[Any]) -> "Visit":
        return Visit(self.source, f"{session.number} {session.previous_id}")


@st.composite
def micro_batches(draw: st.DrawFn) -> list[list[Event]]:
    """Return a stream out of order, in micro-batches."""
    stream = sorted(draw(streams), key=lambda one: one[1])
    delays = [draw(st.integers(0, LATEST)) for _ in stream]
    order = sorted(range(len(stream)), key=lambda at: stream[at][1] + delays[at])
    batches: list[list[Event]] = [[]]
    for at in order:
        batches[-1].append(stream[at])
        if draw(st.booleans()):
            batches.append([])
    return batches


def spec_of(way: str, memory: Memory, **options: Any) -> SessionSpec[Any, Any, Any]:
    settings: dict[str, Any] = {
        "keys": {"key": str},
        "event_time": "ts",
        "gap": GAP,
        "watermark_delay": LATEST * MINUTE,
        "memory": memory,
        **options,
    }
    if way == "functions":
        return SessionSpec.of(Visit, order="event_time", **settings)
    return SessionSpec.aggregate(View, {"source": agg.last("source")}, **settings)


def run(spec: SessionSpec[Any, Any, Any], cuts: Sequence[Sequence[Event]]) -> list[Row]:
    """Return the rows of a stream in these micro-batches, restarted after each."""
    driver, rows = SessionDriver(spec), list[Any]()
    for batch in cuts:
        for key, minute, source in batch:
            driver.add(key, DAY + minute * MINUTE, View(source))
        driver.run_batch()
        rows += driver.take_rows()
        driver = SessionDriver.restore(spec, driver.snapshot())
    driver.advance_watermark_to(DAY + timedelta(days=9))
    driver.run_until_idle()
    rows += driver.take_rows()
    assert not driver.snapshot().groups, "nothing is remembered for ever"
    found: list[Row] = []
    last = {row.id: row for row in rows if row.is_final}
    for gone in (name for row in rows for name in row.supersedes):
        last.pop(gone, None)
    for row in sorted(last.values(), key=lambda row: (row.key, row.start)):
        facts = {"key": row.key.key, "start": row.start, "end": row.end, "id": row.id}
        found.append({**facts, "source": row.result.source, **row.memory})
        told = getattr(row.result, "told", None)
        own = f"{row.memory['session_number']} {row.memory['previous_session_id']}"
        assert told in {None, own}
    return found


def naive(rows: Sequence[Row], memory: Memory) -> list[Row]:
    """Return the rows with what a loop remembers of each key."""
    found: list[Row] = []
    line: list[Row] = []
    for row in rows:
        last = line[-1] if line and line[-1]["key"] == row["key"] else None
        if last is None or row["start"] >= last["end"] + memory.time_to_live:
            line, last = [], None
        line.append(row)
        known = [one for one in line if one["source"]]
        reach = memory.lookback or timedelta.max
        near = [one for one in known if row["start"] - one["start"] <= reach]
        remembered = {
            "session_number": len(line),
            "previous_session_id": last and last["id"],
            "since_previous": last and row["start"] - last["end"],
            "landed": known[0]["source"] if known else None,
            "credited": near[-1]["source"] if near else None,
        }
        found.append({**row, **remembered})
    return found


SQL = """
    WITH gaps AS (
        SELECT *, coalesce(ts - lag(ts) OVER of_key > INTERVAL 30 MINUTE, true) AS begins
        FROM events WINDOW of_key AS (PARTITION BY key ORDER BY ts)
    ), numbered AS (
        SELECT *, count(*) FILTER (begins) OVER (PARTITION BY key ORDER BY ts) AS number FROM gaps
    ), visits AS (
        SELECT key, number AS session_number, min(ts) AS start,
            max(ts) + INTERVAL 30 MINUTE AS end_,
            arg_max(source, ts) FILTER (source IS NOT NULL) AS source
        FROM numbered GROUP BY ALL
    ), carried AS (
        SELECT *, date_diff('second', lag(end_) OVER of_key, start) AS since,
            lag(start) OVER of_key AS previous,
            first_value(source IGNORE NULLS) OVER so_far AS landed,
            last_value(source IGNORE NULLS) OVER so_far AS latest,
            max(start) FILTER (source IS NOT NULL) OVER so_far AS begun
        FROM visits
        WINDOW of_key AS (PARTITION BY key ORDER BY start),
            so_far AS (PARTITION BY key ORDER BY start
                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
    )
    SELECT key, start, session_number, previous, since, landed,
        CASE WHEN start - begun <= ? THEN latest END AS credited
    FROM carried ORDER BY key, start
"""


def by_sql(cuts: Sequence[Sequence[Event]], lookback: timedelta | None) -> list[Row]:
    """Return what DuckDB's window functions say of all events at once."""
    keys, minutes, sources = zip(*(one for batch in cuts for one in batch), strict=True)
    times = pa.array([DAY + minute * MINUTE for minute in minutes])
    columns = {"key": keys, "ts": times, "source": pa.array(sources, pa.string())}
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("events", pa.table(columns))
    found = connection.sql(SQL, params=[lookback or timedelta(days=999)])
    rows: list[Row] = found.to_arrow_table().to_pylist()
    return rows


@pytest.mark.parametrize("way", ["functions", "aggregates"])
@given(cuts=micro_batches(), lookback=lookbacks)
def test_a_stream_remembers_what_sql_sees_in_all_events(
    way: str, cuts: list[list[Event]], lookback: timedelta | None
) -> None:
    """However it's cut into micro-batches, and restarted after each."""
    carried: Row = {"first": {"landed": "source"}, "last": {"credited": "source"}}
    rows = run(spec_of(way, Memory(time_to_live="5 days", lookback=lookback, **carried)), cuts)
    starts = {row["id"]: row["start"] for row in rows}
    for row in rows:
        since = row["since_previous"]
        row["since"] = since and round(since.total_seconds())
        row["previous"] = starts.get(row["previous_session_id"])
    expected = by_sql(cuts, lookback)
    assert expected == [{name: row[name] for name in expected[0]} for row in rows]


@pytest.mark.parametrize("emit", ["on_close", "on_update"])
@given(
    cuts=micro_batches(),
    life=st.sampled_from([timedelta(hours=1), timedelta(hours=4), timedelta(days=5)]),
    lookback=st.sampled_from([None, timedelta(hours=1)]),
    layout=st.sampled_from(["buckets", "pages"]),
)
def test_late_events_leave_the_rows_that_a_loop_finds(
    emit: str, layout: Any, cuts: list[list[Event]], life: timedelta, lookback: timedelta | None
) -> None:
    """The last row of each session, of those that no other supersedes."""
    carried: Row = {"first": {"landed": "source"}, "last": {"credited": "source"}}
    memory = Memory(time_to_live=life, lookback=lookback, **carried)
    late: Row = {
        "watermark_delay": MINUTE,
        "lateness": Lateness(allowed=LATEST * MINUTE),
        "storage": Storage(layout=layout),
    }
    rows = run(spec_of("aggregates", memory, results=Results(emit=emit), **late), cuts)
    assert naive(rows, memory) == rows


@given(
    cuts=micro_batches(),
    life=st.sampled_from([MINUTE, timedelta(hours=1), timedelta(hours=4)]),
    options=st.fixed_dictionaries(
        {},
        optional={
            "storage": st.builds(Storage, layout=st.just("pages")),
            "inputs": st.builds(Inputs, drop_duplicates_for=st.just("1 hour")),
            "results": st.builds(Results, emit=st.just("on_update")),
        },
    ),
)
def test_a_key_is_forgotten_in_time(cuts: list[list[Event]], life: timedelta, options: Row) -> None:
    """By the times of its sessions alone, whatever the watermark was."""
    carried: Row = {"first": {"landed": "source"}, "last": {"credited": "source"}}
    memory = Memory(time_to_live=life, **carried)
    rows = run(spec_of("aggregates", memory, **options), cuts)
    assert naive(rows, memory) == rows
