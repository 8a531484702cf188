"""Everything that a unit test of a streaming job needs, without Spark and without a JVM."""

from sessionkit._inspection import OpenSession
from sessionkit.testing._driver import BatchResult, SessionDriver, Snapshot
from sessionkit.testing._frames import ClosedSession, Rejection
from sessionkit.testing._group_state import FakeGroupState, StoredGroup
from sessionkit.testing._run_group import run_group

__all__ = [
    "BatchResult",
    "ClosedSession",
    "FakeGroupState",
    "OpenSession",
    "Rejection",
    "SessionDriver",
    "Snapshot",
    "StoredGroup",
    "run_group",
]
