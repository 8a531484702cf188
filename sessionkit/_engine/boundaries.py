"""
The boundary rules, one function each: which events are late, what has ended, what belongs together.

Every other module calls these functions, so each comparison operator stands in one place. They
take microseconds since the epoch, as integers or as NumPy arrays, and compare in event time unless
they say otherwise. Where Spark's `session_window` has a rule, they follow it.
"""

from typing import Final, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from sessionkit._instants import BEGINNING_US

Instants: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

MILLISECOND_US: Final = 1_000


def window_end(event_us: Instants, gap_us: int | Instants) -> Instants:
    """Return the end of an event's own window, exclusive: event time `+` gap."""
    return event_us + gap_us


@overload
def starts_new_session(event_us: int, end_us: int, *, gap_inclusive: bool) -> bool: ...
@overload
def starts_new_session(event_us: Instants, end_us: Instants, *, gap_inclusive: bool) -> Flags: ...
def starts_new_session(
    event_us: int | Instants, end_us: int | Instants, *, gap_inclusive: bool
) -> bool | Flags:
    """
    Return whether an event comes after the end of the previous session: event time `>` end.

    So an event exactly one gap after the last one joins the session. With `gap_inclusive=False`,
    the operator is `>=`, and that event starts a new session.
    """
    return event_us > end_us if gap_inclusive else event_us >= end_us


@overload
def is_over(end_us: int, watermark_us: int) -> bool: ...
@overload
def is_over(end_us: Instants, watermark_us: int) -> Flags: ...
def is_over(end_us: int | Instants, watermark_us: int) -> bool | Flags:
    """Return whether a session has ended: end `<=` watermark."""
    return end_us <= watermark_us


@overload
def is_late(end_us: int, watermark_us: int) -> bool: ...
@overload
def is_late(end_us: Instants, watermark_us: int) -> Flags: ...
def is_late(end_us: int | Instants, watermark_us: int) -> bool | Flags:
    """
    Return whether an event is late: the end of its window `<=` watermark.

    Under `judged_by="event"`, the window is the event's own, event time + gap. Under
    `judged_by="session"`, it is that of the session that the event would join.
    """
    return end_us <= watermark_us


def is_late_in_order(event_us: Instants, watermark_us: int) -> Flags:
    """
    Return whether an event is too late to be processed in time order: event time `<=` watermark.

    The same comparison says when a buffered event is due.
    """
    return event_us <= watermark_us


@overload
def has_passed(timer_us: int, clock_us: int) -> bool: ...
@overload
def has_passed(timer_us: Instants, clock_us: int) -> Flags: ...
def has_passed(timer_us: int | Instants, clock_us: int) -> bool | Flags:
    """
    Return whether the clock of a named timer has passed it: timer `<` clock.

    The clock is the watermark, or the processing time of the micro-batch. The comparison is
    strict, as for Spark's own timeouts. The end of a session or a key has another rule, `is_over`.
    """
    return timer_us < clock_us


def latest_before_jump(times_us: Instants, max_jump_us: int) -> int:
    """
    Return the latest of some times, at least one, that no silence separates from the median.

    From the middle one on, in order, a step `>` `max_jump` is a jump. The middle one is the earlier
    of two: where one of two events is wrong, it's the one ahead.
    """
    # From the middle one, the times 1 2 3 90 91 are 3 90 91, with the steps 87 and 1. With a
    # `max_jump` of 10 the first is a jump, so 3 is the latest time before it.
    onwards = np.sort(times_us)[(len(times_us) - 1) // 2 :]
    jumps = np.flatnonzero(np.diff(onwards) > max_jump_us)
    return int(onwards[jumps[0] if len(jumps) else -1])


def watermark_in_force(watermark_ms: int) -> int:
    """
    Return the watermark, in microseconds, by which sessions close and events are late.

    It's Spark's watermark. There is none while that is still 0: before the first event, and while
    all events happened before 1970.
    """
    return watermark_ms * MILLISECOND_US if watermark_ms > 0 else BEGINNING_US


def event_that_moves_to(instant_us: int, delay_ms: int) -> int:
    """
    Return the earliest event time, in microseconds, that moves the watermark to an instant.

    The watermark is the latest event time in whole milliseconds, less the delay. It begins at 1.
    """
    # `-(-a // b)` is a / b rounded up: 2,500 µs are 3 ms.
    return (max(-(-instant_us // MILLISECOND_US), 1) + delay_ms) * MILLISECOND_US


def timer_ms(due_us: int, watermark_ms: int) -> int:
    """
    Return the timer to set so that Spark calls once the watermark reaches an instant.

    Spark's event-time timer fires when the timer `<` the watermark, in milliseconds. It can't
    be set before that watermark, nor at zero.
    """
    # Due at 2,500 µs: the timer is at 2 ms, and fires at 3 ms.
    return max(-(-due_us // MILLISECOND_US) - 1, watermark_ms, 1)


def processing_timer_ms(due_us: int, now_ms: int) -> int:
    """
    Return the delay to set so that Spark calls once the processing time reaches an instant.

    Spark's processing-time timer fires in the first micro-batch whose time is after now `+`
    delay. The delay must be positive.
    """
    # Due at 2,500 µs, and now it's 1 ms: the delay of 1 ms is over after 2 ms, so at 3 ms.
    return max(-(-due_us // MILLISECOND_US) - 1 - now_ms, 1)
