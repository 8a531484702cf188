"""When sessions close by their own times, and by which rule."""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sessionkit._instants import END_OF_TIME_US, span_us
from sessionkit.timeouts import CLOSED_BY, ClosedBy, SessionRules, days_of

__all__ = ["CODES", "closing_of", "closings"]

Numbers: TypeAlias = npt.NDArray[np.int64]

CODES: Final[dict[ClosedBy, int]] = {name: code for code, name in enumerate(CLOSED_BY)}
"""How the rules are stored."""
BY_TIMES: Final[tuple[ClosedBy, ...]] = ("midnight", "gap", "max_duration")


def closings(
    rules: SessionRules, starts: Numbers, ends: Numbers
) -> tuple[Numbers, npt.NDArray[np.int8]]:
    """
    Return when sessions close by their own times, and by which rule, as a place in `CLOSED_BY`.

    Args:
        rules: The rules.
        starts: The starts of the sessions, in microseconds.
        ends: The ends of their gaps.
    """
    never = np.full(len(starts), END_OF_TIME_US)
    midnight = never if rules.midnight is None else days_of(rules.midnight, starts)[1]
    longest = never if rules.max_duration is None else starts + span_us(rules.max_duration)
    fired = np.stack([midnight, ends, longest])
    codes = np.array([CODES[name] for name in BY_TIMES], np.int8)
    return fired.min(axis=0), codes[fired.argmin(axis=0)]


def closing_of(rules: SessionRules, start_us: int, end_us: int) -> tuple[int, int]:
    """Return when one session closes by its own times, and by which rule; see `closings`."""
    closes, closed_by = closings(rules, np.array([start_us]), np.array([end_us]))
    return int(closes[0]), int(closed_by[0])
