"""
Sessions on Spark Structured Streaming from plain functions.

A user writes an attrs class for the event, one for the state and one for the result, and plain
functions over them. The names here need no Spark; what runs on Spark is in `sessionkit.spark`.
"""

from typing import TYPE_CHECKING

from sessionkit._package import lazy_names, warn_of_another

__all__ = [
    "Aggregates",
    "BalanceError",
    "BatchTimes",
    "BucketResult",
    "Counts",
    "DecimalType",
    "DriverError",
    "EventTimeGap",
    "Events",
    "Every",
    "ExpectationError",
    "FieldTypeError",
    "FirstOf",
    "Functions",
    "Inputs",
    "KeyState",
    "KeyTimes",
    "Lateness",
    "Memory",
    "NoTimeout",
    "NotPicklableError",
    "ProcessingTimeGap",
    "RenamedFrom",
    "Results",
    "SchemaError",
    "Session",
    "SessionRules",
    "SessionSpec",
    "SessionkitError",
    "SpecError",
    "StateCorruptedError",
    "StateError",
    "StateMismatchError",
    "StateValueError",
    "StatefulSpec",
    "Storage",
    "TimeToLive",
    "Timer",
    "TimerError",
    "UnsupportedError",
    "UserFunctionError",
    "by_bucket",
    "by_processing_time",
]

if TYPE_CHECKING:
    from sessionkit._engine.counts import Counts
    from sessionkit._package import __version__ as __version__
    from sessionkit.errors import (
        BalanceError,
        DriverError,
        ExpectationError,
        FieldTypeError,
        NotPicklableError,
        SchemaError,
        SessionkitError,
        SpecError,
        StateCorruptedError,
        StateError,
        StateMismatchError,
        StateValueError,
        TimerError,
        UnsupportedError,
        UserFunctionError,
    )
    from sessionkit.spec import (
        Aggregates,
        BatchTimes,
        BucketResult,
        Events,
        Every,
        Functions,
        Inputs,
        KeyState,
        KeyTimes,
        Lateness,
        Memory,
        Results,
        Session,
        SessionSpec,
        StatefulSpec,
        Storage,
        Timer,
        by_bucket,
        by_processing_time,
    )
    from sessionkit.state import DecimalType, RenamedFrom
    from sessionkit.timeouts import (
        EventTimeGap,
        FirstOf,
        NoTimeout,
        ProcessingTimeGap,
        SessionRules,
        TimeToLive,
    )
else:
    # Loaded when first used: pytest imports this package in every run of its users.
    __getattr__, __dir__ = lazy_names(
        __name__,
        [*__all__, "__version__"],
        "sessionkit.errors",
        "sessionkit.timeouts",
        "sessionkit.state",
        "sessionkit.spec",
        "sessionkit._engine.counts",
        "sessionkit._package",
    )

warn_of_another()
