"""Who takes part: sessionkit, Spark's windows, and `transformWithState` in Python."""

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, TypeAlias

import attrs
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StructField, StructType

from sessionkit import Results, SessionSpec, aggregates
from sessionkit.spark import sessionize

__all__ = ["ENTRANTS", "GAP_S", "Entrant", "Kind"]

Kind: TypeAlias = Literal["update", "close"]
"""Which rows are awaited: one that has the event, or the row of a session that it has ended."""

GAP_S: Final = 2
GAP: Final = f"{GAP_S} seconds"
LAST: Final = StructType([StructField("last", LongType())])
LAST_OF_USER: Final = StructType([StructField("user", LongType()), StructField("last", LongType())])


@attrs.define
class Click:
    """An event: its number."""

    number: int


@attrs.define
class Visit:
    """An open session: the number of its last event."""

    last: int = 0

    def update(self, click: Click) -> None:
        """Add an event."""
        self.last = max(self.last, click.number)

    def merge(self, other: "Visit") -> None:
        """Add another session."""
        self.last = max(self.last, other.last)


class Last(StatefulProcessor):
    """The number of a user's last event."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self.last = handle.getValueState("last", LAST)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803 - Spark's names
        """Return the number of the last event."""
        before = self.last.get()
        number = max(before[0] if before else 0, *(row.number for row in rows))
        self.last.update((number,))
        yield Row(user=key[0], last=number)

    def close(self) -> None:
        """Nothing to close."""


def _spec(emit: Any, *, functions: bool) -> SessionSpec[Any, Any, Any]:
    grouped: Any = {
        "keys": {"user": int},
        "event_time": "ts",
        "gap": GAP,
        "watermark_delay": "0 seconds",
        "results": Results(emit=emit),
    }
    if functions:
        return SessionSpec.of(Visit, **grouped)
    return SessionSpec.aggregate(Click, {"last": aggregates.max("number")}, **grouped)


def _ours(emit: str, *, functions: bool) -> Callable[[DataFrame], DataFrame]:
    return lambda events: sessionize(events, _spec(emit, functions=functions))


def by_window(events: DataFrame) -> DataFrame:
    """Aggregate in windows of ten seconds, in update mode."""
    timed = events.withWatermark("ts", "0 seconds")
    found = timed.groupBy("user", F.window("ts", "10 seconds")).agg(F.max("number").alias("last"))
    return found.select("user", "last")


def by_session_window(events: DataFrame) -> DataFrame:
    """Find sessions with Spark's own operator, in append mode."""
    window = F.session_window("ts", GAP).alias("window")
    timed = events.withWatermark("ts", "0 seconds")
    found = timed.groupBy("user", window).agg(F.max("number").alias("last"))
    return found.select("user", "last", F.col("window.end").alias("session_end"))


def by_transform(events: DataFrame) -> DataFrame:
    """Keep the last number of each user in `transformWithState`."""
    grouped = events.select("user", "number").groupBy("user")
    return grouped.transformWithState(Last(), LAST_OF_USER, "update", "None")


@attrs.frozen
class Entrant:
    """A query from events to rows, the rows that it gives, and its output mode."""

    rows: Callable[[DataFrame], DataFrame]
    kind: Kind
    mode: str = "append"
    environment: str | None = None


ENTRANTS: Final = {
    "functions, on_update": Entrant(_ours("on_update", functions=True), "update"),
    "aggregates, on_update": Entrant(_ours("on_update", functions=False), "update"),
    "window, update mode": Entrant(by_window, "update", "update"),
    "transformWithState": Entrant(by_transform, "update", "update", "protobuf"),
    "functions, on_close": Entrant(_ours("on_close", functions=True), "close"),
    "aggregates, on_close": Entrant(_ours("on_close", functions=False), "close"),
    "session_window": Entrant(by_session_window, "close"),
}
