"""Instants and durations from terse literals, and keys back as such literals."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit.errors import DriverError
from sessionkit.testing import at, hours, minutes, seconds
from sessionkit.testing.literals import literal

BUILDERS = {"at": at, "hours": hours, "minutes": minutes, "seconds": seconds}


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
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        (date(2026, 3, 1), datetime(2026, 3, 1, tzinfo=UTC)),
        ("1969-12-31T23:59:59.999999", datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    ],
)
def test_at_reads_an_instant_in_utc(text: Any, instant: datetime) -> None:
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
        "2026-13-01",
        "10:03Z",
        10,
        None,
        datetime(2026, 3, 1, 10, 3),  # noqa: DTZ001 (nobody says in which zone)
        "\u0661\u0660:\u0660\u0663",
    ],
)
def test_at_refuses_what_is_not_an_instant(text: Any) -> None:
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


@pytest.mark.parametrize("number", ["5", None])
def test_a_duration_of_no_number_is_refused(number: Any) -> None:
    """Its error says what was found."""
    with pytest.raises(DriverError, match=f"{number!r} isn't a number"):
        minutes(number)


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
