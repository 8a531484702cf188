"""
Run a micro-batch of the keys of a group, under a `StatefulSpec`.

Rules of this file:

1. *Only active keys are decoded.* Keys without events or due timers stay Arrow rows.
2. *Overdue keys end first*: their due timers fire, then the policy ends the key, unless a timer
   has moved its end. Events of the same micro-batch begin anew. So a result doesn't depend on
   whether a micro-batch without data ran before.
3. *Data first, then timers*, as in Spark: a due timer fires after the events of its key, unless
   these deleted it or set it anew. Under `order="event_time"`, timers and ends in event time fire
   between the events instead, in time order.
4. *All keys and rows of a micro-batch share its clocks.*
5. *Each event is counted once*: processed, late, quarantined, failed, or buffered.
6. *A failed call changes nothing*, and under `on_error="reject"` affects no other key.
7. *No result depends on the bucket*: on which keys share it, or how many buckets there are. So a
   micro-batch leaves nothing due: a key that a late event creates ends at once, not when its bucket
   runs again.
"""

from collections.abc import Callable, Collection
from functools import cached_property
from itertools import repeat
from typing import Any, ClassVar

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import INSTANT, Mask, Numbers, concat, key_columns, micros, split
from sessionkit._engine.boundaries import is_late_in_order
from sessionkit._engine.keys.calls import Calls, KeyRun, Stamps, failed_outputs, result_rows
from sessionkit._engine.keys.handlers import fold_bucket
from sessionkit._engine.keys.program import STAMPS, KeyProgram, read_timers, timer_columns
from sessionkit._engine.keys.timers import end_overdue, fire_due, in_turn
from sessionkit._engine.micro_batch import CLOCKS, BatchClocks, GroupState, Outcome
from sessionkit._engine.rows.objects import build_events, decode_keys, decode_states, encode_states
from sessionkit._engine.rows.order import Turns, in_total_order, key_numbers, take_turns
from sessionkit._engine.rows.tables import SideOutput
from sessionkit.spec.functions import Failure
from sessionkit.spec.stateful import AnyStatefulSpec
from sessionkit.spec.views import MISSING, KeySnapshot, KeyState
from sessionkit.state._collections import AttrsType
from sessionkit.timeouts._policies import Clock


@attrs.frozen(eq=False, slots=False)
class KeyLogic:
    """
    The fold of a stateful spec, as a `GroupLogic`; `view` builds the `KeyState` for a call.

    It takes no portions, since a function is called once for all events of a key.
    """

    spec: AnyStatefulSpec
    readings: dict[bytes, Any] = attrs.field(init=False, repr=False, factory=dict)
    view: Callable[[KeySnapshot, AttrsType], KeyState[Any]] = attrs.field(
        init=False, repr=False, default=KeyState
    )
    keeps_only_open: ClassVar[bool] = True
    takes_portions: ClassVar[bool] = False

    @cached_property
    def program(self) -> KeyProgram:
        """The compiled spec, made at its first use: the driver only sends the spec."""
        return KeyProgram.of(self.spec)

    @cached_property
    def empty_state(self) -> GroupState:
        return GroupState(self.program.schema.empty_table(), self.spec.events_schema.empty_table())

    def open_stats(self, kept: pa.Table) -> tuple[int, None]:
        """Return the number of keys, and None for the earliest start: keys have no start."""
        return kept.num_rows, None

    def due(self, kept: pa.Table) -> dict[Clock, Numbers]:
        return self.program.due(kept)

    def step(self, memory: GroupState, arrived: pa.Table, clocks: BatchClocks) -> Outcome:
        """Run a micro-batch of a group; a user function may raise a `UserFunctionError`."""
        turns = _turns(self.program, memory, arrived, clocks.watermark_us)
        events, objects, refused = _readable(self.program, turns.due)
        calls = Calls(self.program, clocks, self.view)
        # In time order, keys end in event time between the events.
        clocks_before = CLOCKS[1:] if self.program.in_time_order else CLOCKS
        keys, rows_before = self._ended(calls, memory.kept, clocks_before)
        keys, rows, failures = self._called(calls, keys, events, objects)
        keys, rows_after = self._ended(calls, keys, CLOCKS)
        failed = SideOutput.with_failures("failed", failures, events)
        return Outcome(
            memory=GroupState(keys, turns.waiting),
            rows=concat([rows_before, rows, rows_after]),
            others=[
                *turns.rejected,
                *refused,
                *failed,
                *failed_outputs(self.spec, calls.failed_output),
            ],
            processed=events.num_rows - len(failures),
            buffered=turns.waiting.num_rows - memory.buffered.num_rows,
            timers=calls.fired,
        )

    def _ended(
        self, calls: Calls, keys: pa.Table, by: Collection[Clock]
    ) -> tuple[pa.Table, pa.Table]:
        """End the keys that are over on the clocks `by`; return all other keys, and result rows."""
        over = self.program.is_over(keys, calls.clocks, by)
        if not over.any():
            return keys, self.program.no_rows
        active = ActiveKeys.of(self.program, keys, self.empty_state.buffered, over)
        for run in active.runs:
            end_overdue(calls, run, by)
        return active.table(), result_rows(self.program, active.runs)

    def _called(
        self, calls: Calls, keys: pa.Table, events: pa.Table, objects: list[Any]
    ) -> tuple[pa.Table, pa.Table, dict[int, Failure]]:
        """Call the functions; return the keys, the result rows, and failures by event position."""
        program, failures = self.program, dict[int, Failure]()
        if self.spec.takes_buckets:
            now, processing_us = calls.now, calls.clocks.processing_us
            keys, rows, failure = fold_bucket(program, keys, events, now, processing_us)
            if failure is not None:
                failures = dict.fromkeys(range(events.num_rows), failure)
            return keys, rows, failures
        active = ActiveKeys.of(program, keys, events, program.is_due(keys, calls.clocks))
        times_us = micros(active.events["time"]).tolist()
        ordered = [objects[place] for place in active.order.tolist()]
        # With `starts` 0 2 5, key 0 has the events 0-1, and key 1 the events 2-4.
        for run, first, last in zip(active.runs, active.starts, active.starts[1:], strict=False):
            at_once = [(first, last)] if first < last else []
            in_order = program.in_time_order
            turns = in_turn(calls, run, times_us, first, last) if in_order else at_once
            for start, stop in turns:
                failure = calls.process(run, ordered[start:stop], times_us[start:stop])
                if failure is not None:
                    failures |= dict.fromkeys(active.order[start:stop].tolist(), failure)
        for run in active.runs:
            fire_due(calls, run)
        return active.table(), result_rows(program, active.runs), failures


def _turns(program: KeyProgram, memory: GroupState, arrived: pa.Table, watermark_us: int) -> Turns:
    if program.in_time_order:
        most = program.spec.inputs.max_buffered_per_key
        return take_turns(memory.buffered, arrived, watermark_us, most)
    spec = program.spec
    if spec.watermark_delay is None or spec.lateness.late_events != "reject":
        return Turns(arrived, memory.buffered, [])
    late = is_late_in_order(micros(arrived["time"]), watermark_us)
    rejected = SideOutput.chosen("late", "it is at or before the watermark", arrived, late)
    return Turns(arrived.filter(pa.array(~late)), memory.buffered, rejected)


def _readable(
    program: KeyProgram, arrived: pa.Table
) -> tuple[pa.Table, list[Any], list[SideOutput]]:
    """Return the events as rows and objects, without those that their class refuses."""
    if program.spec.takes_buckets:
        return arrived, [], []
    objects, refused = build_events(program.spec, arrived)
    if not refused:
        return arrived, objects, []
    rejected = SideOutput.with_reasons("quarantined", refused, arrived)
    accepted = np.ones(arrived.num_rows, np.bool_)
    # For three events, {1: "refused"} leaves [True, False, True].
    accepted[[*refused]] = False
    objects = [objects[place] for place in np.flatnonzero(accepted).tolist()]
    return arrived.filter(pa.array(accepted)), objects, rejected


@attrs.frozen(eq=False)
class ActiveKeys:
    """
    The keys with events or due timers, and the stored rows of all other keys.

    Attributes:
        untouched: The stored rows of inactive keys.
        touched: The stored rows of active keys.
        events: The events, sorted by key, time and content.
        order: The positions of the sorted events before sorting.
        starts: The position of each key's first event in `events`, and the number of events.
        first: The position of each key's first row in `touched`, continued by `events`.
        runs: The active keys, ready for calls.
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
        """Return the keys with events or marked as due; sort the events."""
        numbers, of_stored = key_numbers(key_columns(events), key_columns(keys))
        # Of three stored keys, the second is due without events: `of_stored` is 1 -1 0. The keys
        # with events have the numbers 0 and 1, so `of_touched` is 1 2 0.
        touched, untouched = split(keys, due | (of_stored >= 0))
        of_touched = of_stored[due | (of_stored >= 0)]
        is_idle = of_touched < 0
        of_touched[is_idle] = 1 + numbers.max(initial=-1) + np.arange(np.count_nonzero(is_idle))
        order = in_total_order(numbers, micros(events["time"]), events, 0)
        events = events.take(pa.array(order))
        counts = np.bincount(numbers, minlength=1 + of_touched.max(initial=-1))
        # If the keys 0, 1 and 2 have two, three and no events, `starts` is 0 2 5 5.
        starts = np.append(0, np.cumsum(counts))
        # A stored key is at its position in `touched`, a new key at its first event after these.
        # With the stored keys 0 and 2, and a key 1 whose events start at 2, `first` is 0 4 1.
        first = touched.num_rows + starts[:-1]
        first[of_touched] = np.arange(touched.num_rows)
        runs: list[Any] = [None] * len(counts)
        stored_runs = _runs_of_rows(program.spec, touched)
        for number, run in zip(of_touched.tolist(), stored_runs, strict=True):
            runs[number] = run
        new = np.flatnonzero(first >= touched.num_rows)
        new_keys = decode_keys(program.spec, events.take(pa.array(starts[new])))
        for number, key in zip(new.tolist(), new_keys, strict=True):
            runs[number] = KeyRun.of_new(key)
        return cls(program, untouched, touched, events, order, starts.tolist(), first, runs)

    def table(self) -> pa.Table:
        """Return the stored rows of all keys after the calls."""
        kept = [run.is_kept for run in self.runs]
        if not any(kept):
            return self.untouched
        names = [field.name for field in self.program.spec.key_schema]
        keys = pa.concat_tables([self.touched.select(names), self.events.select(names)])
        exists = [run.snapshot.value is not MISSING for run in self.runs]
        since = [run.since for run in self.runs]
        rows = pa.Table.from_arrays(
            [
                *keys.take(pa.array(self.first)).columns,
                pa.array(exists, pa.bool_()),
                *(
                    pa.array([getattr(s, name) for s in since], pa.int64()).cast(INSTANT)
                    for name in STAMPS
                ),
                *timer_columns([run.snapshot.timers for run in self.runs]),
                *self._states(),
            ],
            schema=self.program.schema,
        )
        return concat([self.untouched, rows.filter(pa.array(kept, pa.bool_()))])

    def _states(self) -> list[pa.ChunkedArray]:
        """Return the columns of the state: as a call set it, else as stored; null without one."""
        names = [f"state.{field.name}" for field in self.program.state_fields]
        set_anew = [
            run.snapshot
            for run in self.runs
            if run.snapshot.was_set and run.snapshot.value is not MISSING
        ]
        values = [snapshot.value for snapshot in set_anew]
        columns = encode_states(self.program.spec.state, values, lambda place: set_anew[place].key)
        # Positions in the stored columns, followed by the new states. With two stored rows, an
        # unchanged key, a new state and a key without a state give 0 2 null.
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


def _runs_of_rows(spec: AnyStatefulSpec, rows: pa.Table) -> list[KeyRun]:
    if not rows.num_rows:
        return []
    keys, timers, values = decode_keys(spec, rows), read_timers(rows["timers"]), _values(spec, rows)
    stamps = map(Stamps, *(rows[name].cast(pa.int64()).to_pylist() for name in STAMPS))

    def read_again(place: int) -> Any:
        return _values(spec, rows.slice(place, 1))[0]

    snapshots = map(KeySnapshot, keys, values, timers)
    return list(map(KeyRun, snapshots, stamps, repeat(read_again), range(rows.num_rows)))


def _values(spec: AnyStatefulSpec, rows: pa.Table) -> list[Any]:
    """Return the states of rows as objects; `MISSING` for keys without a state."""
    exists = rows["exists"].to_numpy()
    if exists.all():
        return list(decode_states(spec.state, rows))
    states = iter(decode_states(spec.state, rows.filter(pa.array(exists))))
    return [next(states) if has_state else MISSING for has_state in exists.tolist()]
