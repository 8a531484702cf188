"""The scale of a picture: which instants it spans, where an instant lies, and round ticks."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import attrs

from sessionkit._instants import instant_of, micros_of
from sessionkit.testing.scripts.literals import clock_text

__all__ = ["Axis"]

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
DAY_US: Final = 86_400 * SECOND_US
STEPS_US: Final = (
    *(digit * 10**power for power in range(6) for digit in (1, 2, 5)),
    *(seconds * SECOND_US for seconds in (1, 2, 5, 10, 15, 30)),
    *(minutes * MINUTE_US for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * 3_600 * SECOND_US for hours in (1, 2, 3, 6, 12)),
    *(days * DAY_US for days in (1, 2, 7, 14, 28, 91)),
    *(digit * 10**power * 365 * DAY_US for power in range(4) for digit in (1, 2, 5)),
)
SPACE_BETWEEN_LABELS: Final = 3


@attrs.frozen
class Axis:
    """The scale of a picture: the instants at which it begins and ends, in microseconds."""

    first_us: int
    last_us: int

    @classmethod
    def over(cls, instants: Iterable[datetime]) -> "Axis":
        """Make an axis that spans these instants, of which there is one at least."""
        micros = sorted(map(micros_of, instants))
        return cls(micros[0], micros[-1] if micros[0] < micros[-1] else micros[0] + MINUTE_US)

    def place(self, instant: datetime) -> float:
        """Return where an instant lies: 0 at the beginning, 1 at the end, or outside of these."""
        return (micros_of(instant) - self.first_us) / (self.last_us - self.first_us)

    def ticks(self, width: int) -> list[tuple[datetime, str]]:
        """Return round instants and their labels, as many as have room in a width, in letters."""
        span = self.last_us - self.first_us
        step = next(step for step in STEPS_US if span * _room(step) <= step * width)
        first = -(-self.first_us // step) * step
        instants = map(instant_of, range(first, self.last_us + 1, step))
        return [(instant, _label(instant, step)) for instant in instants]


def _label(instant: datetime, step_us: int) -> str:
    """Return the day of a tick, or its time of day where there are several ticks a day."""
    if step_us >= DAY_US:
        return f"{instant:%Y-%m-%d}"
    return clock_text(instant).rpartition(" ")[2]


def _room(step_us: int) -> int:
    return len(_label(instant_of(step_us), step_us)) + SPACE_BETWEEN_LABELS
