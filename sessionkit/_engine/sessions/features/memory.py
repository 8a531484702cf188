"""
What is remembered of a key after its sessions: `memory`.

    sessions   memory.number    its number among the sessions of its key; null until it's over
               memory.start     its start,
               memory.behind    its mark,
               memory.closes    and when it was over
               first.NAME       the first value of a field of results, of it and those before
               last.NAME        the last one
               last_at.NAME     when the session with the last one began
               remembered       what `remember` left for the next session
               exists           whether it's a session

Once a session is forgotten, a row that is no session keeps all that, in place of the one of a
session before it. The `start`, `end` and `closes` of that row are when the key is forgotten too.

Sessions of a key are numbered as they close, those of one micro-batch in the order of their starts.
While a session is kept for late events, one that comes before it may be found; then it's numbered
anew, and gives another row.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Mask, Numbers, micros, whole
from sessionkit._engine.boundaries import is_over
from sessionkit._engine.rows.order import key_numbers
from sessionkit._engine.rows.table import (
    INSTANT,
    concat,
    filled,
    has_closed,
    has_state,
    instants,
    key_columns,
    left_over,
    marks_of,
    numbers_in,
    replaced,
    split,
    with_column,
)
from sessionkit._engine.sessions.features.duplicates import EXISTS, INSTANTS
from sessionkit._engine.sessions.features.lines import (
    NEVER,
    Line,
    Values,
    is_there,
    own_rows,
    taken,
)
from sessionkit._engine.sessions.features.remembering import BEFORE, KNOWN, TURN, Remembering
from sessionkit._engine.sessions.features.revisions import Giving
from sessionkit._engine.sessions.ids import session_ids
from sessionkit._engine.sessions.plan import Closed, Plan
from sessionkit._instants import span_us
from sessionkit.spec.session import AnySessionSpec
from sessionkit.spec.views import Session
from sessionkit.state._collections import forms_of

NUMBER: Final = "memory.number"
FACTS: Final = (
    pa.field(NUMBER, pa.int64()),
    pa.field("memory.start", INSTANT),
    pa.field("memory.behind", pa.int64()),
    pa.field("memory.closes", INSTANT),
)


@attrs.frozen
class Recalled:
    """
    Sessions that give rows, in a line after what is remembered `before` them of their keys.

    `over` are the sessions, each told its number and the session before it.
    """

    over: pa.Table
    before: pa.Table
    line: Line


@attrs.frozen(eq=False, slots=False)
class KeyMemory:
    """What a spec remembers of a key; after its latest session for so many microseconds."""

    spec: AnySessionSpec
    closes: str
    lives_us: int
    stays_us: int
    lookback_us: int | None
    first: Mapping[str, str]
    last: Mapping[str, str]
    remembering: Remembering | None

    @classmethod
    def of(cls, spec: AnySessionSpec, closes: str) -> "KeyMemory | None":
        if (memory := spec.memory) is None:
            return None
        lookback = None if memory.lookback is None else span_us(memory.lookback)
        spans = span_us(memory.time_to_live), span_us(spec.mergeable or timedelta(0)), lookback
        remembering = None if memory.remember is None else Remembering.of(spec)
        return cls(spec, closes, *spans, memory.first, memory.last, remembering)

    @cached_property
    def fields(self) -> Sequence[pa.Field]:
        types = {field.name: field.type.arrow for field in self.spec.memory_fields}
        fields = [*FACTS, *(pa.field(f"first.{name}", types[name]) for name in self.first)]
        for name in self.last:
            fields += [pa.field(f"last.{name}", types[name]), pa.field(f"last_at.{name}", INSTANT)]
        if self.remembering is not None:
            fields.append(self.remembering.field)
        shares = self.spec.inputs.drop_duplicates_for is not None
        return fields if shares else [*fields, EXISTS]

    @property
    def identity(self) -> dict[str, Any]:
        own = {"first": dict(self.first), "last": dict(self.last)}
        spans = {"time_to_live_us": self.lives_us, "lookback_us": self.lookback_us}
        if self.remembering is None:
            return {"memory": {**spans, **own}}
        forms = forms_of(self.remembering.codec.type.fields)
        return {"memory": {**spans, **own, "remember": True}, "remembered": forms}

    def columns(self, plan: Plan, chosen: Mask) -> list[pa.Array]:
        """
        Return what is stored of the chosen sessions: nothing until they're over again.

        A failed event may leave one that is over as it was.
        """
        own = plan.of_opened(np.maximum, np.arange(len(plan.places)), -1)[chosen]
        own = np.where(plan.counts[chosen] > 0, -1, own)
        exists = pa.repeat(pa.scalar(value=True), len(own))
        return [
            exists if field.equals(EXISTS) else taken(plan.touched[field.name], own)
            for field in self.fields
        ]

    def obstacles(self, old: AnySessionSpec) -> list[str]:
        """Return a line where another spec remembers objects of a class that isn't this one's."""
        before = Remembering.of(old)
        if self.remembering is None or before is None:
            return []
        fields = self.remembering.codec.type.fields, before.codec.type.fields
        differs = forms_of(fields[0]) != forms_of(fields[1])
        return ["what `remember` returns is of other fields: restart first"] if differs else []

    def migrated(self, sessions: pa.Table, known: pa.Table) -> pa.Table:
        """Return sessions of another spec, and what it remembered, with what is stored here."""
        exists = pa.array(has_state(sessions))
        for field in (*self.fields, EXISTS):
            if not _has(sessions, field):
                none = pa.nulls(sessions.num_rows, field.type)
                sessions = with_column(sessions, field, exists if field.equals(EXISTS) else none)
        same = {field.name: known[field.name] for field in sessions.schema if _has(known, field)}
        same |= dict.fromkeys(INSTANTS, known["end"])
        return concat([sessions, filled(sessions.schema, same, known.num_rows)])

    def concerned(self, rows: pa.Table, due: Mask) -> Mask:
        """Mark the rows of keys of which one is due: what is remembered of others stays."""
        if due.all():
            return due
        _, found = key_numbers(key_columns(rows.filter(pa.array(due))), key_columns(rows))
        return found >= 0

    # -- before `finish` ------------------------------------------------------------------------

    def overtaken(self, giving: Giving) -> Mask:
        """Mark the sessions that gave a final row, and come after one that gives its own now."""
        sessions, starts = giving.sessions, micros(giving.sessions["start"])
        final = key_columns(sessions.filter(pa.array(giving.final)))
        numbers, found = key_numbers(final, key_columns(sessions))
        first = np.full(2 + numbers.max(initial=-1), NEVER)
        np.minimum.at(first, numbers, starts[giving.final])
        mask: Mask = (numbers_in(sessions, NUMBER) > 0) & (starts > first[found])
        return mask

    def known_before(self, giving: Giving, known: pa.Table | None) -> pa.Table:
        """Return what is known of keys, also by sessions that were over and give no row."""
        numbered = numbers_in(giving.sessions, NUMBER) > 0
        waiting = giving.sessions.filter(pa.array(numbered & ~giving.gives_row))
        return waiting if known is None else concat([known, waiting])

    def recalled(self, over: pa.Table, known: pa.Table) -> Recalled:
        """Put sessions that give rows in a line, after the latest that is known of their keys."""
        keys, found = key_numbers(key_columns(over), key_columns(known))
        latest = _latest(known, found, np.flatnonzero(found >= 0))
        before = known.take(pa.array(latest))
        marks = np.concatenate([numbers_in(before, "memory.behind"), marks_of(over)])
        closes = np.concatenate([micros(before["memory.closes"]), micros(over[self.closes])])
        early = np.zeros(len(latest) + len(keys), np.bool_)
        if "is_final" in over.column_names:
            early[len(latest) :] = ~_is_final(over)
        line = Line.of(
            np.concatenate([found[latest], keys]),
            np.concatenate([micros(before["memory.start"]), micros(over["start"])]),
            closes,
            np.concatenate([numbers_in(before, NUMBER), np.zeros(len(keys), np.int64)]),
            early=early,
            lives_us=self.lives_us,
        )
        previous = line.before[line.owners]
        told = (
            ("number", pa.array(line.numbers[line.owners])),
            ("start", taken(instants(line.starts), previous)),
            ("behind", taken(pa.array(marks), previous)),
            ("closes", taken(instants(closes), previous)),
        )
        for name, column in told:
            over = over.append_column(f"told.{name}", column)
        if self.remembering is not None:
            sessions_before = np.maximum(previous - line.known, -1)
            known_before = np.where(previous < line.known, previous, -1)
            over = over.append_column(TURN, pa.array(line.owners))
            over = over.append_column(BEFORE, pa.array(sessions_before))
            over = over.append_column(KNOWN, taken(before["remembered"], known_before))
        return Recalled(over, before, line)

    def tell(self, sessions: Sequence[Session[Any]], over: pa.Table) -> None:
        """Tell the sessions that `finish` is given what is remembered of each."""
        names = ("number", "previous_id", "since_previous")
        columns = [column.to_pylist() for column in self.row_columns(over)[: len(names)]]
        for session, *facts in zip(sessions, *columns, strict=True):
            vars(session).update(zip(names, facts, strict=True))

    def row_columns(self, over: pa.Table) -> list[pa.Array]:
        """Return the columns that result rows have; values aren't known before `finish`."""
        there = is_there(whole(over["told.start"]))
        ids = np.full(over.num_rows, None, object)
        if there.any():
            before = over.filter(pa.array(there))
            starts, marks = micros(before["told.start"]), numbers_in(before, "told.behind")
            ids[there] = session_ids(key_columns(before), starts, marks)
        since = micros(over["start"]) - _micros_or_0(over["told.closes"])
        facts = [
            whole(over["told.number"]),
            pa.array(ids, pa.string()),
            pa.array(since, mask=~there).view(pa.duration("us")),
        ]
        values = [f"first.{name}" for name in self.first] + [f"last.{name}" for name in self.last]
        return facts + [whole(over[name]) for name in values]

    # -- after `finish` -------------------------------------------------------------------------

    def remembered(self, recalled: Recalled, closed: Closed) -> Closed:
        """Return rows with the values that sessions carry; and the sessions, as they're stored."""
        over, before, line, rows = recalled.over, recalled.before, recalled.line, closed.rows
        places, owners = np.asarray(closed.places, np.int64), line.owners
        after: dict[str, Any] = {
            NUMBER: over["told.number"],
            "memory.start": over["start"],
            "memory.behind": pa.array(marks_of(over)),
            "memory.closes": over[self.closes],
        }
        shown = dict[str, pa.Array]()
        for name, field in self.first.items():
            given = whole(rows[field])
            own = own_rows(given, places, over.num_rows, first=True)
            values = Values.of(line, whole(before[f"first.{name}"]), given, own)
            shown[name] = values.at(line.first_with(values.there)[owners])
            after[f"first.{name}"] = shown[name]
        for name, field in self.last.items():
            given = whole(rows[field])
            own = own_rows(given, places, over.num_rows, first=False)
            values = Values.of(line, whole(before[f"last.{name}"]), given, own)
            at, begun = line.last_with(values.there), line.starts.copy()
            begun[: line.known] = _micros_or_0(before[f"last_at.{name}"])
            begun = begun[line.order][at]
            after[f"last.{name}"] = values.at(at[owners])
            there = np.where(at < 0, -1, np.arange(len(at)))
            after[f"last_at.{name}"] = taken(instants(begun), there[owners])
            if self.lookback_us is not None:
                at = np.where(line.starts[line.order] - begun <= self.lookback_us, at, -1)
            shown[name] = values.at(at[owners])
        if closed.remembered is not None:
            after["remembered"] = closed.remembered
        of_rows = pa.array(places)
        rows = replaced(rows, {name: column.take(of_rows) for name, column in shown.items()})
        stored = replaced(over, after).select(before.schema.names)
        number = int(self._is_out_of_order(over).sum())
        return attrs.evolve(closed, rows=rows, recalled=stored, out_of_order=number)

    def _is_out_of_order(self, over: pa.Table) -> Mask:
        """Mark the sessions that are over, and began before the one before them was."""
        mask = is_there(whole(over["told.start"]))
        if "is_final" in over.column_names:
            mask &= _is_final(over)
        found: Mask = mask & (micros(over["start"]) < _micros_or_0(over["told.closes"]))
        return found

    def numbered(self, giving: Giving, recalled: pa.Table) -> pa.Table:
        """Return sessions, of which those that give final rows are as they're stored then."""
        sessions, places = giving.sessions, np.arange(giving.sessions.num_rows)
        gives_row = np.flatnonzero(giving.gives_row)
        is_final = giving.over[gives_row]
        places[gives_row[is_final]] = sessions.num_rows + np.flatnonzero(is_final)
        names = [field.name for field in self.fields if not field.equals(EXISTS)]
        both = pa.concat_tables([sessions.select(names), recalled.select(names)])
        own = both.take(pa.array(places))
        return replaced(sessions, dict(zip(names, own.columns, strict=True)))

    def forgot(self, known: pa.Table, gone: pa.Table) -> pa.Table:
        """Return what is known of keys of which sessions are forgotten: what the latest knew."""
        # Sessions that another spec had closed have no number.
        gone, _ = split(gone, numbers_in(gone, NUMBER) > 0)
        if not gone.num_rows:
            return known
        numbers, found = key_numbers(key_columns(gone), key_columns(known))
        gone = gone.take(pa.array(_latest(gone, numbers, np.arange(gone.num_rows))))
        # An event that is in time may still begin a session a gap behind the watermark.
        waits_us = span_us(self.spec.timeout.longest) + self.stays_us
        until = instants(micros(gone["memory.closes"]) + self.lives_us + waits_us)
        names = [field.name for field in self.fields] + known.schema.names[: len(self.spec.keys)]
        columns = {name: gone[name] for name in names} | dict.fromkeys(INSTANTS, until)
        columns[EXISTS.name] = pa.repeat(pa.scalar(value=False), gone.num_rows)
        others = left_over(known, np.flatnonzero(found >= 0))
        return concat([others, filled(known.schema, columns, gone.num_rows)])

    def staying(self, known: pa.Table, kept: pa.Table, watermark_us: int) -> pa.Table:
        """Return what isn't forgotten yet: a session that began in time may still need it."""
        over = is_over(micros(known["end"]), watermark_us)
        if not over.any():
            return known
        due, known = split(known, over)
        sessions, _ = split(kept, has_state(kept))
        _, found = key_numbers(key_columns(due), key_columns(sessions))
        lives_until = micros(due["memory.closes"]) + self.lives_us
        needs = (found >= 0) & (micros(sessions["start"]) < lives_until[found])
        gone = micros(sessions[self.closes]) + has_closed(sessions) * self.stays_us
        until = np.full(due.num_rows, watermark_us)
        np.maximum.at(until, found[needs], gone[needs])
        at = instants(until)
        due = replaced(due, {name: at for name in INSTANTS if name in due.schema.names})
        return concat([known, due.filter(pa.array(until > watermark_us))])


def apart(sessions: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows that hold what is remembered of keys, and the others."""
    if NUMBER not in sessions.schema.names:
        return sessions.slice(0, 0), sessions
    return split(sessions, (numbers_in(sessions, NUMBER) > 0) & ~has_state(sessions))


def _has(rows: pa.Table, field: pa.Field) -> bool:
    return field.name in rows.column_names and rows[field.name].type == field.type


def _is_final(over: pa.Table) -> Mask:
    mask: Mask = whole(over["is_final"]).to_numpy(zero_copy_only=False)
    return mask


def _micros_or_0(column: pa.ChunkedArray) -> Numbers:
    found: Numbers = whole(column).view(pa.int64()).fill_null(0).to_numpy()
    return found


def _latest(remembered: pa.Table, keys: Numbers, places: Numbers) -> Numbers:
    """Return, of some places, that of the latest session of each key."""
    order = np.lexsort((micros(remembered["memory.start"])[places], keys[places]))
    ordered = places[order]
    latest: Numbers = ordered[np.diff(keys[ordered], append=-1) != 0]
    return latest
