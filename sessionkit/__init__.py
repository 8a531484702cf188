"""
Sessions on Spark Structured Streaming from plain functions.

A user writes an attrs class for the event, one for the state and one for the result, and plain
functions over them. The names here need no Spark; what runs on Spark is in `sessionkit.spark`.
"""

from sessionkit._engine.counts import Counts
from sessionkit._key_view import BatchTimes, KeyState, KeyTimes, Timer
from sessionkit.errors import (
    ExpectationError,
    FieldTypeError,
    NotPicklableError,
    SchemaError,
    ScriptError,
    SessionkitError,
    SpecError,
    StateCorruptedError,
    StateError,
    StateMismatchError,
    StateValueError,
    TimerError,
    UserFunctionError,
)
from sessionkit.session import Session, SessionSpec
from sessionkit.state import DecimalType
from sessionkit.stateful import BucketResult, StatefulSpec
from sessionkit.timeouts import EventTimeGap, FirstOf, NoTimeout, ProcessingTimeGap, TimeToLive

__all__ = [
    "BatchTimes",
    "BucketResult",
    "Counts",
    "DecimalType",
    "EventTimeGap",
    "ExpectationError",
    "FieldTypeError",
    "FirstOf",
    "KeyState",
    "KeyTimes",
    "NoTimeout",
    "NotPicklableError",
    "ProcessingTimeGap",
    "SchemaError",
    "ScriptError",
    "Session",
    "SessionSpec",
    "SessionkitError",
    "SpecError",
    "StateCorruptedError",
    "StateError",
    "StateMismatchError",
    "StateValueError",
    "StatefulSpec",
    "TimeToLive",
    "Timer",
    "TimerError",
    "UserFunctionError",
]
