"""
One micro-batch of the keys of a group, under a `StatefulSpec`.

Rules of this file:

1. *Only what is touched is decoded.* Keys without events or anything due pass as Arrow rows.
2. *Overdue keys end first*: the timers that are due go off, then the policy ends the key, unless
   one of them has moved its end; events of the same micro-batch begin anew. So a result does not
   depend on whether a batch without data slipped in before.
3. *Data first, then timers*, as in Spark: a timer that is due goes off after the events of its
   key, unless these deleted it or set it anew. Under `order="event_time"` timers and ends by event
   time go off between the events instead, in time order.
4. *The clocks are those of the batch*, the same for every key and row of it.
5. *Each event is counted once*: processed, late, quarantined, failed, or buffered.
6. *A failed call leaves no trace*, and takes down no other key under `on_error="reject"`.
7. *Nothing depends on the bucket.* Which keys share one, and how many there are, changes no row.
   So nothing that is due is left after a batch: a key that a late event has made ends at once, not
   when its bucket happens to be looked at again.
"""

from collections.abc import Collection
from functools import cached_property
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Numbers, concat, micros
from sessionkit._engine.boundaries import is_late_in_order
from sessionkit._engine.keys.active import ActiveKeys
from sessionkit._engine.keys.calls import Calls, failed_outputs, result_rows
from sessionkit._engine.keys.handlers import fold_bucket
from sessionkit._engine.keys.program import CLOCKS, KeyProgram
from sessionkit._engine.keys.timers import end_overdue, fire_due, process_in_turn
from sessionkit._engine.logic import BatchClocks, GroupState, Outcome
from sessionkit._engine.rows.buffer import Turns, take_turns
from sessionkit._engine.rows.objects import build_events
from sessionkit._engine.rows.rejected import Rejected
from sessionkit.spec.functions import Failure
from sessionkit.spec.stateful import AnyStatefulSpec
from sessionkit.timeouts import Clock


@attrs.frozen(eq=False, slots=False)
class KeyLogic:
    """The fold of keys, as the worker and the storage ask for it; see `Logic`."""

    spec: AnyStatefulSpec
    program: KeyProgram = attrs.field(init=False, repr=False)
    readings: dict[bytes, Any] = attrs.field(init=False, repr=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "program", KeyProgram.of(self.spec))

    @cached_property
    def empty_state(self) -> GroupState:
        return GroupState(self.program.schema.empty_table(), self.program.no_events)

    @property
    def takes_portions(self) -> bool:
        return False  # A function is called once for all events of a key.

    @property
    def keeps_only_open(self) -> bool:
        return True

    def open_stats(self, kept: pa.Table) -> tuple[int, None]:
        """Return how many keys there are; they don't begin."""
        return kept.num_rows, None

    def due(self, kept: pa.Table) -> dict[Clock, Numbers]:
        return self.program.due(kept)

    def step(self, memory: GroupState, arrived: pa.Table, clocks: BatchClocks) -> Outcome:
        turns = _turns(self.program, memory, arrived, clocks.watermark_us)
        events, objects, refused = _readable(self.program, turns.due)
        calls = Calls(self.program, clocks)
        # In time order, ends in event time take their turns between the events.
        first = CLOCKS[1:] if self.program.in_time_order else CLOCKS
        keys, rows_before = self._ended(calls, memory.kept, first)
        keys, rows, failures = self._called(calls, keys, events, objects)
        keys, rows_after = self._ended(calls, keys, CLOCKS)
        failed = Rejected.with_failures("failed", failures, events)
        return Outcome(
            memory=GroupState(keys, turns.waiting),
            rows=concat([rows_before, rows, rows_after]),
            rejected=[
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
        """End the keys that are over by some clocks; return the others, and the rows."""
        over = self.program.is_over(keys, calls.clocks, by)
        if not over.any():
            return keys, self.program.no_rows
        active = ActiveKeys.of(self.program, keys, self.program.no_events, over)
        for run in active.runs:
            end_overdue(calls, run, by)
        return active.table(), result_rows(self.program, active.runs)

    def _called(
        self, calls: Calls, keys: pa.Table, events: pa.Table, objects: list[Any]
    ) -> tuple[pa.Table, pa.Table, dict[int, Failure]]:
        """Call the functions; return the keys from now on, the rows, and why events failed."""
        program = self.program
        if program.takes_buckets:
            now, processing_us = calls.now, calls.clocks.processing_us
            keys, rows, why = fold_bucket(program, keys, events, now, processing_us)
            return keys, rows, {} if why is None else dict.fromkeys(range(events.num_rows), why)
        active = ActiveKeys.of(program, keys, events, program.is_due(keys, calls.clocks))
        take = process_in_turn if program.in_time_order else _process
        failures = take(active, calls, objects)
        for run in active.runs:
            fire_due(calls, run)
        return active.table(), result_rows(program, active.runs), failures


def _turns(program: KeyProgram, memory: GroupState, arrived: pa.Table, watermark_us: int) -> Turns:
    """Return the events to process in this micro-batch, those that wait, and the late ones."""
    if program.in_time_order:
        most = program.spec.inputs.max_buffered_per_key
        return take_turns(memory.buffered, arrived, watermark_us, most)
    if not program.rejects_late:
        return Turns(arrived, memory.buffered, [])
    late = is_late_in_order(micros(arrived["time"]), watermark_us)
    rejected = Rejected.chosen("late", "it is at or before the watermark", arrived, late)
    return Turns(arrived.filter(pa.array(~late)), memory.buffered, rejected)


def _readable(program: KeyProgram, arrived: pa.Table) -> tuple[pa.Table, list[Any], list[Rejected]]:
    """Return the events as rows and as objects, and rejected those that their class refuses."""
    if program.takes_buckets:
        return arrived, [], []
    objects, refused = build_events(program.spec, arrived)
    if not refused:
        return arrived, objects, []
    rejected = Rejected.with_reasons("quarantined", refused, arrived)
    good = np.ones(arrived.num_rows, np.bool_)
    good[[*refused]] = False
    objects = [objects[place] for place in np.flatnonzero(good).tolist()]
    return arrived.filter(pa.array(good)), objects, rejected


def _process(active: ActiveKeys, calls: Calls, objects: list[Any]) -> dict[int, Failure]:
    """Hand each key all of its events; return why events failed, by their place."""
    failures: dict[int, Failure] = {}
    times_us, events = micros(active.events["time"]).tolist(), active.ordered(objects)
    for run, start, stop in active.spans():
        if start == stop:
            continue
        failure = calls.process(run, events[start:stop], times_us[start:stop])
        if failure is not None:
            failures |= dict.fromkeys(active.order[start:stop].tolist(), failure)
    return failures
