"""A streaming query without Spark: a source of rows, two clocks, groups of state, micro-batches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import attrs
import pandas as pd

from sessionkit._engine.counts import Counts
from sessionkit._engine.shell.payload import Origin
from sessionkit._engine.shell.stored import Neighbours
from sessionkit._engine.wire.inbound import wire_columns
from sessionkit._instants import micros_of
from sessionkit.errors import ScriptError, with_hint
from sessionkit.spec.shared import AnySpec
from sessionkit.testing.drivers.clocks import Clocks, aware
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


@attrs.frozen(eq=False)
class PagedGroupState:
    """The group state of a driver, whose row ends in the pages of its bucket, by their numbers."""

    row: FakeGroupState
    pages: dict[int, bytes]

    @classmethod
    def of(cls, row: FakeGroupState) -> "PagedGroupState":
        """Return the pages that a group state holds."""
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
        """Whether a page is stored."""
        return bool(self.pages)

    def page(self, start: int) -> bytes | None:
        """Return a page."""
        return self.pages.get(start)

    def put_page(self, start: int, payload: bytes) -> None:
        """Store a page."""
        self.pages[start] = payload

    def remove_page(self, start: int) -> None:
        """Remove a page."""
        del self.pages[start]


@attrs.frozen
class Snapshot:
    """
    What a stopped query leaves: the stored groups, the clocks, the rows not yet read, the counts.

    It holds only bytes and numbers, so a test can keep it and start several drivers from it.
    """

    groups: Mapping[Any, StoredGroup]
    clocks: Clocks
    batch_id: int
    waiting: tuple[Row, ...]
    planned: tuple[Row, ...] | None
    counts: Counts
    seed: Seed | None = None

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
    """Runs a worker as Spark's operator does, micro-batch by micro-batch."""

    spec: AnySpec
    worker: Worker
    clocks: Clocks
    seed: Seed | None = None
    _groups: dict[Group, StoredGroup] = attrs.field(factory=dict, init=False)
    _batch_id: int = attrs.field(default=0, init=False)
    _waiting: list[Row] = attrs.field(factory=list, init=False)
    _planned: tuple[Row, ...] | None = attrs.field(default=None, init=False)
    _can_run_without_data: bool = attrs.field(default=False, init=False)

    @classmethod
    def restore(cls, spec: AnySpec, worker: Worker, snapshot: Snapshot) -> "Query":
        """Start again from what a stopped query left."""
        query = cls(spec, worker, snapshot.clocks, snapshot.seed)
        query._groups = dict(snapshot.groups)
        query._batch_id = snapshot.batch_id
        query._waiting = list(snapshot.waiting)
        query._planned = snapshot.planned
        return query

    def snapshot(self, counts: Counts) -> Snapshot:
        """Return what the query would leave if it stopped now."""
        groups, waiting = dict(self._groups), tuple(self._waiting)
        return Snapshot(
            groups, self.clocks, self._batch_id, waiting, self._planned, counts, self.seed
        )

    def stored(self) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Return the stored groups and their values."""
        found = [(_as_key(group), stored.value) for group, stored in self._groups.items()]
        return [(key, value) for key, value in found if value is not None]

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Put a row before the source, see `Driver.add_row`."""
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
        """Move the watermark of the next batch, see `Driver.advance_watermark_to`."""
        self._check_no_replay("the watermark")
        self.clocks = self.clocks.with_watermark(self.spec, instant)
        self._can_run_without_data = True

    def advance_processing_time(self, span: timedelta) -> None:
        """Move the processing time, see `Driver.advance_processing_time`."""
        self._check_no_replay("the processing time")
        self.clocks = self.clocks.after(span)

    def run_batch(self, *, sink_fails: bool) -> Ran:
        """Run one micro-batch, see `Driver.run_batch`."""
        planned = self._planned
        watermark = self.clocks.watermark
        if planned is None and not self._has_data and not self._runs_without_data():
            return Ran(None, watermark, [])
        read = tuple(self._waiting) if planned is None else planned
        groups, frames, latest_us = self._call_worker(read)
        ran = Ran(self._batch_id, watermark, frames)
        if planned is None:
            self._waiting = []
        self._planned = read if sink_fails else None
        if not sink_fails:
            self._commit(groups, latest_us)
        return ran

    @property
    def is_idle(self) -> bool:
        """Whether no row waits and the watermark has not moved since the last batch."""
        return self._planned is None and not self._has_data and not self._is_due()

    @property
    def _has_data(self) -> bool:
        return bool(self._waiting or (self.seed and self.seed.frames))

    def _check_no_replay(self, clock: str) -> None:
        if self._planned is not None:
            found = f"{clock} can't move: a batch whose sink failed has to run again first"
            raise ScriptError(with_hint(found, "call run_batch() first"))

    def _runs_without_data(self) -> bool:
        """Return whether Spark would run one; never before one with data since the start."""
        by_trigger = self.spec.clock == "processing_time"
        return self._can_run_without_data if by_trigger else self._is_due()

    def _is_due(self) -> bool:
        return self._can_run_without_data and self.clocks.watermark_ms > self.clocks.before_ms

    def _call_worker(
        self, rows: Sequence[Row]
    ) -> tuple[dict[Group, StoredGroup], list[pd.DataFrame], int | None]:
        """Call the worker for every group with rows, then for those whose timer went off."""
        groups, frames, seen = dict(self._groups), list[pd.DataFrame](), Neighbours()
        packed, latest_us = self._packed(rows)
        sown = self.seed.frames if self.seed else {}
        for group in sorted({*packed, *sown}, key=repr):
            parts = [part[group] for part in (sown, packed) if group in part]
            frames += self._call(groups, group, parts, seen)
        for group, stored in list(groups.items()):
            if group not in {*packed, *sown} and self._is_woken(stored.timeout_timestamp_ms):
                frames += self._call(groups, group, [], seen)
        return groups, frames, latest_us

    def _packed(self, rows: Sequence[Row]) -> tuple[dict[Group, pd.DataFrame], int | None]:
        """Return the rows of every group, packed, and the latest time that moves the watermark."""
        if not rows:
            return {}, None
        groups = [group_of(self.spec, row) for row in rows]
        return packed_frames(self.spec, rows, [self._is_future(row) for row in rows], groups)

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
        run = Origin.of(QUERY_ID, self._batch_id)
        frames = list(self.worker(_as_key(group), parts, shown, run, seen))
        after = state.stored_after()
        if after is None:
            groups.pop(group, None)
        else:
            groups[group] = after
        return frames

    def _commit(self, groups: dict[Group, StoredGroup], latest_us: int | None) -> None:
        self.clocks = self.clocks.after_events(self.spec, latest_us)
        self.seed = self.seed and self.seed.spent
        self._groups = groups
        self._can_run_without_data = True
        self._batch_id += 1

    def _is_future(self, row: Row) -> bool:
        name = self.spec.event_time
        instant = None if name is None else row.get(name)
        return instant is not None and self.clocks.is_future(self.spec, micros_of(instant))


def _as_key(group: Group) -> tuple[Any, ...]:
    """Return what Spark would pass as the key of a group."""
    return group if isinstance(group, tuple) else (group,)
