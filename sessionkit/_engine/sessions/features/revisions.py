"""
Sessions that may give several rows: `emit`, `Lateness(allowed=...)` and `reopen_within`.

A session is *over* once the watermark has reached its end: then it gives a final row. Before, it
gives early rows at the end of micro-batches, by `emit`. It's forgotten when it's over, or later
under `Lateness(...)`. Until then events may join it: it gives another final row, or is open again.

    sessions   revision    how many rows it has given
               shown       the ids of the rows that are out: each as a start, and then the salt if
                           there is one
               pending     how many events it has taken since its last row
               closed      whether it's over, and only waits for late events
               next_row    under `every duration`, when it may give its next row, in microseconds

The id of a session depends on its start and its salt. So a session whose start moves back gets
another id, and its next row supersedes the rows that are out, also of sessions merged into it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import (
    INSTANT,
    Mask,
    Numbers,
    flags_in,
    instants,
    key_columns,
    lists_of,
    micros,
    numbers_in,
    replaced,
    whole,
    with_column,
)
from sessionkit._engine.boundaries import is_over
from sessionkit._engine.micro_batch import NEVER_US, BatchClocks
from sessionkit._engine.rows.ids import FIRST_SALT, ids_of, session_ids
from sessionkit._engine.rows.objects import decode_keys
from sessionkit._engine.rows.tables import CLOSED, SALT, SideOutput
from sessionkit._engine.sessions.feature import Closed, Emission, Feature
from sessionkit._engine.sessions.plan import Plan
from sessionkit._instants import span_us
from sessionkit.errors import UserFunctionError
from sessionkit.spec.functions import Failure, name_of
from sessionkit.spec.options import Every
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts._policies import Clock

REVISED: Final = (
    pa.field("revision", pa.int64()),
    pa.field("shown", pa.list_(INSTANT)),
    pa.field("pending", pa.int64()),
    CLOSED,
)
NEXT_ROW: Final = pa.field("next_row", pa.int64())


@attrs.frozen(eq=False)
class Revisions(Feature):
    """
    When sessions give rows, and how long they stay after their close.

    Attributes:
        early: How often a session gives a row before it closes; None for never.
        waits_us: The time between early rows, in microseconds; None where events alone count.
    """

    spec: AnySessionSpec
    early: Every | None
    waits_us: int | None
    fields: Sequence[pa.Field]
    session_attributes: ClassVar = ("revision", "is_final")

    @classmethod
    def of(cls, spec: AnySessionSpec) -> "Revisions | None":
        if not spec.revises:
            return None
        waits_us = None if spec.early is None else _span_us(spec.early.duration)
        fields = REVISED if waits_us is None else (*REVISED, NEXT_ROW)
        return cls(spec, spec.early, waits_us, fields)

    @property
    def identity(self) -> dict[str, Any]:
        results, lateness = self.spec.results, self.spec.lateness
        spans = {"allowed_lateness": lateness.allowed, "reopen_within": lateness.reopen_within}
        spans_us = {f"{name}_us": _span_us(span) for name, span in spans.items()}
        return {"revisions": {"emit": str(results.emit), **spans_us}}

    def columns(self, plan: Plan, chosen: Mask) -> list[pa.Array]:
        before, opened, event_counts = plan.touched, plan.opened_of(chosen), plan.counts[chosen]
        revisions = numbers_in(before, "revision")
        # Of open sessions with 2, 0 and 1 rows out, the first two join: lists of 2 and 1.
        shown = whole(opened["shown"]).flatten()
        lengths = whole(before["shown"]).value_lengths().to_numpy()
        pending = plan.of_opened(np.add, numbers_in(before, "pending"))[chosen]
        columns = [
            pa.array(plan.of_opened(np.maximum, revisions)[chosen]),
            lists_of(shown, plan.of_opened(np.add, lengths.astype(np.int64))[chosen]),
            pa.array(pending + event_counts),
            pa.repeat(pa.scalar(value=False), len(event_counts)),
        ]
        if self.waits_us is not None:
            next_row = numbers_in(before, "next_row")
            columns.append(pa.array(plan.of_opened(np.minimum, next_row, NEVER_US)[chosen]))
        return columns

    def migrated(self, sessions: pa.Table, old: AnySessionSpec) -> pa.Table:
        """
        Add the fields of revisions to sessions of another spec.

        All events of a session without rows are pending. The next row follows the `emit` of this
        spec.
        """
        if "next_row" in sessions.column_names and old.results.emit != self.spec.results.emit:
            sessions = sessions.drop_columns("next_row")
        number = sessions.num_rows
        zeros = np.zeros(number, np.int64)
        fresh = {
            "revision": pa.array(zeros),
            "shown": lists_of(pa.array([], INSTANT), zeros),
            "pending": pa.array(numbers_in(sessions, "events")),
            "closed": pa.repeat(pa.scalar(value=False), number),
            "next_row": pa.array(np.full(number, NEVER_US)),
        }
        for field in self.fields:
            if field.name not in sessions.column_names:
                sessions = with_column(sessions, field, fresh[field.name])
        return sessions

    def due_at(self, sessions: pa.Table) -> dict[Clock, Numbers]:
        if self.waits_us is None or self.early is None:
            return {}
        waits = ~flags_in(sessions, CLOSED.name) & (numbers_in(sessions, "pending") > 0)
        return {self.early.clock: np.where(waits, numbers_in(sessions, "next_row"), NEVER_US)}

    # -- at the end of a micro-batch ------------------------------------------------------------

    def due(self, emission: Emission) -> Emission:
        """Let open sessions give an early row."""
        if self.early is None or not emission.may_be_early:
            return emission
        sessions, clocks = emission.sessions, emission.clocks
        is_open = ~emission.over & ~flags_in(sessions, CLOSED.name)
        pending = numbers_in(sessions, "pending")
        if self.waits_us is None:
            is_due = is_open & (pending >= (self.early.events or 0))
            return attrs.evolve(emission, gives_row=emission.gives_row | is_due)
        next_row = self._next_row(sessions, self.early, clocks)
        is_due = is_open & (pending > 0) & is_over(next_row, self._now_us(clocks))
        sessions = replaced(sessions, {"next_row": pa.array(next_row)})
        return attrs.evolve(emission, sessions=sessions, gives_row=emission.gives_row | is_due)

    def _next_row(self, sessions: pa.Table, early: Every, clocks: BatchClocks) -> Numbers:
        """Return when sessions give their next row; in event time their start may still move."""
        stored = numbers_in(sessions, "next_row")
        begins, begun = stored == NEVER_US, np.full(len(stored), clocks.processing_us)
        if early.clock == "event_time":
            begins |= numbers_in(sessions, "revision") == 0
            begun = micros(sessions["start"])
        return np.where(begins, begun + (self.waits_us or 0), stored)

    def _now_us(self, clocks: BatchClocks) -> int:
        by_events = self.early is None or self.early.clock == "event_time"
        return clocks.watermark_us if by_events else clocks.processing_us

    def context(self, emission: Emission) -> Emission:
        """Add the number of each row, whether it's final, and which ids it supersedes."""
        emitting = emission.emitting
        revisions, shown = numbers_in(emitting, "revision") + 1, whole(emitting["shown"])
        starts, salts = micros(emitting["start"]), numbers_in(emitting, SALT.name)
        # A salt follows its start. Of two sessions, one row of a start and a salt, and then two
        # rows: out [s0, salt, s1, s2], owners [0, 0, 1, 1], and after [salt, 0, 0, 0].
        out, owners = micros(shown.flatten()), shown.value_parent_indices().to_numpy()
        is_salt = out >= FIRST_SALT
        after = np.append(np.where(is_salt, out, 0)[1:], np.int64(0))
        owners, out, out_salts = owners[~is_salt], out[~is_salt], after[~is_salt]
        # Rows of other ids than the session's own.
        other = (out != starts[owners]) | (out_salts != salts[owners])
        ids: list[str] = []
        if other.any():
            keys = [column.take(pa.array(owners[other])) for column in key_columns(emitting)]
            ids = session_ids(keys, out[other], out_salts[other])
        sizes = np.bincount(owners[other], minlength=emitting.num_rows)
        emitting = emitting.drop_columns("revision").append_column("revision", pa.array(revisions))
        emitting = emitting.append_column("is_final", pa.array(emission.is_final))
        supersedes = lists_of(pa.array(ids, pa.string()), sizes)
        return attrs.evolve(emission, emitting=emitting.append_column("supersedes", supersedes))

    def row_columns(self, sessions: pa.Table) -> Mapping[str, pa.Array]:
        return {name: sessions[name] for name in ("revision", "is_final", "supersedes")}

    def emitted(self, emission: Emission, closed: Closed) -> Closed:
        """Store which rows are out; a session can't take back its rows, only replace them."""
        emitting, number = emission.emitting, emission.emitting.num_rows
        shown, starts = whole(emitting["shown"]), micros(emitting["start"])
        salts, owners = numbers_in(emitting, SALT.name), shown.value_parent_indices().to_numpy()
        replaces = numbers_in(emitting, "revision") > 1
        replaces |= whole(emitting["supersedes"]).value_lengths().to_numpy(zero_copy_only=False) > 0
        giving = np.asarray(closed.owners, np.int64)
        shows = np.zeros(number, np.bool_)
        shows[giving] = True
        # Of two sessions, only the second gives a row: the first keeps what was out, and the second
        # has its own start, then its salt. The sort is stable, so a salt still follows its start.
        stays, has_salt = ~shows[owners], shows & (salts > 0)
        out = [micros(shown.flatten())[stays], starts[shows], salts[has_salt]]
        owned = np.concatenate([owners[stays], np.flatnonzero(shows), np.flatnonzero(has_salt)])
        order, sizes = np.argsort(owned, kind="stable"), np.bincount(owned, minlength=number)
        stored = {
            "closed": pa.array(emission.is_final),
            "shown": lists_of(instants(np.concatenate(out)[order]), sizes),
            "revision": emitting["revision"],
            "pending": pa.array(np.zeros(number, np.int64)),
        }
        if self.waits_us is not None:
            next_us = self._now_us(emission.clocks) + self.waits_us
            stored["next_row"] = pa.array(np.full(number, next_us))
        revised, stored = int(replaces[giving].sum()), {**closed.stored, **stored}
        closed = attrs.evolve(closed, stored=stored, revised=revised)
        had_rows = np.bincount(owners, minlength=number) > 0
        had_rows[[*closed.failed]] = False
        vanished = had_rows & ~shows
        if not vanished.any() or self.spec.finish is None:
            return closed
        failures = self._vanished(self.spec.finish, emitting, np.flatnonzero(vanished))
        with_ids = emitting.append_column("session_id", pa.array(ids_of(emitting)))
        failed_output = SideOutput.with_failures("failed_output", failures, with_ids)
        return attrs.evolve(
            closed, failed=[*closed.failed, *failures], others=[*closed.others, *failed_output]
        )

    def _vanished(
        self, finish: Callable[..., Any], emitting: pa.Table, vanished: Numbers
    ) -> dict[int, Failure]:
        """Return the failures of sessions with rows out whose `finish` returned no row now."""
        what = f"`finish` ({name_of(finish)}) returned no row for a session that has rows out"
        hint = "return a row for it too, with a field that says so"
        keys = decode_keys(self.spec, emitting.take(pa.array(vanished)))
        failures = {
            int(row): Failure(f"{what}, for {key!r}", None, hint)
            for row, key in zip(vanished, keys, strict=True)
        }
        if self.spec.on_error == "raise":
            raise UserFunctionError(*failures[int(vanished[0])])
        return failures


def _span_us(span: timedelta | None) -> int | None:
    return None if span is None else span_us(span)
