"""Days in a time zone, where its clocks change at midnight too."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import numpy as np
import pytest

from sessionkit import SessionRules, SpecError
from sessionkit._instants import instant_of, micros_of
from sessionkit.timeouts._rules import days_of


def day_of(zone: str, at: datetime) -> tuple[datetime, datetime]:
    """Return the day of one instant, in UTC."""
    start, end = days_of(zone, np.array([micros_of(at)]))
    return instant_of(int(start[0])), instant_of(int(end[0]))


@pytest.mark.parametrize(
    ("zone", "at", "start", "hours"),
    [
        pytest.param("UTC", "2026-03-08T00:00", "2026-03-08T00:00", 24, id="midnight"),
        pytest.param("America/New_York", "2026-03-08T20:00", "2026-03-08T05:00", 23, id="spring"),
        pytest.param("America/New_York", "2026-11-01T05:30", "2026-11-01T04:00", 25, id="autumn"),
        pytest.param("Asia/Kathmandu", "2026-06-01T18:15", "2026-06-01T18:15", 24, id="quarter"),
        pytest.param("Australia/Lord_Howe", "2026-10-04T00:00", "2026-10-03T13:30", 23.5, id="30m"),
        pytest.param("Asia/Beirut", "2024-03-31T05:00", "2024-03-30T22:00", 23, id="no midnight"),
        pytest.param(
            "America/Havana", "2025-11-02T05:30", "2025-11-02T04:00", 25, id="two of them"
        ),
        # At 00:01 of the 29th its clocks went back to 23:01 of the 28th; the day had begun.
        pytest.param(
            "America/St_Johns", "2006-10-29T02:45", "2006-10-29T02:30", 25, id="back over"
        ),
        pytest.param(
            "Pacific/Apia", "2011-12-30T09:59", "2011-12-29T10:00", 24, id="before a jump"
        ),
        pytest.param(
            "Pacific/Apia", "2011-12-30T10:00", "2011-12-30T10:00", 24, id="a day skipped"
        ),
        pytest.param("Europe/Berlin", "1960-01-01T00:00", "1959-12-31T23:00", 24, id="before 1970"),
    ],
)
def test_a_day_runs_from_midnight_to_midnight(zone: str, at: str, start: str, hours: float) -> None:
    """Its first instant and the next one's are those that the zone's clocks say."""
    begins = datetime.fromisoformat(start).replace(tzinfo=UTC)
    found = day_of(zone, datetime.fromisoformat(at).replace(tzinfo=UTC))

    assert found == (begins, begins + timedelta(hours=hours))
    assert day_of(zone, begins) == found
    assert day_of(zone, found[1] - timedelta(microseconds=1)) == found


@pytest.mark.parametrize("at", [date.min, date.max])
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_the_first_and_the_last_day_of_the_calendar_have_their_borders(zone: str, at: date) -> None:
    """No instant of a datetime is without a day."""
    at_us = micros_of(datetime.combine(at, time(12), UTC))
    start, end = days_of(zone, np.array([at_us]))
    assert start[0] <= at_us < end[0]


@pytest.mark.parametrize("zone", ["Berlin", "", "../etc", 3, "Europe/Berlin\0"])
def test_an_unknown_time_zone_is_refused(zone: Any) -> None:
    """A wrong name is an error on the driver, with what to write."""
    with pytest.raises(SpecError, match=r"(?s)`midnight` must be .*Hint: write midnight="):
        SessionRules("30 minutes", midnight=zone)
