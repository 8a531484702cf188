"""When a session or a key is over."""

from sessionkit.timeouts._policies import (
    Clock,
    EventTimeGap,
    FirstOf,
    NoTimeout,
    ProcessingTimeGap,
    TimeoutPolicy,
    TimeToLive,
)
from sessionkit.timeouts._rule import Predicate
from sessionkit.timeouts._session_rules import ClosedBy, SessionRules, StateGap

__all__ = [
    "Clock",
    "ClosedBy",
    "EventTimeGap",
    "FirstOf",
    "NoTimeout",
    "Predicate",
    "ProcessingTimeGap",
    "SessionRules",
    "StateGap",
    "TimeToLive",
    "TimeoutPolicy",
]
