"""Rows that a page can't count as they are: nothing is wrong in silence."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sessionkit import SchemaError, SpecError
from sessionkit.addons.report import Columns, report
from sessionkit.addons.report.counts import MOST_LONGEST
from sessionkit.addons.report.engine import engine_of
from sessionkit.addons.report.summary import summarized
from tests.addons.report.reading import cards, look, number, span, table
from tests.addons.report.visits import asked
from tests.support.browser import Reader
from tests.support.refusals import refusal, says

NOON: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
INSTANT: Final = pa.timestamp("us", tz="UTC")
SCHEMA: Final = {
    "user": pa.string(),
    "session_id": pa.string(),
    "session_start": INSTANT,
    "session_end": INSTANT,
    "path": pa.list_(pa.string()),
    "pages": pa.int64(),
    "value": pa.float64(),
    "far": pa.int64(),
}


def rows_of(*changes: Mapping[str, Any], count: int = 10) -> pa.Table:
    """Return sessions of ten users, one an hour, the first of which are changed."""
    rows = [
        {
            "user": f"u{n}",
            "session_id": f"s{n}",
            "session_start": NOON + timedelta(hours=n),
            "session_end": NOON + timedelta(hours=n, minutes=n),
            "path": ["/", "/cart"],
            "pages": 2,
            "value": 2.5,
            "far": 1,
        }
        for n in range(count)
    ]
    for row, change in zip(rows, changes, strict=False):
        row.update(change)
    return pa.Table.from_pylist(rows, pa.schema(SCHEMA))


def summary_of(rows: pa.Table, columns: Columns | None = None, zone: str = "UTC") -> dict[str, Any]:
    return summarized(engine_of(rows, None), columns or Columns(), zone)


def total(summary: Mapping[str, Any], name: str) -> Any:
    return sum(filter(None, summary["cubes"][0]["cells"][name]))


@pytest.mark.parametrize(
    "first",
    [
        ["session_id", "user", "session_start"],
        ["user", "value", "session_id", "far", "session_start"],
    ],
)
def test_keys_of_rows_in_another_order_are_asked_for(first: list[str]) -> None:
    """Otherwise all would be sessions of one user, or a result would count as a key."""
    names = [*first, *(name for name in SCHEMA if name not in first)]
    rows = rows_of().select(names)

    assert says(refusal(report, rows), "`session_id`", "keys", 'Columns(keys=["user"])')
    assert 10 == total(summary_of(rows, Columns(keys=["user"])), "is_new")


def test_the_exit_page_of_a_path_at_its_limit_is_not_known() -> None:
    """Nor where repeats fill it: the last page of such a path is one in the middle."""
    full = {"path": ["/", "/a", "/b"]}
    repeats = {"path": ["/", "/a"], "pages": 4}
    found = summary_of(rows_of(full, repeats), Columns(path_at_most=3))

    exits = [counts for counts in found["cubes"][0]["cells"]["exit"] if counts]
    assert 8 == sum(counts[1] for counts in exits)
    assert ["2 sessions have a path that may go on"] == [
        note.partition(":")[0] for note in found["notes"]
    ]
    assert [] == summary_of(rows_of(full, repeats))["notes"]


def test_a_session_without_a_start_is_counted_as_such() -> None:
    """And doesn't empty the page."""
    found = summary_of(rows_of({"session_start": None}, {"session_start": None}))

    assert 8 == total(found, "sessions")
    assert found["notes"][0].startswith("2 sessions have no session_start")
    with pytest.raises(SchemaError, match="1 session has no session_start"):
        summary_of(rows_of({"session_start": None}, count=1))


@pytest.mark.parametrize("year", [1, 1970, 9999])
def test_a_date_far_from_the_others_does_not_stretch_the_page(year: int) -> None:
    far = {"session_start": datetime(year, 1, 1, tzinfo=UTC)}
    found = summary_of(rows_of(far))

    assert 1 == found["days"]
    assert 9 == total(found, "sessions")
    assert f"{year:04}-01-01" in found["notes"][0]


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_a_number_that_no_sum_takes_is_left_out(odd: float) -> None:
    found = summary_of(rows_of({"value": odd}))

    assert 22.5 == total(found, "value")
    assert ["1 session has a `value` that is NaN"] == [
        note.partition(",")[0] for note in found["notes"]
    ]


def test_a_session_id_that_repeats_is_told() -> None:
    """As where a sink wrote a micro-batch twice."""
    found = summary_of(rows_of({"session_id": "s1"}, {"session_id": "s1"}))

    assert found["notes"] == [
        "1 session has the session_id of another one: they are counted again."
    ]


def test_a_funnel_of_an_int_has_the_steps_that_are_named() -> None:
    """A session is at all steps up to the int; null is none, and is told."""
    rows = rows_of({"far": 2}, {"far": 0}, {"far": None}, {"far": 3})
    columns = Columns(funnel="far", steps=["viewed", "carted", "paid"])
    found = summary_of(rows, columns)

    assert [8, 2, 1] == [total(found, f"reached_{n}") for n in range(3)]
    assert 1 == total(found, "converted")
    assert ["1 session has no `far`"] == [note.partition(",")[0] for note in found["notes"]]


@pytest.mark.parametrize(
    ("columns", "facts"),
    [
        ({"funnel": "far"}, ["`far`", "steps=["]),
        ({"funnel": "far", "steps": ["viewed", "carted"]}, ["`far`", "3", "`steps`", "2"]),
        ({"funnel": ["value", "far"], "steps": ["viewed"]}, ["`steps`", "`funnel`"]),
        ({"steps": ["viewed"]}, ["`steps`", "`funnel`"]),
        ({"dimensions": list("abcdefg")}, ["`dimensions`", "7", "leave out g"]),
    ],
)
def test_a_funnel_that_does_not_fit_is_refused(columns: dict[str, Any], facts: list[str]) -> None:
    with pytest.raises((SpecError, SchemaError)) as refused:
        report(rows_of({"far": 3}), columns=Columns(**columns))

    assert says(str(refused.value), *facts, "\n\nHint: ")


def test_days_are_those_of_the_time_zone() -> None:
    """On the days on which clocks change, too: New York has 23 hours on March 8, 2026."""
    starts = [
        datetime(2026, 3, 8, 4, 59, tzinfo=UTC),  # 23:59 on March 7
        datetime(2026, 3, 8, 5, tzinfo=UTC),
        datetime(2026, 3, 9, 3, 59, tzinfo=UTC),  # 23:59 on March 8
        datetime(2026, 3, 9, 4, tzinfo=UTC),
    ]
    rows = rows_of(*({"session_start": start} for start in starts), count=4)
    found = summary_of(rows, zone="America/New_York")

    (hours,) = found["hours"]["cubes"]
    days = [*zip(hours["cells"]["t"], hours["cells"]["hour"], strict=True)]
    assert [(0, 23), (1, 0), (1, 23), (2, 0)] == days
    assert 2 == summary_of(rows)["days"]


@pytest.mark.parametrize(
    ("zone", "hint"),
    [("Europe/Berlni", "Europe/Berlin"), ("'); --", "Europe/Berlin"), (3, "Berlin")],
)
def test_an_unknown_time_zone_is_refused(zone: Any, hint: str) -> None:
    assert says(refusal(report, rows_of(), time_zone=zone), "`time_zone`", repr(zone), hint)


def test_the_longest_sessions_are_ten_in_any_table() -> None:
    """The page lists those that no other one exceeds, of thousands of days too."""
    count = 30_000
    numbers = np.arange(count)
    lengths = numbers * 7919 % 100_003  # each another one
    starts = pa.array(numbers * 3_600_000_000, INSTANT)
    rows = pa.table(
        {
            "user": (numbers % 977).astype(str),
            "session_id": numbers.astype(str),
            "session_start": starts,
            "session_end": pa.array(numbers * 3_600_000_000 + lengths * 1_000_000, INSTANT),
            "channel": (numbers % 3).astype(str),
        }
    )
    found = summary_of(rows, Columns(dimensions="channel"))
    listed, cells = pd.DataFrame(found["longest"]), found["cubes"][0]["cells"]
    cells = pd.DataFrame({name: cells[name] for name in ("t", "d0", "unlisted")})

    assert len(listed) <= MOST_LONGEST < count
    for first, last, channel in ((0, 1_250, None), (0, 1_250, 2), (700, 760, None), (90, 150, 0)):
        fits = [part["t"].between(first, last) for part in (listed, cells)]
        if channel is not None:
            fits = [a & (b["d0"] == channel) for a, b in zip(fits, (listed, cells), strict=True)]
        bound = cells[fits[1]]["unlisted"].max()
        shown = listed[fits[0] & (listed["length"] >= bound)]["length"][:10]
        is_wanted = (numbers // 24 >= first) & (numbers // 24 <= last)
        if channel is not None:
            is_wanted &= numbers % 3 == channel
        assert [*np.sort(lengths[is_wanted])[:-11:-1] * 1000] == [*shown]


@pytest.mark.parametrize("code", ["eur", "EURO", "€", "E R"])
def test_a_currency_is_a_code_of_three_capital_letters(code: str) -> None:
    assert says(refusal(Columns, currency=code), "`currency`", repr(code), 'currency="EUR"')


def test_a_currency_of_no_amounts_is_refused() -> None:
    """A reader would look for revenue in vain."""
    text = refusal(report, rows_of().drop(["value"]), columns=Columns(currency="EUR"))

    assert says(text, "`currency`", "EUR", "value=")


def test_a_goal_is_a_bool() -> None:
    text = refusal(report, rows_of(), columns=Columns(goals="value"))

    assert says(text, "`value`", "bool", "number")


def test_a_user_with_a_session_before_the_rows_is_new_on_no_day(
    reader: Reader, tmp_path: Path
) -> None:
    """By the number of the session; without it, a user's first session in the rows is the first."""
    rows = rows_of({"user": "u9"}, {"user": "u8"})
    numbers = pa.array([1, 5, 7, 1, 1, 1, 1, 1, 6, 2])
    seen = {}
    for name, given in (("with", rows.append_column("session_number", numbers)), ("no", rows)):
        report(given, out=tmp_path / f"{name}.html")
        look(reader, tmp_path / f"{name}.html")
        seen[name] = [cards(reader)[one] for one in ("Users", "New users", "Users seen before")]
    # u9 has its sessions 1 and 2 here, u8 5 and 6, and u2 7.
    assert {"with": ["8", "6", "2"], "no": ["8", "8", "0"]} == seen


# -- what isn't known ------------------------------------------------------------------------------

UNKNOWN: Final = dict.fromkeys(("user", "session_end", "path", "pages", "value"))
EVERY: Final = Columns(engaged="engaged", converted="bought", views="views")


def with_unknown(rows: pa.Table) -> pa.Table:
    """Return sessions of which the first is true, and the second isn't known."""
    rows = rows.append_column("bought", pa.array([True, None] + [False] * 8))
    rows = rows.append_column("engaged", pa.array([True, None] + [False] * 8))
    views = pa.array([[("/", 2)], None] + [[("/", 1)]] * 8, pa.map_(pa.string(), pa.int64()))
    return rows.append_column("views", views)


def test_what_is_not_known_is_counted_as_in_sql(reader: Reader, tmp_path: Path) -> None:
    """An average is one of what is known, and no user is none; the page says of how many."""
    far = {"session_end": NOON - timedelta(days=1)}
    rows = with_unknown(rows_of({"pages": 1}, UNKNOWN, far))
    report(rows, out=tmp_path / "report.html", columns=EVERY)
    look(reader, tmp_path / "report.html")
    query = """SELECT count(DISTINCT "user"), avg(value), avg(pages), avg((pages = 1)::INT),
        avg(engaged::INT), avg(bought::INT), avg(list_sum(map_values(views))),
        avg(epoch_ms(session_end) - epoch_ms(session_start)) FILTER (session_end >= session_start),
        max(epoch_ms(session_end) - epoch_ms(session_start)) FROM rows"""
    ((users, value, events, bounced, engaged, converted, views, length, longest),) = asked(
        rows, query
    )
    shown = cards(reader)

    assert f"{users}" == shown["Users"] == shown["New users"]
    assert f"{value:.2f}" == shown["Revenue per session"]
    ((of_user,),) = asked(
        rows,
        """SELECT sum(value) FILTER ("user" IS NOT NULL)
        / count(DISTINCT "user") FROM rows""",
    )
    assert f"{of_user:.2f}" == shown["Revenue per user"]
    assert number(events) == shown["Events per session"]
    assert number(views) == shown["Views per session"]
    shares = [shown[f"{name} rate"] for name in ("Bounce", "Engagement", "Conversion")]
    assert [f"{100 * part:.1f}%" for part in (bounced, engaged, converted)] == shares
    assert span(length) == shown["Duration with gap"]
    assert longest / 1000 == float(table(reader, "quantiles")[-1][1])
    assert [converted] == [float(line[3]) for line in table(reader, "entry")]
    notes = reader.run("document.querySelector('#notes').innerText").splitlines()
    assert [
        "2 sessions have no session_end, or one before session_start, and so no duration.",
        "1 session has no `user`, and so no user.",
        "1 session has no `pages`: it isn't counted.",
        "1 session has no `value`: it isn't counted.",
        "1 session has no `views`: it isn't counted.",
        "1 session has no `engaged`: its rate doesn't count it.",
        "1 session has no `bought`: its rate doesn't count it.",
    ] == notes


@pytest.mark.parametrize("revisions", [False, True])
@pytest.mark.parametrize("count", [1, 10])
def test_a_page_of_sessions_without_ids_is_whole(
    reader: Reader, tmp_path: Path, count: int, revisions: bool
) -> None:
    """Each is a session; with revisions too, of which nobody knows whose they are."""
    rows = rows_of(*[{"session_id": None}] * count)
    if revisions:
        none = pa.array([["other"]] * 10, pa.list_(pa.string()))
        rows = rows.append_column("revision", pa.array([1] * 10)).append_column("supersedes", none)
    report(rows, out=tmp_path / "report.html")
    look(reader, tmp_path / "report.html")

    assert "10" == cards(reader)["Sessions"]
    assert count == sum(line[0] == "no session_id" for line in table(reader, "longest"))
    notes = reader.run("document.querySelector('#notes').innerText")
    has = "1 session has" if count == 1 else "10 sessions have"
    assert f"{has} no session_id, and so no other revision." in notes


def test_a_row_without_a_kind_is_counted_as_such() -> None:
    """Neither as a session nor not at all."""
    rows = rows_of()
    kinds = pa.array([None, *["session"] * 9], pa.string())
    found = summary_of(rows.add_column(0, "kind", kinds), Columns(keys=["user"]))

    assert 9 == total(found, "sessions")
    assert (["no kind"], [1]) == (found["rejected"]["kind"], found["rejected"]["counted"])


def test_a_user_whose_number_is_not_known_is_not_new() -> None:
    """And the page says so; so it does for a step that isn't known."""
    rows = rows_of().append_column("session_number", pa.array([None, 2] + [1] * 8))
    rows = rows.append_column("bought", pa.array([None] + [True] * 9))
    found = summary_of(rows, Columns(funnel=["bought"]))

    assert (8, 9) == (total(found, "is_new"), total(found, "reached_0"))
    assert [
        "1 session has no `session_number`: it doesn't count as its user's first.",
        "1 session has no `bought`, as if they didn't reach the step.",
    ] == found["notes"]
