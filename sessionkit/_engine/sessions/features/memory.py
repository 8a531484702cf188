"""
The memory of a key after its sessions: `memory`.

    sessions   memory.number    its number among the sessions of its key; null until it's over
               memory.start     its start,
               memory.salt      its salt,
               memory.closes    and when it was over
               first.NAME       the first value of a result field, up to this session
               last.NAME        the last value
               last_at.NAME     when the session with the last value began
               remembered       what `remember` left for the next session
               exists           whether the row is a session

Once a session is forgotten, a memory keeps these values, in place of the earlier memory of its key.
The `start`, `end` and `closes` of a memory are when the key is forgotten too.

Sessions of a key are numbered as they close, within a micro-batch in the order of their starts.
While a session waits for late events, an earlier one may be found; then it's numbered anew, and
gives another row.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import (
    INSTANT,
    Mask,
    Numbers,
    concat,
    flags_in,
    instants,
    key_columns,
    left_over,
    mask_of,
    micros,
    numbers_in,
    numbers_of,
    replaced,
    split,
    whole,
    with_fields,
)
from sessionkit._engine.boundaries import is_over
from sessionkit._engine.rows.ids import session_ids
from sessionkit._engine.rows.order import key_numbers
from sessionkit._engine.rows.tables import CLOSED, EXISTS, INSTANTS, SALT, memories_until
from sessionkit._engine.sessions.feature import Closed, Emission, Feature, Finisher
from sessionkit._engine.sessions.features.key_history import (
    BEFORE,
    KNOWN,
    LEAVES,
    NEVER,
    TURN,
    KeyHistory,
    Remembering,
    Values,
    values_at,
)
from sessionkit._engine.sessions.plan import Plan, cuts_of
from sessionkit._instants import span_us
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._collections import forms_of

NUMBER: Final = "memory.number"
NOTE: Final = "memory"
SESSION_ATTRIBUTES: Final = ("session_number", "previous_session_id", "since_previous")
"""The columns of a result row that a `Session` has as attributes too."""
FACTS: Final = (
    pa.field(NUMBER, pa.int64()),
    pa.field("memory.start", INSTANT),
    pa.field("memory.salt", pa.int64()),
    pa.field("memory.closes", INSTANT),
)


@attrs.frozen(eq=False, slots=False)
class KeyMemory(Feature):
    """
    The memory of keys, as a spec asks for it.

    Attributes:
        closes: The column that says when a session is over.
        lives_us: How long a key is remembered after its latest session, in microseconds.
        stays_us: How long a closed session waits for late events.
        lookback_us: How long before a session the one with its `last` values may have begun.
        first, last: The carried fields of results, by the names of their columns.
        remembering: What `remember` leaves; None without it.
    """

    spec: AnySessionSpec
    closes: str
    lives_us: int
    stays_us: int
    lookback_us: int | None
    first: Mapping[str, str]
    last: Mapping[str, str]
    remembering: Remembering | None
    session_attributes: ClassVar = SESSION_ATTRIBUTES

    @classmethod
    def of(cls, spec: AnySessionSpec) -> "KeyMemory | None":
        if (memory := spec.memory) is None:
            return None
        lookback = None if memory.lookback is None else span_us(memory.lookback)
        spans = span_us(memory.time_to_live), span_us(spec.mergeable or timedelta(0)), lookback
        remembering = None if memory.remember is None else Remembering.of(spec)
        return cls(spec, cuts_of(spec).column, *spans, memory.first, memory.last, remembering)

    @property
    def fields(self) -> Sequence[pa.Field]:
        return [*self._own_fields, EXISTS]

    @cached_property
    def _own_fields(self) -> Sequence[pa.Field]:
        types = {field.name: field.type.arrow for field in self.spec.memory_fields}
        fields = [*FACTS, *(pa.field(f"first.{name}", types[name]) for name in self.first)]
        for name in self.last:
            fields += [pa.field(f"last.{name}", types[name]), pa.field(f"last_at.{name}", INSTANT)]
        return fields if self.remembering is None else [*fields, self.remembering.field]

    @property
    def identity(self) -> dict[str, Any]:
        carried = {"first": dict(self.first), "last": dict(self.last)}
        spans = {"time_to_live_us": self.lives_us, "lookback_us": self.lookback_us}
        if self.remembering is None:
            return {"memory": {**spans, **carried}}
        forms = forms_of(self.remembering.codec.type.fields)
        return {"memory": {**spans, **carried, "remember": True}, "remembered": forms}

    def columns(self, plan: Plan, chosen: Mask) -> list[pa.Array]:
        """Return nulls: a session stores nothing until it's over."""
        number = int(chosen.sum())
        stored = [pa.nulls(number, field.type) for field in self._own_fields]
        return [*stored, pa.repeat(pa.scalar(value=True), number)]

    def incompatibilities(self, old: AnySessionSpec) -> list[str]:
        """Report that `remember` of another spec returns other fields."""
        before = Remembering.of(old)
        if self.remembering is None or before is None:
            return []
        fields = self.remembering.codec.type.fields, before.codec.type.fields
        differs = forms_of(fields[0]) != forms_of(fields[1])
        return ["what `remember` returns is of other fields: restart first"] if differs else []

    def migrated(self, sessions: pa.Table, old: AnySessionSpec) -> pa.Table:
        return with_fields(sessions, self._own_fields)

    def finishing(self, finish: Finisher) -> Finisher:
        return finish if self.remembering is None else self.remembering.finish

    # -- before `finish` ------------------------------------------------------------------------

    def due(self, emission: Emission) -> Emission:
        """Choose closed sessions again that follow one that closes only now."""
        sessions, starts = emission.sessions, micros(emission.sessions["start"])
        closing = key_columns(sessions.filter(pa.array(emission.final)))
        numbers, of_stored = key_numbers(closing, key_columns(sessions))
        # The first start that closes now, by key; the last entry is for keys without one.
        first = np.full(2 + numbers.max(initial=-1), NEVER)
        np.minimum.at(first, numbers, starts[emission.final])
        to_renumber = (numbers_in(sessions, NUMBER) > 0) & (starts > first[of_stored])
        return attrs.evolve(emission, gives_row=emission.gives_row | to_renumber)

    def context(self, emission: Emission) -> Emission:
        """Put the emitting sessions in a line, after the latest memory of their keys."""
        emitting, sessions = emission.emitting, emission.sessions
        numbered = numbers_in(sessions, NUMBER) > 0
        waiting = sessions.filter(pa.array(numbered & ~emission.gives_row))
        remembered = concat([_of_keys(emission.memories), waiting])
        keys, of_known = key_numbers(key_columns(emitting), key_columns(remembered))
        latest = _latest(remembered, of_known, np.flatnonzero(of_known >= 0))
        before = remembered.take(pa.array(latest))
        salts = np.concatenate([numbers_in(before, "memory.salt"), numbers_in(emitting, SALT.name)])
        closes = np.concatenate([micros(before["memory.closes"]), micros(emitting[self.closes])])
        history = KeyHistory.of(
            np.concatenate([of_known[latest], keys]),
            np.concatenate([micros(before["memory.start"]), micros(emitting["start"])]),
            closes,
            np.concatenate([numbers_in(before, NUMBER), np.zeros(len(keys), np.int64)]),
            early=np.concatenate([np.zeros(len(latest), np.bool_), ~emission.is_final]),
            lives_us=self.lives_us,
        )
        previous = history.before[history.owners]
        columns = (
            ("number", pa.array(history.numbers[history.owners])),
            ("start", values_at(instants(history.starts), previous)),
            ("salt", values_at(pa.array(salts), previous)),
            ("closes", values_at(instants(closes), previous)),
        )
        for name, column in columns:
            emitting = emitting.append_column(f"history.{name}", column)
        if self.remembering is not None:
            # Entries are memories, then emitting sessions: after 2 memories, entry 1 is a memory,
            # and entry 3 is the session in row 1.
            sessions_before = np.maximum(previous - history.known, -1)
            known_before = np.where(previous < history.known, previous, -1)
            emitting = emitting.append_column(TURN, pa.array(history.owners))
            emitting = emitting.append_column(BEFORE, pa.array(sessions_before))
            emitting = emitting.append_column(KNOWN, values_at(before["remembered"], known_before))
            emitting = emitting.append_column(LEAVES, pa.array(emission.is_final))
        notes = {**emission.notes, NOTE: (before, history)}
        return attrs.evolve(emission, emitting=emitting, notes=notes)

    def row_columns(self, sessions: pa.Table) -> Mapping[str, pa.Array]:
        """Return the columns of result rows; `emitted` fills in the carried values."""
        has_previous = mask_of(whole(sessions["history.start"]).is_valid())
        ids = np.full(sessions.num_rows, None, object)
        if has_previous.any():
            before = sessions.filter(pa.array(has_previous))
            starts, salts = micros(before["history.start"]), numbers_in(before, "history.salt")
            ids[has_previous] = session_ids(key_columns(before), starts, salts)
        since = micros(sessions["start"]) - numbers_of(whole(sessions["history.closes"]))
        facts = (
            whole(sessions["history.number"]),
            pa.array(ids, pa.string()),
            pa.array(since, mask=~has_previous).view(pa.duration("us")),
        )
        values = {name: whole(sessions[f"first.{name}"]) for name in self.first}
        values |= {name: whole(sessions[f"last.{name}"]) for name in self.last}
        return {**dict(zip(SESSION_ATTRIBUTES, facts, strict=True)), **values}

    # -- after `finish` -------------------------------------------------------------------------

    def emitted(self, emission: Emission, closed: Closed) -> Closed:
        """Fill in the carried values of rows, and store the values of final ones."""
        emitting, (before, history) = emission.emitting, emission.notes[NOTE]
        rows, giving, owners = closed.rows, np.asarray(closed.owners, np.int64), history.owners
        after: dict[str, Any] = {
            NUMBER: emitting["history.number"],
            "memory.start": emitting["start"],
            "memory.salt": pa.array(numbers_in(emitting, SALT.name)),
            "memory.closes": emitting[self.closes],
        }
        shown = dict[str, pa.Array]()
        for name, field in self.first.items():
            known, results = whole(before[f"first.{name}"]), whole(rows[field])
            values = Values.of(history, known, results, giving, first=True)
            shown[name] = values.at(history.first_with(values.has_value)[owners])
            after[f"first.{name}"] = shown[name]
        for name, field in self.last.items():
            known, results = whole(before[f"last.{name}"]), whole(rows[field])
            values = Values.of(history, known, results, giving, first=False)
            at, begun = history.last_with(values.has_value), history.starts.copy()
            begun[: history.known] = numbers_of(whole(before[f"last_at.{name}"]))
            begun = begun[history.order][at]
            after[f"last.{name}"] = values.at(at[owners])
            valued = np.where(at < 0, -1, np.arange(len(at)))
            after[f"last_at.{name}"] = values_at(instants(begun), valued[owners])
            if self.lookback_us is not None:
                at = np.where(history.starts[history.order] - begun <= self.lookback_us, at, -1)
            shown[name] = values.at(at[owners])
        if closed.left is not None:
            after["remembered"] = closed.left
        of_rows = pa.array(giving)
        rows = replaced(rows, {name: column.take(of_rows) for name, column in shown.items()})
        # An open session stores nothing yet.
        is_final = pa.array(emission.is_final)
        stored = {name: pc.if_else(is_final, whole(column), None) for name, column in after.items()}
        overlaps = mask_of(whole(emitting["history.start"]).is_valid()) & emission.is_final
        overlaps &= micros(emitting["start"]) < numbers_of(whole(emitting["history.closes"]))
        return attrs.evolve(
            closed, rows=rows, stored={**closed.stored, **stored}, out_of_order=int(overlaps.sum())
        )

    def remembered(
        self, memories: pa.Table, kept: pa.Table, forgotten: pa.Table, watermark_us: int
    ) -> list[pa.Table]:
        """Return the memories of keys that stay, and new ones."""
        known = self._with_forgotten(_of_keys(memories), forgotten)
        return [self._staying(known, kept, watermark_us)]

    def _with_forgotten(self, known: pa.Table, forgotten: pa.Table) -> pa.Table:
        """Replace memories of keys by what their latest forgotten sessions stored."""
        # Sessions that another spec had closed have no number.
        numbered, _ = split(forgotten, numbers_in(forgotten, NUMBER) > 0)
        if not numbered.num_rows:
            return known
        numbers, of_known = key_numbers(key_columns(numbered), key_columns(known))
        numbered = numbered.take(pa.array(_latest(numbered, numbers, np.arange(numbered.num_rows))))
        # An event in time may still begin a session a gap before the watermark.
        waits_us = span_us(self.spec.timeout.longest) + self.stays_us
        until = micros(numbered["memory.closes"]) + self.lives_us + waits_us
        remembered = {field.name: numbered[field.name] for field in self._own_fields}
        other_keys = left_over(known, np.flatnonzero(of_known >= 0))
        return concat([other_keys, memories_until(numbered, until, remembered)])

    def _staying(self, known: pa.Table, kept: pa.Table, watermark_us: int) -> pa.Table:
        """Return the memories that stay: a session that began in time may still need one."""
        over = is_over(micros(known["end"]), watermark_us)
        if not over.any():
            return known
        due, known = split(known, over)
        _, of_kept = key_numbers(key_columns(due), key_columns(kept))
        lives_until = micros(due["memory.closes"]) + self.lives_us
        # A memory stays until the sessions go that began while their key was remembered.
        needs = (of_kept >= 0) & (micros(kept["start"]) < lives_until[of_kept])
        leave = micros(kept[self.closes]) + flags_in(kept, CLOSED.name) * self.stays_us
        until = np.full(due.num_rows, watermark_us)
        np.maximum.at(until, of_kept[needs], leave[needs])
        at = instants(until)
        due = replaced(due, {name: at for name in INSTANTS if name in due.schema.names})
        return concat([known, due.filter(pa.array(until > watermark_us))])


def _of_keys(memories: pa.Table) -> pa.Table:
    """Return the memories of keys, without the memories of event ids."""
    return split(memories, numbers_in(memories, NUMBER) > 0)[0]


def _latest(remembered: pa.Table, keys: Numbers, rows: Numbers) -> Numbers:
    """Return the row of each key's latest session, among some rows."""
    order = np.lexsort((micros(remembered["memory.start"])[rows], keys[rows]))
    ordered = rows[order]
    # Of keys 0 0 1 in order, [False, True, True] are the last of each.
    latest: Numbers = ordered[np.diff(keys[ordered], append=-1) != 0]
    return latest
