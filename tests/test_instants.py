"""Durations and instants: what is read, what is refused with a hint, and whole microseconds."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit._instants import (
    BEGINNING_US,
    END_OF_TIME_US,
    LAST_INSTANT_US,
    duration_of,
    duration_text,
    instant_of,
    micros_of,
    span_us,
)
from tests.support.refusals import refusal, says

HUNDRED_YEARS = timedelta(days=36_500)
HALF_HOUR = timedelta(minutes=30)


@pytest.mark.parametrize(
    ("unit", "spellings"),
    [
        (timedelta(microseconds=1), ["us", "microsecond", "microseconds"]),
        (timedelta(milliseconds=1), ["ms", "millisecond", "milliseconds"]),
        (timedelta(seconds=1), ["s", "sec", "second", "seconds"]),
        (timedelta(minutes=1), ["m", "min", "minute", "minutes"]),
        (timedelta(hours=1), ["h", "hour", "hours"]),
        (timedelta(days=1), ["d", "day", "days"]),
        (timedelta(weeks=1), ["w", "week", "weeks"]),
    ],
)
def test_every_unit_is_read_in_each_of_its_spellings(unit: timedelta, spellings: list[str]) -> None:
    """A unit may be written out, in the plural, or short, with or without a blank before it."""
    texts = [f"3{blank}{spelling}" for spelling in spellings for blank in ("", " ", "  ")]
    assert [unit * 3] * len(texts) == [duration_of(text, "gap") for text in texts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30 minutes", HALF_HOUR),
        ("30m", HALF_HOUR),
        ("  30 minutes  ", HALF_HOUR),
        ("30 MINUTES", HALF_HOUR),
        ("+30 minutes", HALF_HOUR),
        ("interval 30 minutes", HALF_HOUR),
        ("INTERVAL 30 minutes", HALF_HOUR),
        ("1 hour 30 minutes", timedelta(minutes=90)),
        ("1h30m", timedelta(minutes=90)),
        ("30m1h", timedelta(minutes=90)),
        ("1h\t30m", timedelta(minutes=90)),
        ("1 hour -30 minutes", HALF_HOUR),
        ("0.5 seconds", timedelta(milliseconds=500)),
        ("1m 0.000001s", timedelta(minutes=1, microseconds=1)),
        ("1w 1d 1h 1m 1s 1ms 1us", timedelta(8, 3661, 1001)),
        ("36500 days", HUNDRED_YEARS),
    ],
)
def test_words_and_short_forms_are_read(text: str, expected: timedelta) -> None:
    """Spark's interval words and the short forms mean what they say, in any case and order."""
    assert expected == duration_of(text, "gap")


RUBBISH = [
    "", " ", "interval", "interval ", "30", "minutes", "m30", "half an hour", "30 fortnights",
    "1e3 s", "1,5 s", "1.s", ".5 s", "1:30", "01:30:00", "PT30M", "P1D", "30 minutes!",
    "30 m, 1 h", "1h and 30m", "10m10m", "1 min 1 minute", "1 minutess", "- 3 minutes",
    "3 -minutes", "--3m", "nan s", "inf s", "1s -2s -1m",
]  # fmt: skip


@pytest.mark.parametrize(
    ("fact", "values"),
    [
        ("longer than zero", ["0 seconds", "0m", timedelta(0), "1 minute -60 seconds"]),
        ("longer than zero", ["-1 second", timedelta(microseconds=-1), "-30m"]),
        ("isn't a duration", RUBBISH),
        *(
            ("fixed length", [f"1 {unit}"])
            for unit in ("month", "months", "mon", "year", "years", "y", "quarter")
        ),
        ("a fraction of a second only", ["1.5 minutes", "0.5h", "1.0 days", "0.5 ms"]),
        ("at most a hundred years", ["36501 days", "36500 days 1 us", "1000000 weeks"]),
        ("at most a hundred years", ["9999999999999 days", timedelta.max]),
        ("(int)\n\nHint: a number has no unit", [30]),
        ("(float)\n\nHint: a number has no unit", [1.5]),
        ("a timedelta or text", [None, b"30m", pd.NaT]),
        # Python refuses to read so many digits; the others would have to be rounded.
        ("`gap`", ["9" * 5_000 + " days", "1.0000004 seconds", pd.Timedelta(1, "ns")]),
    ],
)
def test_what_is_no_duration_is_refused(fact: str, values: list[Any]) -> None:
    """With what was found, and a hint."""
    for value in values:
        text = refusal(duration_of, value, "gap")
        assert says(text, "`gap`", fact, "found" if fact != "isn't a duration" else repr(value))


@pytest.mark.parametrize("value", ["0 seconds", "0m", timedelta(0), "1 minute -60 seconds"])
def test_zero_is_a_duration_where_it_makes_sense(value: str | timedelta) -> None:
    """Nothing at all is accepted for a delay; less than that isn't, and the text says so."""
    assert timedelta(0) == duration_of(value, "gap", zero_allowed=True)
    assert says(refusal(duration_of, "-1 s", "gap", zero_allowed=True), "zero or longer than zero")


@given(span=st.timedeltas(timedelta(microseconds=1), HUNDRED_YEARS))
def test_the_text_of_a_duration_is_read_back(span: timedelta) -> None:
    """What `duration_text` writes, `duration` reads, to the microsecond."""
    assert span == duration_of(duration_text(span), "gap")


@pytest.mark.parametrize(
    ("expected", "span"),
    [
        ("0 seconds", timedelta(0)),
        ("1 microsecond", timedelta(microseconds=1)),
        ("1 hour 30 minutes", timedelta(minutes=90)),
        ("2 weeks 1 day", timedelta(days=15)),
        ("1 second 500 milliseconds", timedelta(seconds=1.5)),
    ],
)
def test_a_duration_is_written_in_words(expected: str, span: timedelta) -> None:
    """The longest unit comes first, and one of a unit is written in the singular."""
    assert expected == duration_text(span)


@given(instant=st.datetimes(timezones=st.just(UTC)))
def test_an_instant_and_its_microseconds_are_the_same(instant: datetime) -> None:
    """An instant comes back from its microseconds, from year 1 to 9999."""
    assert instant == instant_of(micros_of(instant))


def test_microseconds_count_from_the_epoch_in_any_zone() -> None:
    """The same instant has the same number, whatever zone it is written in."""
    two_hours_east = timezone(timedelta(hours=2))
    assert 1 == micros_of(datetime(1970, 1, 1, 0, 0, 0, 1, UTC))
    assert -1 == micros_of(datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC))
    assert 0 == micros_of(datetime(1970, 1, 1, 2, tzinfo=two_hours_east))


def test_the_ends_of_time_lie_outside_the_calendar_and_inside_64_bits() -> None:
    """The longest duration can be added to every instant without passing the ends of time."""
    longest_us = span_us(HUNDRED_YEARS)
    first_us = micros_of(datetime.min.replace(tzinfo=UTC))
    assert datetime.max.replace(tzinfo=UTC) == instant_of(LAST_INSTANT_US)
    assert BEGINNING_US < first_us - longest_us
    assert LAST_INSTANT_US + longest_us < END_OF_TIME_US
    assert END_OF_TIME_US + longest_us < 2**63
