"""Durations and instants: what is read, what is refused with a hint, and whole microseconds."""

from datetime import UTC, datetime, timedelta, timezone

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
from sessionkit.errors import SpecError

HUNDRED_YEARS = timedelta(days=36_500)
SPELLING = 'write it like "30 minutes", "1 hour 30 minutes", "30m" or "1h30m"'
HALF_HOUR = timedelta(minutes=30)


def refusal(value: object, *, zero_allowed: bool = False) -> str:
    """Return the text with which a duration is refused."""
    with pytest.raises(SpecError) as refused:
        duration_of(value, "gap", zero_allowed=zero_allowed)
    return str(refused.value)


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


@pytest.mark.parametrize("value", ["0 seconds", "0m", timedelta(0), "1 minute -60 seconds"])
def test_zero_is_a_duration_only_where_it_makes_sense(value: str | timedelta) -> None:
    """Nothing at all is accepted for a delay, and refused for a gap."""
    assert timedelta(0) == duration_of(value, "gap", zero_allowed=True)
    expected = f"`gap` must be longer than zero, found {value!r}\n\nHint: {SPELLING}"
    assert expected == refusal(value)


@pytest.mark.parametrize("value", ["-1 second", "1s -2s -1m", timedelta(microseconds=-1), "-30m"])
def test_what_goes_back_is_refused(value: str | timedelta) -> None:
    """A negative duration is refused also where zero is allowed."""
    assert "\n\nHint: write it like" in refusal(value)
    assert "\n\nHint: write it like" in refusal(value, zero_allowed=True)


def test_the_text_says_where_zero_is_allowed() -> None:
    """A negative delay is told that zero would do."""
    expected = f"`gap` must be zero or longer than zero, found '-1 s'\n\nHint: {SPELLING}"
    assert expected == refusal("-1 s", zero_allowed=True)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "interval", "interval ", "30", "minutes", "m30", "half an hour", "30 fortnights",
        "1e3 s", "1,5 s", "1.s", ".5 s", "1:30", "01:30:00", "PT30M", "P1D", "30 minutes!",
        "30 m, 1 h", "1h and 30m", "10m10m", "1 min 1 minute", "1 minutess", "- 3 minutes",
        "3 -minutes", "--3m", "nan s", "inf s",
    ],
)  # fmt: skip
def test_rubbish_is_refused(text: str) -> None:
    """A text that isn't a duration is shown, with examples of some that are."""
    assert f"`gap` isn't a duration: {text!r}\n\nHint: {SPELLING}" == refusal(text)


@pytest.mark.parametrize("unit", ["month", "months", "mon", "year", "years", "y", "quarter"])
def test_months_and_years_are_refused(unit: str) -> None:
    """A unit without a fixed length is refused, with the one to count in instead."""
    expected = (
        f"`gap` must have a fixed length, found '1 {unit}': months and years have none"
        "\n\nHint: count in days, such as '30 days'"
    )
    assert expected == refusal(f"1 {unit}")


@pytest.mark.parametrize("text", ["1.5 minutes", "0.5h", "1.0 days", "0.5 ms"])
def test_only_seconds_have_fractions(text: str) -> None:
    """A fraction of another unit than the second is refused, as Spark refuses it."""
    expected = (
        f"`gap` may have a fraction of a second only, found {text!r}"
        "\n\nHint: use the next smaller unit, in whole numbers"
    )
    assert expected == refusal(text)


@pytest.mark.parametrize(
    "value",
    ["36501 days", "36500 days 1 us", "1000000 weeks", "9999999999999 days", timedelta.max],
)
def test_more_than_a_hundred_years_are_refused(value: str | timedelta) -> None:
    """A duration that is surely a slip of the pen is refused."""
    expected = f"`gap` must be at most a hundred years, found {value!r}"
    assert f"{expected}\n\nHint: pass a shorter duration" == refusal(value)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(30, "int"), (1.5, "float"), (None, "NoneType"), (b"30m", "bytes"), (pd.NaT, "NaTType")],
)
def test_numbers_have_no_unit_and_are_refused(value: object, kind: str) -> None:
    """What is neither a `timedelta` nor a text is refused, with both shown."""
    why = "a number has no unit; " if kind in {"int", "float"} else ""
    expected = (
        f"`gap` must be a timedelta or text, found {value!r} ({kind})"
        f"\n\nHint: {why}{SPELLING}, or pass timedelta(minutes=30)"
    )
    assert expected == refusal(value)


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    """A number that Python itself refuses to read is refused with a hint."""
    assert "\n\nHint: " in refusal("9" * 5_000 + " days")


def test_fractions_finer_than_a_microsecond_are_refused() -> None:
    """What cannot be kept is refused rather than rounded."""
    assert "\n\nHint: " in refusal("1.0000004 seconds")


def test_the_nanoseconds_of_pandas_are_refused() -> None:
    """A duration of pandas that isn't a whole number of microseconds is refused."""
    assert "\n\nHint: " in refusal(pd.Timedelta(1, "ns"))


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
