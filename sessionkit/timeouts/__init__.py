"""When a key must be woken: the policies, and the boundary rules between two instants."""

from sessionkit.timeouts._boundaries import (
    is_late,
    is_late_in_order,
    is_over,
    starts_new_session,
    timer_ms,
    watermark_in_force,
    window_end,
)
from sessionkit.timeouts._policies import EventTimeGap, NoTimeout, ProcessingTimeGap, TimeoutPolicy

__all__ = [
    "EventTimeGap",
    "NoTimeout",
    "ProcessingTimeGap",
    "TimeoutPolicy",
    "is_late",
    "is_late_in_order",
    "is_over",
    "starts_new_session",
    "timer_ms",
    "watermark_in_force",
    "window_end",
]
