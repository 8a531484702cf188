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

from collections.abc import Collection, Sequence
from functools import cached_property, partial
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.clocks import BatchClocks
from sessionkit._engine.keys.active import ActiveKeys
from sessionkit._engine.keys.bucket_handler import fold_bucket
from sessionkit._engine.keys.calls import Calls, KeyRun
from sessionkit._engine.keys.ends import CLOCKS, end_of, end_overdue, over_in
from sessionkit._engine.keys.results import failed_outputs, result_rows
from sessionkit._engine.keys.table import due_us, is_due_in, key_identity, keys_schema
from sessionkit._engine.keys.turns import process_in_turn
from sessionkit._engine.logic import Memory, Outcome
from sessionkit._engine.rows.buffer import Turns, take_turns
from sessionkit._engine.rows.objects import build_events
from sessionkit._engine.rows.table import Rejected, micros, no_events, no_results, stacked
from sessionkit.spec.functions import Failure
from sessionkit.spec.stateful import AnyStatefulSpec
from sessionkit.state import Field, codec_of
from sessionkit.timeouts import Clock, is_late_in_order

__all__ = ["KeyLogic"]

Instants: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@attrs.frozen(eq=False, slots=False)
class KeyLogic:
    """The fold of keys, as the worker and the storage ask for it; see `Logic`."""

    spec: AnyStatefulSpec
    readings: dict[bytes, Any] = attrs.field(init=False, repr=False, factory=dict)

    @cached_property
    def nothing(self) -> Memory:
        """The memory of a group that remembers nothing."""
        return Memory(self.schema.empty_table(), no_events(self.spec))

    @cached_property
    def identity(self) -> bytes:
        """The rules and the types under which a group is stored, as JSON."""
        return key_identity(self.spec)

    @property
    def state_fields(self) -> Sequence[Field]:
        """The fields of the state as they are stored."""
        return codec_of(self.spec.state).type.fields

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the table of keys."""
        return keys_schema(self.spec)

    @property
    def keeps_only_open(self) -> bool:
        """Always: each row is a key."""
        return True

    def open_in(self, kept: pa.Table) -> pa.Table:
        """Return all keys."""
        return kept

    def due(self, kept: pa.Table) -> dict[Clock, Instants]:
        """Return when the first timer or end of each key is due, on each clock."""
        clocks: tuple[Clock, ...] = ("event_time", "processing_time")
        return {clock: due_us(self.spec, kept, clock) for clock in clocks}

    def step(self, memory: Memory, arrived: pa.Table, clocks: BatchClocks) -> Outcome:
        """Run one micro-batch of a group."""
        turns = _turns(self.spec, memory, arrived, clocks.watermark_us)
        events, objects, refused = _readable(self.spec, turns.due)
        calls = Calls(self.spec, clocks)
        # In time order, ends in event time take their turns between the events.
        first = CLOCKS if self.spec.order == "arrival" else CLOCKS[1:]
        keys, rows_before = self._ended(calls, memory.kept, first)
        keys, rows, failures = self._called(calls, keys, events, objects)
        keys, rows_after = self._ended(calls, keys, CLOCKS)
        failed = Rejected.with_failures("failed", failures, events)
        return Outcome(
            memory=Memory(keys, turns.waiting),
            rows=stacked([rows_before, rows, rows_after]),
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
        over = over_in(self.spec, keys, calls.clocks, by)
        if not over.any():
            return keys, no_results(self.spec)
        active = ActiveKeys.of_stored(self.spec, keys, over)
        for run in active.runs:
            end_overdue(calls, run, by)
        return active.table(), result_rows(self.spec, active.runs)

    def _called(
        self, calls: Calls, keys: pa.Table, events: pa.Table, objects: list[Any]
    ) -> tuple[pa.Table, pa.Table, dict[int, Failure]]:
        """Call the functions; return the keys from now on, the rows, and why events failed."""
        spec = self.spec
        if spec.handler == "bucket":
            folded = fold_bucket(spec, keys, events, calls.now, calls.clocks.processing_us)
            why = folded.failure
            failures = {} if why is None else dict.fromkeys(range(events.num_rows), why)
            return folded.keys, folded.rows, failures
        active = ActiveKeys.of(spec, keys, events, is_due_in(spec, keys, calls.clocks))
        take = process_in_turn if spec.order == "event_time" else _process
        failures = take(active, calls, objects)
        for run in active.runs:
            if run.held.armed:
                calls.fire(run, partial(_lived, calls, run))
        return active.table(), result_rows(spec, active.runs), failures


def _lived(calls: Calls, run: KeyRun) -> BatchClocks:
    """Return the clocks until which timers of a key go off, after its events."""
    end = end_of(calls, run, calls.clocks)
    return calls.clocks if end is None else end.lived


def _turns(spec: AnyStatefulSpec, memory: Memory, arrived: pa.Table, watermark_us: int) -> Turns:
    """Return the events that are taken in this micro-batch, those that wait, and late ones."""
    if spec.order == "event_time":
        return take_turns(memory.buffered, arrived, watermark_us, spec.inputs.max_buffered_per_key)
    if spec.watermark_delay is None or spec.lateness.late_events == "process":
        return Turns(arrived, memory.buffered, [])
    late = is_late_in_order(micros(arrived["time"]), watermark_us)
    rejected = Rejected.chosen("late", "it is at or before the watermark", arrived, late)
    return Turns(arrived.filter(pa.array(~late)), memory.buffered, rejected)


def _readable(
    spec: AnyStatefulSpec, arrived: pa.Table
) -> tuple[pa.Table, list[Any], list[Rejected]]:
    """Return the events as rows and as objects, those that their class refuses aside."""
    if spec.handler != "events":
        return arrived, [], []
    objects, refused = build_events(spec, arrived)
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
    times_us, part = micros(active.events["time"]).tolist(), active.parts(objects)
    for run, start, stop in active.spans():
        if start == stop:
            continue
        failure = calls.process(run, part(start, stop), times_us[start:stop])
        if failure is not None:
            failures |= dict.fromkeys(active.order[start:stop].tolist(), failure)
    return failures
