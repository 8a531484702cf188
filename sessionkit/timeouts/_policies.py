"""The policies: frozen values that say when a session or a key has been idle for too long."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import attrs

from sessionkit._instants import Duration, duration
from sessionkit.errors import SpecError, with_hint

__all__ = ["EventTimeGap", "NoTimeout", "ProcessingTimeGap", "TimeoutPolicy"]

Gap: TypeAlias = Duration | Callable[[Any], timedelta]


def _read_gap(value: Duration) -> timedelta:
    return duration(value, "gap")


def _read_at_most(value: Duration | None) -> timedelta | None:
    return None if value is None else duration(value, "at_most")


@attrs.frozen
class NoTimeout:
    """Never wake a key: its state stays until the user's code removes it."""


@attrs.frozen
class ProcessingTimeGap:
    """
    Wake a key after a time without events, counted on the engine's clock (processing time).

    Spark runs a micro-batch at every trigger under this policy, with or without data, and with the
    `availableNow` trigger it never ends.

    Attributes:
        gap: How long a key must have been silent, a `timedelta` or a text such as `"30 minutes"`.

    Raises:
        SpecError: The gap is no duration, or not positive.
    """

    gap: timedelta = attrs.field(converter=_read_gap)


@attrs.frozen
class EventTimeGap:
    """
    End a session after a time without events, counted in event time.

    The session is over once the watermark reaches its end: its last event plus the gap.

    Attributes:
        gap: The gap, a `timedelta` or a text such as `"30 minutes"`; or a function of the event
            that returns a `timedelta`, for a gap of each event's own. An event for which it is
            not positive, or longer than `at_most`, is quarantined.
        at_most: The longest gap that the function may return. Wanted with a function only.
        exact_gap: What becomes of an event exactly one gap after the last one. `"joins"`: it
            belongs to the session, as in Spark, Flink and Kafka Streams. `"splits"`: it starts a
            new one, as in Beam.

    Raises:
        SpecError: The gap is no duration or not positive, or `at_most` is missing or too much.
    """

    gap: Gap = attrs.field()
    at_most: timedelta | None = attrs.field(
        default=None,
        kw_only=True,
        converter=_read_at_most,
    )
    exact_gap: Literal["joins", "splits"] = attrs.field(default="joins", kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Read the gap and check the options against each other."""
        if self.exact_gap not in ("joins", "splits"):
            found = f"`exact_gap` must be 'joins' or 'splits', found {self.exact_gap!r}"
            raise SpecError(with_hint(found, "leave it out for Spark's rule, 'joins'"))
        if callable(self.gap) and self.at_most is None:
            found = "`gap` is a function, so its longest answer must be declared"
            raise SpecError(with_hint(found, 'add at_most="1 hour", or what fits the function'))
        if not callable(self.gap):
            if self.at_most is not None:
                found = f"`at_most` is for a gap that is a function, found the gap {self.gap!r}"
                raise SpecError(with_hint(found, "leave `at_most` out"))
            object.__setattr__(self, "gap", duration(self.gap, "gap"))

    @property
    def longest(self) -> timedelta:
        """The longest gap that an event can have."""
        if self.at_most is not None:
            return self.at_most
        return duration(self.gap, "gap")


TimeoutPolicy: TypeAlias = NoTimeout | EventTimeGap | ProcessingTimeGap
