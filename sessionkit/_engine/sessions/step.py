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

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import attrs
import pyarrow as pa

from sessionkit._arrays import Mask, Numbers, micros
from sessionkit._engine.boundaries import is_over
from sessionkit._engine.logic import BatchClocks, Memory, Outcome
from sessionkit._engine.rows.buffer import take_turns
from sessionkit._engine.rows.objects import decode_states
from sessionkit._engine.rows.table import (
    concat,
    has_closed,
    has_state,
    no_events,
    no_results,
    prefixed_columns,
    split,
)
from sessionkit._engine.sessions.by_aggregates import (
    close_by_aggregates,
    fold_by_aggregates,
    results_by_aggregates,
    states_by_aggregates,
    stored_fields,
)
from sessionkit._engine.sessions.close import close
from sessionkit._engine.sessions.features.memory import apart
from sessionkit._engine.sessions.fold import fold_by_functions, refused_first
from sessionkit._engine.sessions.ids import ids_of
from sessionkit._engine.sessions.per_event import close_per_event, fold_per_event
from sessionkit._engine.sessions.plan import Closed, Folded, Horizon, Joined, Plan
from sessionkit._engine.sessions.program import Program
from sessionkit.spec.logic import Aggregates, Events, Functions
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import Field
from sessionkit.timeouts import Clock


@attrs.frozen
class Fold:
    """
    How events become states, and states rows. Every fold groups events alike.

    `fields` are those of the state as they are stored. `fold` makes the states of a plan, `close`
    rows of sessions that are over, at least one. The states of open sessions come as objects
    (`states`) or as `columns`.
    """

    fields: Callable[[AnySessionSpec], Sequence[Field]]
    fold: Callable[[Program, Plan], Folded]
    close: Callable[[Program, pa.Table], Closed]
    states: Callable[[AnySessionSpec, pa.Table], list[Any]]
    columns: Callable[[AnySessionSpec, pa.Table], list[pa.Array]]


def _fields(spec: AnySessionSpec) -> Sequence[Field]:
    return codec_of(spec.state).type.fields


def _decoded(spec: AnySessionSpec, sessions: pa.Table) -> list[Any]:
    return decode_states(spec.state, sessions)


def _stored(_: AnySessionSpec, sessions: pa.Table) -> list[pa.Array]:
    return prefixed_columns(sessions, "state.")


FOLDS: Final = {
    Functions: Fold(_fields, fold_by_functions, close, _decoded, _stored),
    Aggregates: Fold(
        stored_fields,
        fold_by_aggregates,
        close_by_aggregates,
        states_by_aggregates,
        results_by_aggregates,
    ),
    Events: Fold(_fields, fold_per_event, close_per_event, _decoded, _stored),
}


@attrs.frozen(eq=False, slots=False)
class SessionLogic:
    """The fold of sessions, as the worker and the storage ask for it; see `Logic`."""

    spec: AnySessionSpec
    program: Program = attrs.field(init=False, repr=False)
    fold: Fold = attrs.field(init=False, repr=False)
    readings: dict[bytes, Any] = attrs.field(init=False, repr=False, factory=dict)
    no_rows: Closed = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        fold = FOLDS[type(self.spec.logic)]
        object.__setattr__(self, "fold", fold)
        object.__setattr__(self, "program", Program.of(self.spec, fold.fields(self.spec)))
        object.__setattr__(self, "no_rows", Closed(no_results(self.spec), [], 0))

    @cached_property
    def nothing(self) -> Memory:
        return Memory(self.program.schema.empty_table(), no_events(self.spec))

    @cached_property
    def keeps_only_open(self) -> bool:
        program = self.program
        remembering = program.duplicates, program.revisions, program.memory
        return all(feature is None for feature in remembering)

    @property
    def takes_portions(self) -> bool:
        # What is remembered of a session ends by the watermark.
        return self.keeps_only_open

    def are_open(self, kept: pa.Table) -> Mask:
        """Mark the open sessions, not closed ones that wait or are only remembered."""
        are_open = has_state(kept)
        if self.program.revisions is not None:
            are_open &= ~has_closed(kept)
        return are_open

    def open_stats(self, kept: pa.Table) -> tuple[int, int | None]:
        """Return how many sessions are open, and when the oldest began."""
        starts = micros(kept["start"])[self.are_open(kept)]
        return len(starts), int(starts.min()) if len(starts) else None

    def due(self, kept: pa.Table) -> dict[Clock, Numbers]:
        if self.program.revisions is not None:
            return self.program.revisions.due(kept)
        return {"event_time": micros(kept[self.program.closes])}

    def step(self, memory: Memory, arrived: pa.Table, clocks: BatchClocks) -> Outcome:
        if self.program.in_time_order:
            return self._in_time_order(memory, arrived, clocks)
        kept, closed = self._settled(memory.kept, clocks, only_final=True)
        joined = Joined(kept, 0, [])
        if arrived.num_rows:
            joined = self.join(kept, arrived, self.program.horizon(clocks))
        outcome = self._outcome(joined, closed, Memory(joined.sessions, memory.buffered))
        if self.program.revisions is None:
            return outcome
        kept, after = self._settled(joined.sessions, clocks)
        later = self._outcome(Joined(kept, 0, []), after, Memory(kept, memory.buffered))
        return outcome.then(later)

    def _in_time_order(self, memory: Memory, arrived: pa.Table, clocks: BatchClocks) -> Outcome:
        most, sequence = self.spec.inputs.max_buffered_per_key, self.spec.sequence
        turns = take_turns(memory.buffered, arrived, clocks.watermark_us, most, sequence)
        joined = Joined(memory.kept, 0, [])
        if turns.due.num_rows:
            joined = self.join(memory.kept, turns.due, self.program.horizon(clocks))
        kept, closed = self._settled(joined.sessions, clocks)
        outcome = self._outcome(joined, closed, Memory(kept, turns.waiting))
        return attrs.evolve(
            outcome,
            rejected=turns.rejected + outcome.rejected,
            buffered=turns.waiting.num_rows - memory.buffered.num_rows,
        )

    def join(self, sessions: pa.Table, arrived: pa.Table, horizon: Horizon) -> Joined:
        """Let events, in any order, join the open sessions of a group."""
        program = self.program
        events, rejected = program.read(arrived)
        while True:
            found = program.accept(sessions, events, horizon)
            for late in found.late:
                has_classes = program.functions is not None
                rejected += refused_first(program.spec, late) if has_classes else [late]
            if (plan := found.plan) is None:
                return Joined(sessions, 0, [*rejected, *found.duplicates])
            folded, ids = self.fold.fold(program, plan), program.duplicates
            # What failed was not processed, so the next event with its id counts.
            has_copies = ids is not None and ids.are_copied(plan, folded.gone, found.repeated)
            if folded.sessions is not None and not has_copies:
                rejected += [*found.duplicates, *folded.rejected]
                return Joined(folded.sessions, folded.events, rejected)
            rejected += [part for part in folded.rejected if part.kind != "late"]
            events = plan.events.without(folded.gone).joined(found.repeated)

    def _outcome(self, joined: Joined, closed: Closed, memory: Memory) -> Outcome:
        revisions = self.program.revisions
        return Outcome(
            memory=memory,
            rows=closed.rows,
            rejected=[*joined.rejected, *closed.failed_output, *closed.events],
            processed=joined.events,
            sessions=closed.sessions,
            revised=0 if revisions is None else revisions.revised(closed.rows),
            out_of_order=closed.out_of_order,
        )

    def _settled(
        self, sessions: pa.Table, clocks: BatchClocks, *, only_final: bool = False
    ) -> tuple[pa.Table, Closed]:
        """Return the sessions that remain, and what became of those that are over."""
        memory = self.program.memory
        if memory is None:
            kept, _, closed = self._ended(sessions, clocks, None, only_final=only_final)
            return kept, closed
        revisions, others = self.program.revisions, sessions.slice(0, 0)
        if only_final or revisions is None or not revisions.gives_early(clocks):
            due = is_over(self.due(sessions)["event_time"], clocks.watermark_us)
            if not due.any():
                return sessions, self.no_rows
            sessions, others = split(sessions, memory.concerned(sessions, due))
        known, sessions = apart(sessions)
        kept, gone, closed = self._ended(sessions, clocks, known, only_final=only_final)
        known = memory.staying(memory.forgot(known, gone), kept, clocks.watermark_us)
        return concat([others, kept, known]), closed

    def _ended(
        self,
        sessions: pa.Table,
        clocks: BatchClocks,
        known: pa.Table | None,
        *,
        only_final: bool,
    ) -> tuple[pa.Table, pa.Table, Closed]:
        """Return the sessions that remain, those that are forgotten, and what became of them."""
        program, watermark_us = self.program, clocks.watermark_us
        if program.revisions is not None:
            giving = program.revisions.giving(sessions, clocks, only_final=only_final)
            if giving is None:
                return sessions, sessions.slice(0, 0), self.no_rows
            if program.memory is not None:
                giving = program.revisions.also(giving, program.memory.overtaken(giving))
                known = program.memory.known_before(giving, known)
            rows = self._rows(clocks, giving.given, known)
            if program.memory is not None and rows.recalled is not None:
                numbered = program.memory.numbered(giving, rows.recalled)
                giving = attrs.evolve(giving, sessions=numbered)
            kept, ended, closed = program.revisions.after(giving, rows, clocks)
        else:
            over = is_over(micros(sessions[program.closes]), watermark_us)
            if not over.any():
                return sessions, sessions.slice(0, 0), self.no_rows
            ended, kept = split(sessions, over)
            ended, _ = split(ended, has_state(ended))
            closed = self._rows(clocks, ended, known)
            ended = ended if closed.recalled is None else closed.recalled
        if program.duplicates is not None and ended.num_rows:
            kept = concat([kept, program.duplicates.remembered(ended, watermark_us)])
        return kept, ended, closed

    def _rows(self, clocks: BatchClocks, over: pa.Table, known: pa.Table | None) -> Closed:
        """Return the rows of sessions that are over, or that give early ones."""
        program = self.program
        if not over.num_rows:
            return self.no_rows
        if program.rules is not None:
            over = program.rules.idled(over, clocks.by_events_us)
        if program.memory is None or known is None:
            closed = self.fold.close(program, over)
        else:
            recalled = program.memory.recalled(over, known)
            closed = self.fold.close(program, over := recalled.over)
            closed = program.memory.remembered(recalled, closed)
        if program.session_events is None:
            return closed
        facts = {"session_id": pa.array(ids_of(over))}
        facts |= {} if program.rules is None else {"ended_by": program.rules.reasons(over)}
        return attrs.evolve(closed, events=program.session_events.of_closed(over, facts))
