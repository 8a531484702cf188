"""Everything that a unit test of a streaming job needs, without Spark and without a JVM."""

from typing import TYPE_CHECKING

from sessionkit._lazy import lazy_names

__all__ = [
    "BatchResult",
    "ExplainedRejection",
    "ExplainedSession",
    "Explanation",
    "FakeGroupState",
    "KeyRow",
    "OpenSession",
    "Rejection",
    "SessionDriver",
    "SessionEvent",
    "SessionRow",
    "Snapshot",
    "StatefulDriver",
    "Step",
    "StoredGroup",
    "StoredKey",
    "add",
    "add_row",
    "add_table",
    "advance_processing_time",
    "advance_watermark_to",
    "at",
    "events_table",
    "expect_counts",
    "expect_nothing",
    "expect_open",
    "expect_rejected",
    "expect_results",
    "expect_rows",
    "expect_sessions",
    "expect_stored",
    "explain_session",
    "frame_from",
    "hours",
    "minutes",
    "restart",
    "run_batch",
    "run_group",
    "run_script",
    "run_until_idle",
    "seconds",
]

if TYPE_CHECKING:
    from sessionkit._engine.keys.program import StoredKey
    from sessionkit._engine.sessions.view import OpenSession
    from sessionkit.testing.drivers.kinds import SessionDriver, StatefulDriver
    from sessionkit.testing.drivers.query import Snapshot
    from sessionkit.testing.drivers.results import (
        BatchResult,
        KeyRow,
        Rejection,
        SessionEvent,
        SessionRow,
    )
    from sessionkit.testing.explain import (
        ExplainedRejection,
        ExplainedSession,
        Explanation,
        explain_session,
    )
    from sessionkit.testing.fakes.group_state import FakeGroupState, StoredGroup
    from sessionkit.testing.fakes.run_group import run_group
    from sessionkit.testing.literals import at, events_table, frame_from, hours, minutes, seconds
    from sessionkit.testing.scripts.script import run_script
    from sessionkit.testing.scripts.steps import (
        Step,
        add,
        add_row,
        add_table,
        advance_processing_time,
        advance_watermark_to,
        expect_counts,
        expect_nothing,
        expect_open,
        expect_rejected,
        expect_results,
        expect_rows,
        expect_sessions,
        expect_stored,
        restart,
        run_batch,
        run_until_idle,
    )
else:
    # Loaded when first used: pytest imports this package in every run of its users.
    __getattr__, __dir__ = lazy_names(
        __name__,
        __all__,
        "sessionkit.testing.literals",
        "sessionkit.testing.fakes.group_state",
        "sessionkit.testing.fakes.run_group",
        "sessionkit.testing.drivers.query",
        "sessionkit.testing.drivers.results",
        "sessionkit.testing.drivers.kinds",
        "sessionkit.testing.scripts.steps",
        "sessionkit.testing.scripts.script",
        "sessionkit.testing.explain",
        "sessionkit._engine.sessions.view",
        "sessionkit._engine.keys.program",
    )
