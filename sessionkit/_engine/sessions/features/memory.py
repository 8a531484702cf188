"""
What is remembered of a key after its sessions: `memory`.

    sessions   memory.number    its number among the sessions of its key; null until it has closed
               memory.start     the session before it: its start,
               memory.behind    its mark,
               memory.closes    and when it was over; all three null where there is none
               first.NAME       the first value of a field of results, of it and those before
               last.NAME        the last one
               last_at.NAME     when the session with the last one began
               exists           whether it's a session

A row that is no session holds what is remembered of a key: all that is then of its latest session.
The row's own `start`, `end` and `closes` are when it's forgotten.

Numbers are given as sessions close, those of one micro-batch in the order of their starts, and they
stay. So a session that closes after a later one, as late events may let it, takes the next number.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.boundaries import is_over
from sessionkit._engine.rows.order import key_numbers
from sessionkit._engine.rows.table import (
    INSTANT,
    Mask,
    Numbers,
    concat,
    filled,
    has_closed,
    has_state,
    instants,
    key_columns,
    left_over,
    marks_of,
    micros,
    numbers_in,
    replaced,
    split,
    whole,
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
from sessionkit._engine.sessions.features.revisions import Giving
from sessionkit._engine.sessions.ids import session_ids
from sessionkit._engine.sessions.plan import Closed, Plan
from sessionkit._instants import span_us
from sessionkit.spec.session import AnySessionSpec
from sessionkit.spec.views import Session

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
    Sessions that give rows, with what is remembered of each; `line` has those without a number.

    Attributes:
        over: The sessions.
        line: Those without a number, after what is known of their keys.
        before: That.
        known: What is known of all keys.
        places: The places there of those in the line.
    """

    over: pa.Table
    line: Line
    before: pa.Table
    known: pa.Table
    places: Numbers

    @property
    def marks(self) -> Numbers:
        """The mark of the session of each entry."""
        own = marks_of(self.over)[self.line.places]
        return np.concatenate([numbers_in(self.before, "memory.behind"), own])


@attrs.frozen(eq=False, slots=False)
class KeyMemory:
    """What a spec remembers of a key; after its latest session for so many microseconds."""

    spec: AnySessionSpec
    closes: str
    lives_us: int
    waits_us: int
    lookback_us: int | None
    first: Mapping[str, str]
    last: Mapping[str, str]

    @classmethod
    def of(cls, spec: AnySessionSpec, closes: str) -> "KeyMemory | None":
        if (memory := spec.memory) is None:
            return None
        # An event that is in time may still begin a session that long behind the watermark.
        waits = spec.timeout.longest + (spec.mergeable or timedelta(0))
        lookback = None if memory.lookback is None else span_us(memory.lookback)
        lives_us = span_us(memory.time_to_live)
        return cls(spec, closes, lives_us, span_us(waits), lookback, memory.first, memory.last)

    @cached_property
    def fields(self) -> Sequence[pa.Field]:
        types = {field.name: field.type.arrow for field in self.spec.memory_fields}
        fields = [*FACTS, *(pa.field(f"first.{name}", types[name]) for name in self.first)]
        for name in self.last:
            fields += [pa.field(f"last.{name}", types[name]), pa.field(f"last_at.{name}", INSTANT)]
        shares = self.spec.inputs.drop_duplicates_for is not None
        return fields if shares else [*fields, EXISTS]

    @property
    def identity(self) -> dict[str, Any]:
        own = {"first": dict(self.first), "last": dict(self.last)}
        spans = {"time_to_live_us": self.lives_us, "lookback_us": self.lookback_us}
        return {"memory": {**spans, **own}}

    def columns(self, plan: Plan, chosen: Mask) -> list[pa.Array]:
        """Return what is stored of sessions that have taken events: those that are over have it."""
        before, number = plan.touched, int(chosen.sum())
        numbers, size = numbers_in(before, NUMBER), before.num_rows
        # Of several that are over, the one with the least number goes on.
        own = np.where(numbers > 0, numbers * size + np.arange(size), NEVER)
        least = plan.of_opened(np.minimum, own, NEVER)[chosen]
        first = np.where(least == NEVER, -1, least % max(size, 1))
        return [
            pa.repeat(pa.scalar(value=True), number)
            if field.equals(EXISTS)
            else taken(before[field.name], first)
            for field in self.fields
        ]

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

    # -- before `finish` ------------------------------------------------------------------------

    def recalled(self, over: pa.Table, known: pa.Table) -> Recalled:
        """Give numbers to the sessions that give rows and have none yet."""
        places = np.flatnonzero(numbers_in(over, NUMBER) == 0)
        new = over.take(pa.array(places))
        keys, found = key_numbers(key_columns(new), key_columns(known))
        of_keys = np.flatnonzero(found >= 0)
        before = known.take(pa.array(of_keys))
        line = Line.of(
            places,
            np.concatenate([found[of_keys], keys]),
            np.concatenate([micros(before["memory.start"]), micros(new["start"])]),
            np.concatenate([micros(before["memory.closes"]), micros(new[self.closes])]),
            np.concatenate([numbers_in(before, NUMBER), np.zeros(len(places), np.int64)]),
            self.lives_us,
        )
        return self._with_facts(Recalled(over, line, before, known, of_keys))

    def _with_facts(self, recalled: Recalled) -> Recalled:
        """Return sessions with their numbers, and with the session that comes before each."""
        line, over = recalled.line, recalled.over
        owners = line.owners(over.num_rows)
        previous = np.append(line.before, -1)[owners]
        own = {
            NUMBER: taken(pa.array(line.numbers), owners),
            "memory.start": taken(instants(line.starts), previous),
            "memory.behind": taken(pa.array(recalled.marks), previous),
            "memory.closes": taken(instants(line.closes), previous),
        }
        is_new = pa.array(owners >= 0)
        found = {name: pc.if_else(is_new, own[name], whole(over[name])) for name in own}
        return attrs.evolve(recalled, over=replaced(over, found))

    def tell(self, sessions: Sequence[Session[Any]], over: pa.Table) -> None:
        """Tell the sessions that `finish` is given what is remembered of each."""
        columns = self.row_columns(over)[:3]
        for session, *facts in zip(sessions, *(one.to_pylist() for one in columns), strict=True):
            names = ("number", "previous_id", "since_previous")
            vars(session).update(zip(names, facts, strict=True))

    def row_columns(self, over: pa.Table) -> list[pa.Array]:
        """Return the columns that result rows have; of values, those that are known by now."""
        there = is_there(whole(over["memory.start"]))
        ids = np.full(over.num_rows, None, object)
        if there.any():
            before = over.filter(pa.array(there))
            starts, marks = micros(before["memory.start"]), numbers_in(before, "memory.behind")
            ids[there] = session_ids(key_columns(before), starts, marks)
        since = micros(over["start"]) - _micros_or_0(over["memory.closes"])
        facts = [
            whole(over[NUMBER]),
            pa.array(ids, pa.string()),
            pa.array(since, mask=~there).view(pa.duration("us")),
        ]
        values = [f"first.{name}" for name in self.first] + [f"last.{name}" for name in self.last]
        return facts + [whole(over[name]) for name in values]

    # -- after `finish` -------------------------------------------------------------------------

    def remembered(self, recalled: Recalled, closed: Closed) -> Closed:
        """
        Return the rows with the values that sessions carry, and what is remembered from now on.

        Only a session that is over is remembered; an early row shows what it would be.
        """
        line, over, rows = recalled.line, recalled.over, closed.rows
        places = np.asarray(closed.places, np.int64)
        final = np.ones(over.num_rows, np.bool_)
        if "is_final" in over.schema.names:
            final = whole(over["is_final"]).to_numpy(zero_copy_only=False)
        ends, owners = line.ends(final), line.owners(over.num_rows)
        kept, shown = dict[str, pa.Array](), dict[str, pa.Array]()
        for name, field in self.first.items():
            stored, given = f"first.{name}", whole(rows[field])
            own = own_rows(given, places, over.num_rows, first=True)
            values = Values.of(line, whole(recalled.before[stored]), given, own)
            at = line.first_with(values.there)
            kept[stored] = values.at(at[ends])
            again = pc.coalesce(whole(over[stored]), taken(given, own))
            shown[stored] = _either(owners, values.at(at), again)
        for name, field in self.last.items():
            stored, given = f"last.{name}", whole(rows[field])
            own = own_rows(given, places, over.num_rows, first=False)
            values = Values.of(line, whole(recalled.before[stored]), given, own)
            at, begun = line.last_with(values.there), line.starts.copy()
            begun[: line.known] = _micros_or_0(recalled.before[f"last_at.{name}"])
            begun = begun[line.order][at]
            kept[stored] = values.at(at[ends])
            kept[f"last_at.{name}"] = taken(instants(begun[ends]), _places(at[ends] >= 0))
            if self.lookback_us is not None:
                at = np.where(line.starts[line.order] - begun <= self.lookback_us, at, -1)
            again = pc.coalesce(taken(given, own), whole(over[stored]))
            shown[stored] = _either(owners, values.at(at), again)
        over, of_rows = replaced(over, shown), pa.array(places)
        carried = {name.partition(".")[2]: column.take(of_rows) for name, column in shown.items()}
        known = self._known(attrs.evolve(recalled, over=over), ends, kept)
        return attrs.evolve(closed, rows=replaced(rows, carried), recalled=over, known=known)

    def _known(self, recalled: Recalled, ends: Numbers, kept: Mapping[str, pa.Array]) -> pa.Table:
        """Return what is known of all keys after the sessions of a line."""
        line, known = recalled.line, recalled.known
        if not len(ends):
            return known
        latest = line.latest(ends)
        until = line.closes[latest] + self.lives_us + self.waits_us
        own = recalled.over.take(pa.array(line.places[line.order[ends] - line.known]))
        columns = {name: own[name] for name in own.schema.names if name.startswith("key.")}
        columns |= {
            **kept,
            NUMBER: pa.array(line.numbers[ends]),
            "memory.start": instants(line.starts[latest]),
            "memory.behind": pa.array(recalled.marks[latest]),
            "memory.closes": instants(line.closes[latest]),
            EXISTS.name: pa.repeat(pa.scalar(value=False), len(ends)),
            **dict.fromkeys(INSTANTS, instants(until)),
        }
        gone = line.order[np.isin(line.keys, line.keys[ends]) & ~line.is_session]
        others = left_over(known, np.sort(recalled.places[gone]))
        return concat([others, filled(known.schema, columns, len(ends))])

    def numbered(self, giving: Giving, over: pa.Table) -> pa.Table:
        """Return sessions, of which those that are over have what is remembered of them."""
        sessions, places = giving.sessions, np.arange(giving.sessions.num_rows)
        own = np.flatnonzero(giving.gives_row)
        final = giving.final[own]
        places[own[final]] = sessions.num_rows + np.flatnonzero(final)
        names = [field.name for field in self.fields if not field.equals(EXISTS)]
        both = ((name, [*sessions[name].chunks, *over[name].chunks]) for name in names)
        at = pa.array(places)
        return replaced(sessions, {name: pa.chunked_array(two).take(at) for name, two in both})

    def staying(self, known: pa.Table, kept: pa.Table, watermark_us: int) -> pa.Table:
        """Return what isn't forgotten yet: an open session that began in time still needs it."""
        over = is_over(micros(known["end"]), watermark_us)
        if not over.any():
            return known
        due, known = split(known, over)
        open_ones, _ = split(kept, has_state(kept) & ~has_closed(kept))
        _, found = key_numbers(key_columns(due), key_columns(open_ones))
        lives_until = micros(due["memory.closes"]) + self.lives_us
        needs = (found >= 0) & (micros(open_ones["start"]) < lives_until[found])
        until = np.full(due.num_rows, watermark_us)
        np.maximum.at(until, found[needs], micros(open_ones[self.closes])[needs])
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


def _micros_or_0(column: pa.ChunkedArray) -> Numbers:
    found: Numbers = whole(column).view(pa.int64()).fill_null(0).to_numpy()
    return found


def _places(there: Mask) -> Numbers:
    return np.where(there, np.arange(len(there)), -1)


def _either(owners: Numbers, of_line: pa.Array, again: pa.Array) -> pa.Array:
    """Return what sessions of a line show, at its places, and what those with a number do."""
    return pc.if_else(pa.array(owners >= 0), taken(of_line, owners), again)
