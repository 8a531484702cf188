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
    from sessionkit._engine.keys.view import StoredKey
    from sessionkit._engine.sessions.view import OpenSession
    from sessionkit.testing.drivers.frames import Rejection, SessionEvent
    from sessionkit.testing.drivers.query import Snapshot
    from sessionkit.testing.drivers.results import BatchResult, KeyRow, SessionRow
    from sessionkit.testing.drivers.session import SessionDriver
    from sessionkit.testing.drivers.stateful import StatefulDriver
    from sessionkit.testing.explaining.explain import explain_session
    from sessionkit.testing.explaining.explanation import (
        ExplainedRejection,
        ExplainedSession,
        Explanation,
    )
    from sessionkit.testing.fakes.group_state import FakeGroupState, StoredGroup
    from sessionkit.testing.fakes.run_group import run_group
    from sessionkit.testing.scripts.acts import (
        add,
        add_row,
        add_table,
        advance_processing_time,
        advance_watermark_to,
        restart,
        run_batch,
        run_until_idle,
    )
    from sessionkit.testing.scripts.expectations import (
        expect_counts,
        expect_nothing,
        expect_open,
        expect_rejected,
        expect_results,
        expect_rows,
        expect_sessions,
        expect_stored,
    )
    from sessionkit.testing.scripts.literals import at, hours, minutes, seconds
    from sessionkit.testing.scripts.script import run_script
    from sessionkit.testing.scripts.step import Step
    from sessionkit.testing.scripts.text_tables import events_table, frame_from
else:
    # Loaded when first used: pytest imports this package in every run of its users.
    __getattr__, __dir__ = lazy_names(
        __name__,
        __all__,
        "sessionkit.testing.scripts.literals",
        "sessionkit.testing.fakes.group_state",
        "sessionkit.testing.fakes.run_group",
        "sessionkit.testing.drivers.frames",
        "sessionkit.testing.drivers.query",
        "sessionkit.testing.drivers.results",
        "sessionkit.testing.drivers.session",
        "sessionkit.testing.drivers.stateful",
        "sessionkit.testing.scripts.step",
        "sessionkit.testing.scripts.acts",
        "sessionkit.testing.scripts.expectations",
        "sessionkit.testing.scripts.script",
        "sessionkit.testing.scripts.text_tables",
        "sessionkit.testing.explaining.explanation",
        "sessionkit.testing.explaining.explain",
        "sessionkit._engine.sessions.view",
        "sessionkit._engine.keys.view",
    )
