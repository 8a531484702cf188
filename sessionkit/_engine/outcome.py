"""What a group remembers, and what one micro-batch does to it, whichever fold runs."""

from typing import Any, Final

import attrs
import pyarrow as pa

from sessionkit._engine.counts import DECLARED, Counts
from sessionkit._engine.idle import IdleClock
from sessionkit._engine.rows.table import Rejected

__all__ = ["Memory", "Outcome"]

REJECTED: Final = tuple(count.name for count in DECLARED if count.is_rejected)


@attrs.frozen
class Memory:
    """
    What a group remembers between micro-batches.

    Attributes:
        kept: The open sessions, or the keys, a row each.
        buffered: The events that wait for the watermark, under `order="event_time"`.
        idle: Since when nothing has moved the watermark, under `close_idle_after`.
    """

    kept: pa.Table
    buffered: pa.Table
    idle: IdleClock | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        holds = self.idle is not None and self.idle.holds
        return not (self.kept.num_rows or self.buffered.num_rows or holds)


@attrs.frozen
class Outcome:
    """
    What one micro-batch comes to.

    Attributes:
        memory: What the group remembers from now on.
        rows: The result rows, under the names that users see.
        rejected: The rows beside the results: those that became part of none, the outputs that
            failed, and the events of closed sessions.
        processed: How many events the functions of the spec took.
        buffered: By how many the events that wait have grown.
        sessions: How many sessions closed.
        timers: How many timers went off, and how many keys a policy ended.
    """

    memory: Memory
    rows: pa.Table
    rejected: list[Rejected]
    processed: int
    buffered: int = 0
    sessions: int = 0
    timers: int = 0

    def then(self, later: "Outcome") -> "Outcome":
        """Return what this micro-batch and a later one come to together."""
        return Outcome(
            memory=later.memory,
            rows=pa.concat_tables([self.rows, later.rows]),
            rejected=self.rejected + later.rejected,
            processed=self.processed + later.processed,
            buffered=self.buffered + later.buffered,
            sessions=self.sessions + later.sessions,
            timers=self.timers + later.timers,
        )

    def counts(self, events: int) -> Counts:
        """Return the counts of the micro-batch, into which so many rows came."""
        rejected: dict[str, Any] = dict.fromkeys(REJECTED, 0)
        for part in self.rejected:
            if part.kind in rejected:
                rejected[part.kind] += part.rows.num_rows
        return Counts(
            events=events,
            processed=self.processed,
            buffered=self.buffered,
            sessions=self.sessions,
            timers=self.timers,
            rows=self.rows.num_rows,
            **rejected,
        )
