"""The keys of a bucket that a micro-batch touches: found, called, and put back into the table."""

from collections.abc import Iterator
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import INSTANT, Mask, Numbers, concat, key_columns, micros, split
from sessionkit._engine.keys.calls import KeyRun, Stamps
from sessionkit._engine.keys.program import STAMPS, KeyProgram, read_timers, timer_columns
from sessionkit._engine.rows.objects import decode_keys, decode_states, encode_states
from sessionkit._engine.rows.order import in_total_order, key_numbers
from sessionkit.spec.stateful import AnyStatefulSpec
from sessionkit.spec.views import MISSING, KeySnapshot

STAMP_OF: Final = [attrgetter(name) for name in STAMPS]


def _runs_of_rows(spec: AnyStatefulSpec, rows: pa.Table) -> list[KeyRun]:
    if not rows.num_rows:
        return []
    keys, timers, values = decode_keys(spec, rows), read_timers(rows["timers"]), _values(spec, rows)
    stamps = map(Stamps, *(rows[name].cast(pa.int64()).to_pylist() for name in STAMPS))
    read_again = partial(_stored, spec, rows)
    snapshots = map(KeySnapshot, keys, values, timers)
    return list(map(KeyRun, snapshots, stamps, repeat(read_again), range(rows.num_rows)))


def _values(spec: AnyStatefulSpec, rows: pa.Table) -> list[Any]:
    """Return the states of rows as objects, `MISSING` where there is none."""
    exists = rows["exists"].to_numpy()
    if exists.all():
        return list(decode_states(spec.state, rows))
    states = iter(decode_states(spec.state, rows.filter(pa.array(exists))))
    return [next(states) if there else MISSING for there in exists.tolist()]


def _stored(spec: AnyStatefulSpec, rows: pa.Table, place: int) -> Any:
    return _values(spec, rows.slice(place, 1))[0]


@attrs.frozen(eq=False)
class ActiveKeys:
    """
    The keys with events or with something due, and the rows of all others.

    Attributes:
        touched: The rows of the active keys that are stored.
        events: The events, in the order of key, time and content.
        order: The places that they had.
        starts: For each key, where its events begin among them; one more at the end.
        first: For each key, its first place in `touched` or, after these, in `events`.
        runs: The keys, ready for calls.
    """

    program: KeyProgram
    untouched: pa.Table
    touched: pa.Table
    events: pa.Table
    order: Numbers
    starts: list[int]
    first: Numbers
    runs: list[KeyRun]

    @classmethod
    def of(cls, program: KeyProgram, keys: pa.Table, events: pa.Table, due: Mask) -> "ActiveKeys":
        """Return the stored keys with events or marked as due; put the events in order."""
        numbers, found = key_numbers(key_columns(events), key_columns(keys))
        # Three stored keys, of which the second has no events and is due: `found` is 1 -1 0, and
        # with the numbers 0 1 of the keys with events, `own` is 1 2 0.
        touched, untouched = split(keys, due | (found >= 0))
        own = _numbered(found[due | (found >= 0)], 1 + numbers.max(initial=-1))
        order = in_total_order(numbers, micros(events["time"]), events, 0)
        events = events.take(pa.array(order))
        counts = np.bincount(numbers, minlength=1 + own.max(initial=-1))
        # Two, three and no events of the keys 0, 1 and 2 start at 0, 2 and 5, and end at 5.
        starts = np.append(0, np.cumsum(counts))
        # A stored key has its place in `touched`, a new one that of its first event behind these.
        first = touched.num_rows + starts[:-1]
        first[own] = np.arange(touched.num_rows)
        runs: list[Any] = [None] * len(counts)
        for number, run in zip(own.tolist(), _runs_of_rows(program.spec, touched), strict=True):
            runs[number] = run
        fresh = np.flatnonzero(first >= touched.num_rows)
        named = decode_keys(program.spec, events.take(pa.array(starts[fresh])))
        for number, key in zip(fresh.tolist(), named, strict=True):
            runs[number] = KeyRun.of_new(key)
        return cls(program, untouched, touched, events, order, starts.tolist(), first, runs)

    def spans(self) -> Iterator[tuple[KeyRun, int, int]]:
        yield from zip(self.runs, self.starts[:-1], self.starts[1:], strict=True)

    def ordered(self, objects: list[Any]) -> list[Any]:
        """Return the objects of the events in their order."""
        return [objects[place] for place in self.order.tolist()]

    def table(self) -> pa.Table:
        kept = [run.is_kept for run in self.runs]
        if not any(kept):
            return self.untouched
        return concat([self.untouched, self._rows().filter(pa.array(kept, pa.bool_()))])

    def _rows(self) -> pa.Table:
        names = self.program.key_names
        both = pa.concat_tables([self.touched.select(names), self.events.select(names)])
        exists = [run.snapshot.value is not MISSING for run in self.runs]
        since = [run.since for run in self.runs]
        return pa.Table.from_arrays(
            [
                *both.take(pa.array(self.first)).columns,
                pa.array(exists, pa.bool_()),
                *(pa.array(map(stamp, since), pa.int64()).cast(INSTANT) for stamp in STAMP_OF),
                *timer_columns([run.snapshot.timers for run in self.runs]),
                *self._states(),
            ],
            schema=self.program.schema,
        )

    def _states(self) -> list[pa.ChunkedArray]:
        """Return the columns of the state: as stored where none was set, null where none is."""
        names = [f"state.{field.name}" for field in self.program.state_fields]
        set_anew = [
            run.snapshot
            for run in self.runs
            if run.snapshot.was_set and run.snapshot.value is not MISSING
        ]
        values = [one.value for one in set_anew]
        columns = encode_states(self.program.spec.state, values, lambda place: set_anew[place].key)
        # The places in the stored columns, and behind them those of the states that were set.
        sources: list[int | None] = []
        number = self.touched.num_rows
        for place, run in zip(self.first.tolist(), self.runs, strict=True):
            if run.snapshot.value is MISSING:
                sources.append(None)
            elif run.snapshot.was_set:
                sources.append(number)
                number += 1
            else:
                sources.append(place)
        chosen = pa.array(sources, pa.int64())
        return [
            pa.chunked_array([*self.touched[name].chunks, column], column.type).take(chosen)
            for name, column in zip(names, columns, strict=True)
        ]


def _numbered(found: Numbers, first_free: int) -> Numbers:
    """Give stored keys without events, which are -1, the numbers after those with events."""
    alone = found < 0
    numbers = found.copy()
    numbers[alone] = np.arange(first_free, first_free + np.count_nonzero(alone))
    return numbers
