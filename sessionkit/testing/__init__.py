"""Everything that a unit test of a streaming job needs, without Spark and without a JVM."""

from typing import TYPE_CHECKING

from sessionkit._package import lazy_names

__all__ = [
    "FakeGroupState",
    "KeyRow",
    "OpenSession",
    "Rejection",
    "SessionDriver",
    "SessionEvent",
    "SessionRow",
    "StatefulDriver",
    "StoredKey",
    "at",
    "explain_session",
    "hours",
    "minutes",
    "seconds",
]

if TYPE_CHECKING:
    from sessionkit._engine.keys.program import StoredKey
    from sessionkit._engine.sessions.view import OpenSession
    from sessionkit.testing.drivers.kinds import SessionDriver, StatefulDriver
    from sessionkit.testing.drivers.results import (
        KeyRow,
        Rejection,
        SessionEvent,
        SessionRow,
    )
    from sessionkit.testing.explain import explain_session
    from sessionkit.testing.group_state import FakeGroupState
    from sessionkit.testing.literals import at, hours, minutes, seconds
else:
    # Loaded when first used: pytest imports this package in every run of its users.
    __getattr__, __dir__ = lazy_names(
        __name__,
        __all__,
        "sessionkit.testing.literals",
        "sessionkit.testing.group_state",
        "sessionkit.testing.drivers.results",
        "sessionkit.testing.drivers.kinds",
        "sessionkit.testing.explain",
        "sessionkit._engine.sessions.view",
        "sessionkit._engine.keys.program",
    )
