"""
How sessions give rows: final ones when they close, early ones while they're open, and later ones.

    due        which sessions give a row
    context    what `finish` gets, and what a row says: by which rule, number and history
    finish     the results, as columns
    emit       the rows; and what is stored of the sessions that gave them
    retain     the sessions that stay, and what is remembered of those that don't

Final, early and late rows take the same way. What differs is which sessions are due: before events
join, those that are over; at the end of a micro-batch, those that give an early row too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Numbers, concat, key_columns, left_over, micros, replaced, split
from sessionkit._engine.boundaries import is_over
from sessionkit._engine.logic import BatchClocks
from sessionkit._engine.rows.kept import has_closed, has_state
from sessionkit._engine.rows.objects import decode_keys
from sessionkit._engine.rows.rejected import Rejected
from sessionkit._engine.sessions.emission import Closed, Emission
from sessionkit._engine.sessions.ids import ids_of
from sessionkit._engine.sessions.program import Program
from sessionkit.spec.columns import SESSION_FIELDS
from sessionkit.spec.views import Session, session_of


def due_at(program: Program, rows: pa.Table) -> Numbers:
    """Return when sessions close, or are forgotten, in microseconds."""
    closes, stays_us = micros(rows[program.closes]), program.lateness.stays_us
    return closes + has_closed(rows) * stays_us if stays_us else closes


def close_due(
    program: Program, rows: pa.Table, clocks: BatchClocks, *, at_end: bool
) -> tuple[pa.Table, Closed]:
    """
    Let the sessions of a group that are due give their rows; return the rows that stay.

    `at_end` says whether it's the end of the micro-batch: only then a session gives an early row.
    """
    emission = _due(program, rows, clocks, at_end=at_end)
    if emission is None:
        return rows, program.no_rows
    closed = program.no_rows
    if emission.given.num_rows:
        emission = _context(program, emission)
        closed = _emitted(program, emission, _finished(program, emission))
    return _retained(program, emission, closed), closed


def _due(program: Program, rows: pa.Table, clocks: BatchClocks, *, at_end: bool) -> Emission | None:
    """Return which sessions give a row; None where nothing changes."""
    # A batch has all events at once, so no row of it is early.
    may_be_early = at_end and program.gives_early and not clocks.whole
    changes = is_over(due_at(program, rows), clocks.watermark_us)
    if not may_be_early and not changes.any():
        return None
    sessions, memories = split(rows, has_state(rows))
    over = is_over(micros(sessions[program.closes]), clocks.watermark_us)
    final = over & ~has_closed(sessions)
    none = sessions.slice(0, 0)
    emission = Emission(sessions, memories, clocks, may_be_early, over, final, final, none, over)
    for feature in program.features:
        emission = feature.due(emission)
    places = np.flatnonzero(emission.gives_row)
    given = emission.sessions.take(pa.array(places))
    return attrs.evolve(emission, given=given, is_final=over[places])


def _context(program: Program, emission: Emission) -> Emission:
    for feature in program.features:
        emission = feature.context(emission)
    return emission


def _finished(program: Program, emission: Emission) -> Closed:
    """Return the result rows."""
    spec, given = program.spec, emission.given
    ids, columns = ids_of(given), dict[str, pa.Array]()
    for feature in program.features:
        columns |= feature.row_columns(given)

    def tell() -> Sequence[Session[Any]]:
        sessions = sessions_of(program, given, ids)
        for feature in program.features:
            _set_attributes(sessions, feature.session_attributes, columns)
        return sessions

    finished = program.finish(spec, given, tell)
    added = [columns[field.name] for field in spec.own_fields[len(SESSION_FIELDS) :]]
    own = [*key_columns(given), pa.array(ids, pa.string()), given["start"], given["end"], *added]
    if not isinstance(finished.places, range):
        places = pa.array(finished.places, pa.int64())
        own = [column.take(places) for column in own]
    rows = pa.Table.from_arrays([*own, *finished.columns], schema=spec.result_schema)
    failed_output: list[Rejected] = []
    if finished.failed:
        named = given.append_column("session_id", pa.array(ids))
        failed_output = Rejected.with_failures("failed_output", finished.failed, named)
    return Closed(rows, failed_output, finished.places, finished.failed, left=finished.left)


def sessions_of(program: Program, table: pa.Table, ids: Sequence[str]) -> list[Session[Any]]:
    """Return the sessions of a table, without their states."""
    starts, ends = micros(table["start"]).tolist(), micros(table["end"]).tolist()
    events, reasons = table["events"].to_numpy().tolist(), program.cuts.reasons(table).to_pylist()
    keys = decode_keys(program.spec, table)
    return list(map(session_of, keys, ids, starts, ends, events, reasons))


def _set_attributes(
    sessions: Sequence[Session[Any]], attributes: Mapping[str, str], columns: Mapping[str, pa.Array]
) -> None:
    """Set what columns say of sessions as their attributes."""
    for column, attribute in attributes.items():
        for session, value in zip(sessions, columns[column].to_pylist(), strict=True):
            vars(session)[attribute] = value


def _emitted(program: Program, emission: Emission, closed: Closed) -> Closed:
    for feature in program.features:
        closed = feature.emitted(emission, closed)
    # Of those given, the ones that close and whose `finish` didn't fail.
    closes = emission.final[emission.gives_row]
    closes[[*closed.failed]] = False
    return attrs.evolve(closed, sessions=int(closes.sum()))


def _retained(program: Program, emission: Emission, closed: Closed) -> pa.Table:
    """Return the rows that stay."""
    sessions, over, watermark_us = emission.sessions, emission.over, emission.clocks.watermark_us
    if closed.stored:
        # Those that gave a row go to the end: of three, the second, [0, 2, 1].
        gave = np.flatnonzero(emission.gives_row)
        changed = replaced(sessions.take(pa.array(gave)), closed.stored)
        sessions = concat([left_over(sessions, gave), changed])
        over = np.concatenate([over[~emission.gives_row], over[gave]])
    stays_until = micros(sessions[program.closes]) + program.lateness.stays_us
    forgotten, kept = split(sessions, over & is_over(stays_until, watermark_us))
    parts = [kept]
    for feature in program.features:
        parts += feature.remembered(emission.memories, kept, forgotten, watermark_us)
    return concat(parts)
