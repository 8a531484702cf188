"""
One micro-batch of the sessions of a group.

Rules of this file:

1. *Only what is touched is decoded.* Sessions of keys without events pass as Arrow rows.
2. *Overdue sessions close first*, those of all keys, so that a result does not depend on whether a
   batch without data slipped in before. Under `order="event_time"` the events whose turn has come
   are folded before that: they belong to the sessions that close.
3. *The watermark is that of the batch's start*, the same for every row of it.
4. *Each event is counted once*: processed, late, duplicate, quarantined, failed, or buffered.
5. *A failed event leaves no trace*: its session is folded again, from what is stored, without it.
6. *Nothing depends on the bucket.* Which keys share one, and how many there are, changes no row.
"""

from functools import cached_property
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Mask, Numbers, micros
from sessionkit._engine.logic import BatchClocks, GroupState, Outcome
from sessionkit._engine.rows.buffer import take_turns
from sessionkit._engine.rows.kept import has_closed, has_state
from sessionkit._engine.sessions.closing import close_due, due_at
from sessionkit._engine.sessions.emission import Closed
from sessionkit._engine.sessions.joining import Joined, join
from sessionkit._engine.sessions.program import Program
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts import Clock


@attrs.frozen(eq=False, slots=False)
class SessionLogic:
    """The fold of sessions, as the worker and the storage ask for it; see `Logic`."""

    spec: AnySessionSpec
    program: Program = attrs.field(init=False, repr=False)
    readings: dict[bytes, Any] = attrs.field(init=False, repr=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "program", Program.of(self.spec))

    @cached_property
    def empty_state(self) -> GroupState:
        return GroupState(self.program.schema.empty_table(), self.spec.events_schema.empty_table())

    @property
    def keeps_only_open(self) -> bool:
        return not self.program.remembers

    @property
    def takes_portions(self) -> bool:
        # What is remembered of a session ends by the watermark.
        return not self.program.remembers

    def are_open(self, kept: pa.Table) -> Mask:
        """Mark the open sessions, not closed ones that wait or are only remembered."""
        return has_state(kept) & ~has_closed(kept)

    def open_stats(self, kept: pa.Table) -> tuple[int, int | None]:
        """Return how many sessions are open, and when the oldest began."""
        starts = micros(kept["start"])[self.are_open(kept)]
        return len(starts), int(starts.min()) if len(starts) else None

    def due(self, kept: pa.Table) -> dict[Clock, Numbers]:
        due: dict[Clock, Numbers] = {"event_time": due_at(self.program, kept)}
        for feature in self.program.features:
            for clock, at in feature.due_at(kept).items():
                due[clock] = np.minimum(due[clock], at) if clock in due else at
        return due

    def step(self, memory: GroupState, arrived: pa.Table, clocks: BatchClocks) -> Outcome:
        if self.program.lateness.in_time_order:
            return self._in_time_order(memory, arrived, clocks)
        kept, closed = close_due(self.program, memory.kept, clocks, at_end=False)
        joined = self._join(kept, arrived, clocks)
        kept = joined.sessions
        if self.program.gives_several:
            kept, later = close_due(self.program, kept, clocks, at_end=True)
            closed = closed.then(later)
        return _outcome(GroupState(kept, memory.buffered), joined, closed)

    def _in_time_order(self, memory: GroupState, arrived: pa.Table, clocks: BatchClocks) -> Outcome:
        most, sequence = self.spec.inputs.max_buffered_per_key, self.spec.sequence
        turns = take_turns(memory.buffered, arrived, clocks.watermark_us, most, sequence)
        joined = self._join(memory.kept, turns.due, clocks)
        kept, closed = close_due(self.program, joined.sessions, clocks, at_end=True)
        outcome = _outcome(GroupState(kept, turns.waiting), joined, closed)
        return attrs.evolve(
            outcome,
            rejected=turns.rejected + outcome.rejected,
            buffered=turns.waiting.num_rows - memory.buffered.num_rows,
        )

    def _join(self, sessions: pa.Table, arrived: pa.Table, clocks: BatchClocks) -> Joined:
        if not arrived.num_rows:
            return Joined(sessions, 0, [])
        return join(self.program, sessions, arrived, self.program.lateness.horizon(clocks))


def _outcome(memory: GroupState, joined: Joined, closed: Closed) -> Outcome:
    return Outcome(
        memory=memory,
        rows=closed.rows,
        rejected=[*joined.rejected, *closed.failed_output, *closed.events],
        processed=joined.events,
        sessions=closed.sessions,
        revised=closed.revised,
        out_of_order=closed.out_of_order,
    )
