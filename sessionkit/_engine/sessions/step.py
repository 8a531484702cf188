"""
One micro-batch of the sessions of a group.

Rules of this file:

1. *Only what is touched is decoded.* Sessions of keys without events pass as Arrow rows.
2. *Overdue sessions close first*, those of all keys, so that a result does not depend on whether a
   batch without data slipped in before. Under `order="event_time"` the events whose turn has come
   are folded before that: they belong to the sessions that close.
3. *The watermark is that of the batch's start*, the same for every row of it.
4. *Each event is counted once*: processed, late, duplicate, quarantined, failed, or buffered.
5. *A failed event leaves no trace*: its session is folded again, from what is stored, without it,
   or under `on_error="drop_session"` goes with it.
6. *Nothing depends on the bucket.* Which keys share one, and how many there are, changes no row.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.clocks import BatchClocks
from sessionkit._engine.outcome import Memory, Outcome
from sessionkit._engine.rows.buffer import take_turns
from sessionkit._engine.rows.table import parted, stacked
from sessionkit._engine.sessions.behind import Horizon
from sessionkit._engine.sessions.close import Closed
from sessionkit._engine.sessions.duplicates import closed_ids, open_only
from sessionkit._engine.sessions.held import held_events
from sessionkit._engine.sessions.joining import Joined
from sessionkit._engine.sessions.revising import due_with_revisions, step_with_revisions
from sessionkit._engine.sessions.revisions import closed_ones
from sessionkit._engine.sessions.ruled import closing_times, idled
from sessionkit._engine.sessions.table import session_identity, sessions_schema, state_fields
from sessionkit._engine.sessions.ways import Way, way_of
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state import Field
from sessionkit.timeouts import Clock, is_over

__all__ = ["SessionLogic"]

Instants: TypeAlias = npt.NDArray[np.int64]


@attrs.frozen
class SessionLogic:
    """The fold of sessions, as the worker and the storage ask for it; see `Logic`."""

    spec: AnySessionSpec

    @cached_property
    def identity(self) -> bytes:
        """The rules and the types under which a group is stored, as JSON."""
        return session_identity(self.spec)

    @property
    def state_fields(self) -> Sequence[Field]:
        """The fields of the state as they are stored."""
        return state_fields(self.spec)

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the table of open sessions."""
        return sessions_schema(self.spec)

    @property
    def way(self) -> Way:
        """How events become states, and states rows."""
        return way_of(self.spec)

    @cached_property
    def keeps_only_open(self) -> bool:
        """Whether nothing of a session stays once it has closed."""
        return not {"exists", "closed"} & {*self.schema.names}

    def open_in(self, kept: pa.Table) -> pa.Table:
        """Return the open sessions, without closed ones that wait or are only remembered."""
        sessions = open_only(kept)
        return sessions.filter(pa.array(~closed_ones(sessions)))

    def due(self, kept: pa.Table) -> dict[Clock, Instants]:
        """Return when each session ends."""
        if self.spec.revises:
            return due_with_revisions(self.spec, kept)
        return {"event_time": closing_times(kept)}

    def step(self, memory: Memory, arrived: pa.Table, clocks: BatchClocks) -> Outcome:
        """Run one micro-batch of a group."""
        if self.spec.revises:
            return step_with_revisions(self.spec, self.way, memory, arrived, clocks)
        if self.spec.order == "event_time":
            return self._in_time_order(memory, arrived, clocks)
        over, kept = self._split(memory.kept, clocks.watermark_us)
        joined = self.way.join(self.spec, kept, arrived, Horizon.of(self.spec, clocks))
        closed = self._closed(idled(over, clocks.by_events_us))
        return _outcome(closed, joined, Memory(joined.sessions, memory.buffered))

    def _in_time_order(self, memory: Memory, arrived: pa.Table, clocks: BatchClocks) -> Outcome:
        watermark_us, most = clocks.watermark_us, self.spec.max_buffered_per_key
        turns = take_turns(memory.buffered, arrived, watermark_us, most)
        joined = self.way.join(self.spec, memory.kept, turns.due, Horizon.of(self.spec, clocks))
        over, kept = self._split(joined.sessions, watermark_us)
        closed = self._closed(idled(over, clocks.by_events_us))
        outcome = _outcome(closed, joined, Memory(kept, turns.waiting))
        return attrs.evolve(
            outcome,
            rejected=turns.rejected + outcome.rejected,
            buffered=turns.waiting.num_rows - memory.buffered.num_rows,
        )

    def _closed(self, over: pa.Table) -> Closed:
        closed = self.way.close(self.spec, over)
        return attrs.evolve(closed, events=held_events(self.spec, over))

    def _split(self, sessions: pa.Table, watermark_us: int) -> tuple[pa.Table, pa.Table]:
        """Part the sessions that are over from those that stay open, and from ids of the others."""
        ended, kept = parted(sessions, is_over(closing_times(sessions), watermark_us))
        over = open_only(ended)
        return over, stacked([kept, closed_ids(self.spec, over, watermark_us)])


def _outcome(closed: Closed, joined: Joined, memory: Memory) -> Outcome:
    return Outcome(
        memory=memory,
        rows=closed.rows,
        rejected=[*joined.rejected, *closed.failed_output, *closed.events],
        processed=joined.events,
        sessions=closed.sessions,
    )
