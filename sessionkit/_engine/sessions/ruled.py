"""
What `SessionRules` need of events and open sessions, and what is stored for them.

    events     rule.until, rule.starts_with     whether it holds for an event
    sessions   closes, closed_by                when an open session is over, and by which rule
               last.*                           its last value of each field of `changes_of`
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.rows.marks import is_trace
from sessionkit._engine.rows.table import INSTANT, instants, micros, whole
from sessionkit._engine.sessions.closings import CODES, NAMES, closings
from sessionkit._engine.sessions.events import WindowedEvents
from sessionkit._engine.sessions.intervals import Unions
from sessionkit._engine.sessions.pieces import RuledIntervals
from sessionkit._instants import span_us
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state import Field, codec_of, forms_of
from sessionkit.timeouts import SessionRules

__all__ = [
    "CLOSING",
    "RuledRows",
    "closes_of",
    "closing_columns",
    "closing_times",
    "idled",
    "reasons_of",
    "ruled_schema",
    "rules_identity",
    "under_rules",
    "with_column",
]

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

CLOSING: Final = (pa.field("closes", INSTANT), pa.field("closed_by", pa.int8()))


def ruled_schema(spec: AnySessionSpec) -> list[pa.Field]:
    """Return what is stored of an open session for the rules of a spec."""
    if spec.rules is None:
        return []
    last = [pa.field(f"last.{field.name}", field.type.arrow) for field in _attributes(spec)]
    return [*CLOSING, *last]


def rules_identity(spec: AnySessionSpec, rules: SessionRules) -> dict[str, Any]:
    """Return what must not change while a checkpoint lives: not the predicates, which are code."""
    longest = rules.max_duration
    return {
        "max_duration_us": None if longest is None else span_us(longest),
        "max_events": rules.max_events,
        "midnight": rules.midnight,
        "changes_of": forms_of(_attributes(spec)),
        "closes_idle": rules.close_idle_after is not None,
    }


def _attributes(spec: AnySessionSpec) -> list[Field]:
    names = () if spec.rules is None else spec.rules.changes_of
    fields = {field.name: field for field in codec_of(spec.event).type.fields}
    return [fields[name] for name in names]


def closes_of(sessions: pa.Table) -> pa.ChunkedArray:
    """Return when open sessions are over."""
    return sessions["closes" if "closes" in sessions.column_names else "end"]


def closing_times(sessions: pa.Table) -> Numbers:
    """Return when open sessions are over, in microseconds."""
    return micros(closes_of(sessions))


def closing_columns(
    rules: SessionRules | None, starts_us: Sequence[int] | Numbers, ends_us: Sequence[int] | Numbers
) -> list[pa.Array]:
    """Return what is stored of sessions that no rule cuts but by their own times."""
    if rules is None:
        return []
    closes, closed_by = closings(rules, np.array(starts_us, np.int64), np.array(ends_us, np.int64))
    return [instants(closes), pa.array(closed_by)]


def under_rules(spec: AnySessionSpec, sessions: pa.Table) -> pa.Table:
    """
    Return open sessions of another spec with what is stored for the rules of this one.

    When they close follows from their own times. A field of `changes_of` goes on with its last
    value where the other spec had it too, and with none otherwise.
    """
    starts, ends = micros(sessions["start"]), micros(sessions["end"])
    stored, trace = ruled_schema(spec), pa.array(is_trace(sessions))
    for field, column in zip(stored, closing_columns(spec.rules, starts, ends), strict=False):
        sessions = with_column(sessions, field, column)
    if spec.rules is not None:
        # No rule cuts what is dropped.
        closes = pc.if_else(trace, whole(sessions["end"]), whole(sessions["closes"]))
        sessions = with_column(sessions, CLOSING[0], closes)
    for field in stored[len(CLOSING) :]:
        known = field.name in sessions.column_names and sessions[field.name].type == field.type
        if not known:
            nothing = pa.nulls(sessions.num_rows, field.type)
            sessions = with_column(sessions, field, nothing)
    return sessions


def with_column(table: pa.Table, field: pa.Field, column: pa.Array) -> pa.Table:
    """Return a table with a column in place of the one of this name, or after the others."""
    if field.name not in table.column_names:
        return table.append_column(field, column)
    return table.set_column(table.schema.get_field_index(field.name), field, column)


def idled(sessions: pa.Table, by_events_us: int | None) -> pa.Table:
    """Return sessions that are over, with `idle` for those that no event has ended."""
    if by_events_us is None:
        return sessions
    idle = closing_times(sessions) > by_events_us
    codes = np.where(idle, CODES["idle"], sessions["closed_by"].to_numpy())
    return with_column(sessions, CLOSING[1], pa.array(codes, pa.int8()))


def reasons_of(sessions: pa.Table) -> pa.Array:
    """Return by which rules sessions are over, by the names of the rules."""
    names = pa.array(NAMES, pa.string())
    if "closed_by" not in sessions.column_names:
        return pa.repeat(pa.scalar("gap"), sessions.num_rows)
    return names.take(whole(sessions["closed_by"]))


@attrs.frozen
class RuledRows:
    """
    The open sessions and events of a plan, as the rules look at them.

    Attributes:
        spec: Whose rules.
        touched: The open sessions.
        events: The events.
        order: The numbers of both, first those of sessions, by key and start.
    """

    spec: AnySessionSpec
    touched: pa.Table
    events: WindowedEvents
    order: Numbers

    def intervals(
        self, rules: SessionRules, keys: Numbers, starts: Numbers, ends: Numbers
    ) -> RuledIntervals:
        """
        Return sessions and events in order, with what the rules need to know of them.

        Args:
            rules: The rules.
            keys: The number of the key of each session and event.
            starts: Their starts, in microseconds.
            ends: The ends of their gaps.
        """
        events = self.touched["events"].to_numpy(), np.ones(len(self.events.starts), np.int64)
        least = ends.copy()
        least[self.touched.num_rows :] = self.events.starts + (0 if rules.gap_inclusive else 1)
        return RuledIntervals(
            keys=keys[self.order],
            starts=starts[self.order],
            ends=ends[self.order],
            events=np.concatenate(events)[self.order],
            least=least[self.order],
            extends=(ends > least)[self.order],
            until=self._held("rule.until"),
            starts_with=self._held("rule.starts_with"),
            values=[self._codes(field.name) for field in _attributes(self.spec)],
        )

    def last_values(self, unions: Unions, chosen: Mask) -> list[pa.Array]:
        """Return, for each field of `changes_of`, the last value of the chosen sessions."""
        last = unions.first + unions.sizes - 1
        return [
            self._last(field.name, unions.first, last).filter(pa.array(chosen))
            for field in _attributes(self.spec)
        ]

    def _held(self, name: str) -> Mask:
        """Mark the events for which a predicate holds."""
        held = np.zeros(len(self.order), np.bool_)
        if name in self.events.table.column_names:
            column = whole(self.events.table[name])
            held[self.touched.num_rows :] = column.to_numpy(zero_copy_only=False)
        return held[self.order]

    def _values(self, name: str) -> pa.Array:
        stored, events = self.touched[f"last.{name}"], self.events.table[f"event.{name}"]
        return whole(pa.chunked_array([*stored.chunks, *events.chunks], stored.type))

    def _codes(self, name: str) -> Numbers:
        """Return a number for each value, -1 for a null."""
        indices = self._values(name).dictionary_encode().indices.fill_null(-1)
        codes: Numbers = indices.to_numpy().astype(np.int64)[self.order]
        return codes

    def _last(self, name: str, first: npt.NDArray[np.intp], last: npt.NDArray[np.intp]) -> pa.Array:
        """Return the last value of each session that isn't null."""
        values = self._values(name)
        there = values.is_valid().to_numpy(zero_copy_only=False)[self.order]
        latest = np.maximum.accumulate(np.where(there, np.arange(len(there)), -1))[last]
        return values.take(pa.array(self.order[latest], mask=latest < first))
