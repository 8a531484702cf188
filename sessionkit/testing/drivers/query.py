"""A streaming query without Spark: a source of rows, two clocks, groups of state, micro-batches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import attrs
import pandas as pd

from sessionkit._engine.boundaries import watermark_in_force
from sessionkit._engine.counts import Counts
from sessionkit._engine.shell.payload import Origin
from sessionkit._engine.shell.stored import Neighbours
from sessionkit._engine.shell.worker import worker_of
from sessionkit._engine.wire.inbound import wire_columns
from sessionkit._instants import (
    BEGINNING_US,
    LAST_INSTANT_US,
    Duration,
    duration,
    instant_of,
    micros_of,
    span_us,
)
from sessionkit.errors import ScriptError, with_hint
from sessionkit.spec.shared import AnySpec
from sessionkit.testing.drivers.rows import Group, Row, Seed, check_row, group_of, packed_frames
from sessionkit.testing.fakes.group_state import FakeGroupState, StoredGroup
from sessionkit.testing.fakes.spark_values import TimeoutConf
from sessionkit.timeouts import Clock
from sessionkit.typing import GroupStateLike

Worker: TypeAlias = Callable[
    [tuple[Any, ...], Sequence[pd.DataFrame], GroupStateLike, Origin, Neighbours],
    Iterator[pd.DataFrame],
]
QUERY_ID: Final = "73657373-696f-4e6b-8974-2d6472697665"
"""Of each driver, so that the same rows leave the same bytes."""
TIMEOUTS: Mapping[Clock | None, TimeoutConf] = {
    "event_time": "EventTimeTimeout",
    "processing_time": "ProcessingTimeTimeout",
    None: "NoTimeout",
}
MILLISECOND_US: Final = 1_000


@attrs.frozen
class Clocks:
    """The clocks at a batch border: the watermark of the next batch, 0 while there is none."""

    watermark_ms: int = 0
    before_ms: int = 0
    processing: datetime | None = None
    since_us: int = BEGINNING_US

    @property
    def processing_ms(self) -> int:
        """The processing time in milliseconds; 0, the epoch, where the test has none."""
        if self.processing is None:
            return 0
        return micros_of(self.processing) // MILLISECOND_US

    @property
    def watermark(self) -> datetime | None:
        """The watermark, in UTC; None while there is none."""
        at_us = self.in_force_us
        return instant_of(at_us) if at_us > BEGINNING_US else None

    @property
    def in_force_us(self) -> int:
        """The watermark that is in force, in microseconds."""
        return max(watermark_in_force(self.watermark_ms), self.since_us)

    def with_watermark(self, spec: AnySpec, instant: datetime) -> "Clocks":
        """Move the watermark of the next batch; an earlier one is ignored, as in Spark."""
        if spec.delay_ms is None:
            found = "the spec has no watermark"
            raise ScriptError(with_hint(found, "add watermark_delay=... to the spec"))
        on_clock(instant, "the watermark")
        watermark_ms, rest = divmod(micros_of(instant), MILLISECOND_US)
        if rest or watermark_ms <= 0:
            found = f"the watermark cannot be {instant.isoformat()}"
            raise ScriptError(with_hint(found, "pass whole milliseconds, after 1970-01-01"))
        return attrs.evolve(self, watermark_ms=max(self.watermark_ms, watermark_ms))

    def after_events(self, spec: AnySpec, latest_us: int | None) -> "Clocks":
        """Return the clocks after a batch whose latest event time was this; None for no event."""
        if spec.delay_ms is None:
            return self
        moved_ms = 0 if latest_us is None else latest_us // MILLISECOND_US - spec.delay_ms
        watermark_ms = max(self.watermark_ms, moved_ms, self.since_us // MILLISECOND_US)
        return attrs.evolve(self, before_ms=self.watermark_ms, watermark_ms=watermark_ms)

    def after(self, span: Duration) -> "Clocks":
        span = duration(span, "span", zero_allowed=True) if isinstance(span, str) else span
        if self.processing is None:
            found = "the driver has no processing time"
            raise ScriptError(with_hint(found, "pass processing_time=... when you build it"))
        if span < timedelta(0):
            found = f"the processing time cannot go back, by {span}"
            raise ScriptError(with_hint(found, "pass a positive timedelta"))
        if micros_of(self.processing) + span_us(span) > LAST_INSTANT_US:
            found = f"the processing time can't move by {span}: that is after the year 9999"
            raise ScriptError(with_hint(found, "pass a shorter timedelta"))
        return attrs.evolve(self, processing=self.processing.astimezone(UTC) + span)

    def is_future(self, spec: AnySpec, event_time: datetime) -> bool:
        """Return whether an event time is too far ahead of the processing time."""
        skew = spec.inputs.max_future_skew
        if self.processing is None or skew is None:
            return False
        return micros_of(event_time) > micros_of(self.processing) + span_us(skew)


def aware(instant: object, name: str) -> datetime | None:
    """Return a time that has a zone, or None."""
    if instant is None:
        return None
    if not isinstance(instant, datetime) or instant.utcoffset() is None:
        found = f"`{name}` must be a datetime with a time zone, found {instant!r}"
        raise ScriptError(with_hint(found, "write datetime(..., tzinfo=UTC)"))
    return instant


def on_clock(instant: datetime | None, name: str) -> datetime | None:
    """Return a time that a clock of Spark can show, or None."""
    found = aware(instant, name)
    if found is not None and not 0 <= micros_of(found) <= LAST_INSTANT_US:
        text = f"`{name}` must be from 1970 to 9999 in UTC, found {instant!r}"
        raise ScriptError(with_hint(text, "Spark's clocks start at 1970-01-01"))
    return instant


@attrs.frozen(eq=False)
class PagedGroupState:
    """The group state of a driver, whose row ends in the pages of its bucket, by their numbers."""

    row: FakeGroupState
    pages: dict[int, bytes]

    @classmethod
    def of(cls, row: FakeGroupState) -> "PagedGroupState":
        return cls(row, dict(row.get[-1]) if row.exists else {})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.row, name)

    @property
    def get(self) -> tuple[Any, ...]:
        """The row of the bucket, without the pages."""
        return self.row.get[:-1]

    def update(self, newValue: tuple[Any, ...]) -> None:  # noqa: N803 (Spark's name)
        """Replace the row; the pages are those of this moment."""
        self.row.update((*newValue, self.pages))

    @property
    def has_pages(self) -> bool:
        return bool(self.pages)

    def page(self, start: int) -> bytes | None:
        return self.pages.get(start)

    def put_page(self, start: int, payload: bytes) -> None:
        self.pages[start] = payload

    def remove_page(self, start: int) -> None:
        del self.pages[start]


@attrs.frozen
class Snapshot:
    """
    What a stopped query leaves: the stored groups, the clocks, the rows not yet read, the counts.

    It holds only bytes and numbers, so a test can keep it and start several drivers from it.
    """

    clocks: Clocks
    seed: Seed | None = None
    groups: Mapping[Any, StoredGroup] = attrs.field(factory=dict)
    batch_id: int = 0
    waiting: tuple[Row, ...] = ()
    planned: tuple[Row, ...] | None = None
    counts: Counts = attrs.field(factory=Counts)

    @property
    def next_rows(self) -> tuple[Row, ...]:
        """The rows that the next batch reads: those of a batch that runs again, or all."""
        return self.waiting if self.planned is None else self.planned

    @property
    def unread(self) -> tuple[Row, ...]:
        """The rows that no finished batch has read."""
        return (*(self.planned or ()), *self.waiting)


@attrs.frozen
class Ran:
    """A micro-batch that ran; no `batch_id` if Spark would have had no reason to run one."""

    batch_id: int | None
    watermark: datetime | None
    frames: list[pd.DataFrame]


@attrs.define
class Query:
    """
    Runs a worker as Spark's operator does, micro-batch by micro-batch.

    Attributes:
        left: What the query would leave if it stopped now, but for the rows that wait.
    """

    spec: AnySpec
    left: Snapshot
    worker: Worker = attrs.field(init=False)
    _waiting: list[Row] = attrs.field(init=False)
    _can_run_without_data: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        seed = None if self.left.seed is None else self.left.seed.format
        self.worker = worker_of(self.spec, with_rejected=True, seed=seed)
        self._waiting = list(self.left.waiting)

    @property
    def clocks(self) -> Clocks:
        return self.left.clocks

    def snapshot(self, counts: Counts) -> Snapshot:
        return attrs.evolve(self.left, waiting=tuple(self._waiting), counts=counts)

    def stored(self) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        found = [(_as_key(group), stored.value) for group, stored in self.left.groups.items()]
        return [(key, value) for key, value in found if value is not None]

    def add_row(self, row: Mapping[str, Any]) -> None:
        name = self.spec.event_time
        known = {column.field.name for column in wire_columns(self.spec)}
        known |= set() if name is None else {name}
        unknown = sorted(row.keys() - known)
        if unknown:
            found = f"the spec reads no column `{unknown[0]}`"
            raise ScriptError(with_hint(found, f"it reads {', '.join(sorted(known))}"))
        if name is not None:
            aware(row.get(name), name)
        check_row(self.spec, row)
        self._waiting.append(dict(row))

    def advance_watermark_to(self, instant: datetime) -> None:
        self._check_no_replay("the watermark")
        clocks = self.clocks.with_watermark(self.spec, instant)
        self.left = attrs.evolve(self.left, clocks=clocks)
        self._can_run_without_data = True

    def advance_processing_time(self, span: Duration) -> None:
        self._check_no_replay("the processing time")
        self.left = attrs.evolve(self.left, clocks=self.clocks.after(span))

    def run_batch(self, *, sink_fails: bool) -> Ran:
        left, watermark = self.left, self.clocks.watermark
        # Spark runs no batch without data before one with data since the start.
        by_trigger = self._can_run_without_data and self.spec.clock == "processing_time"
        if self.is_idle and not by_trigger:
            return Ran(None, watermark, [])
        read = tuple(self._waiting) if left.planned is None else left.planned
        groups, frames, latest_us = self._call_worker(read)
        if left.planned is None:
            self._waiting = []
        if sink_fails:
            self.left = attrs.evolve(left, planned=read)
        else:
            self._can_run_without_data = True
            self.left = attrs.evolve(
                left,
                groups=groups,
                clocks=self.clocks.after_events(self.spec, latest_us),
                seed=left.seed and attrs.evolve(left.seed, frames={}),
                planned=None,
                batch_id=left.batch_id + 1,
            )
        return Ran(left.batch_id, watermark, frames)

    @property
    def is_idle(self) -> bool:
        """Whether no row waits and the watermark has not moved since the last batch."""
        left = self.left
        has_rows = left.planned is not None or self._waiting or (left.seed and left.seed.frames)
        moved = self.clocks.watermark_ms > self.clocks.before_ms
        return not has_rows and not (self._can_run_without_data and moved)

    def _check_no_replay(self, clock: str) -> None:
        if self.left.planned is not None:
            found = f"{clock} can't move: a batch whose sink failed has to run again first"
            raise ScriptError(with_hint(found, "call run_batch() first"))

    def _call_worker(
        self, rows: Sequence[Row]
    ) -> tuple[dict[Group, StoredGroup], list[pd.DataFrame], int | None]:
        """Call the worker for every group with rows, then for those whose timer went off."""
        groups, frames, seen = dict(self.left.groups), list[pd.DataFrame](), Neighbours()
        packed, latest_us = self._packed(rows)
        seeded = self.left.seed.frames if self.left.seed else {}
        with_rows = {*packed, *seeded}
        woken = [
            group
            for group, stored in groups.items()
            if group not in with_rows and self._is_woken(stored.timeout_timestamp_ms)
        ]
        for group in [*sorted(with_rows, key=repr), *woken]:
            parts = [part[group] for part in (seeded, packed) if group in part]
            frames += self._call(groups, group, parts, seen)
        return groups, frames, latest_us

    def _packed(self, rows: Sequence[Row]) -> tuple[dict[Group, pd.DataFrame], int | None]:
        """Return the rows of every group, packed, and the latest time that moves the watermark."""
        if not rows:
            return {}, None
        name = self.spec.event_time
        times = [None if name is None else row.get(name) for row in rows]
        is_future = [time is not None and self.clocks.is_future(self.spec, time) for time in times]
        return packed_frames(self.spec, rows, is_future, [group_of(self.spec, row) for row in rows])

    def _is_woken(self, timer_ms: int | None) -> bool:
        """
        Return whether Spark calls a group because of its timer.

        Spark never runs two batches within a millisecond, so a timer set for the next millisecond
        goes off in the next batch, even if the test doesn't move its clock.
        """
        if timer_ms is None:
            return False
        if self.spec.clock == "processing_time":
            return timer_ms <= self.clocks.processing_ms + 1
        return timer_ms < self.clocks.watermark_ms

    def _call(
        self,
        groups: dict[Group, StoredGroup],
        group: Group,
        parts: Sequence[pd.DataFrame],
        seen: Neighbours,
    ) -> list[pd.DataFrame]:
        """Call the worker for a group, without parts because of its timer; store what it leaves."""
        stored = groups.get(group) or StoredGroup(None, None)
        state = FakeGroupState(
            value=stored.value,
            timeout=TIMEOUTS[self.spec.clock],
            watermark_ms=None if self.spec.delay_ms is None else self.clocks.watermark_ms,
            processing_time_ms=self.clocks.processing_ms,
            has_timed_out=not parts,
            stored_timeout_ms=stored.timeout_timestamp_ms if parts else None,
        )
        shown: Any = PagedGroupState.of(state) if self.spec.storage.layout == "pages" else state
        run = Origin.of(QUERY_ID, self.left.batch_id)
        frames = list(self.worker(_as_key(group), parts, shown, run, seen))
        after = state.stored_after()
        if after is None:
            groups.pop(group, None)
        else:
            groups[group] = after
        return frames


def _as_key(group: Group) -> tuple[Any, ...]:
    """Return what Spark would pass as the key of a group."""
    return group if isinstance(group, tuple) else (group,)
