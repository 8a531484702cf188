"""
The clocks of a micro-batch, read from Spark's group state, and the timer that it arms there.

The end of a batch is here too: a watermark that the user may set.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import attrs

from sessionkit._engine.boundaries import processing_timer_ms, timer_ms, watermark_in_force
from sessionkit._instants import (
    BEGINNING_US,
    END_OF_TIME_US,
    FIRST_INSTANT_US,
    LAST_INSTANT_US,
    micros_of,
)
from sessionkit.errors import SpecError, with_hint
from sessionkit.spec.shared import AnySpec
from sessionkit.timeouts import Clock
from sessionkit.typing import GroupStateLike

MILLISECOND_US: Final = 1_000


@attrs.frozen
class BatchClocks:
    """
    The clocks of a micro-batch, in microseconds, the same for every key and row of it.

    Attributes:
        watermark_us: The watermark in force.
        processing_us: The processing time.
        by_events_us: How far events have moved the watermark; None where that is all the way.
        whole: Whether all events of a group come at once, as on a batch.
        since_us: The watermark at which the query began with a seed; None where it has none.
        idle_us: How far a watermark of their own had led groups by then, where a source was idle.
    """

    watermark_us: int
    processing_us: int
    by_events_us: int | None = None
    whole: bool = False
    since_us: int | None = None
    idle_us: int = BEGINNING_US

    @property
    def at_the_beginning(self) -> "BatchClocks":
        """The same processing time, before there is a watermark."""
        return attrs.evolve(self, watermark_us=BEGINNING_US)


def clocks_of(watermark_ms: int, state: GroupStateLike) -> BatchClocks:
    """Return the clocks of the micro-batch in which Spark calls a group, at its watermark."""
    now_us = state.getCurrentProcessingTimeMs() * MILLISECOND_US
    return BatchClocks(watermark_in_force(watermark_ms), now_us)


def arm(
    clock: Clock | None, due: Mapping[Clock, int], state: GroupStateLike, watermark_ms: int
) -> None:
    """
    Let Spark call again when a clock reaches what is due; after `update`, which clears the timer.

    Args:
        clock: The clock by which Spark wakes the group.
        due: The first instant, in microseconds, that each clock must reach.
        state: Spark's group state.
        watermark_ms: Spark's watermark.
    """
    if clock == "event_time" and clock in due:
        state.setTimeoutTimestamp(timer_ms(due[clock], watermark_ms))
    if clock == "processing_time" and due:
        state.setTimeoutDuration(_delay_ms(due, state.getCurrentProcessingTimeMs()))


def check_until(spec: AnySpec, until: datetime) -> None:
    """
    Check the end of a batch.

    Raises:
        SpecError: It has no time zone or is outside the years 1 to 9999 in UTC, or the spec has no
            event time.
    """
    if spec.event_time is None:
        found = "`until` is an event time, and the spec has no `event_time`"
        raise SpecError(with_hint(found, "leave it out"))
    if until.utcoffset() is None:
        found = f"`until` must be a datetime with a time zone, found {until!r}"
        raise SpecError(with_hint(found, "write datetime(..., tzinfo=UTC)"))
    if not FIRST_INSTANT_US <= micros_of(until) <= LAST_INSTANT_US:
        found = f"`until` is outside the years 1 to 9999 in UTC: {until!r}"
        raise SpecError(with_hint(found, "write it in UTC: datetime(..., tzinfo=UTC)"))


def end_us(until: datetime | None) -> int:
    """
    Return the watermark at the end of a batch, in microseconds.

    It is the microsecond before `until`: an event at `until` may still join a session that ends
    just then.
    """
    return END_OF_TIME_US if until is None else micros_of(until) - 1


def _delay_ms(due: Mapping[Clock, int], now_ms: int) -> int:
    """Return how long Spark may leave a group alone under a clock in processing time."""
    if "event_time" in due:
        # No timer of Spark's waits for the watermark under this clock: look in every micro-batch.
        return 1
    return processing_timer_ms(due["processing_time"], now_ms)


def watermark_ms(spec: AnySpec, state: GroupStateLike) -> int:
    """Return Spark's watermark of a micro-batch; 0 for none."""
    return 0 if spec.delay_ms is None else state.getCurrentWatermarkMs()
