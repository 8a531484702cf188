"""
The one worker that a stream, a batch and the tests' driver all call: packed rows in, rows out.

It loads the memory of a group, runs one step of the fold, stores the memory, and returns result
rows, rejected rows and counts. Only here do Spark's group state and the engine meet.
"""

import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, TypeAlias, cast

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import Mask, concat, split
from sessionkit._engine.boundaries import (
    MILLISECOND_US,
    processing_timer_ms,
    timer_ms,
    watermark_in_force,
)
from sessionkit._engine.counts import COUNTED, REJECTED, Counts, DurationSketch
from sessionkit._engine.micro_batch import BatchClocks, BucketStats, GroupLogic, GroupState, Outcome
from sessionkit._engine.rows.objects import decode_keys
from sessionkit._engine.rows.tables import SideOutput
from sessionkit._engine.shell.erasing import Erased, erased_keys, keys_to_load
from sessionkit._engine.shell.paged_bucket import PagedBucket, PagedStateLike
from sessionkit._engine.shell.payload import (
    MOST_BYTES,
    NOBODY,
    GroupAccess,
    Origin,
    TaskRows,
    TooLargeError,
)
from sessionkit._engine.shell.seed import SeedFormat, started
from sessionkit._engine.shell.storage import GroupRow, GroupStorage
from sessionkit._engine.wire.gathering import gathered
from sessionkit._engine.wire.outbound import (
    BatchOutput,
    output_batches,
    output_of,
    packed_columns,
    packed_frame,
    row_frames,
)
from sessionkit._engine.wire.packing import (
    EVENTS_COLUMN,
    REJECTED_COLUMN,
    PackedRow,
    Portion,
    packs_in,
    portions,
    rows_of_groups,
    unpacked,
)
from sessionkit._instants import (
    BEGINNING_US,
    END_OF_TIME_US,
    instant_of,
    micros_of,
    span_us,
)
from sessionkit._typing import GroupStateLike
from sessionkit.spec.base import AnySpec
from sessionkit.state._collections import Field, arrow_schema
from sessionkit.timeouts._policies import Clock

STATS: Final = attrgetter(*(field.name for field in attrs.fields(BucketStats)))
BINS_AT: Final = len(COUNTED) + 1 + len(attrs.fields(BucketStats))
"""The place of the first bin of `Counts.behind`, after counts, label and stats."""
EVENTS_AT_ONCE: Final = 2**20
"""A batch folds about this many events of a group at a time, which takes some 200 MB."""

Step: TypeAlias = Callable[
    [GroupState, Portion, BatchClocks, BatchClocks], tuple[BatchOutput, GroupState]
]
"""What runs a portion of a group of a batch: `Worker.portion`, here or in another process."""

LOG: Final = logging.getLogger("sessionkit")
JUMPED: Final = (
    "this micro-batch moves the watermark further than max_jump: it has an event of %s, and the "
    "latest one before it was %s (max_jump is %s)"
)


@contextmanager
def collector_paused() -> Iterator[None]:
    """
    Pause the collector of reference cycles.

    The objects of events and sessions are in no cycle, and collecting takes a fifth of a call.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@attrs.frozen(slots=False)
class Worker:
    """
    The worker of the groups of a stream or a batch; where it `erases`, rows may erase keys.

    No row that it stores has more than `most_bytes`.
    """

    logic: GroupLogic
    with_rejected: bool = False
    seed: SeedFormat | None = None
    erases: bool = False
    most_bytes: int = MOST_BYTES

    @property
    def fields(self) -> tuple[Field, ...]:
        """
        The columns of the output; `shown` returns the names that a frame has for them.

        With rejected rows, a column `row.kind` is added: `session` or `result`, `event`, `late`,
        `duplicate`, `outside`, `quarantined`, `failed`, `failed_output` (a session whose `finish`
        failed, or a timer whose function failed), or `erased` (an erased key). If the event class
        has no fields, there is no column `row.event`.
        """
        spec = self.logic.spec
        return spec.fields_with_rejected if self.with_rejected else spec.result_fields

    @cached_property
    def as_rows(self) -> bool:
        """
        Whether the rows of a stream cross unpacked, so that Spark needs no further Python step.

        pandas has no null floats, and Spark reads each NaN as a null. So rows whose floats may be
        null, such as rejected rows, are packed.
        """
        return not (self.with_rejected or packed_columns(self.logic.spec))

    def __call__(
        self,
        group: tuple[Any, ...],
        frames: Iterable[pd.DataFrame],
        state: GroupStateLike,
        run: Origin = NOBODY,
        task_rows: TaskRows | None = None,
    ) -> Iterator[pd.DataFrame]:
        """
        Run one micro-batch of a group; Spark calls it where there are rows or the timer fired.

        Args:
            group: What Spark grouped by: the label of a bucket.
            frames: The rows, packed; on a timeout one empty frame.
            state: Spark's group state; under `layout="pages"` a `PagedStateLike`.
            run: The query, and the number of the micro-batch. Where they aren't known, what is
                stored isn't bound to the query, and rows of any query are read.
            task_rows: The rows that this task has read before.
        """
        spec = self.logic.spec
        watermark_ms = 0 if spec.delay_ms is None else state.getCurrentWatermarkMs()
        now = Origin(run.query, run.batch, watermark_ms)
        access = GroupAccess(self.logic, group, now, task_rows, self.most_bytes)
        processing_us = state.getCurrentProcessingTimeMs() * MILLISECOND_US
        clocks = BatchClocks(watermark_in_force(watermark_ms), processing_us)
        storage: GroupStorage = GroupRow(access, state)
        if spec.storage.layout == "pages":
            storage = PagedBucket(access, cast("PagedStateLike", state))
        chunks = [] if state.hasTimedOut else list(frames)
        with collector_paused():
            output, stats, behind = self._micro_batch(chunks, state, storage, clocks)
            numbers = (int(group[0]), *STATS(stats), *behind.bins)
            out = row_frames(output, numbers) if self.as_rows else [packed_frame(output, numbers)]
        yield from out

    def _micro_batch(
        self,
        frames: list[pd.DataFrame],
        state: GroupStateLike,
        storage: GroupStorage,
        clocks: BatchClocks,
    ) -> tuple[BatchOutput, BucketStats, DurationSketch]:
        logic, spec = self.logic, self.logic.spec
        packs = packs_in(frames, EVENTS_COLUMN, REJECTED_COLUMN)
        arrived, quarantined = unpacked(logic.empty_state.buffered, *packs)
        if spec.inputs.max_jump is not None:
            _warn_of_a_jump(spec, arrived, clocks)
        seeded, erasing, erased = None, None, None
        if self.seed is not None:
            seeded, clocks = self.seed.read(logic, frames, state), self.seed.in_force(clocks)
            arrived, read_before = self.seed.unread(arrived)
            quarantined += read_before
        if self.erases:
            erasing = erased_keys(logic, frames)
        keys = arrived if erasing is None else keys_to_load(arrived, erasing)
        memory, clocks = storage.load(keys, clocks)
        memory, events = seeded or memory, arrived
        if erasing is not None:
            erased = Erased.of(erasing, memory)
            memory = erased.left
        if seeded is not None:
            memory, events = started(spec, memory, arrived)
        outcome, stats, due = self._stored(memory, events, clocks, storage)
        watermark_ms, behind = storage.access.now.watermark_ms, DurationSketch()
        _arm(spec.clock, due, state, watermark_ms)
        if clocks.watermark_us != BEGINNING_US:
            stats = attrs.evolve(stats, watermark_us=clocks.watermark_us)
            if spec.lateness.measured and arrived.num_rows:
                # Before this micro-batch, the latest event time was the watermark plus the delay,
                # and so was the moment at which an idle source moved it on.
                latest_us = clocks.watermark_us + (spec.delay_ms or 0) * MILLISECOND_US
                behind = DurationSketch.of_times(arrived["time"], latest_us)
        waited = events.num_rows - arrived.num_rows
        output = self._output(arrived.num_rows, quarantined, outcome, waited, erased)
        return output, stats, behind

    def _stored(
        self, memory: GroupState, events: pa.Table, clocks: BatchClocks, storage: GroupStorage
    ) -> tuple[Outcome, BucketStats, Mapping[Clock, int]]:
        """
        Run a micro-batch and store its memory, as `GroupStorage.store` says.

        Under `on_error="reject"`, the events of a key whose memory has become too large have
        failed. The others don't depend on it, so the micro-batch runs again without that key's.
        """
        spec, failed, waited = self.logic.spec, list[SideOutput](), 0
        while True:
            outcome = self.logic.step(memory, events, clocks)
            try:
                stats, due = storage.store(outcome.memory)
            except TooLargeError as error:
                of_key = [_of_key(spec, each, error.key) for each in (events, memory.buffered)]
                if spec.on_error == "raise" or not any(mask.any() for mask in of_key):
                    raise
                (new, events), (old, waiting) = map(split, (events, memory.buffered), of_key)
                parts = (rows for rows in (new, old) if rows.num_rows)
                failed += [
                    SideOutput("failed", [str(error)] * rows.num_rows, rows) for rows in parts
                ]
                memory, waited = attrs.evolve(memory, buffered=waiting), waited + old.num_rows
            else:
                others, buffered = [*outcome.others, *failed], outcome.buffered - waited
                return attrs.evolve(outcome, others=others, buffered=buffered), stats, due

    def packed_partition(
        self, batches: Iterable[pa.RecordBatch], processing_us: int, until_us: int = END_OF_TIME_US
    ) -> Iterator[pa.RecordBatch]:
        """
        Run all groups of a partition, one after the other; Spark calls it on a batch.

        The packed rows are sorted by group, which is their first column, and by time.
        """
        groups = map(self.portions, rows_of_groups(batches))
        return self._partition(groups, processing_us, until_us)

    def unpacked_partition(
        self,
        batches: Iterable[pa.RecordBatch],
        processing_us: int,
        until_us: int = END_OF_TIME_US,
        step: Step | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """
        Run all rows of some keys, in any order; Sail calls it on a batch.

        They have their wire names, and the hash of their keys. By default, each portion runs here.
        """
        no_sessions = self.logic.empty_state.kept
        groups = gathered(self.logic.spec, no_sessions, batches, self._at_once)
        return self._partition(groups, processing_us, until_us, step)

    def _partition(
        self,
        groups: Iterable[Iterable[Portion]],
        processing_us: int,
        until_us: int,
        step: Step | None = None,
    ) -> Iterator[pa.RecordBatch]:
        steps = (
            one for group in groups for one in self.until(group, processing_us, until_us, step)
        )
        return output_batches((output for output, _ in steps), arrow_schema(self.fields))

    @property
    def _at_once(self) -> int | None:
        """How many events of a group a batch folds at a time; None if it folds all of them."""
        return EVENTS_AT_ONCE if self.logic.takes_portions else None

    def portions(self, rows: Iterable[PackedRow]) -> Iterator[Portion]:
        """Yield the rows of a group of a batch in portions that fit into memory."""
        memory = self.logic.empty_state
        return portions(memory.buffered, memory.kept, rows, self._at_once)

    def until(
        self,
        group: Iterable[Portion],
        processing_us: int,
        until_us: int,
        step: Step | None = None,
    ) -> Iterator[tuple[BatchOutput, GroupState]]:
        """
        Run all rows of a group, up to a watermark: no event is late.

        The processing time stands still, so nothing that waits for it happens. Yields the output of
        each portion of the rows, and the memory after it.
        """
        memory, step = self.logic.empty_state, step or self.portion
        clocks = BatchClocks(BEGINNING_US, processing_us, whole=True)
        for portion in group:
            # An event at the next instant may still join a session that ends just then.
            end_us = until_us if portion.until_us is None else portion.until_us - 1
            after = attrs.evolve(clocks, watermark_us=end_us)
            output, memory = step(memory, portion, clocks, after)
            yield output, memory
            clocks = after

    @collector_paused()
    def portion(
        self, memory: GroupState, portion: Portion, before: BatchClocks, after: BatchClocks
    ) -> tuple[BatchOutput, GroupState]:
        """Run a portion of a group, as a `Step`; the watermark moves from `before` to `after`."""
        logic, arrived, combined = self.logic, portion.events, 0
        if portion.sessions.num_rows:
            # Events join partial sessions as they join open ones.
            combined = pc.sum(portion.sessions["events"]).as_py()
            memory = attrs.evolve(memory, kept=concat([memory.kept, portion.sessions]))
        no_events = logic.empty_state.buffered
        if logic.spec.order == "event_time":
            # All events until then have arrived, so the turn of each has come.
            outcome = logic.step(GroupState(memory.kept, arrived), no_events, after)
            outcome = attrs.evolve(outcome, buffered=0)
        else:
            outcome = logic.step(memory, arrived, before)
            outcome = outcome.then(logic.step(outcome.memory, no_events, after))
        outcome = attrs.evolve(outcome, processed=outcome.processed + combined)
        output = self._output(arrived.num_rows + combined, portion.quarantined, outcome)
        return output, outcome.memory

    def _output(
        self,
        arrived: int,
        quarantined: list[SideOutput],
        outcome: Outcome,
        waited: int = 0,
        erased: Erased | None = None,
    ) -> BatchOutput:
        """Return the output and its counts; `waited` of the processed events were buffered."""
        others = quarantined + outcome.others
        numbers: dict[str, Any] = dict.fromkeys(REJECTED, 0)
        for part in quarantined:
            arrived += part.rows.num_rows
        for part in others:
            if part.kind in numbers:
                numbers[part.kind] += part.rows.num_rows
        counts = Counts(
            events=arrived,
            processed=outcome.processed,
            buffered=outcome.buffered - waited,
            sessions=outcome.sessions,
            timers=outcome.timers,
            rows=outcome.rows.num_rows,
            revised=outcome.revised,
            out_of_order=outcome.out_of_order,
            **numbers,
        )
        if erased is not None:
            others.append(erased.output)
            counts = erased.counted(counts)
        shown = others if self.with_rejected else None
        return output_of(self.logic.spec, outcome.rows, shown, counts)


def _of_key(spec: AnySpec, rows: pa.Table, key: Any) -> Mask:
    """Mark the rows of a key; none of None."""
    return np.array([each == key for each in decode_keys(spec, rows)], np.bool_)


def _arm(
    clock: Clock | None, due: Mapping[Clock, int], state: GroupStateLike, watermark_ms: int
) -> None:
    """
    Set Spark's timer to what is due first; called after `update`, which clears the timer.

    `clock` is the clock of Spark's timer; `due` has the first instant of each clock.
    """
    if clock == "event_time" and clock in due:
        state.setTimeoutTimestamp(timer_ms(due[clock], watermark_ms))
    elif clock == "processing_time" and "event_time" in due:
        # Under this clock no timer of Spark waits for the watermark: look in every micro-batch.
        state.setTimeoutDuration(1)
    elif clock == "processing_time" and due:
        now_ms = state.getCurrentProcessingTimeMs()
        state.setTimeoutDuration(processing_timer_ms(due[clock], now_ms))


def _warn_of_a_jump(spec: AnySpec, arrived: pa.Table, clocks: BatchClocks) -> None:
    """Log a warning on this executor if events move the watermark further than `max_jump`."""
    jump, delay = spec.inputs.max_jump, spec.watermark_delay
    if jump is None or delay is None or not arrived.num_rows:
        return
    latest_us = pc.max(arrived["time"]).value
    seen_us = clocks.watermark_us + span_us(delay)
    if clocks.watermark_us > BEGINNING_US and latest_us > seen_us + span_us(jump):
        LOG.warning(JUMPED, instant_of(latest_us), instant_of(seen_us), jump)


def end_us(until: datetime | None) -> int:
    """
    Return the watermark at the end of a batch: a microsecond before `until`.

    An event at `until` may still join a session that ends just then.
    """
    return END_OF_TIME_US if until is None else micros_of(until) - 1
