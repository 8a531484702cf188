"""
The one callable that Spark, the batch run and the tests' driver all call: frames in, frames out.

It reads the state of a bucket, runs the step, and writes back state, timer and rows. Only here do
Spark's group state and the engine meet.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import attrs
import pandas as pd

from sessionkit._engine.counts import Counts
from sessionkit._engine.cycle_collector import collector_paused
from sessionkit._engine.rows.table import Rejected, events_schema
from sessionkit._engine.sessions.step import Outcome, step
from sessionkit._engine.sessions.table import BucketState, empty_state, load_state, store_state
from sessionkit._engine.wire.inbound import read_frames
from sessionkit._engine.wire.outbound import outcomes_frame, rejected_rows
from sessionkit._instants import BEGINNING_US, END_OF_TIME_US
from sessionkit.errors import StateMismatchError, with_hint
from sessionkit.session import SessionSpec
from sessionkit.state import FORMAT_VERSION, check_format
from sessionkit.timeouts import timer_ms, watermark_in_force
from sessionkit.typing import GroupStateLike

__all__ = ["STATE_SCHEMA", "BucketWorker"]

AnySpec: TypeAlias = SessionSpec[Any, Any, Any]

STATE_SCHEMA: Final = (
    "format INT, bucket_count INT, sessions BIGINT, buffered BIGINT, due_us BIGINT, payload BINARY"
)
"""The state row of a bucket, as Spark stores it: flat, and the same for every spec, because Spark
lets no stored schema grow and checks no names."""


@attrs.frozen
class BucketWorker:
    """
    Runs one bucket, on a stream or as a whole.

    Attributes:
        spec: The rules and functions.
        with_rejected: Whether the rows that were not folded are handed out.
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
        spec, hard_ms = self.spec, state.getCurrentWatermarkMs()
        watermark_us = watermark_in_force(hard_ms, spec.retention_ms)
        chunks = [] if state.hasTimedOut else list(frames)
        arrived, quarantined = read_frames(spec, chunks)
        before = _stored(spec, state) if state.exists else empty_state(spec)
        outcome = step(spec, before, arrived, watermark_us)
        _store(spec, outcome.state, state, hard_ms)
        counts = _count(sum(map(len, chunks)), quarantined, outcome)
        return outcomes_frame(
            spec, [outcome], quarantined, counts, with_rejected=self.with_rejected
        )

    @collector_paused()
    def whole(self, frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
        """Run all rows of a bucket at once: no event is late, and in the end all is over."""
        spec, read = self.spec, sum(map(len, frames))
        arrived, quarantined = read_frames(spec, frames)
        nothing = events_schema(spec).empty_table()
        if spec.order == "event_time":
            # All events are there, so none need be buffered: their turn has come.
            waiting = BucketState(empty_state(spec).sessions, arrived)
            closed = step(spec, waiting, nothing, END_OF_TIME_US)
            counts = attrs.evolve(_count(read, quarantined, closed), buffered=0)
            return outcomes_frame(
                spec, [closed], quarantined, counts, with_rejected=self.with_rejected
            )
        opened = step(spec, empty_state(spec), arrived, BEGINNING_US)
        closed = step(spec, opened.state, nothing, END_OF_TIME_US)
        counts = _count(read, quarantined, opened) + _count(0, [], closed)
        return outcomes_frame(
            spec, [opened, closed], quarantined, counts, with_rejected=self.with_rejected
        )


def _count(read: int, quarantined: Sequence[Rejected], outcome: Outcome) -> Counts:
    """Return the counts of one micro-batch of one bucket."""
    rejected = rejected_rows(quarantined, outcome)
    return Counts(
        events=read,
        processed=outcome.processed,
        late=rejected["late"],
        quarantined=rejected["quarantined"],
        failed=rejected["failed"],
        buffered=outcome.buffered,
        sessions=outcome.closed,
        rows=outcome.rows.num_rows,
        failed_output=rejected["failed_output"],
    )


def _stored(spec: AnySpec, state: GroupStateLike) -> BucketState:
    version, bucket_count, _, _, _, payload = state.get
    check_format(version)
    if bucket_count != spec.bucket_count:
        found = (
            f"`bucket_count` is {spec.bucket_count} in the spec, {bucket_count} in the checkpoint"
        )
        raise StateMismatchError(with_hint(found, f"write bucket_count={bucket_count}"))
    return load_state(spec, bytes(payload))


def _store(spec: AnySpec, bucket: BucketState, state: GroupStateLike, hard_ms: int) -> None:
    if bucket.is_empty:
        state.remove()
        return
    due_us = bucket.due_us
    state.update(
        (
            FORMAT_VERSION,
            spec.bucket_count,
            bucket.sessions.num_rows,
            bucket.buffered.num_rows,
            due_us,
            store_state(spec, bucket),
        )
    )
    state.setTimeoutTimestamp(timer_ms(due_us, hard_ms, spec.retention_ms))
