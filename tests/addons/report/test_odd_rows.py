"""Rows that a page can't count as they are: nothing is wrong in silence."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
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
    with pytest.raises(SchemaError, match="there is no session"):
        summary_of(rows_of({"session_start": None}, count=1))


@pytest.mark.parametrize("year", [1, 1970, 9999])
def test_a_date_far_from_the_others_does_not_stretch_the_page(year: int) -> None:
    far = {"session_start": datetime(year, 1, 1, tzinfo=UTC)}
    found = summary_of(rows_of(far))

    assert 24 == found["units"]
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

    assert [23, 24, 47, 48] == found["cubes"][0]["cells"]["t"]
    assert 48 == summary_of(rows)["units"]


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
