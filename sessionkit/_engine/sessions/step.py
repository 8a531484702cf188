"""
One micro-batch of the sessions of a group: overdue sessions close, then events join.

1. *Only what is touched is decoded.* Sessions of keys without events pass as Arrow rows.
2. *Overdue sessions close first*, for all keys, so that a result does not depend on whether a
   batch without data slipped in before. Under `order="event_time"` the events whose turn has come
   are folded before that: they belong to the sessions that close.
3. *The watermark is taken at the start of the batch*, the same for every row.
4. *Each event is counted once*: processed, late, duplicate, outside any session, quarantined,
   failed, or buffered.
5. *A failed event leaves no trace*: its session is folded again, from what is stored, without it.
6. *No row depends on the bucket*: on which keys share it, or how many buckets there are.

Sessions give final rows when they close, early rows while they're open, and revised rows later:

    due        which sessions give a row
    context    what `finish` gets, and what a row says: its rule, number and history
    finish     the results, as columns
    emit       the rows, and what their sessions store
    retain     the sessions that stay, and the memories of forgotten ones

Both closing passes run these stages. Before events join, only sessions that are over are due; at
the end of a micro-batch, sessions with an early row are due too.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import (
    Mask,
    Numbers,
    concat,
    flags_in,
    key_columns,
    left_over,
    micros,
    numbers_in,
    replaced,
    split,
)
from sessionkit._engine.boundaries import is_over
from sessionkit._engine.micro_batch import BatchClocks, GroupState, Outcome
from sessionkit._engine.rows.ids import session_ids
from sessionkit._engine.rows.objects import decode_keys
from sessionkit._engine.rows.order import take_turns
from sessionkit._engine.rows.tables import CLOSED, LAST_EVENT, SALT, SideOutput, has_state
from sessionkit._engine.sessions.feature import Closed, Emission
from sessionkit._engine.sessions.plan import with_last_event
from sessionkit._engine.sessions.program import Program
from sessionkit._engine.sessions.verdicts import join, told_in_order
from sessionkit.spec.session import AnySessionSpec
from sessionkit.spec.views import Session, session_of
from sessionkit.timeouts._policies import Clock


@attrs.frozen(eq=False, slots=False)
class SessionLogic:
    """The fold of sessions, as a `GroupLogic`."""

    spec: AnySessionSpec
    readings: dict[bytes, Any] = attrs.field(init=False, repr=False, factory=dict)

    @cached_property
    def program(self) -> Program:
        """The compiled spec, made at its first use: the driver only sends the spec."""
        return Program.of(self.spec)

    @cached_property
    def empty_state(self) -> GroupState:
        return GroupState(self.program.schema.empty_table(), self.spec.events_schema.empty_table())

    @cached_property
    def keeps_only_open(self) -> bool:
        return not (self.spec.revises or self.program.has_memories)

    @property
    def takes_portions(self) -> bool:
        # Memories end by the watermark, so more steps would change them.
        return self.keeps_only_open

    def are_open(self, kept: pa.Table) -> Mask:
        """Mark the open sessions, not closed ones that wait or are only remembered."""
        is_open = ~flags_in(kept, CLOSED.name)
        return is_open & has_state(kept) if self.program.has_memories else is_open

    def open_stats(self, kept: pa.Table) -> tuple[int, int | None]:
        starts = micros(kept["start"])
        if not self.keeps_only_open:
            starts = starts[self.are_open(kept)]
        return len(starts), int(starts.min()) if len(starts) else None

    def due(self, kept: pa.Table) -> dict[Clock, Numbers]:
        """Return when sessions close or are forgotten, and when they give early rows."""
        closes, stays_us = micros(kept[self.program.cuts.column]), self.program.stays_us
        due: dict[Clock, Numbers] = {
            # One that closes at 50 is due then; if it has closed and stays for 30, it's due at 80.
            "event_time": closes + flags_in(kept, CLOSED.name) * stays_us if stays_us else closes
        }
        for feature in self.program.features:
            for clock, at in feature.due_at(kept).items():
                due[clock] = np.minimum(due[clock], at) if clock in due else at
        return due

    def step(self, memory: GroupState, arrived: pa.Table, clocks: BatchClocks) -> Outcome:
        """Run one micro-batch of a group; a failing user function may raise."""
        program, kept, waiting = self.program, memory.kept, memory.buffered
        rejected, closed, processed = list[SideOutput](), program.none_closed, 0
        if program.in_time_order:
            most, sequence = self.spec.inputs.max_buffered_per_key, self.spec.sequence
            turns = take_turns(waiting, arrived, clocks.watermark_us, most, sequence)
            arrived, waiting = turns.due, turns.waiting
            rejected = [one for part in turns.rejected for one in told_in_order(program, part)]
        else:
            kept, closed = _close_due(program, kept, clocks, at_end=False)
        if arrived.num_rows:
            joined = join(program, kept, arrived, program.horizon(clocks))
            kept, processed, rejected = joined.sessions, joined.events, rejected + joined.rejected
        if program.in_time_order or self.spec.revises:
            kept, later = _close_due(program, kept, clocks, at_end=True)
            closed = later if closed is program.none_closed else _combined(closed, later)
        return Outcome(
            memory=GroupState(kept, waiting),
            rows=closed.rows,
            others=[*rejected, *closed.others],
            processed=processed,
            buffered=waiting.num_rows - memory.buffered.num_rows,
            sessions=closed.sessions,
            revised=closed.revised,
            out_of_order=closed.out_of_order,
        )


def _combined(first: Closed, then: Closed) -> Closed:
    """Combine the output of both closing passes."""
    return Closed(
        rows=concat([first.rows, then.rows]),
        others=[*first.others, *then.others],
        sessions=first.sessions + then.sessions,
        revised=first.revised + then.revised,
        out_of_order=first.out_of_order + then.out_of_order,
    )


def _close_due(
    program: Program, rows: pa.Table, clocks: BatchClocks, *, at_end: bool
) -> tuple[pa.Table, Closed]:
    """
    Emit the rows of the sessions that are due, and return the rows that stay.

    Sessions give early rows only `at_end`, at the end of the micro-batch.
    """
    emission, closed = _due(program, rows, clocks, at_end=at_end), program.none_closed
    if emission is None:
        return rows, closed
    if emission.emitting.num_rows:
        for feature in program.features:
            emission = feature.context(emission)
        emission, closed = _finished(program, emission)
        for feature in program.features:
            closed = feature.emitted(emission, closed)
        # A session whose `finish` failed doesn't count as closed.
        closes = emission.final[emission.gives_row]
        closes[[*closed.failed]] = False
        closed = attrs.evolve(closed, sessions=int(closes.sum()))
    return _retained(program, emission, closed), closed


def _due(program: Program, rows: pa.Table, clocks: BatchClocks, *, at_end: bool) -> Emission | None:
    """Choose the sessions that give a row; None where nothing changes."""
    # A batch has all events at once, so no row of it is early.
    may_be_early = at_end and program.spec.early is not None and not clocks.whole
    closes, closed = micros(rows[program.cuts.column]), flags_in(rows, CLOSED.name)
    over = is_over(closes, clocks.watermark_us)
    expired = is_over(closes + program.stays_us, clocks.watermark_us)
    # A closed session that waits for late events changes only when it's forgotten.
    if not (may_be_early or (over & ~closed).any() or (expired & closed).any()):
        return None
    sessions, memories = rows, rows.slice(0, 0)
    if program.has_memories:
        chosen = has_state(rows)
        sessions, memories = split(rows, chosen)
        # Memories give no rows: these masks are of the sessions alone.
        over, expired, closed = over[chosen], expired[chosen], closed[chosen]
    final, no_rows = over & ~closed, sessions.slice(0, 0)
    emission = Emission(
        sessions=sessions,
        memories=memories,
        clocks=clocks,
        may_be_early=may_be_early,
        over=over,
        final=final,
        expired=expired,
        gives_row=final,
        emitting=no_rows,
        is_final=over,
    )
    for feature in program.features:
        emission = feature.due(emission)
    rows = np.flatnonzero(emission.gives_row)
    emitting = emission.sessions.take(pa.array(rows))
    return attrs.evolve(emission, emitting=emitting, is_final=over[rows])


def _finished(program: Program, emission: Emission) -> tuple[Emission, Closed]:
    """Finish the emitting sessions; return them with their last events, and their output."""
    spec, emitting = program.spec, with_last_event(emission.emitting, program.gap_us)
    keys = key_columns(emitting)
    ids = session_ids(keys, micros(emitting["start"]), numbers_in(emitting, SALT.name))
    columns = dict[str, pa.Array]()
    for feature in program.features:
        columns |= feature.row_columns(emitting)

    def tell() -> Sequence[Session[Any]]:
        sessions = session_views(program, emitting, ids)
        for feature in program.features:
            for name in feature.session_attributes:
                for session, value in zip(sessions, columns[name].to_pylist(), strict=True):
                    vars(session)[name] = value
        return sessions

    finished = program.finish(spec, emitting, tell)
    columns |= {
        "session_id": pa.array(ids, pa.string()),
        "session_start": emitting["start"],
        "session_end": emitting["end"],
        "last_event_time": emitting[LAST_EVENT.name],
    }
    leading = [*keys, *(columns[field.name] for field in spec.own_fields)]
    if not isinstance(finished.owners, range):
        owners = pa.array(finished.owners, pa.int64())
        # The rows of sessions that gave 2 results, none and 1 are 0 0 2.
        leading = [column.take(owners) for column in leading]
    rows = pa.Table.from_arrays([*leading, *finished.columns], schema=spec.result_schema)
    failed_output: list[SideOutput] = []
    if finished.failed:
        with_ids = emitting.append_column("session_id", columns["session_id"])
        failed_output = SideOutput.with_failures("failed_output", finished.failed, with_ids)
    closed = Closed(rows, failed_output, finished.owners, finished.failed, left=finished.left)
    return attrs.evolve(emission, emitting=emitting), closed


def session_views(program: Program, table: pa.Table, ids: Sequence[str]) -> list[Session[Any]]:
    """Return the sessions, without states, of a table that has their last events."""
    starts, ends = micros(table["start"]).tolist(), micros(table["end"]).tolist()
    last = micros(table[LAST_EVENT.name]).tolist()
    events, reasons = table["events"].to_numpy().tolist(), program.cuts.reasons(table).to_pylist()
    keys = decode_keys(program.spec, table)
    return list(map(session_of, keys, ids, starts, ends, last, events, reasons))


def _retained(program: Program, emission: Emission, closed: Closed) -> pa.Table:
    """Return the rows that stay: sessions, and memories of forgotten ones."""
    sessions, expired = emission.sessions, emission.expired
    if closed.stored:
        # Sessions that gave a row move to the end: of three, the second, [0, 2, 1].
        emitted = np.flatnonzero(emission.gives_row)
        changed = replaced(sessions.take(pa.array(emitted)), closed.stored)
        sessions = concat([left_over(sessions, emitted), changed])
        expired = np.concatenate([expired[~emission.gives_row], expired[emitted]])
    forgotten, kept = split(sessions, expired)
    if not (forgotten.num_rows or emission.memories.num_rows):
        return kept
    parts, watermark_us = [kept], emission.clocks.watermark_us
    for feature in program.features:
        parts += feature.remembered(emission.memories, kept, forgotten, watermark_us)
    return concat(parts)
