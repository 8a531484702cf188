"""
One micro-batch of the sessions of a group where a session may give several rows.

A session is *over* once the watermark has reached its end; then it gives a final row. Before that,
it gives a row whenever `emit` says so, at the end of a micro-batch. It's forgotten when it's over,
or under `allowed_lateness` and `reopen_within` that much later. Until then events may join it: it's
over still, and gives another final row, or is open again.

The number of the last row of each id has the session as it is. `shown` has the ids under which rows
are out; a row under another id supersedes these.
"""

from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.clocks import BatchClocks
from sessionkit._engine.logic import NEVER_US
from sessionkit._engine.outcome import Memory, Outcome
from sessionkit._engine.rows.buffer import take_turns
from sessionkit._engine.rows.marks import has_state, marks_of
from sessionkit._engine.rows.objects import decode_keys
from sessionkit._engine.rows.table import (
    Rejected,
    instants,
    key_columns,
    micros,
    parted,
    stacked,
    whole,
)
from sessionkit._engine.sessions.aggregates.values import lists_of
from sessionkit._engine.sessions.behind import Horizon
from sessionkit._engine.sessions.close import Closed, ids_of
from sessionkit._engine.sessions.duplicates import closed_ids
from sessionkit._engine.sessions.ids import session_ids
from sessionkit._engine.sessions.revisions import closed_ones, numbers_of, shown_of
from sessionkit._engine.sessions.ruled import closing_times, idled, with_column
from sessionkit._engine.sessions.ways import Way
from sessionkit._instants import span_us
from sessionkit.errors import UserFunctionError
from sessionkit.spec.functions import Failure, name_of
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts import Clock, Every, is_over

__all__ = ["due_with_revisions", "step_with_revisions"]

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


def due_with_revisions(spec: AnySessionSpec, kept: pa.Table) -> dict[Clock, Numbers]:
    """Return when each session closes, is forgotten, or gives a row while it's open."""
    closed = closed_ones(kept)
    due: dict[Clock, Numbers] = {"event_time": _forgotten_us(spec, kept)}
    if spec.early is not None and spec.early.duration is not None:
        waits = ~closed & (numbers_of(kept, "pending") > 0)
        at = np.where(waits, numbers_of(kept, "next_row"), NEVER_US)
        due[spec.early.clock] = np.minimum(due.get(spec.early.clock, NEVER_US), at)
    return due


def step_with_revisions(
    spec: AnySessionSpec, way: Way, memory: Memory, arrived: pa.Table, clocks: BatchClocks
) -> Outcome:
    """Run one micro-batch of a group."""
    if spec.order == "event_time":
        watermark_us, most = clocks.watermark_us, spec.max_buffered_per_key
        turns = take_turns(memory.buffered, arrived, watermark_us, most)
        joined = way.join(spec, memory.kept, turns.due, Horizon.of(spec, clocks))
        settled = _Settled.of(spec, way, joined.sessions, clocks)
        return Outcome(
            memory=Memory(settled.kept, turns.waiting),
            rows=settled.rows,
            rejected=turns.rejected + joined.rejected + settled.failed_output,
            processed=joined.events,
            buffered=turns.waiting.num_rows - memory.buffered.num_rows,
            sessions=settled.sessions,
        )
    before = _Settled.of(spec, way, memory.kept, clocks, only_final=True)
    joined = way.join(spec, before.kept, arrived, Horizon.of(spec, clocks))
    after = _Settled.of(spec, way, joined.sessions, clocks)
    return Outcome(
        memory=Memory(after.kept, memory.buffered),
        rows=pa.concat_tables([before.rows, after.rows]),
        rejected=joined.rejected + before.failed_output + after.failed_output,
        processed=joined.events,
        sessions=before.sessions + after.sessions,
    )


def _forgotten_us(spec: AnySessionSpec, sessions: pa.Table) -> Numbers:
    """Return when sessions are forgotten if they have closed, and close otherwise."""
    stays_us = np.where(closed_ones(sessions), _mergeable_us(spec), 0)
    forgotten_us: Numbers = closing_times(sessions) + stays_us
    return forgotten_us


def _mergeable_us(spec: AnySessionSpec) -> int:
    return 0 if spec.mergeable is None else span_us(spec.mergeable)


@attrs.frozen
class _Settled:
    """
    What came of sessions at an instant.

    Attributes:
        kept: Those that are remembered.
        rows: The result rows.
        failed_output: Those that can't give a row.
        sessions: How many closed, without those.
    """

    kept: pa.Table
    rows: pa.Table
    failed_output: list[Rejected]
    sessions: int

    @classmethod
    def of(
        cls,
        spec: AnySessionSpec,
        way: Way,
        sessions: pa.Table,
        clocks: BatchClocks,
        *,
        only_final: bool = False,
    ) -> "_Settled":
        """
        Let sessions give rows, close and be forgotten.

        Args:
            spec: The rules.
            way: How states become rows.
            sessions: The sessions.
            clocks: The clocks of the micro-batch.
            only_final: Whether those that stay open give no row.
        """
        sessions, others = parted(sessions, has_state(sessions))
        closes, closed = closing_times(sessions), closed_ones(sessions)
        over = is_over(closes, clocks.watermark_us)
        final = over & ~closed
        gives_row = final
        if spec.early is not None and not (only_final or clocks.whole):
            sessions = _with_next_row(spec.early, sessions, clocks)
            gives_row = final | (_is_due(spec.early, sessions, clocks) & ~over & ~closed)
        if spec.discards:
            gives_row = gives_row & (numbers_of(sessions, "events") > 0)
        forgotten = over & is_over(closes + _mergeable_us(spec), clocks.watermark_us)
        given = _revised(sessions.filter(pa.array(gives_row)), final[gives_row])
        done = way.close(spec, idled(given, clocks.by_events_us))
        vanished = _vanished(spec, given, done)
        failed = {*done.failed, *vanished}
        if (gives_row | final).any():
            shows = np.zeros(len(closes), np.bool_)
            shows[np.flatnonzero(gives_row)[np.unique(np.asarray(done.places, np.int64))]] = True
            sessions = _noted(spec, sessions, clocks, gives_row=gives_row, shows=shows, over=over)
        gone, kept = parted(sessions, forgotten)
        known = others.filter(pa.array(~is_over(_forgotten_us(spec, others), clocks.watermark_us)))
        return cls(
            stacked([kept, known, closed_ids(spec, gone, clocks.watermark_us)]),
            done.rows,
            done.failed_output + _without_rows(given, vanished),
            int(final.sum() - final[gives_row][list(failed)].sum()),
        )


def _with_next_row(early: Every, sessions: pa.Table, clocks: BatchClocks) -> pa.Table:
    """Set when sessions give their first row; in event time their start may still move back."""
    if early.duration is None:
        return sessions
    stored = numbers_of(sessions, "next_row")
    begins, begun = stored == NEVER_US, np.full(len(stored), clocks.processing_us)
    if early.clock == "event_time":
        begins |= numbers_of(sessions, "revision") == 0
        begun = micros(sessions["start"])
    at = np.where(begins, begun + span_us(early.duration), stored)
    return _with_numbers(sessions, "next_row", at)


def _is_due(early: Every, sessions: pa.Table, clocks: BatchClocks) -> Mask:
    """Mark the sessions that give a row if they're open."""
    pending = numbers_of(sessions, "pending")
    if early.events is not None:
        return pending >= early.events
    return (pending > 0) & is_over(numbers_of(sessions, "next_row"), _now(early, clocks))


def _now(early: Every, clocks: BatchClocks) -> int:
    return clocks.watermark_us if early.clock == "event_time" else clocks.processing_us


def _revised(given: pa.Table, final: Mask) -> pa.Table:
    """Return sessions that give a row with its number, whether it's final, and what it replaces."""
    given = _with_numbers(given, "revision", numbers_of(given, "revision") + 1)
    owners, starts, marks = shown_of(given)
    other = (starts != micros(given["start"])[owners]) | (marks != marks_of(given)[owners])
    keys = [column.take(pa.array(owners[other])) for column in key_columns(given)]
    sizes = np.bincount(owners[other], minlength=given.num_rows)
    ids = session_ids(keys, starts[other], marks[other])
    superseded = lists_of(pa.array(ids, pa.string()), sizes)
    return given.append_column("is_final", pa.array(final)).append_column("supersedes", superseded)


def _vanished(spec: AnySessionSpec, given: pa.Table, done: Closed) -> dict[int, Failure]:
    """
    Return why sessions fail that have rows out, and for which `finish` has returned none.

    Raises:
        UserFunctionError: There is one, and the spec says `on_error="raise"`.
    """
    out = whole(given["shown"]).value_lengths().to_numpy(zero_copy_only=False) > 0
    out[[*np.asarray(done.places, np.int64), *done.failed]] = False
    if not out.any() or spec.finish is None or spec.discards:
        return {}
    places = np.flatnonzero(out)
    what = f"`finish` ({name_of(spec.finish)}) returned no row for a session that has rows out, for"
    hint = "return a row for it too, with a field that says so"
    keys = decode_keys(spec, given.take(pa.array(places)))
    failures = {
        int(place): Failure(f"{what} {key!r}", None, hint)
        for place, key in zip(places, keys, strict=True)
    }
    if spec.on_error == "raise":
        raise UserFunctionError(*failures[int(places[0])])
    return failures


def _without_rows(given: pa.Table, failures: dict[int, Failure]) -> list[Rejected]:
    if not failures:
        return []
    table = given.append_column("session_id", pa.array(ids_of(given)))
    return Rejected.with_failures("failed_output", failures, table)


def _noted(
    spec: AnySessionSpec,
    sessions: pa.Table,
    clocks: BatchClocks,
    *,
    gives_row: Mask,
    shows: Mask,
    over: Mask,
) -> pa.Table:
    """
    Return sessions as they are after some have given rows.

    Args:
        spec: The rules.
        sessions: All of them.
        clocks: The clocks of the micro-batch.
        gives_row: Which were to give a row.
        shows: Which of these did.
        over: Which are over.
    """
    pending = np.where(gives_row, 0, numbers_of(sessions, "pending"))
    sessions = _with_numbers(sessions, "revision", numbers_of(sessions, "revision") + gives_row)
    sessions = _with_numbers(sessions, "pending", pending)
    sessions = _replaced(sessions, "closed", pa.array(over))
    sessions = _replaced(sessions, "shown", _shown_after(sessions, shows))
    if spec.discards:
        left = np.where(shows, 0, numbers_of(sessions, "events"))
        sessions = _with_numbers(sessions, "events", left)
    if spec.early is None or spec.early.duration is None:
        return sessions
    after = _now(spec.early, clocks) + span_us(spec.early.duration)
    next_row = np.where(gives_row, after, numbers_of(sessions, "next_row"))
    return _with_numbers(sessions, "next_row", next_row)


def _shown_after(sessions: pa.Table, shows: Mask) -> pa.Array:
    """Return under which starts rows are out: its own alone for a session that has given one."""
    shown, marks = whole(sessions["shown"]), marks_of(sessions)
    owners, out = shown.value_parent_indices().to_numpy(), micros(shown.flatten())
    stays, has_mark = ~shows[owners], shows & (marks > 0)
    places = [owners[stays], np.flatnonzero(shows), np.flatnonzero(has_mark)]
    values = [out[stays], micros(sessions["start"])[shows], marks[has_mark]]
    owned = np.concatenate(places)
    order = np.argsort(owned, kind="stable")
    sizes = np.bincount(owned, minlength=len(shows))
    return lists_of(instants(np.concatenate(values)[order]), sizes)


def _with_numbers(sessions: pa.Table, name: str, values: Numbers) -> pa.Table:
    return _replaced(sessions, name, pa.array(values, pa.int64()))


def _replaced(sessions: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return with_column(sessions, sessions.schema.field(name), column)
