"""When a session or a key ends: the policies, and the boundary rules between two instants."""

from sessionkit.timeouts._boundaries import (
    event_that_moves_to,
    has_passed,
    is_late,
    is_late_in_order,
    is_over,
    latest_before_jump,
    processing_timer_ms,
    starts_new_session,
    timer_ms,
    watermark_in_force,
    window_end,
)
from sessionkit.timeouts._days import days_of
from sessionkit.timeouts._every import Emit, Every, read_emit
from sessionkit.timeouts._policies import (
    Clock,
    Deadline,
    EventTimeGap,
    FirstOf,
    NoTimeout,
    ProcessingTimeGap,
    TimeoutPolicy,
    TimeToLive,
    deadlines_of,
)
from sessionkit.timeouts._session_rules import (
    CLOSED_BY,
    ClosedBy,
    Predicate,
    SessionRules,
    StateGap,
)

__all__ = [
    "CLOSED_BY",
    "Clock",
    "ClosedBy",
    "Deadline",
    "Emit",
    "EventTimeGap",
    "Every",
    "FirstOf",
    "NoTimeout",
    "Predicate",
    "ProcessingTimeGap",
    "SessionRules",
    "StateGap",
    "TimeToLive",
    "TimeoutPolicy",
    "days_of",
    "deadlines_of",
    "event_that_moves_to",
    "has_passed",
    "is_late",
    "is_late_in_order",
    "is_over",
    "latest_before_jump",
    "processing_timer_ms",
    "read_emit",
    "starts_new_session",
    "timer_ms",
    "watermark_in_force",
    "window_end",
]
