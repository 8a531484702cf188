"""
Sessions on Spark Structured Streaming from plain functions.

A user writes an attrs class for the event, one for the state and one for the result, and plain
functions over them. The names here need no Spark; what runs on Spark is in `sessionkit.spark`.
"""

from typing import TYPE_CHECKING

from sessionkit._package import lazy_names, warn_of_another

__all__ = [
    "Aggregates",
    "Counts",
    "EventTimeGap",
    "Events",
    "Every",
    "FirstOf",
    "Functions",
    "Inputs",
    "KeyState",
    "KeyTimes",
    "Lateness",
    "Memory",
    "NoTimeout",
    "ProcessingTimeGap",
    "Results",
    "SchemaError",
    "Session",
    "SessionRules",
    "SessionSpec",
    "SessionkitError",
    "SpecError",
    "StatefulSpec",
    "Storage",
    "TimeToLive",
    "UserFunctionError",
]

if TYPE_CHECKING:
    from sessionkit._engine.counts import Counts
    from sessionkit._package import __version__ as __version__
    from sessionkit.errors import SchemaError, SessionkitError, SpecError, UserFunctionError
    from sessionkit.spec.logic import Aggregates, Events, Functions
    from sessionkit.spec.memory import Memory
    from sessionkit.spec.options import Every, Inputs, Lateness, Results, Storage
    from sessionkit.spec.session import SessionSpec
    from sessionkit.spec.stateful import StatefulSpec
    from sessionkit.spec.views import KeyState, KeyTimes, Session
    from sessionkit.timeouts._policies import (
        EventTimeGap,
        FirstOf,
        NoTimeout,
        ProcessingTimeGap,
        TimeToLive,
    )
    from sessionkit.timeouts._session_rules import SessionRules
else:
    # Loaded when first used: pytest imports this package in every run of its users.
    __getattr__, __dir__ = lazy_names(
        __name__,
        [*__all__, "__version__"],
        "sessionkit.errors",
        "sessionkit.timeouts._policies",
        "sessionkit.timeouts._session_rules",
        "sessionkit.spec.logic",
        "sessionkit.spec.memory",
        "sessionkit.spec.options",
        "sessionkit.spec.session",
        "sessionkit.spec.stateful",
        "sessionkit.spec.views",
        "sessionkit._engine.counts",
        "sessionkit._package",
    )

warn_of_another()
