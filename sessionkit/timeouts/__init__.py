"""When a session or a key is over, and when a session that is open gives a row."""

from sessionkit.timeouts._policies import (
    Clock,
    EventTimeGap,
    FirstOf,
    NoTimeout,
    ProcessingTimeGap,
    TimeoutPolicy,
    TimeToLive,
)
from sessionkit.timeouts._session_rules import (
    ClosedBy,
    Emit,
    Every,
    Predicate,
    SessionRules,
    StateGap,
)

__all__ = [
    "Clock",
    "ClosedBy",
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
]
