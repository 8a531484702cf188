"""When sessions close by their own times, and by which rule."""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sessionkit._engine.boundaries import days_of
from sessionkit._instants import END_OF_TIME_US, span_us
from sessionkit.timeouts import ClosedBy, SessionRules
from sessionkit.timeouts._session_rules import CLOSED_BY

Numbers: TypeAlias = npt.NDArray[np.int64]

CODES: Final[dict[ClosedBy, int]] = {
    "until": 0,
    "max_events": 1,
    "midnight": 2,
    "gap": 3,
    "starts_with": 4,
    "changes_of": 5,
    "max_duration": 6,
    "idle": 7,
}
"""How the rules are stored. Checkpoints hold these numbers: a new rule gets the next one."""
NAMES: Final = tuple(sorted(CODES, key=CODES.__getitem__))
"""The rules by their codes."""
PRIORITIES: Final = {CODES[name]: place for place, name in enumerate(CLOSED_BY)}
"""By code, the place of a rule among those that fire at one instant: the first one counts."""
BY_TIMES: Final = [name for name in CLOSED_BY if name in {"midnight", "gap", "max_duration"}]


def closings(
    rules: SessionRules, starts: Numbers, ends: Numbers
) -> tuple[Numbers, npt.NDArray[np.int8]]:
    """
    Return when sessions close by their own times, and by which rule, as its code.

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
