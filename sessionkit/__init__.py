"""
Sessions on Spark Structured Streaming from plain functions.

A user writes an attrs class for the event, one for the state and one for the result, and plain
functions over them. The names here need no Spark; what runs on Spark is in `sessionkit.spark`.
"""

from sessionkit._counts import Counts
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
    UserFunctionError,
)
from sessionkit.session import Session, SessionSpec
from sessionkit.state import DecimalType
from sessionkit.timeouts import EventTimeGap, NoTimeout, ProcessingTimeGap

__all__ = [
    "Counts",
    "DecimalType",
    "EventTimeGap",
    "ExpectationError",
    "FieldTypeError",
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
    "UserFunctionError",
]
