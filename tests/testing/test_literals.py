"""Instants, durations and rows from terse literals, and keys back as such literals."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import attrs
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.visits import View, Visit, visits
from sessionkit import DecimalType, DriverError, FieldTypeError, SessionSpec
from sessionkit.testing import (
    SessionDriver,
    at,
    events_table,
    frame_from,
    hours,
    minutes,
    seconds,
)
from sessionkit.testing.pictures.literals import literal
from tests.support.options import evolved

ANY_VISITS: Any = visits
BUILDERS = {"at": at, "hours": hours, "minutes": minutes, "seconds": seconds}


class Plan(Enum):
    """An enumeration, in a table by its value."""

    FREE = "free"
    PAID = "paid"


@attrs.frozen
class Typed:
    """An event with a field of every type that a cell can hold."""

    number: int
    share: float
    flag: bool
    name: str
    raw: bytes
    seen: datetime
    day: date
    took: timedelta
    price: Annotated[Decimal, DecimalType(5, 2)]
    plan: Plan
    note: str | None


def create(key: Any, event: Any) -> Visit:
    return Visit(1, 0.0)


def update(state: Visit, event: Any) -> Visit:
    return state


# -- instants and durations --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("10:03", datetime(2026, 1, 1, 10, 3, tzinfo=UTC)),
        ("9:03", datetime(2026, 1, 1, 9, 3, tzinfo=UTC)),
        ("10:03:20", datetime(2026, 1, 1, 10, 3, 20, tzinfo=UTC)),
        ("10:03:20.5", datetime(2026, 1, 1, 10, 3, 20, 500_000, tzinfo=UTC)),
        ("10:03:20.000001", datetime(2026, 1, 1, 10, 3, 20, 1, tzinfo=UTC)),
        ("2026-03-01 10:03", datetime(2026, 3, 1, 10, 3, tzinfo=UTC)),
        ("1969-12-31T23:59:59.999999", datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    ],
)
def test_at_reads_an_instant_in_utc(text: str, instant: datetime) -> None:
    """The day is 1 January 2026 unless it is written."""
    assert instant == at(text)
    assert UTC is at(text).tzinfo


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "24:00",
        "10:60",
        "10:03:20.1234567",
        "2026-02-30 10:00",
        "10:03Z",
        "\u0661\u0660:\u0660\u0663",
    ],
)
def test_at_refuses_what_is_not_an_instant(text: str) -> None:
    """With the spellings that it reads in the hint."""
    with pytest.raises(DriverError, match="isn't an instant") as refused:
        at(text)
    assert 'Hint: write at("10:03")' in str(refused.value)


def test_durations_are_timedeltas() -> None:
    """Whole or with a fraction."""
    assert timedelta(seconds=90) == minutes(1.5) == seconds(90)
    assert timedelta(hours=2) == hours(2)


@pytest.mark.parametrize("number", [1e300, float("inf"), float("nan")])
def test_a_duration_that_no_timedelta_can_hold_is_refused(number: float) -> None:
    """Its error says what was multiplied."""
    with pytest.raises(DriverError, match="doesn't fit a timedelta"):
        hours(number)


@given(
    st.one_of(
        st.datetimes(timezones=st.just(UTC)),
        st.datetimes(timezones=st.just(timezone(hours(5.5))), min_value=datetime(2, 1, 1)),  # noqa: DTZ001 (the zone is given apart)
        st.tuples(st.text(), st.integers()),
    )
)
def test_a_literal_evaluates_to_the_key(value: Any) -> None:
    """What a picture shows can be pasted into the test."""
    assert value == eval(literal(value), BUILDERS)  # noqa: S307 (that is what is claimed)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (at("10:00"), 'at("10:00")'),
        (at("10:00:05.25"), 'at("10:00:05.25")'),
        (at("2026-03-01 10:00"), 'at("2026-03-01 10:00")'),
        (("ann", at("10:00")), "('ann', at(\"10:00\"))"),
    ],
)
def test_a_literal_is_as_brief_as_a_test_would_write_it(value: Any, text: str) -> None:
    """No more of an instant than needed."""
    assert text == literal(value)


# -- tables ------------------------------------------------------------------------------------


def test_a_table_gives_rows_for_the_driver() -> None:
    """Typed by the spec; an empty line and a rule mean nothing, a column left out is null."""
    rows = events_table(
        visits,
        """
        user_id | ts       | seconds | url
        --------|----------|---------|----
        ann     | 10:00    | 5       | /

        bob     | 10:03:20 | null    | "a | b"
        """,
    )
    assert [
        {"user_id": "ann", "ts": at("10:00"), "seconds": 5.0, "url": "/"},
        {"user_id": "bob", "ts": at("10:03:20"), "seconds": None, "url": "a | b"},
    ] == rows
    driver = SessionDriver(visits)
    for row in rows:
        driver.add_row(row)
    counts = driver.run_batch().counts
    assert (1, 1) == (counts.processed, counts.quarantined)


def test_a_table_may_have_pipes_at_its_edges() -> None:
    """As in Markdown."""
    text = "| user_id | url |\n|:---:|---|\n| ann | null |\n| bob | / |"
    rows = [{"user_id": "ann", "url": None}, {"user_id": "bob", "url": "/"}]
    assert rows == events_table(visits, text)


def test_a_row_of_dashes_is_a_row() -> None:
    """Only three and more, right below the names, are a rule."""
    rows = events_table(visits, "user_id | url\n- | -\n--- | ---")
    assert [("-", "-"), ("---", "---")] == [(row["user_id"], row["url"]) for row in rows]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("null", None),
        ('"null"', "null"),
        ('""', ""),
        ('" x "', " x "),
        (r'"say \"hi\"\n"', 'say "hi"\n'),
        ('5" disk', '5" disk'),
        ("a b", "a b"),
        ("-", "-"),
    ],
)
def test_text_needs_quotes_only_where_it_would_be_misread(cell: str, text: str | None) -> None:
    """A null is the bare word."""
    assert [{"url": text}] == events_table(visits, f"url\n{cell}")


def test_a_time_of_day_is_read_and_a_zone_of_it_refused() -> None:
    """A field of the type `time` has none."""
    frame = frame_from("opens\n09:30", {"opens": time})
    assert [34_200_000_000] == frame["opens"].tolist()
    with pytest.raises(DriverError, match="must be a time without a time zone"):
        frame_from("opens\n09:30+02:00", {"opens": time})


def test_every_type_that_a_cell_can_hold_is_read() -> None:
    """As documented: enumerations by value, durations in words, bytes as text."""
    changes: dict[str, Any] = {"create": create, "update": update, "passthrough": {"offset": int}}
    spec: SessionSpec[Any, Any, Any] = evolved(ANY_VISITS, event=Typed, **changes)
    (row,) = events_table(
        spec,
        """
        number | share | flag | name | raw | seen  | day        | took       | price | plan | offset
        -7     | 1e3   | true | ann  | abc | 09:00 | 2026-01-31 | 30 minutes | 1.5   | paid | 12
        """,
    )
    assert {
        "number": -7,
        "share": 1000.0,
        "flag": True,
        "name": "ann",
        "raw": b"abc",
        "seen": at("09:00"),
        "day": date(2026, 1, 31),
        "took": minutes(30),
        "price": Decimal("1.5"),
        "plan": Plan.PAID,
        "offset": 12,
    } == row
    SessionDriver(spec).add_row(row)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the table is empty"),
        ("\nuser\nann", "line 2: there is no column `user`"),
        ("url | url\na | b", "line 1: the column `url` is named twice"),
        ("user_id | url\n\nann", "line 3: expected 2 cells, found 1"),
        ("user_id | url\nann |", "line 2, column `url`: the cell is empty"),
        ("seconds\nfast", "line 2: `seconds`: 'fast' can't be read as float"),
        ("ts\n10", "line 2, column `ts`: '10' isn't an instant"),
        ('url\n"a', "line 2: `url`: '\"a' can't be read as str"),
    ],
)
def test_a_table_that_cannot_be_read_names_the_line(text: str, said: str) -> None:
    """With a hint, as every error."""
    with pytest.raises(DriverError, match=said) as refused:
        events_table(visits, text)
    assert "\n\nHint: " in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "cell"),
    [
        (bool, "yes"),
        (int, "1.5"),
        (int, "99999999999999999999"),
        (date, "31.1.2026"),
        (timedelta, "2 months"),
        (Annotated[Decimal, DecimalType(5, 2)], "1.555"),
        (Decimal, "one"),
        (Plan, "gold"),
        (list[int], "1"),
    ],
)
def test_a_cell_of_another_type_is_refused(kind: Any, cell: str) -> None:
    """Nothing is converted in silence."""
    with pytest.raises(DriverError, match="^line 2.*`x`"):
        frame_from(f"x\n{cell}", {"x": kind})


def test_a_frame_has_the_dtypes_that_arrow_gives_to_pandas() -> None:
    """So whole numbers next to a null become floats, as on Spark's way to pandas."""
    frame = frame_from(
        """
        user | ts    | pages | score
        ann  | 10:00 | 1     | 1
        null | null  | 2     | null
        """,
        {"user": str, "ts": datetime, "pages": int, "score": int, "plan": Plan | None},
    )
    expected = pd.DataFrame(
        {
            "user": pd.Series(["ann", None], dtype="str"),
            "ts": pd.Series([at("10:00"), pd.NaT], dtype="datetime64[us, UTC]"),
            "pages": [1, 2],
            "score": [1.0, float("nan")],
            "plan": pd.Series([None, None], dtype="str"),
        }
    )
    pd.testing.assert_frame_equal(expected, frame)


def test_a_frame_of_a_type_that_is_not_stored_is_refused() -> None:
    """As in a spec."""
    with pytest.raises(FieldTypeError):
        frame_from("x\n1", {"x": complex})


def test_events_are_not_only_for_the_class_of_the_event() -> None:
    """A table names the columns of the key and the time as well."""
    assert {"url", "seconds"} == {field.name for field in attrs.fields(View)}
    with pytest.raises(DriverError, match="it is one of ts, user_id, url, seconds"):
        events_table(visits, "page\n/")
