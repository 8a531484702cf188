"""
One micro-batch of the sessions of a group: overdue sessions close, then events join.

1. *Only what is touched is decoded.* Sessions of keys without events pass as Arrow rows.
2. *Overdue sessions close first*, those of all keys, so that a result does not depend on whether a
   batch without data slipped in before. Under `order="event_time"` the events whose turn has come
   are folded before that: they belong to the sessions that close.
3. *The watermark is that of the batch's start*, the same for every row of it.
4. *Each event is counted once*: processed, late, duplicate, quarantined, failed, or buffered.
5. *A failed event leaves no trace*: its session is folded again, from what is stored, without it.
6. *Nothing depends on the bucket.* Which keys share one, and how many there are, changes no row.

How sessions give rows, final ones when they close, early ones while they're open, and later ones:

    due        which sessions give a row
    context    what `finish` gets, and what a row says: by which rule, number and history
    finish     the results, as columns
    emit       the rows; and what is stored of the sessions that gave them
    retain     the sessions that stay, and what is remembered of those that don't

All take the same way. What differs is which sessions are due: before events join, those that are
over; at the end of a micro-batch, those that give an early row too.
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
from sessionkit._engine.rows.tables import (
    CLOSED,
    LAST_EVENT,
    SALT,
    Rejected,
    has_state,
)
from sessionkit._engine.sessions.feature import Closed, Emission
from sessionkit._engine.sessions.joining import horizon_of, join
from sessionkit._engine.sessions.plan import with_last_event
from sessionkit._engine.sessions.program import Program
from sessionkit.spec.session import AnySessionSpec
from sessionkit.spec.views import Session, session_of
from sessionkit.timeouts._policies import Clock


@attrs.frozen(eq=False, slots=False)
class SessionLogic:
    """
    The fold of sessions, as the shell asks for it.

    `readings` says how rows are read, by the identity under which they were written.
    """

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
        """Whether each row that is kept is an open session."""
        return self.program.keeps_only_open

    @property
    def takes_portions(self) -> bool:
        """Whether the events of a batch may come in several steps, without a change in any row."""
        # What is remembered of a session ends by the watermark.
        return self.program.keeps_only_open

    def are_open(self, kept: pa.Table) -> Mask:
        """Mark the open sessions, not closed ones that wait or are only remembered."""
        is_open = ~flags_in(kept, CLOSED.name)
        return is_open & has_state(kept) if self.program.has_memories else is_open

    def open_stats(self, kept: pa.Table) -> tuple[int, int | None]:
        """Return how many sessions are open, and when the oldest began."""
        starts = micros(kept["start"])
        if not self.program.keeps_only_open:
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
        """Run one micro-batch of a group; what a function of the user did may be an error."""
        program, kept, waiting = self.program, memory.kept, memory.buffered
        rejected, closed, processed = list[Rejected](), program.none_closed, 0
        if program.in_time_order:
            most, sequence = self.spec.inputs.max_buffered_per_key, self.spec.sequence
            turns = take_turns(waiting, arrived, clocks.watermark_us, most, sequence)
            arrived, waiting, rejected = turns.due, turns.waiting, turns.rejected
        else:
            kept, closed = _close_due(program, kept, clocks, at_end=False)
        if arrived.num_rows:
            joined = join(program, kept, arrived, horizon_of(program, clocks))
            kept, processed, rejected = joined.sessions, joined.events, rejected + joined.rejected
        if program.in_time_order or self.spec.revises:
            kept, later = _close_due(program, kept, clocks, at_end=True)
            closed = later if closed is program.none_closed else _both(closed, later)
        return Outcome(
            memory=GroupState(kept, waiting),
            rows=closed.rows,
            rejected=[*rejected, *closed.rejected],
            processed=processed,
            buffered=waiting.num_rows - memory.buffered.num_rows,
            sessions=closed.sessions,
            revised=closed.revised,
            out_of_order=closed.out_of_order,
        )


def _both(first: Closed, then: Closed) -> Closed:
    """Return what goes out of sessions before events join, and at the end of the micro-batch."""
    return Closed(
        rows=concat([first.rows, then.rows]),
        rejected=[*first.rejected, *then.rejected],
        sessions=first.sessions + then.sessions,
        revised=first.revised + then.revised,
        out_of_order=first.out_of_order + then.out_of_order,
    )


def _close_due(
    program: Program, rows: pa.Table, clocks: BatchClocks, *, at_end: bool
) -> tuple[pa.Table, Closed]:
    """
    Let the sessions of a group that are due give their rows; return the rows that stay.

    `at_end` says whether it's the end of the micro-batch: only then a session gives an early row.
    """
    emission, closed = _due(program, rows, clocks, at_end=at_end), program.none_closed
    if emission is None:
        return rows, closed
    if emission.given.num_rows:
        for feature in program.features:
            emission = feature.context(emission)
        emission, closed = _finished(program, emission)
        for feature in program.features:
            closed = feature.emitted(emission, closed)
        # Of those given, the ones that close and whose `finish` didn't fail.
        closes = emission.final[emission.gives_row]
        closes[[*closed.failed]] = False
        closed = attrs.evolve(closed, sessions=int(closes.sum()))
    return _retained(program, emission, closed), closed


def _due(program: Program, rows: pa.Table, clocks: BatchClocks, *, at_end: bool) -> Emission | None:
    """Return which sessions give a row; None where nothing changes."""
    # A batch has all events at once, so no row of it is early.
    may_be_early = at_end and program.spec.early is not None and not clocks.whole
    closes, closed = micros(rows[program.cuts.column]), flags_in(rows, CLOSED.name)
    over = is_over(closes, clocks.watermark_us)
    expired = is_over(closes + program.stays_us, clocks.watermark_us)
    # A session that is over, and waits for late events, changes when it's forgotten.
    if not (may_be_early or (over & ~closed).any() or (expired & closed).any()):
        return None
    sessions, memories = rows, rows.slice(0, 0)
    if program.has_memories:
        chosen = has_state(rows)
        sessions, memories = split(rows, chosen)
        # Rows that aren't sessions give none: these masks are of the sessions alone.
        over, expired, closed = over[chosen], expired[chosen], closed[chosen]
    final, none = over & ~closed, sessions.slice(0, 0)
    emission = Emission(
        sessions=sessions,
        memories=memories,
        clocks=clocks,
        may_be_early=may_be_early,
        over=over,
        final=final,
        expired=expired,
        gives_row=final,
        given=none,
        is_final=over,
    )
    for feature in program.features:
        emission = feature.due(emission)
    places = np.flatnonzero(emission.gives_row)
    given = emission.sessions.take(pa.array(places))
    return attrs.evolve(emission, given=given, is_final=over[places])


def _finished(program: Program, emission: Emission) -> tuple[Emission, Closed]:
    """Return the result rows of the given sessions, and these with when their last event was."""
    spec, given = program.spec, with_last_event(emission.given, program.gap_us)
    keys = key_columns(given)
    ids = session_ids(keys, micros(given["start"]), numbers_in(given, SALT.name))
    columns = dict[str, pa.Array]()
    for feature in program.features:
        columns |= feature.row_columns(given)

    def tell() -> Sequence[Session[Any]]:
        sessions = session_views(program, given, ids)
        for feature in program.features:
            for name in feature.session_attributes:
                for session, value in zip(sessions, columns[name].to_pylist(), strict=True):
                    vars(session)[name] = value
        return sessions

    finished = program.finish(spec, given, tell)
    columns |= {
        "session_id": pa.array(ids, pa.string()),
        "session_start": given["start"],
        "session_end": given["end"],
        "last_event_time": given[LAST_EVENT.name],
    }
    own = [*keys, *(columns[field.name] for field in spec.own_fields)]
    if not isinstance(finished.places, range):
        places = pa.array(finished.places, pa.int64())
        # Sessions that gave 2 rows, none and 1 have the places 0 0 2.
        own = [column.take(places) for column in own]
    rows = pa.Table.from_arrays([*own, *finished.columns], schema=spec.result_schema)
    failed_output: list[Rejected] = []
    if finished.failed:
        named = given.append_column("session_id", columns["session_id"])
        failed_output = Rejected.with_failures("failed_output", finished.failed, named)
    closed = Closed(rows, failed_output, finished.places, finished.failed, left=finished.left)
    return attrs.evolve(emission, given=given), closed


def session_views(program: Program, table: pa.Table, ids: Sequence[str]) -> list[Session[Any]]:
    """Return the sessions of a table that says when their last events were; without states."""
    starts, ends = micros(table["start"]).tolist(), micros(table["end"]).tolist()
    last = micros(table[LAST_EVENT.name]).tolist()
    events, reasons = table["events"].to_numpy().tolist(), program.cuts.reasons(table).to_pylist()
    keys = decode_keys(program.spec, table)
    return list(map(session_of, keys, ids, starts, ends, last, events, reasons))


def _retained(program: Program, emission: Emission, closed: Closed) -> pa.Table:
    """Return the rows that stay."""
    sessions, expired = emission.sessions, emission.expired
    if closed.stored:
        # Those that gave a row go to the end: of three, the second, [0, 2, 1].
        gave = np.flatnonzero(emission.gives_row)
        changed = replaced(sessions.take(pa.array(gave)), closed.stored)
        sessions = concat([left_over(sessions, gave), changed])
        # In the same order as the rows: the others, and then those that gave a row.
        expired = np.concatenate([expired[~emission.gives_row], expired[gave]])
    forgotten, kept = split(sessions, expired)
    if not (forgotten.num_rows or emission.memories.num_rows):
        return kept
    parts, watermark_us = [kept], emission.clocks.watermark_us
    for feature in program.features:
        parts += feature.remembered(emission.memories, kept, forgotten, watermark_us)
    return concat(parts)
