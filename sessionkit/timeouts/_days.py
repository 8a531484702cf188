"""Days in a time zone: from midnight to midnight, whatever its clocks do."""

from datetime import date, datetime, time
from functools import lru_cache
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from sessionkit._instants import BEGINNING_US, END_OF_TIME_US, span_us
from sessionkit.errors import SpecError, with_hint

__all__ = ["check_zone", "days_of"]

Instants: TypeAlias = npt.NDArray[np.int64]

DAY_US: Final = 86_400_000_000
FIRST, EPOCH, LAST = 1, date(1970, 1, 1).toordinal(), date.max.toordinal()


def check_zone(zone: str, name: str) -> None:
    """
    Check the name of a time zone.

    Raises:
        SpecError: There is no such zone on this machine.
    """
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        found = f"`{name}` must be the name of a time zone, found {zone!r}"
        hint = f'write {name}="Europe/Berlin"; on a machine without zones, `pip install tzdata`'
        raise SpecError(with_hint(found, hint)) from error


def days_of(zone: str, times_us: Instants) -> tuple[Instants, Instants]:
    """
    Return the day of each instant in a time zone: its midnight, and the next one, exclusive.

    A day lasts 23 or 25 hours where the clocks change. Where they skip midnight, the day begins at
    the instant to which they jump; where they repeat it, at the first of the two.
    """
    # No zone is a whole day from UTC, so the days next to that of UTC are enough.
    near = {int(day) + step for day in np.unique(times_us // DAY_US) for step in (-1, 0, 1, 2)}
    midnights = np.array(sorted({_midnight_us(zone, day) for day in near}), np.int64)
    places = np.searchsorted(midnights, times_us, side="right")
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
