"""The contestants: each turns the same stream of events into the same rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from benchmarks.by_hand import by_hand
from benchmarks.counters import COUNT_COLUMNS, counted_by_hand, counted_by_sessionkit
from benchmarks.events import DELAY, GAP, Load
from sessionkit import EventTimeGap, Session, SessionSpec
from sessionkit.spark import sessionize

__all__ = ["CASES", "Case", "Contestant"]

Contestant: TypeAlias = Callable[[DataFrame], DataFrame]

SESSION_COLUMNS: Final = ("user_id", "session_start", "session_end", "events", "seconds")
"""The columns that every contestant of a case with sessions returns."""


@attrs.define
class View:
    """An event."""

    seconds: float


@attrs.define
class Visit:
    """An open session."""

    events: int = 0
    seconds: float = 0.0


@attrs.frozen
class VisitRow:
    """A closed session."""

    events: int
    seconds: float


def create(key: object, view: View) -> Visit:
    """Open a session."""
    return Visit(1, view.seconds)


def update(visit: Visit, view: View) -> Visit:
    """Fold one event."""
    visit.events += 1
    visit.seconds += view.seconds
    return visit


def merge(left: Visit, right: Visit) -> Visit:
    """Join two sessions."""
    return Visit(left.events + right.events, left.seconds + right.seconds)


def finish(session: Session, visit: Visit) -> VisitRow:
    """Close a session."""
    return VisitRow(visit.events, visit.seconds)


VISITS: Final = SessionSpec(
    keys={"user_id": str},
    event_time="ts",
    event=View,
    state=Visit,
    result=VisitRow,
    create=create,
    update=update,
    merge=merge,
    finish=finish,
    timeout=EventTimeGap(GAP),
    watermark_delay=DELAY,
)


def by_sessionkit(events: DataFrame) -> DataFrame:
    """Find the sessions with plain Python functions, all settings at their defaults."""
    return sessionize(events, VISITS)


def by_session_window(events: DataFrame) -> DataFrame:
    """Find the sessions with Spark's own operator, which stays in the JVM."""
    window = f.session_window("ts", f"{GAP.total_seconds():.0f} seconds").alias("window")
    sessions = (
        events.withWatermark("ts", f"{DELAY.total_seconds():.0f} seconds")
        .groupBy("user_id", window)
        .agg(f.count("*").alias("events"), f.sum("seconds").alias("seconds"))
    )
    return sessions.select(
        "user_id",
        f.col("window.start").alias("session_start"),
        f.col("window.end").alias("session_end"),
        "events",
        "seconds",
    )


@attrs.frozen
class Case:
    """
    What is measured side by side.

    Attributes:
        load: How much comes in.
        contestants: The ways, by name.
        ratio: The names of the two whose times are divided.
        columns: What is compared.
        rounds: At most so many runs of each contestant.
    """

    load: Load
    contestants: Mapping[str, Contestant]
    ratio: tuple[str, str]
    columns: Sequence[str] = SESSION_COLUMNS
    rounds: int | None = None


CASES: Final = {
    "large": Case(
        Load(events=1_000_000, keys=200_000),
        {"sessionkit": by_sessionkit, "session_window": by_session_window},
        ratio=("sessionkit", "session_window"),
    ),
    "small": Case(
        Load(events=100_000, keys=20_000),
        {"sessionkit": by_sessionkit, "by_hand": by_hand},
        ratio=("by_hand", "sessionkit"),
    ),
    "counters": Case(
        # By hand a batch takes minutes, so there is one to warm up and one to measure.
        Load(events=100_000, keys=100_000, batches=2, one_each=True),
        {"sessionkit": counted_by_sessionkit, "by_hand": counted_by_hand},
        ratio=("by_hand", "sessionkit"),
        columns=COUNT_COLUMNS,
        rounds=1,
    ),
}
