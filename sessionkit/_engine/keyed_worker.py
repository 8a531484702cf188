"""
The callables that Spark, the batch run and the tests' driver call for a `StatefulSpec`.

`KeyedWorker` runs many keys in one Spark group, a bucket; `PerKeyWorker` one key a group, with a
column of stored state for each field. Both run the same step; only here do Spark's group state and
the engine meet.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import attrs
import pandas as pd
import pyarrow as pa

from sessionkit._engine.counts import Counts
from sessionkit._engine.cycle_collector import collector_paused
from sessionkit._engine.keys.step import BatchClocks, KeyedOutcome, keyed_step
from sessionkit._engine.keys.stored_row import row_of_key, stored_bucket, stored_key
from sessionkit._engine.keys.table import (
    due_us,
    empty_keys,
    store_keys,
)
from sessionkit._engine.rows.table import Rejected, events_schema
from sessionkit._engine.wire.inbound import read_frames
from sessionkit._engine.wire.outbound import outcomes_frame, rejected_rows
from sessionkit._instants import BEGINNING_US, END_OF_TIME_US
from sessionkit.state import (
    FORMAT_VERSION,
)
from sessionkit.stateful import StatefulSpec
from sessionkit.timeouts import processing_timer_ms, timer_ms, watermark_in_force
from sessionkit.typing import GroupStateLike

__all__ = [
    "KEYED_STATE_SCHEMA",
    "KeyedWorker",
    "PerKeyWorker",
]

AnySpec: TypeAlias = StatefulSpec[Any, Any, Any]

KEYED_STATE_SCHEMA: Final = (
    "format INT, bucket_count INT, keys BIGINT, event_due_us BIGINT, processing_due_us BIGINT, "
    "payload BINARY"
)
"""The state row of a bucket, as Spark stores it: flat, and the same for every spec."""

MICROSECONDS: Final = 1_000


@attrs.frozen
class KeyedWorker:
    """
    Runs one bucket, on a stream or as a whole.

    Attributes:
        spec: The rules and functions.
        with_rejected: Whether the rows that the functions were not given are handed out.
    """

    spec: AnySpec
    with_rejected: bool = False

    def __call__(
        self, key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupStateLike
    ) -> Iterator[pd.DataFrame]:
        """
        Run one micro-batch of a bucket; Spark calls it where there are rows or the timer went off.

        Args:
            key: The label of the bucket.
            frames: The rows, in chunks of any size; on a timeout one empty frame.
            state: Spark's group state; it is always updated or removed, since a call that changes
                nothing would leave a timer that fires for ever.
        """
        del key
        yield self._micro_batch(frames, state)

    @collector_paused()
    def _micro_batch(self, frames: Iterable[pd.DataFrame], state: GroupStateLike) -> pd.DataFrame:
        spec = self.spec
        before = stored_bucket(spec, state.get) if state.exists else empty_keys(spec)
        outcome, frame = _run(spec, before, frames, state, with_rejected=self.with_rejected)
        keys = outcome.keys
        if not keys.num_rows:
            state.remove()
            return frame
        due, payload = _due(spec, keys), store_keys(spec, keys)
        state.update((FORMAT_VERSION, spec.bucket_count, keys.num_rows, *due, payload))
        _arm(spec, *due, state)
        return frame

    @collector_paused()
    def whole(self, frames: Sequence[pd.DataFrame], processing_us: int) -> pd.DataFrame:
        """
        Run all rows of a bucket at once: no event is late, and in the end all event time is over.

        The processing time stands still, so what waits for it never comes.
        """
        spec, read = self.spec, sum(map(len, frames))
        arrived, quarantined = read_frames(spec, frames)
        nothing = events_schema(spec).empty_table()
        begin = BatchClocks(BEGINNING_US, processing_us)
        end = BatchClocks(END_OF_TIME_US, processing_us)
        first = keyed_step(spec, empty_keys(spec), arrived, begin)
        last = keyed_step(spec, first.keys, nothing, end)
        counts = _counts(read, quarantined, first) + _counts(0, [], last)
        return outcomes_frame(
            spec, [first, last], quarantined, counts, with_rejected=self.with_rejected
        )


@attrs.frozen
class PerKeyWorker:
    """
    Runs one key on a stream.

    Attributes:
        spec: The rules and functions.
        with_rejected: Whether the rows that the functions were not given are handed out.
    """

    spec: AnySpec
    with_rejected: bool = False

    def __call__(
        self, key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupStateLike
    ) -> Iterator[pd.DataFrame]:
        """Run one micro-batch of a key; see `KeyedWorker`. The key is as it crosses."""
        spec = self.spec
        before = stored_key(spec, key, state.get) if state.exists else empty_keys(spec)
        outcome, frame = _run(spec, before, frames, state, with_rejected=self.with_rejected)
        if outcome.keys.num_rows:
            state.update(row_of_key(spec, outcome.keys))
            _arm(spec, *_due(spec, outcome.keys), state)
        else:
            state.remove()
        yield frame


def _run(
    spec: AnySpec,
    before: pa.Table,
    frames: Iterable[pd.DataFrame],
    state: GroupStateLike,
    *,
    with_rejected: bool,
) -> tuple[KeyedOutcome, pd.DataFrame]:
    """Run one micro-batch of a group; return what it comes to, and what is handed to Spark."""
    chunks = [] if state.hasTimedOut else list(frames)
    arrived, quarantined = read_frames(spec, chunks)
    outcome = keyed_step(spec, before, arrived, _clocks(spec, state))
    counts = _counts(sum(map(len, chunks)), quarantined, outcome)
    return outcome, outcomes_frame(
        spec, [outcome], quarantined, counts, with_rejected=with_rejected
    )


def _hard_ms(spec: AnySpec, state: GroupStateLike) -> int:
    return 0 if spec.watermark_delay is None else state.getCurrentWatermarkMs()


def _clocks(spec: AnySpec, state: GroupStateLike) -> BatchClocks:
    watermark_us = watermark_in_force(_hard_ms(spec, state), spec.retention_ms)
    return BatchClocks(watermark_us, state.getCurrentProcessingTimeMs() * MICROSECONDS)


def _due(spec: AnySpec, keys: pa.Table) -> tuple[int | None, int | None]:
    """Return what the two clocks, event time first, must pass for something to happen."""
    return due_us(spec, keys, "event_time"), due_us(spec, keys, "processing_time")


def _arm(
    spec: AnySpec, event_due: int | None, processing_due: int | None, state: GroupStateLike
) -> None:
    """Let Spark call again when something is due; behind `update`, which clears the timer."""
    if spec.clock == "event_time" and event_due is not None:
        hard_ms = _hard_ms(spec, state)
        state.setTimeoutTimestamp(timer_ms(event_due + 1, hard_ms, spec.retention_ms))
    if spec.clock == "processing_time":
        now_ms = state.getCurrentProcessingTimeMs()
        # No timer of Spark's waits for the watermark under this clock: look in every micro-batch.
        delays = [1] if event_due is not None else []
        delays += (
            [processing_timer_ms(processing_due, now_ms)] if processing_due is not None else []
        )
        if delays:
            state.setTimeoutDuration(min(delays))


def _counts(read: int, quarantined: Sequence[Rejected], outcome: KeyedOutcome) -> Counts:
    rejected = rejected_rows(quarantined, outcome)
    return Counts(
        events=read,
        processed=outcome.processed,
        late=rejected["late"],
        quarantined=rejected["quarantined"],
        failed=rejected["failed"],
        timers=outcome.timers,
        rows=outcome.rows.num_rows,
        failed_output=rejected["failed_output"],
    )
