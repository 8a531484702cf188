"""Specs: what a user writes of a session, or of the state of a key. Valid once they exist."""

from sessionkit.spec.session import AnySessionSpec, SessionSpec
from sessionkit.spec.shared import AnySpec, Spec
from sessionkit.spec.stateful import (
    AnyStatefulSpec,
    BucketResult,
    StatefulSpec,
    by_bucket,
    by_frame,
)
from sessionkit.spec.views import BatchTimes, KeyState, KeyTimes, Session, Timer

__all__ = [
    "AnySessionSpec",
    "AnySpec",
    "AnyStatefulSpec",
    "BatchTimes",
    "BucketResult",
    "KeyState",
    "KeyTimes",
    "Session",
    "SessionSpec",
    "Spec",
    "StatefulSpec",
    "Timer",
    "by_bucket",
    "by_frame",
]
