"""Days in a time zone, whose clocks may change at midnight too."""

from datetime import date, datetime, time
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np

from sessionkit._arrays import Numbers
from sessionkit._instants import BEGINNING_US, END_OF_TIME_US, span_us

DAY_US: Final = 86_400_000_000
FIRST, EPOCH, LAST = 1, date(1970, 1, 1).toordinal(), date.max.toordinal()


def days_of(zone: str, times_us: Numbers) -> tuple[Numbers, Numbers]:
    """
    Return the day of each instant in a time zone: its midnight, and the next one, exclusive.

    A day lasts 23 or 25 hours where the clocks change. Where they skip midnight, the day begins at
    the instant to which they jump; where they repeat it, at the first of the two.
    """
    # No zone is a whole day from UTC, so the days next to that of UTC are enough.
    near = {int(day) + step for day in np.unique(times_us // DAY_US) for step in (-1, 0, 1, 2)}
    midnights = np.array(sorted({_midnight_us(zone, day) for day in near}), np.int64)
    places = np.searchsorted(midnights, times_us, side="right")
    # Of the midnights 0 24 48, a time of 30 has two at or before it: its day is 24 to 48.
    return midnights[places - 1], midnights[places]


@lru_cache(maxsize=10_000)
def _midnight_us(zone: str, day: int) -> int:
    """Return the first instant of a day, counted from 1970-01-01, in a time zone."""
    if not FIRST <= EPOCH + day <= LAST:
        return BEGINNING_US if day < 0 else END_OF_TIME_US
    # Without a `fold`, Python takes the first of two, and the offset from before a jump.
    midnight = datetime.combine(date.fromordinal(EPOCH + day), time(), ZoneInfo(zone))
    offset = midnight.utcoffset()
    return day * DAY_US - (span_us(offset) if offset else 0)
