"""What a report says of result rows: equal to a count by hand."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pyarrow as pa
import pytest

from sessionkit.addons.report import Columns
from sessionkit.addons.report.engine import engine_of
from sessionkit.addons.report.summary import COUNTS, LENGTHS, summarized
from sessionkit.errors import SchemaError

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PAGES = ["/", "/shoes", "/hats", "/jobs"]
CHANNELS = [f"channel {n}" for n in range(9)]
FUNNEL = ("viewed", "carted", "bought")


def rows(count: int = 400) -> list[dict[str, Any]]:
    random = Random(7)
    made = []
    for number in range(count):
        begin = NOON + timedelta(seconds=random.randrange(20 * 86_400))
        path = [random.choice(PAGES) for _ in range(random.randint(1, 6))]
        made.append(
            {
                "kind": "session",
                "user": f"u{random.randrange(90)}",
                "session_id": f"s{number}",
                "session_start": begin,
                "session_end": begin + timedelta(seconds=random.choice([20, 700, 9_000])),
                "closed_by": random.choice(["gap", "max_duration"]),
                "path": path,
                "events": len(path),
                "engaged": random.random() < 0.4,
                "channel": random.choice([*CHANNELS, CHANNELS[0], CHANNELS[0], None]),
                "viewed": True,
                "carted": random.random() < 0.5,
                "bought": random.random() < 0.5,
                "reason": None,
            }
        )
    late = dict.fromkeys(made[0])
    at = {"session_start": NOON, "session_end": NOON}
    return [*made, *({**late, **at, "kind": "late", "reason": "late"} for _ in range(3))]


SCHEMA = pa.schema(
    {
        "kind": pa.string(),
        "user": pa.string(),
        "session_id": pa.string(),
        "session_start": pa.timestamp("us", tz="UTC"),
        "session_end": pa.timestamp("us", tz="UTC"),
        "closed_by": pa.string(),
        "path": pa.list_(pa.string()),
        "events": pa.int64(),
        "engaged": pa.bool_(),
        "channel": pa.string(),
        **dict.fromkeys(FUNNEL, pa.bool_()),
        "reason": pa.string(),
    }
)
COLUMNS = Columns(dimension="channel", funnel=FUNNEL)


def sums(table: list[dict[str, Any]], *by: str, of: str = "sessions") -> Counter[Any]:
    found: Counter[Any] = Counter()
    for row in table:
        found[tuple(row[name] for name in by)] += row[of]
    return +found


SESSIONS = [row for row in rows() if row["kind"] == "session"]


def day(row: dict[str, Any]) -> int:
    return int(row["session_start"].timestamp()) // 86_400 * 86_400_000


def value(row: dict[str, Any]) -> str:
    counts = Counter(one["channel"] for one in SESSIONS if one["channel"])
    top = sorted(counts, key=lambda name: (-counts[name], name))[:6]
    return (
        "(none)" if row["channel"] is None else row["channel"] if row["channel"] in top else "other"
    )


def test_every_figure_is_that_of_a_count_by_hand() -> None:
    summary = summarized(engine_of(pa.Table.from_pylist(rows(), SCHEMA), None), COLUMNS)
    assert summary.unit == "day"
    at_value = Counter((day(row), value(row)) for row in SESSIONS)
    assert sums(summary.totals, "at", "value") == at_value
    firsts = {}
    for row in sorted(SESSIONS, key=lambda row: row["session_start"], reverse=True):
        firsts[row["user"]] = row
    assert sums(summary.totals, "at", of="new") == Counter((day(row),) for row in firsts.values())
    engaged = Counter((day(row),) for row in SESSIONS if row["engaged"])
    assert sums(summary.totals, "at", of="engaged") == engaged
    bounced = Counter((value(row),) for row in SESSIONS if row["events"] == 1)
    assert sums(summary.totals, "value", of="bounced") == bounced
    users = Counter((at, of) for at, of, _ in {(day(r), value(r), r["user"]) for r in SESSIONS})
    assert sums(summary.totals, "at", "value", of="users") == users

    lengths = [(row["session_end"] - row["session_start"]).total_seconds() for row in SESSIONS]
    wanted = Counter(
        (max(n for n, start in enumerate(LENGTHS) if start <= one),) for one in lengths
    )
    assert sums(summary.lengths, "bin") == wanted
    counts = [row["events"] for row in SESSIONS]
    wanted = Counter((max(n for n, start in enumerate(COUNTS) if start <= one),) for one in counts)
    assert sums(summary.counts, "bin") == wanted

    assert sums(summary.reasons, "what") == Counter((row["closed_by"],) for row in SESSIONS)
    for role, place in (("entry", 0), ("exit", -1)):
        found = sums([row for row in summary.pages if row["role"] == role], "page")
        assert found == Counter((row["path"][place],) for row in SESSIONS)
    reached = Counter(
        (step,) for row in SESSIONS for step in range(3) if all(row[n] for n in FUNNEL[: step + 1])
    )
    assert sums(summary.funnel, "step") == reached
    assert sums(summary.kinds, "kind", "reason", of="counted") == {("late", "late"): 3}

    longest = sorted(
        SESSIONS, key=lambda r: (r["session_start"] - r["session_end"], r["session_start"])
    )
    assert [row["id"] for row in summary.longest] == [row["session_id"] for row in longest[:12]]
    assert summary.longest[0]["length"] == 9_000
    medians = {row["of"]: row["amount"] for row in summary.quantiles if row["quantile"] == 0.5}
    assert medians.keys() == {"length", "events"}
    assert 2 <= medians["events"] <= 5


def test_the_last_revision_of_a_session_counts() -> None:
    begin = {"session_start": NOON, "user": "ann"}
    made = [
        {"session_id": "a", "revision": 1, "supersedes": [], "session_end": NOON, "events": 1},
        {"session_id": "a", "revision": 2, "supersedes": [], "session_end": NOON, "events": 5},
        {"session_id": "b", "revision": 1, "supersedes": [], "session_end": NOON, "events": 2},
        {"session_id": "c", "revision": 1, "supersedes": ["b"], "session_end": NOON, "events": 3},
    ]
    table = pa.Table.from_pylist([{**begin, **row} for row in made])
    found = summarized(engine_of(table, None), Columns(keys=["user"]))
    assert {row["id"]: row["events"] for row in found.longest} == {"a": 5, "c": 3}
    assert sums(found.totals, "value") == {("all",): 2}


UNITS = [(1, "hour"), (30, "day"), (300, "week"), (2_000, "month")]


def two_sessions(days: int) -> pa.Table:
    times = [NOON, NOON + timedelta(days=days)]
    ids = pa.array(["x", "y"])
    return pa.table({"user": ids, "session_id": ids, "session_start": times, "session_end": times})


@pytest.mark.parametrize(("days", "unit"), UNITS)
def test_a_longer_time_is_counted_in_longer_units(days: int, unit: str) -> None:
    found = summarized(engine_of(two_sessions(days), None), Columns())
    assert found.unit == unit
    assert found.columns.keys == ("user",)
    assert (found.counts, found.pages, found.reasons) == ([], [], [])


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"dimension": "chanel"}, "no column `chanel`.*write `channel`"),
        ({"path": "events"}, "`events` must be a list column, found number"),
        ({"funnel": ["events"]}, "`events` must be a bool column"),
        ({"keys": ["who"]}, "no column `who`"),
    ],
)
def test_a_column_that_does_not_fit_is_refused(columns: dict[str, Any], said: str) -> None:
    table = pa.Table.from_pylist(rows(3), SCHEMA)
    with pytest.raises(SchemaError, match=f"(?s){said}"):
        summarized(engine_of(table, None), Columns(**columns))


def test_rows_without_sessions_are_refused() -> None:
    table = pa.Table.from_pylist(rows()[-3:], SCHEMA)
    with pytest.raises(SchemaError, match="there is no session in the rows"):
        summarized(engine_of(table, None), Columns())


def test_names_are_no_part_of_a_query() -> None:
    """A column with quotes in its name is a column."""
    odd = 'it\'s "odd" `here`'
    table = pa.Table.from_pylist(rows(9)[:9], SCHEMA).rename_columns(
        [odd if name == "channel" else name for name in SCHEMA.names]
    )
    found = summarized(engine_of(table, None), Columns(dimension=odd))
    assert attrs.evolve(found.columns).dimension == odd


def test_rows_of_other_kinds_need_no_reason() -> None:
    """Whoever keeps the column `kind` alone sees the rows by kind."""
    table = pa.Table.from_pylist(rows(5), SCHEMA).drop(["reason"])

    assert {"late"} == {
        row["reason"] for row in summarized(engine_of(table, None), Columns()).kinds
    }


@pytest.mark.parametrize(
    ("column", "values", "found"),
    [
        ("session_start", ["2026-03-01"], "`session_start` must be a time column, found text"),
        ("session_end", [1], "`session_end` must be a time column, found number"),
        ("kind", [1], "`kind` must be a text column, found number"),
        ("event_time", ["now"], "`event_time` must be a time column, found text"),
        ("revision", [1], "the rows have no column `supersedes`"),
    ],
)
def test_columns_of_another_kind_are_named(column: str, values: list[Any], found: str) -> None:
    """Before a query over them is asked, whose error would name none of them."""
    table = pa.Table.from_pylist(rows(1)[:1], SCHEMA)
    table = table.drop([name for name in [column] if name in table.column_names])

    with pytest.raises(SchemaError, match="Hint: ") as refused:
        summarized(engine_of(table.append_column(column, [values]), None), Columns())
    assert found in str(refused.value)


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    """With what DuckDB says of it."""
    path = tmp_path / "rows.csv"
    path.write_text("session_id,session_start")

    with pytest.raises(SchemaError, match=r"rows\.csv can't be read as Parquet: .*\n\nHint: pass"):
        engine_of(path, None)
