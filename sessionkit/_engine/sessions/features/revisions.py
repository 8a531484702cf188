"""
Sessions that may give several rows: `emit`, `Lateness(allowed=...)` and `reopen_within`.

A session is *over* once the watermark has reached its end; then it gives a final row. Before that,
it gives a row whenever `emit` says so, at the end of a micro-batch. It's forgotten when it's over,
or under `Lateness(...)` that much later. Until then events may join it: it's
over still, and gives another final row, or is open again.

    sessions   revision    how many rows it has given
               shown       the starts, each with its mark after it if it has one, and so the ids,
                           under which rows of it are out
               pending     how many events it has taken since its last row
               closed      whether it's over, and only waits for late events; or was dropped
               next_row    under `every duration`, from when on it may give a row, in microseconds

The id of a session depends on its start and its mark. So one whose start moves back has another id
from then on, and its next row supersedes the one that is out, as it does those of the sessions that
it has swallowed.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.boundaries import is_over
from sessionkit._engine.logic import NEVER_US, BatchClocks
from sessionkit._engine.rows.objects import decode_keys
from sessionkit._engine.rows.table import (
    INSTANT,
    Rejected,
    has_state,
    instants,
    is_trace,
    key_columns,
    lists_of,
    marks_of,
    micros,
    parted,
    replaced,
    stacked,
    whole,
    with_column,
)
from sessionkit._engine.sessions.behind import FIRST_MARK
from sessionkit._engine.sessions.features.duplicates import Duplicates
from sessionkit._engine.sessions.ids import ids_of, session_ids
from sessionkit._engine.sessions.plan import Plan
from sessionkit._engine.sessions.results import Closed
from sessionkit._instants import BEGINNING_US, span_us
from sessionkit.errors import UserFunctionError
from sessionkit.spec.functions import Failure, name_of
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts import Clock, Every

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

REVISED: Final = (
    pa.field("revision", pa.int64()),
    pa.field("shown", pa.list_(INSTANT)),
    pa.field("pending", pa.int64()),
    pa.field("closed", pa.bool_()),
)
NEXT_ROW: Final = pa.field("next_row", pa.int64())


@attrs.frozen
class Settled:
    """
    What came of sessions at an instant.

    Attributes:
        kept: Those that are remembered.
        closed: The rows that sessions gave, and how many of these closed.
    """

    kept: pa.Table
    closed: Closed


@attrs.frozen(eq=False, slots=False)
class Revisions:
    """
    When sessions give rows, and how long they stay after their close.

    Attributes:
        spec: The spec.
        early: How often a session gives a row before it closes; None for never.
        stays_us: How long it can still become part of another after that, in microseconds.
        discards: Whether a row has the events since the last one alone.
        closes: The column that says when a session is over.
        duplicates: What remembers the ids of sessions that are forgotten.
    """

    spec: AnySessionSpec
    early: Every | None
    stays_us: int
    discards: bool
    closes: str
    duplicates: Duplicates | None

    @classmethod
    def of(cls, spec: AnySessionSpec, duplicates: Duplicates | None) -> "Revisions | None":
        """Return the feature, where a spec asks for it."""
        if not spec.revises:
            return None
        stays_us = 0 if spec.mergeable is None else span_us(spec.mergeable)
        closes = "end" if spec.rules is None else "closes"
        return cls(spec, spec.early, stays_us, spec.discards, closes, duplicates)

    @cached_property
    def waits(self) -> int | None:
        """After what time a session gives its next row, in microseconds; None for no time."""
        return None if self.early is None else _span_us(self.early.duration)

    @cached_property
    def fields(self) -> Sequence[pa.Field]:
        """What is stored of a session."""
        return REVISED if self.waits is None else [*REVISED, NEXT_ROW]

    @property
    def identity(self) -> dict[str, Any]:
        """What must not change while a checkpoint lives."""
        lateness = self.spec.lateness
        spans = {"allowed_lateness": lateness.allowed, "reopen_within": lateness.reopen_within}
        own = {f"{name}_us": _span_us(span) for name, span in spans.items()}
        entries: dict[str, Any] = {"revisions": {"emit": str(self.spec.results.emit), **own}}
        return entries | ({"row_has": "new events"} if self.discards else {})

    def columns(self, plan: Plan, chosen: Mask) -> list[pa.Array]:
        """Return what is stored of the chosen sessions of a plan, which have taken events."""
        came, sizes = plan.counts[chosen], plan.opened_counts[chosen]
        return self.joined(plan.opened_of(chosen), np.repeat(np.arange(len(came)), sizes), came)

    def joined(self, parts: pa.Table, owners: Numbers, came: Numbers) -> list[pa.Array]:
        """
        Return what is stored of sessions with so many new events.

        `parts` are the sessions that became part of them, `owners` the place for each of the one
        that it became part of.
        """
        number, pending = len(came), came.copy()
        revision, sizes = np.zeros(number, np.int64), np.zeros(number, np.int64)
        np.maximum.at(revision, owners, _numbers(parts, "revision"))
        np.add.at(pending, owners, _numbers(parts, "pending"))
        shown = whole(parts["shown"])
        np.add.at(sizes, owners, shown.value_lengths().to_numpy(zero_copy_only=False))
        # A failed event may leave a closed session as it was.
        closed = np.zeros(number, np.bool_)
        np.logical_or.at(closed, owners, closed_ones(parts))
        columns = [
            pa.array(revision),
            lists_of(shown.flatten(), sizes),
            pa.array(pending),
            pa.array(closed & (came == 0)),
        ]
        if self.waits is not None:
            next_row = np.full(number, NEVER_US)
            np.minimum.at(next_row, owners, _numbers(parts, "next_row"))
            columns.append(pa.array(next_row))
        return columns

    def migrated(self, sessions: pa.Table, old: AnySessionSpec) -> pa.Table:
        """
        Return sessions of another spec with what is stored here.

        Those that are over, and only wait for late events, stay where this spec waits for them too;
        otherwise their ids do. Of those that have given no rows, all events are new. When a session
        may give its next row is up to this spec.
        """
        if not self.stays_us:
            sessions = forget_revisions(sessions, self.duplicates)
        if "next_row" in sessions.column_names and old.results.emit != self.spec.results.emit:
            sessions = sessions.drop_columns("next_row")
        number = sessions.num_rows
        none = np.zeros(number, np.int64)
        fresh = {
            "revision": pa.array(none),
            "shown": lists_of(pa.array([], INSTANT), none),
            "pending": pa.array(_numbers(sessions, "events")),
            "closed": pa.array(is_trace(sessions)),
            "next_row": pa.array(np.full(number, NEVER_US)),
        }
        for field in self.fields:
            if field.name not in sessions.column_names:
                sessions = with_column(sessions, field, fresh[field.name])
        return sessions

    def due(self, kept: pa.Table) -> dict[Clock, Numbers]:
        """Return when each session closes, is forgotten, or gives a row while it's open."""
        closed = closed_ones(kept)
        due: dict[Clock, Numbers] = {"event_time": self._forgotten_us(kept, closed)}
        if self.waits is not None and self.early is not None:
            waits = ~closed & (_numbers(kept, "pending") > 0)
            at = np.where(waits, _numbers(kept, "next_row"), NEVER_US)
            due[self.early.clock] = np.minimum(due.get(self.early.clock, NEVER_US), at)
        return due

    def _forgotten_us(self, sessions: pa.Table, closed: Mask) -> Numbers:
        """Return when sessions are forgotten if they have closed, and close otherwise."""
        forgotten_us: Numbers = micros(sessions[self.closes]) + np.where(closed, self.stays_us, 0)
        return forgotten_us

    def settled(
        self,
        sessions: pa.Table,
        clocks: BatchClocks,
        close: Callable[[pa.Table], Closed],
        *,
        only_final: bool = False,
    ) -> Settled:
        """Let sessions give rows, made by `close`; or only those that are over give one."""
        sessions, others = parted(sessions, has_state(sessions))
        closes, closed = micros(sessions[self.closes]), closed_ones(sessions)
        over = is_over(closes, clocks.watermark_us)
        final = over & ~closed
        gives_row, columns = final, dict[str, Numbers]()
        if self.early is not None and not (only_final or clocks.whole):
            columns = self._next_row(sessions, clocks)
            gives_row = final | (self._is_due(sessions, columns, clocks) & ~over & ~closed)
        if self.discards:
            gives_row = gives_row & (_numbers(sessions, "events") > 0)
        given = _revised(sessions.filter(pa.array(gives_row)), final[gives_row])
        done = close(given)
        vanished = self._vanished(given, done)
        if (gives_row | final).any():
            shows = np.zeros(len(closes), np.bool_)
            shows[np.flatnonzero(gives_row)[np.unique(np.asarray(done.places, np.int64))]] = True
            columns |= self._after_rows(sessions, gives_row, shows, columns, clocks)
            sessions = replaced(
                sessions, {"closed": pa.array(over), "shown": _shown(sessions, shows)}
            )
        sessions = replaced(sessions, {name: pa.array(one) for name, one in columns.items()})
        forgotten = over & is_over(closes + self.stays_us, clocks.watermark_us)
        gone, kept = parted(sessions, forgotten)
        if others.num_rows:
            until = self._forgotten_us(others, closed_ones(others))
            others = others.filter(pa.array(~is_over(until, clocks.watermark_us)))
        kept = stacked([kept, others, *self._ids(gone, clocks.watermark_us)])
        failed = [*{*done.failed, *vanished}]
        number = int(final.sum() - final[gives_row][failed].sum())
        failed_output = done.failed_output + _without_rows(given, vanished)
        return Settled(
            kept,
            attrs.evolve(done, failed_output=failed_output, sessions=number, places=(), failed=()),
        )

    def _ids(self, gone: pa.Table, watermark_us: int) -> list[pa.Table]:
        if self.duplicates is None or not gone.num_rows:
            return []
        return [self.duplicates.remembered(gone, watermark_us)]

    def _next_row(self, sessions: pa.Table, clocks: BatchClocks) -> dict[str, Numbers]:
        """Return when sessions give their next row; in event time their start may still move."""
        if self.waits is None or self.early is None:
            return {}
        stored = _numbers(sessions, "next_row")
        begins, begun = stored == NEVER_US, np.full(len(stored), clocks.processing_us)
        if self.early.clock == "event_time":
            begins |= _numbers(sessions, "revision") == 0
            begun = micros(sessions["start"])
        return {"next_row": np.where(begins, begun + self.waits, stored)}

    def _is_due(
        self, sessions: pa.Table, columns: Mapping[str, Numbers], clocks: BatchClocks
    ) -> Mask:
        """Mark the sessions that give a row if they're open."""
        pending = _numbers(sessions, "pending")
        if self.early is not None and self.early.events is not None:
            return pending >= self.early.events
        return (pending > 0) & is_over(columns["next_row"], self._now_us(clocks))

    def _now_us(self, clocks: BatchClocks) -> int:
        by_events = self.early is None or self.early.clock == "event_time"
        return clocks.watermark_us if by_events else clocks.processing_us

    def _after_rows(
        self,
        sessions: pa.Table,
        gives_row: Mask,
        shows: Mask,
        columns: Mapping[str, Numbers],
        clocks: BatchClocks,
    ) -> dict[str, Numbers]:
        """Return the numbers of sessions after some of them gave a row, which some show."""
        found = {
            "revision": _numbers(sessions, "revision") + gives_row,
            "pending": np.where(gives_row, 0, _numbers(sessions, "pending")),
        }
        if self.discards:
            found["events"] = np.where(shows, 0, _numbers(sessions, "events"))
        if self.waits is not None:
            stored = columns.get("next_row", _numbers(sessions, "next_row"))
            found["next_row"] = np.where(gives_row, self._now_us(clocks) + self.waits, stored)
        return found

    def _vanished(self, given: pa.Table, done: Closed) -> dict[int, Failure]:
        """
        Return why sessions fail that have rows out, and for which `finish` has returned none.

        Raises:
            UserFunctionError: There is one, and the spec says `on_error="raise"`.
        """
        if self.spec.finish is None or self.discards or not given.num_rows:
            return {}
        out = whole(given["shown"]).value_lengths().to_numpy(zero_copy_only=False) > 0
        out[[*np.asarray(done.places, np.int64), *done.failed]] = False
        if not out.any():
            return {}
        places = np.flatnonzero(out)
        what = f"`finish` ({name_of(self.spec.finish)}) returned no row for a session that has rows"
        hint = "return a row for it too, with a field that says so"
        keys = decode_keys(self.spec, given.take(pa.array(places)))
        failures = {
            int(place): Failure(f"{what} out, for {key!r}", None, hint)
            for place, key in zip(places, keys, strict=True)
        }
        if self.spec.on_error == "raise":
            raise UserFunctionError(*failures[int(places[0])])
        return failures


def forget_revisions(sessions: pa.Table, duplicates: Duplicates | None) -> pa.Table:
    """Return sessions without those that only wait for late events; their ids may stay."""
    over, others = parted(sessions, closed_ones(sessions) & ~is_trace(sessions))
    if duplicates is None or not over.num_rows:
        return others
    return stacked([others, duplicates.remembered(over, BEGINNING_US)])


def closed_ones(sessions: pa.Table) -> Mask:
    """Mark the sessions that are over, and only wait for late events."""
    if "closed" not in sessions.column_names:
        return np.zeros(sessions.num_rows, np.bool_)
    closed = whole(sessions["closed"])
    if closed.null_count:
        closed = closed.fill_null(fill_value=False)
    mask: Mask = closed.to_numpy(zero_copy_only=False)
    return mask


def _numbers(sessions: pa.Table, name: str) -> Numbers:
    """Return a column of numbers; 0 for what only remembers the ids of a session."""
    column = whole(sessions[name])
    numbers: Numbers = (column.fill_null(0) if column.null_count else column).to_numpy()
    return numbers


def _span_us(span: timedelta | None) -> int | None:
    return None if span is None else span_us(span)


def _revised(given: pa.Table, final: Mask) -> pa.Table:
    """Return sessions that give a row with its number, whether it's final, and what it replaces."""
    given = replaced(given, {"revision": pa.array(_numbers(given, "revision") + 1)})
    owners, starts, marks = _shown_of(given)
    other = (starts != micros(given["start"])[owners]) | (marks != marks_of(given)[owners])
    ids: list[str] = []
    if other.any():
        keys = [column.take(pa.array(owners[other])) for column in key_columns(given)]
        ids = session_ids(keys, starts[other], marks[other])
    sizes = np.bincount(owners[other], minlength=given.num_rows)
    superseded = lists_of(pa.array(ids, pa.string()), sizes)
    return given.append_column("is_final", pa.array(final)).append_column("supersedes", superseded)


def _without_rows(given: pa.Table, failures: dict[int, Failure]) -> list[Rejected]:
    if not failures:
        return []
    table = given.append_column("session_id", pa.array(ids_of(given)))
    return Rejected.with_failures("failed_output", failures, table)


def _shown_of(sessions: pa.Table) -> tuple[Numbers, Numbers, Numbers]:
    """Return under what rows are out: the places of their sessions, their starts and marks."""
    shown = whole(sessions["shown"])
    out, owners = micros(shown.flatten()), shown.value_parent_indices().to_numpy()
    is_mark = out >= FIRST_MARK
    after = np.append(np.where(is_mark, out, 0)[1:], np.int64(0))
    return owners[~is_mark], out[~is_mark], after[~is_mark]


def _shown(sessions: pa.Table, shows: Mask) -> pa.Array:
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
