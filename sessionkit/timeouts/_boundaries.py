"""
The boundary rules, one function each: who is late, what is over, what belongs together.

Every other module asks here, so that each comparison operator stands in one place. All take
microseconds since the epoch, as plain integers or as NumPy arrays of them, and compare in event
time unless they say otherwise. The rules are those of Spark's `session_window` where it has one.
"""

from typing import Final, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from sessionkit._instants import BEGINNING_US

__all__ = [
    "has_passed",
    "is_late",
    "is_late_in_order",
    "is_over",
    "processing_timer_ms",
    "starts_new_session",
    "timer_ms",
    "watermark_in_force",
    "window_end",
]

Instants: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

MILLISECOND_US: Final = 1_000


@overload
def window_end(event_us: int, gap_us: int) -> int: ...
@overload
def window_end(event_us: Instants, gap_us: int | Instants) -> Instants: ...
def window_end(event_us: int | Instants, gap_us: int | Instants) -> int | Instants:
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
    Tell whether an event lies behind the end of the session before it: event time `>` end.

    So an event exactly one gap after the last one joins. Under `gap_inclusive=False` the operator
    is `>=`, and it starts a session of its own.
    """
    return event_us > end_us if gap_inclusive else event_us >= end_us


@overload
def is_over(end_us: int, watermark_us: int) -> bool: ...
@overload
def is_over(end_us: Instants, watermark_us: int) -> Flags: ...
def is_over(end_us: int | Instants, watermark_us: int) -> bool | Flags:
    """Tell whether a session is over: end `<=` watermark."""
    return end_us <= watermark_us


@overload
def is_late(end_us: int, watermark_us: int) -> bool: ...
@overload
def is_late(end_us: Instants, watermark_us: int) -> Flags: ...
def is_late(end_us: int | Instants, watermark_us: int) -> bool | Flags:
    """
    Tell whether an event is late: the end of its window `<=` watermark.

    Under `late_by="event"` that window is the event's own, event time + gap; under
    `late_by="session"` it is that of the session which the event would join.
    """
    return end_us <= watermark_us


@overload
def is_late_in_order(event_us: int, watermark_us: int) -> bool: ...
@overload
def is_late_in_order(event_us: Instants, watermark_us: int) -> Flags: ...
def is_late_in_order(event_us: int | Instants, watermark_us: int) -> bool | Flags:
    """
    Tell whether an event comes too late to be folded in time order: event time `<=` watermark.

    The same comparison says, of an event that is held, that its turn has come.
    """
    return event_us <= watermark_us


@overload
def has_passed(timer_us: int, clock_us: int) -> bool: ...
@overload
def has_passed(timer_us: Instants, clock_us: int) -> Flags: ...
def has_passed(timer_us: int | Instants, clock_us: int) -> bool | Flags:
    """
    Tell whether the clock of a named timer has passed it: timer `<` clock.

    The clock is the watermark, or the processing time of the micro-batch. Strict, as Spark's own
    timeouts are; the end of a session or of a key is another rule, `is_over`.
    """
    return timer_us < clock_us


def watermark_in_force(hard_ms: int, retention_ms: int) -> int:
    """
    Return the watermark, in microseconds, by which sessions close and events are late.

    Spark drops rows at or behind its own (hard) watermark before any Python sees them. So the
    hard watermark is declared one retention later than the user's delay asks for, and this one is
    hard `+` retention. There is none while the hard one is still 0.
    """
    if hard_ms <= 0:
        return BEGINNING_US
    return (hard_ms + retention_ms) * MILLISECOND_US


def timer_ms(due_us: int, hard_ms: int, retention_ms: int) -> int:
    """
    Return the timer to arm so that Spark calls once the watermark in force reaches an instant.

    Spark's event-time timer goes off when the timer `<` the hard watermark, in milliseconds, and
    cannot be set behind that watermark nor at zero.
    """
    return max(-(-due_us // MILLISECOND_US) - 1 - retention_ms, hard_ms, 1)


def processing_timer_ms(due_us: int, now_ms: int) -> int:
    """
    Return the delay to arm so that Spark calls once the processing time reaches an instant.

    Spark's processing-time timer goes off in the first micro-batch whose time is behind now `+`
    delay, and the delay must be positive.
    """
    return max(-(-due_us // MILLISECOND_US) - 1 - now_ms, 1)
