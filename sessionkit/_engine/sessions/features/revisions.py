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
               closed      whether it's over, and only waits for late events
               next_row    under `every duration`, from when on it may give a row, in microseconds

The id of a session depends on its start and its mark. So one whose start moves back has another id
from then on, and its next row supersedes the one that is out, as it does those of the sessions that
it has swallowed.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Mask, Numbers, lists_of, micros, whole
from sessionkit._engine.boundaries import is_over
from sessionkit._engine.logic import NEVER_US, BatchClocks
from sessionkit._engine.rows.objects import decode_keys
from sessionkit._engine.rows.table import (
    INSTANT,
    Rejected,
    concat,
    has_closed,
    has_state,
    instants,
    key_columns,
    marks_of,
    numbers_in,
    replaced,
    split,
    with_column,
)
from sessionkit._engine.sessions.ids import FIRST_MARK, ids_of, session_ids
from sessionkit._engine.sessions.plan import Closed, Plan
from sessionkit._instants import span_us
from sessionkit.errors import UserFunctionError
from sessionkit.spec.functions import Failure, name_of
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts import Clock, Every

REVISED: Final = (
    pa.field("revision", pa.int64()),
    pa.field("shown", pa.list_(INSTANT)),
    pa.field("pending", pa.int64()),
    pa.field("closed", pa.bool_()),
)
NEXT_ROW: Final = pa.field("next_row", pa.int64())


@attrs.frozen
class Giving:
    """
    Which sessions give a row at an instant, and which are over by then; `final` ones close.

    `others` only remember sessions. `given` are those that give a row, with what it says of
    revisions. `next_row` is from when on each gives its next one; None where none is timed.
    """

    sessions: pa.Table
    others: pa.Table
    over: Mask
    final: Mask
    gives_row: Mask
    given: pa.Table
    next_row: Numbers | None


@attrs.frozen(eq=False, slots=False)
class Revisions:
    """
    When sessions give rows, and how long they stay after their close.

    Attributes:
        spec: The spec.
        early: How often a session gives a row before it closes; None for never.
        waits: After what time it gives the next one, in microseconds; None for no time.
        stays_us: How long it can still become part of another after its close, in microseconds.
        closes: The column that says when a session is over.
    """

    spec: AnySessionSpec
    early: Every | None
    waits: int | None
    stays_us: int
    closes: str

    @classmethod
    def of(cls, spec: AnySessionSpec, closes: str) -> "Revisions | None":
        if not spec.revises:
            return None
        early, stays_us = spec.early, _span_us(spec.mergeable) or 0
        waits = None if early is None else _span_us(early.duration)
        return cls(spec, early, waits, stays_us, closes)

    @cached_property
    def fields(self) -> Sequence[pa.Field]:
        return REVISED if self.waits is None else [*REVISED, NEXT_ROW]

    @property
    def identity(self) -> dict[str, Any]:
        results, lateness = self.spec.results, self.spec.lateness
        spans = {"allowed_lateness": lateness.allowed, "reopen_within": lateness.reopen_within}
        own = {f"{name}_us": _span_us(span) for name, span in spans.items()}
        return {"revisions": {"emit": str(results.emit), **own}}

    def columns(self, plan: Plan, chosen: Mask) -> list[pa.Array]:
        """Return what is stored of the chosen sessions of a plan, which have taken events."""
        before, came = plan.touched, plan.counts[chosen]
        revisions, closed_before = numbers_in(before, "revision"), has_closed(before)
        shown = whole(plan.opened_of(chosen)["shown"]).flatten()
        lengths = whole(before["shown"]).value_lengths().to_numpy()
        pending = plan.of_opened(np.add, numbers_in(before, "pending"))[chosen]
        # A failed event may leave a closed session as it was.
        closed = plan.of_opened(np.maximum, closed_before.astype(np.int64))[chosen] > 0
        columns = [
            pa.array(plan.of_opened(np.maximum, revisions)[chosen]),
            lists_of(shown, plan.of_opened(np.add, lengths.astype(np.int64))[chosen]),
            pa.array(pending + came),
            pa.array(closed & (came == 0)),
        ]
        if self.waits is not None:
            next_row = numbers_in(before, "next_row")
            columns.append(pa.array(plan.of_opened(np.minimum, next_row, NEVER_US)[chosen]))
        return columns

    def migrated(self, sessions: pa.Table, old: AnySessionSpec) -> pa.Table:
        """
        Return sessions of another spec with what is stored here.

        Of those that have given no rows, all events are new. When a session may give its next row
        is up to this spec.
        """
        if "next_row" in sessions.column_names and old.results.emit != self.spec.results.emit:
            sessions = sessions.drop_columns("next_row")
        number = sessions.num_rows
        none = np.zeros(number, np.int64)
        fresh = {
            "revision": pa.array(none),
            "shown": lists_of(pa.array([], INSTANT), none),
            "pending": pa.array(numbers_in(sessions, "events")),
            "closed": pa.array(np.zeros(number, np.bool_)),
            "next_row": pa.array(np.full(number, NEVER_US)),
        }
        for field in self.fields:
            if field.name not in sessions.column_names:
                sessions = with_column(sessions, field, fresh[field.name])
        return sessions

    def due(self, kept: pa.Table) -> dict[Clock, Numbers]:
        """Return when each session closes, is forgotten, or gives a row while it's open."""
        closed = has_closed(kept)
        forgotten_us = micros(kept[self.closes]) + closed * self.stays_us
        due: dict[Clock, Numbers] = {"event_time": forgotten_us}
        if self.waits is not None and self.early is not None:
            waits = ~closed & (numbers_in(kept, "pending") > 0)
            at = np.where(waits, numbers_in(kept, "next_row"), NEVER_US)
            due[self.early.clock] = np.minimum(due.get(self.early.clock, NEVER_US), at)
        return due

    def gives_early(self, clocks: BatchClocks) -> bool:
        """Whether a session may give a row before it's over."""
        return self.early is not None and not clocks.whole

    def giving(self, kept: pa.Table, clocks: BatchClocks, *, only_final: bool) -> Giving | None:
        """Return which sessions give a row, or only which are over; None if none can."""
        early = self.early if self.gives_early(clocks) and not only_final else None
        over = is_over(micros(kept[self.closes]), clocks.watermark_us)
        if early is None and not over.any():
            return None
        are_sessions = has_state(kept)
        (sessions, others), over = split(kept, are_sessions), over[are_sessions]
        closed, next_row = has_closed(sessions), None
        final = gives_row = over & ~closed
        if early is not None:
            next_row = self._next_row(sessions, early, clocks)
            gives_row = final | (self._is_due(sessions, early, next_row, clocks) & ~over & ~closed)
        given = _revised(sessions.filter(pa.array(gives_row)), final[gives_row])
        return Giving(sessions, others, over, final, gives_row, given, next_row)

    def also(self, giving: Giving, others: Mask) -> Giving:
        """Let other sessions that are over give another row."""
        if not others.any():
            return giving
        gives_row, sessions = giving.gives_row | others, giving.sessions
        given = _revised(sessions.filter(pa.array(gives_row)), giving.over[gives_row])
        return attrs.evolve(giving, gives_row=gives_row, given=given)

    def after(
        self, giving: Giving, done: Closed, clocks: BatchClocks
    ) -> tuple[pa.Table, pa.Table, Closed]:
        """Return the sessions that stay, those that are forgotten, and what became of the rows."""
        sessions, over, gives_row = giving.sessions, giving.over, giving.gives_row
        finish = self.spec.finish
        vanished = {} if finish is None else self._vanished(finish, giving.given, done)
        if (gives_row | giving.final).any():
            shows = np.zeros(len(over), np.bool_)
            shows[np.flatnonzero(gives_row)[np.unique(np.asarray(done.places, np.int64))]] = True
            sessions = self._after_rows(giving, shows, clocks)
        elif giving.next_row is not None:
            sessions = replaced(sessions, {"next_row": pa.array(giving.next_row)})
        closes = micros(sessions[self.closes])
        forgotten = over & is_over(closes + self.stays_us, clocks.watermark_us)
        gone, kept = split(sessions, forgotten)
        if (others := giving.others).num_rows:
            until = micros(others[self.closes]) + has_closed(others) * self.stays_us
            others = others.filter(pa.array(~is_over(until, clocks.watermark_us)))
        failed, failed_output = [*{*done.failed, *vanished}], done.failed_output
        if vanished:
            table = giving.given.append_column("session_id", pa.array(ids_of(giving.given)))
            failures = Rejected.with_failures("failed_output", vanished, table)
            failed_output = [*failed_output, *failures]
        number = int(giving.final.sum() - giving.final[gives_row][failed].sum())
        closed = attrs.evolve(done, failed_output=failed_output, sessions=number)
        return concat([kept, others]), gone, closed

    def revised(self, rows: pa.Table) -> int:
        """Count the rows that replace earlier ones."""
        others = whole(rows["supersedes"]).value_lengths().to_numpy(zero_copy_only=False)
        return int(((numbers_in(rows, "revision") > 1) | (others > 0)).sum())

    def _next_row(self, sessions: pa.Table, early: Every, clocks: BatchClocks) -> Numbers | None:
        """Return when sessions give their next row; in event time their start may still move."""
        if self.waits is None:
            return None
        stored = numbers_in(sessions, "next_row")
        begins, begun = stored == NEVER_US, np.full(len(stored), clocks.processing_us)
        if early.clock == "event_time":
            begins |= numbers_in(sessions, "revision") == 0
            begun = micros(sessions["start"])
        return np.where(begins, begun + self.waits, stored)

    def _is_due(
        self, sessions: pa.Table, early: Every, next_row: Numbers | None, clocks: BatchClocks
    ) -> Mask:
        """Mark the sessions that give a row if they're open."""
        pending = numbers_in(sessions, "pending")
        if next_row is None:
            return pending >= (early.events or 0)
        return (pending > 0) & is_over(next_row, self._now_us(clocks))

    def _now_us(self, clocks: BatchClocks) -> int:
        by_events = self.early is None or self.early.clock == "event_time"
        return clocks.watermark_us if by_events else clocks.processing_us

    def _after_rows(self, giving: Giving, shows: Mask, clocks: BatchClocks) -> pa.Table:
        """Return the sessions after some of them gave a row."""
        sessions, gives_row = giving.sessions, giving.gives_row
        found = {
            "closed": pa.array(giving.over),
            "shown": _shown(sessions, shows),
            "revision": pa.array(numbers_in(sessions, "revision") + gives_row),
            "pending": pa.array(np.where(gives_row, 0, numbers_in(sessions, "pending"))),
        }
        if self.waits is not None:
            stored = giving.next_row
            stored = numbers_in(sessions, "next_row") if stored is None else stored
            next_row = np.where(gives_row, self._now_us(clocks) + self.waits, stored)
            found["next_row"] = pa.array(next_row)
        return replaced(sessions, found)

    def _vanished(
        self, finish: Callable[..., Any], given: pa.Table, done: Closed
    ) -> dict[int, Failure]:
        """Return why sessions fail that have emitted rows, but whose `finish` returned none now."""
        if not given.num_rows:
            return {}
        out = whole(given["shown"]).value_lengths().to_numpy(zero_copy_only=False) > 0
        out[[*np.asarray(done.places, np.int64), *done.failed]] = False
        if not out.any():
            return {}
        places = np.flatnonzero(out)
        what = f"`finish` ({name_of(finish)}) returned no row for a session that has rows"
        hint = "return a row for it too, with a field that says so"
        keys = decode_keys(self.spec, given.take(pa.array(places)))
        failures = {
            int(place): Failure(f"{what} out, for {key!r}", None, hint)
            for place, key in zip(places, keys, strict=True)
        }
        if self.spec.on_error == "raise":
            raise UserFunctionError(*failures[int(places[0])])
        return failures


def _span_us(span: timedelta | None) -> int | None:
    return None if span is None else span_us(span)


def _revised(given: pa.Table, final: Mask) -> pa.Table:
    """Return sessions that give a row with its number, whether it's final, and what it replaces."""
    given = replaced(given, {"revision": pa.array(numbers_in(given, "revision") + 1)})
    owners, starts, marks = _shown_of(given)
    other = (starts != micros(given["start"])[owners]) | (marks != marks_of(given)[owners])
    ids: list[str] = []
    if other.any():
        keys = [column.take(pa.array(owners[other])) for column in key_columns(given)]
        ids = session_ids(keys, starts[other], marks[other])
    sizes = np.bincount(owners[other], minlength=given.num_rows)
    superseded = lists_of(pa.array(ids, pa.string()), sizes)
    return given.append_column("is_final", pa.array(final)).append_column("supersedes", superseded)


def _shown_of(sessions: pa.Table) -> tuple[Numbers, Numbers, Numbers]:
    """Return the ids of emitted rows: the places of their sessions, their starts and marks."""
    shown = whole(sessions["shown"])
    out, owners = micros(shown.flatten()), shown.value_parent_indices().to_numpy()
    is_mark = out >= FIRST_MARK
    after = np.append(np.where(is_mark, out, 0)[1:], np.int64(0))
    return owners[~is_mark], out[~is_mark], after[~is_mark]


def _shown(sessions: pa.Table, shows: Mask) -> pa.Array:
    """Return the starts of emitted rows: only its own for a session that has given one."""
    shown, marks = whole(sessions["shown"]), marks_of(sessions)
    owners, out = shown.value_parent_indices().to_numpy(), micros(shown.flatten())
    stays, has_mark = ~shows[owners], shows & (marks > 0)
    places = [owners[stays], np.flatnonzero(shows), np.flatnonzero(has_mark)]
    values = [out[stays], micros(sessions["start"])[shows], marks[has_mark]]
    owned = np.concatenate(places)
    order = np.argsort(owned, kind="stable")
    sizes = np.bincount(owned, minlength=len(shows))
    return lists_of(instants(np.concatenate(values)[order]), sizes)
