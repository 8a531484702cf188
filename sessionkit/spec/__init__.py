"""Specs: what a user writes of a session, or of the state of a key. Valid once they exist."""

from sessionkit.spec.base import AnySpec, Spec
from sessionkit.spec.logic import Aggregates, Events, Functions
from sessionkit.spec.memory import Memory
from sessionkit.spec.options import Emit, Every, Inputs, Lateness, Results, Storage
from sessionkit.spec.session import AnySessionSpec, SessionSpec
from sessionkit.spec.stateful import (
    AnyStatefulSpec,
    BucketResult,
    StatefulSpec,
    by_bucket,
    by_processing_time,
)
from sessionkit.spec.views import BatchTimes, KeyState, KeyTimes, Session, Timer

__all__ = [
    "Aggregates",
    "AnySessionSpec",
    "AnySpec",
    "AnyStatefulSpec",
    "BatchTimes",
    "BucketResult",
    "Emit",
    "Events",
    "Every",
    "Functions",
    "Inputs",
    "KeyState",
    "KeyTimes",
    "Lateness",
    "Memory",
    "Results",
    "Session",
    "SessionSpec",
    "Spec",
    "StatefulSpec",
    "Storage",
    "Timer",
    "by_bucket",
    "by_processing_time",
]
