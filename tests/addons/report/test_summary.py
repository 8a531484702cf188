"""What is counted of result rows, small enough for a page; for its figures see test_page.py."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sessionkit import SchemaError
from sessionkit.addons.report import Columns, page_of, report
from sessionkit.addons.report.counts import MOST_COUNTS
from sessionkit.addons.report.engine import engine_of
from sessionkit.addons.report.summary import MOST_REASONS, summarized
from tests.addons.report.visits import COLUMNS, SCHEMA, asked, rejected, table_of, visits

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def summary_of(rows: pa.Table, columns: Columns = COLUMNS) -> dict[str, Any]:
    return summarized(engine_of(rows, None), columns)


def users(summary: dict[str, Any], first: int, last: int) -> int:
    """Return how many users there are in some days, as the page does."""
    (every,) = (one for one in summary["users"] if not one["by"])
    return sum(
        count
        for t, counts in zip(every["t"], every["counts"], strict=True)
        for gap, count in zip(counts[::2], counts[1::2], strict=True)
        if first <= t <= last and (gap <= 0 or t - gap < first)
    )


def twice(summary: dict[str, Any], first: int, last: int) -> int:
    """Return how many users have two sessions in some days, as the page does."""
    (every,) = (one for one in summary["twice"] if not one["by"])
    return sum(
        count
        for t, counts in zip(every["t"], every["counts"], strict=True)
        for gap, count in zip(counts[::2], counts[1::2], strict=True)
        if first <= t <= last and t - gap >= first
    )


def cells_of(summary: dict[str, Any], name: str) -> Any:
    """Return what the cells say, of the first cube that has it."""
    return next((one["cells"][name] for one in summary["cubes"] if name in one["cells"]), None)


def test_many_rows_and_values_make_no_large_page() -> None:
    """Exact where there is room; where there isn't, the page says how exact, and for which days."""
    random, count, days = np.random.default_rng(7), 150_000, 1_500
    start = pa.array(random.integers(0, days * 86_400_000_000, count), pa.timestamp("us", tz="UTC"))
    length = random.integers(0, 10_000_000_000, count)
    rows = pa.table(
        {
            "user": random.integers(0, 30_000, count),
            "session_id": np.arange(count).astype(str),
            "session_start": start,
            "session_end": pa.array(start.cast("int64").to_numpy() + length, start.type),
            "channel": random.integers(0, 9_000, count).astype(str),
            "page": random.integers(0, 9_000, count).astype(str),
            "closed_by": random.integers(0, 9_000, count).astype(str),
        }
    )
    columns = Columns(dimensions="channel", entry="page")
    found = summary_of(rows, columns)
    gap = found["users"][0]["most"]
    assert gap is not None
    assert gap >= 30
    first, last = 700, 700 + gap - 1
    ((wanted,),) = asked(
        rows,
        f'SELECT count(DISTINCT "user") FROM rows '
        f"WHERE epoch_ms(session_start) // 86400000 BETWEEN {first} AND {last}",
    )
    assert wanted == users(found, first, last)
    assert found["twice"][0]["most"] is not None
    last = first + found["twice"][0]["most"]
    ((wanted,),) = asked(
        rows,
        'SELECT count(*) FROM (SELECT "user" FROM rows WHERE epoch_ms(session_start) // 86400000 '
        f'BETWEEN {first} AND {last} GROUP BY "user" HAVING count(*) > 1) AS one',
    )
    assert wanted == twice(found, first, last)
    ((wanted,),) = asked(
        rows, 'SELECT count(*) FROM (SELECT "user" FROM rows GROUP BY 1 HAVING count(*) > 1) AS one'
    )
    assert wanted == twice(found, 0, days)
    assert found["shown"]["lengths"] is not None
    lengths = cells_of(found, "lengths")
    assert sum(len(counts) // 2 for counts in lengths) <= MOST_COUNTS
    assert sum(map(sum, (counts[1::2] for counts in lengths))) == count
    assert len(found["closings"]) == MOST_REASONS
    assert len(page_of(found, "Visits")) < 8_000_000


def test_many_reasons_make_no_large_page() -> None:
    few, many = (len(report(table_of(visits(50), rejected(n)))) for n in (100, 20_000))
    assert abs(many - few) < 1_000


def test_keys_of_several_columns_tell_users_apart() -> None:
    """`a b`, `c` and `a`, `b c` are two; one without a value isn't known, as in Spark's SQL."""
    keys = [("a b", "c"), ("a", "b c"), ("a", None), (None, "a"), ("a", None)]
    row = visits(1)[0]
    rows = [
        {**row, "session_id": str(n), "site": site, "user": user}
        for n, (site, user) in enumerate(keys)
    ]
    found = summary_of(table_of(rows))
    assert 2 == users(found, 0, 23)
    assert "3 sessions have no `site` or `user`, and so no user." in found["notes"]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.string(), pa.null()])
def test_a_session_without_a_user_counts_for_no_user(kind: pa.DataType) -> None:
    """Neither null nor NaN, which pandas has for a number that isn't known."""
    if pa.types.is_floating(kind):
        names = pa.array(np.array([1, np.nan, np.nan, 2, np.nan]), kind)
    else:
        names = pa.array(["1", None, None, "2", None], kind) if kind != pa.null() else pa.nulls(5)
    made = [{**visits(1)[0], "session_id": str(n), "value": 2.0} for n in range(5)]
    rows = table_of(made).drop(["kind", "site", "user", "reason"])
    rows = rows.add_column(0, "user", names)
    known = 2 - names.null_count // 5 * 2
    found = summary_of(rows)

    assert known == users(found, 0, 0) == sum(cells_of(found, "is_new") or [0])
    assert 0 == twice(found, 0, 0)
    assert [10 - 2.0 * known] == cells_of(found, "value_of_nobody")
    assert f"{5 - known} sessions have no `user`, and so no user." in found["notes"]


def test_a_session_converts_by_its_column_or_by_its_funnel() -> None:
    """A named column counts most, then the last step with all before it, then a usual name."""
    rows = [{**visits(1)[0], "viewed": False, "carted": True, "bought": True}]
    ways = [
        (Columns(funnel=["viewed", "bought"], converted="carted"), [1]),
        (Columns(funnel=["viewed", "bought"]), None),
        (Columns(), [1]),
    ]
    for columns, wanted in ways:
        assert wanted == cells_of(summary_of(table_of(rows), columns), "converted")


@pytest.mark.parametrize(
    "kind", [pa.map_(pa.int64(), pa.int32()), pa.map_(pa.string(), pa.string())]
)
def test_views_may_be_of_any_types(kind: pa.DataType) -> None:
    """A page may be a number, and a count a text; what is no count isn't counted."""
    texts = pa.types.is_string(kind.key_type)
    counts = [{7: 2, 8: 1}, {7: 1}, None]
    made = [
        views and [(str(page), str(n)) if texts else (page, n) for page, n in views.items()]
        for views in counts
    ]
    made += [[("9", "many")]] if texts else [[(9, 0)]]
    rows = table_of([{**visits(1)[0], "session_id": str(n), "path": []} for n in range(4)])
    found = summary_of(rows.drop(["views"]).append_column("views", pa.array(made, kind)))

    assert ["7", "8", "9"] == found["pages"]
    assert [4] == cells_of(found, "views")
    assert [[0, 3, 2, 1, 1, 1]] == cells_of(found, "viewed")


def test_one_session_of_a_user_is_new_of_several_at_one_instant() -> None:
    rows = [{**visits(1)[0], "session_id": str(n)} for n in range(3)]
    found = summary_of(table_of(rows))

    assert ([3], [1]) == (cells_of(found, "sessions"), cells_of(found, "is_new"))


def test_the_last_revision_of_a_session_counts() -> None:
    begin = {"session_start": NOON, "user": "ann"}
    made = [
        {"session_id": "a", "revision": 1, "supersedes": [], "session_end": NOON, "events": 1},
        {"session_id": "a", "revision": 2, "supersedes": [], "session_end": NOON, "events": 5},
        {"session_id": "b", "revision": 1, "supersedes": [], "session_end": NOON, "events": 2},
        {"session_id": "c", "revision": 1, "supersedes": ["b"], "session_end": NOON, "events": 3},
    ]
    table = pa.Table.from_pylist([{**begin, **row} for row in made])
    found = summary_of(table, Columns(keys=["user"]))
    assert dict(zip(found["longest"]["id"], found["longest"]["events"], strict=True)) == {
        "a": 5,
        "c": 3,
    }
    assert sum(cells_of(found, "sessions")) == 2


@pytest.mark.parametrize("days", [1, 3, 4, 2_000])
def test_counts_by_day_stay_by_day_for_any_number_of_days(days: int) -> None:
    """Of any number."""
    times = [NOON, NOON + timedelta(days=days)]
    ids = pa.array(["x", "y"])
    rows = {"user": ids, "session_id": ids, "session_start": times, "session_end": times}
    found = summary_of(pa.table(rows), Columns())
    assert days + 1 == found["days"]
    assert found["columns"]["keys"] == ("user",)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"dimensions": "chanel"}, "no column `chanel`.*write `channel`"),
        ({"path": "events"}, "`events` must be a list column, found number"),
        ({"funnel": ["channel"]}, "`channel` must be a bool column, found text"),
        ({"funnel": "events"}, r"`events` counts the steps.*steps=\["),
        ({"views": "path"}, "`path` must be a map or json column, found list"),
        ({"keys": ["who"]}, "no column `who`"),
    ],
)
def test_a_column_that_does_not_fit_is_refused(columns: dict[str, Any], said: str) -> None:
    table = table_of(visits(3))
    with pytest.raises(SchemaError, match=f"(?s){said}"):
        summary_of(table, Columns(**columns))


def test_rows_without_sessions_are_refused() -> None:
    table = table_of(rejected())
    with pytest.raises(SchemaError, match="there is no session in the rows"):
        summary_of(table, Columns())


def test_sessions_without_a_start_are_refused() -> None:
    """There are sessions, so waiting for some would be no help."""
    table = table_of(visits(3))
    place = table.column_names.index("session_start")
    none = pa.nulls(table.num_rows, table.schema.field(place).type)
    with pytest.raises(SchemaError, match=r"\d+ sessions have no session_start"):
        summary_of(table.set_column(place, "session_start", none), Columns())


def test_names_are_no_part_of_a_query() -> None:
    """A column with quotes in its name is a column."""
    odd = 'it\'s "odd" `here`'
    table = table_of(visits(9)).rename_columns(
        [odd if name == "channel" else name for name in SCHEMA.names]
    )
    assert summary_of(table, Columns(dimensions=odd))["columns"]["dimensions"] == (odd,)


def test_rows_of_other_kinds_need_no_reason() -> None:
    """Whoever keeps the column `kind` alone sees the rows by kind."""
    table = table_of(visits(5), rejected()).drop(["reason"])

    assert ["late"] == summary_of(table)["reasons"]


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
    table = table_of(visits(1))
    table = table.drop([name for name in [column] if name in table.column_names])

    with pytest.raises(SchemaError, match="Hint: ") as refused:
        summary_of(table.append_column(column, [values]), Columns())
    assert found in str(refused.value)


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    """With what DuckDB says of it."""
    path = tmp_path / "rows.csv"
    path.write_text("session_id,session_start")

    with pytest.raises(SchemaError, match=r"rows\.csv can't be read as Parquet: .*\n\nHint: pass"):
        engine_of(path, None)


@pytest.mark.parametrize("before", [{"kind": ["a", "b"]}, {"user": ["x", "y"], "kind": ["a", "b"]}])
def test_a_key_may_be_called_kind(before: dict[str, list[str]]) -> None:
    """Alone before the session it is the key; next to another one, the columns say that."""
    times = pa.array([datetime(2026, 3, 1, tzinfo=UTC)] * 2)
    rows = {**before, "session_id": ["x", "y"], "session_start": times, "session_end": times}
    keys = tuple(before) if len(before) > 1 else ()

    assert tuple(before) == summary_of(pa.table(rows), Columns(keys=keys))["columns"]["keys"]


def test_a_result_may_be_called_kind() -> None:
    times = pa.array([datetime(2026, 3, 1, tzinfo=UTC)])
    rows = {"user": ["x"], "session_id": ["x"], "session_start": times, "session_end": times}

    assert [] == summary_of(pa.table({**rows, "kind": ["bought"]}), Columns())["reasons"]
