"""
The boundary rules: which events are late, what has ended, and what belongs together.

Every other module calls these functions, so each comparison operator is written once. They take
microseconds since the epoch, as integers or NumPy arrays, and compare in event time except where
noted. They follow the rules of Spark's `session_window`, where it has any.
"""

from typing import Final, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from sessionkit._instants import BEGINNING_US

Instants: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

MILLISECOND_US: Final = 1_000


def window_end(event_us: Instants, gap_us: int | Instants) -> Instants:
    """Return the exclusive end of the window of a single event: event time `+` gap."""
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

    Under `judged_by="event"`, the window is event time + gap. Under `judged_by="session"`, it is
    the window of the session that the event would join.
    """
    return end_us <= watermark_us


def is_late_in_order(event_us: Instants, watermark_us: int) -> Flags:
    """
    Return whether an event is too late to be processed in time order: event time `<=` watermark.

    A buffered event is due by the same comparison.
    """
    return event_us <= watermark_us


@overload
def has_passed(timer_us: int, clock_us: int) -> bool: ...
@overload
def has_passed(timer_us: Instants, clock_us: int) -> Flags: ...
def has_passed(timer_us: int | Instants, clock_us: int) -> bool | Flags:
    """
    Return whether the clock of a named timer has passed it: timer `<` clock.

    The clock is the watermark, or the processing time of the micro-batch. The comparison is strict,
    as for Spark's own timeouts. For the end of a session or a key, see `is_over`.
    """
    return timer_us < clock_us


def latest_before_jump(times_us: Instants, max_jump_us: int) -> int:
    """
    Return the latest time before the first jump after the median; needs at least one time.

    A jump is a step `>` `max_jump` between sorted times. The median of an even number of times is
    the lower one: of two events, the later is the one with a wrong clock.
    """
    # Of the times 1 2 3 90 91, those from the median on are 3 90 91, with the steps 87 and 1. With
    # a `max_jump` of 10, the first step is a jump, so 3 is the latest time before it.
    onwards = np.sort(times_us)[(len(times_us) - 1) // 2 :]
    jumps = np.flatnonzero(np.diff(onwards) > max_jump_us)
    return int(onwards[jumps[0] if len(jumps) else -1])


def watermark_in_force(watermark_ms: int) -> int:
    """
    Return the watermark, in microseconds, that closes sessions and makes events late.

    Spark's watermark is 0 before the first event, and while all events are before 1970: then no
    watermark is in force.
    """
    return watermark_ms * MILLISECOND_US if watermark_ms > 0 else BEGINNING_US


def event_that_moves_to(instant_us: int, delay_ms: int) -> int:
    """
    Return the earliest event time, in microseconds, that moves the watermark to an instant.

    The watermark is the latest event time in whole milliseconds, less the delay. It begins at 1.
    """
    # `-(-a // b)` rounds up: 2,500 µs are 3 ms.
    return (max(-(-instant_us // MILLISECOND_US), 1) + delay_ms) * MILLISECOND_US


def timer_ms(due_us: int, watermark_ms: int) -> int:
    """
    Return the timer, in milliseconds, with which Spark calls once the watermark reaches an instant.

    Spark's event-time timer fires when timer `<` watermark, in milliseconds. It must be positive
    and not before the watermark.
    """
    # Due at 2,500 µs: the timer at 2 ms fires at 3 ms.
    return max(-(-due_us // MILLISECOND_US) - 1, watermark_ms, 1)


def processing_timer_ms(due_us: int, now_ms: int) -> int:
    """
    Return the delay, in milliseconds, with which Spark calls once the processing time is reached.

    Spark's processing-time timer fires in the first micro-batch whose time is after now `+`
    delay. The delay must be positive.
    """
    # Due at 2,500 µs, at 1 ms: with a delay of 1 ms, the timer fires after 2 ms, so at 3 ms.
    return max(-(-due_us // MILLISECOND_US) - 1 - now_ms, 1)
