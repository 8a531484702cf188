"""A streaming query without Spark: its clocks, snapshots and micro-batches."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final

import attrs
import pandas as pd
import pyarrow as pa

from sessionkit._arrays import micros, whole_batch
from sessionkit._engine.boundaries import watermark_in_force
from sessionkit._engine.counts import Counts
from sessionkit._engine.keys.program import StoredKey, memory_of_keys, stored_keys_of
from sessionkit._engine.micro_batch import GroupState, latest_end
from sessionkit._engine.rows.objects import decode_keys
from sessionkit._engine.sessions.view import OpenSession, memory_of_sessions, open_sessions_of
from sessionkit._engine.shell.payload import Origin, TaskRows
from sessionkit._engine.shell.seed import (
    HELD_COLUMN,
    KEPT_COLUMN,
    SeedFormat,
    check_migration,
    migrated,
)
from sessionkit._engine.shell.storage import logic_of, stored_memory
from sessionkit._engine.shell.worker import Worker, end_us
from sessionkit._engine.wire import packing
from sessionkit._engine.wire.outbound import packed_frame
from sessionkit._instants import (
    BEGINNING_US,
    LAST_INSTANT_US,
    Duration,
    duration_of,
    instant_of,
    micros_of,
    span_us,
)
from sessionkit.errors import DriverError
from sessionkit.spec.base import AnySpec
from sessionkit.spec.calls import check_until
from sessionkit.spec.functions import wrong_class
from sessionkit.spec.logic import Functions
from sessionkit.spec.session import SessionSpec
from sessionkit.testing.drivers.rows import (
    Erasure,
    Row,
    aware,
    bucket_of,
    erasing_frames,
    input_frame,
    named_key,
    nulls_of_pandas,
    packed_frames,
    read_row,
    rows_in,
)
from sessionkit.testing.group_state import FakeGroupState, StoredGroup, TimeoutConf
from sessionkit.timeouts._policies import Clock, deadlines_of

QUERY: Final = Origin.of("73657373-696f-4e6b-8974-2d6472697665", 0)  # equal rows, equal bytes
TIMEOUTS: Mapping[Clock | None, TimeoutConf] = {
    "event_time": "EventTimeTimeout",
    "processing_time": "ProcessingTimeTimeout",
    None: "NoTimeout",
}
MILLISECOND_US: Final = 1_000


@attrs.frozen
class Clocks:
    """The clocks between two batches: processing time, and the next and last watermark, or 0."""

    watermark_ms: int = 0
    before_ms: int = 0
    processing: datetime | None = None
    since_us: int = BEGINNING_US

    @property
    def processing_ms(self) -> int:
        """The processing time in milliseconds; 0 without one."""
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
        return max(watermark_in_force(self.watermark_ms), self.since_us)

    def with_watermark(self, spec: AnySpec, instant: datetime) -> "Clocks":
        """Move the watermark of the next batch, never back, as in Spark."""
        if spec.delay_ms is None:
            raise DriverError("the spec has no watermark", "add watermark_delay=... to the spec")
        if on_clock(instant, "the watermark") is None:
            raise DriverError("the watermark can't be None", "leave the call out")
        watermark_ms, rest = divmod(micros_of(instant), MILLISECOND_US)
        if rest or watermark_ms <= 0:
            found = f"the watermark cannot be {instant.isoformat()}"
            raise DriverError(found, "pass whole milliseconds, after 1970-01-01")
        return attrs.evolve(self, watermark_ms=max(self.watermark_ms, watermark_ms))

    def after_events(self, spec: AnySpec, latest_us: int | None) -> "Clocks":
        """Return the clocks after a batch with this latest event time; None for no event."""
        if spec.delay_ms is None:
            return self
        moved_ms = 0 if latest_us is None else latest_us // MILLISECOND_US - spec.delay_ms
        watermark_ms = max(self.watermark_ms, moved_ms, self.since_us // MILLISECOND_US)
        return attrs.evolve(self, before_ms=self.watermark_ms, watermark_ms=watermark_ms)

    def after(self, span: Duration) -> "Clocks":
        if not isinstance(span, timedelta):
            span = duration_of(span, "span", zero_allowed=True)
        if self.processing is None:
            found = "the driver has no processing time"
            raise DriverError(found, "pass processing_time=... when you build it")
        if span < timedelta(0):
            found = f"the processing time cannot go back, by {span}"
            raise DriverError(found, "pass a positive timedelta")
        if micros_of(self.processing) + span_us(span) > LAST_INSTANT_US:
            found = f"the processing time can't move by {span}: that is after the year 9999"
            raise DriverError(found, "pass a shorter timedelta")
        return attrs.evolve(self, processing=self.processing.astimezone(UTC) + span)

    def future_us(self, spec: AnySpec) -> int | None:
        """Return the latest event time that isn't too far ahead; None for no limit."""
        skew = spec.inputs.max_future_skew
        if self.processing is None or skew is None:
            return None
        return micros_of(self.processing) + span_us(skew)


def on_clock(instant: datetime | None, name: str) -> datetime | None:
    """Check that a clock of Spark can show a time; None passes."""
    in_utc = aware(instant, name)
    if in_utc is not None and not 0 <= micros_of(in_utc) <= LAST_INSTANT_US:
        text = f"`{name}` must be from 1970 to 9999 in UTC, found {instant!r}"
        raise DriverError(text, "Spark's clocks start at 1970-01-01")
    return instant


@attrs.frozen(eq=False)
class PagedGroupState:
    """The group state of a bucket with pages; the stored row ends in the pages, by number."""

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
        """Replace the row, with the current pages."""
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
    What a stopped query leaves: the stored groups, the clocks, the unread rows, the counts.

    A test can start several drivers from it.
    """

    clocks: Clocks
    seed: SeedFormat | None = None
    # The rows of the seed, by group, until the first micro-batch has run.
    seeded: Mapping[int, pd.DataFrame] = attrs.field(factory=dict, repr=False)
    groups: Mapping[int, StoredGroup] = attrs.field(factory=dict)
    batch_id: int = 0
    waiting: tuple[Row, ...] = ()
    planned: tuple[Row, ...] | None = None
    counts: Counts = attrs.field(factory=Counts)

    @property
    def next_rows(self) -> tuple[Row, ...]:
        """The rows of the next batch: the rows of a failed batch, else all waiting rows."""
        return self.waiting if self.planned is None else self.planned

    @property
    def unread(self) -> tuple[Row, ...]:
        """The rows that no finished batch has read."""
        return (*(self.planned or ()), *self.waiting)


@attrs.frozen
class MicroBatch:
    """A micro-batch as Spark's operator runs it, from a snapshot."""

    spec: AnySpec
    worker: Worker
    before: Snapshot

    def run(self, read: Sequence[Row]) -> tuple[Snapshot, list[pd.DataFrame]]:
        """
        Call the worker for every group with rows, then for every group whose timer fires.

        Returns:
            The snapshot after it, and the frames of the worker.
        """
        before, groups, clocks = self.before, dict(self.before.groups), self.before.clocks
        rows = [row for row in read if not isinstance(row, Erasure)]
        packed, latest_us = packed_frames(self.spec, rows, future_us=clocks.future_us(self.spec))
        erasures = [row for row in read if isinstance(row, Erasure)]
        erasing = erasing_frames(self.spec, erasures) if erasures else {}
        with_rows = {*packed, *before.seeded, *erasing}
        woken = [
            group
            for group, stored in groups.items()
            if group not in with_rows and self._is_woken(stored.timeout_timestamp_ms)
        ]
        frames, task_rows = list[pd.DataFrame](), TaskRows()
        for group in [*sorted(with_rows, key=repr), *woken]:
            parts = [part[group] for part in (before.seeded, erasing, packed) if group in part]
            frames += self._call(groups, group, parts, task_rows, erases=group in erasing)
        after = attrs.evolve(
            before,
            groups=groups,
            clocks=clocks.after_events(self.spec, latest_us),
            seeded={},
            planned=None,
            batch_id=before.batch_id + 1,
        )
        return after, frames

    def _is_woken(self, timer_ms: int | None) -> bool:
        """
        Return whether the timer of a group fires.

        Spark never runs two batches within a millisecond, so a timer set for the next millisecond
        fires in the next batch, even if the test doesn't move the clock.
        """
        if timer_ms is None:
            return False
        clocks = self.before.clocks
        if self.spec.clock == "processing_time":
            return timer_ms <= clocks.processing_ms + 1
        return timer_ms < clocks.watermark_ms

    def _call(
        self,
        groups: dict[int, StoredGroup],
        group: int,
        parts: Sequence[pd.DataFrame],
        task_rows: TaskRows,
        *,
        erases: bool,
    ) -> Iterator[pd.DataFrame]:
        """Call the worker for a group, with no rows where its timer fires, and store its state."""
        stored, clocks = groups.get(group) or StoredGroup(None, None), self.before.clocks
        state = FakeGroupState(
            value=stored.value,
            timeout=TIMEOUTS[self.spec.clock],
            watermark_ms=None if self.spec.delay_ms is None else clocks.watermark_ms,
            processing_time_ms=clocks.processing_ms,
            has_timed_out=not parts,
            stored_timeout_ms=stored.timeout_timestamp_ms if parts else None,
        )
        shown: Any = PagedGroupState.of(state) if self.spec.storage.layout == "pages" else state
        run = attrs.evolve(QUERY, batch=self.before.batch_id)
        worker = attrs.evolve(self.worker, erases=True) if erases else self.worker
        yield from worker((group,), parts, shown, run, task_rows)
        after = state.stored_after()
        if after is None:
            groups.pop(group, None)
        else:
            groups[group] = after


def open_sessions_in(spec: Any, left: Snapshot) -> list[OpenSession[Any]]:
    """Return the open sessions, sorted by key and start."""
    sessions = chain(*(open_sessions_of(spec, memory) for memory in memories_of(spec, left)))
    return sorted(sessions, key=lambda session: (session.key, session.session_start))


def stored_keys_in(spec: Any, left: Snapshot) -> list[StoredKey[Any]]:
    """Return the keys with a state or a timer, sorted."""
    keys = chain(*(stored_keys_of(spec, memory) for memory in memories_of(spec, left)))
    return sorted(keys, key=lambda stored: tuple(stored.key))


def buffered_in(spec: AnySpec, left: Snapshot) -> set[tuple[Any, datetime]]:
    """Return the key and the time of each event that waits for the watermark."""
    tables = [memory.buffered for memory in memories_of(spec, left)]
    return {
        (key, instant_of(at_us))
        for table in tables
        for key, at_us in zip(decode_keys(spec, table), micros(table["time"]).tolist(), strict=True)
    }


def stored_rows(left: Snapshot) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Return the groups that have a row, by their keys."""
    values = ((group, stored.value) for group, stored in left.groups.items())
    return [((group,), value) for group, value in values if value is not None]


def memories_of(spec: AnySpec, left: Snapshot) -> list[GroupState]:
    """Return what the groups remember; before the first micro-batch, what a seed gives them."""
    logic = logic_of(spec)
    if left.seed is not None and left.seeded:
        nothing = FakeGroupState()
        read = (left.seed.read(logic, [frame], nothing) for frame in left.seeded.values())
        return [memory for memory in read if memory is not None]
    return [stored_memory(logic, group, row) for group, row in stored_rows(left)]


def after_batch(
    spec: AnySpec, history: Iterable[Mapping[str, Any]], until: datetime, clocks: Clocks
) -> tuple[Snapshot, list[pd.DataFrame]]:
    """Return the snapshot that starts a query after a batch, and the output of the batch."""
    check_until(spec, until)
    name = spec.event_time or ""
    rows_of_all = [read_row(spec, nulls_of_pandas(row)) for row in rows_in(history)]
    of_batch = [row for row in rows_of_all if row.get(name) is None or row[name] < until]
    rows = packing.rows_of_frames([input_frame(spec, of_batch)] if of_batch else [])
    worker = Worker(logic_of(spec), with_rejected=True)
    processing_us = clocks.processing_ms * MILLISECOND_US
    steps = [*worker.until(worker.portions(rows), processing_us, end_us(until))]
    frames, memory = [packed_frame(output) for output, _ in steps], steps[-1][1]
    form = SeedFormat.of(worker.logic, end_us(until), micros_of(until))
    return _seeded(spec, [memory], form, clocks), frames


def with_state(spec: Any, state: Any, clocks: Clocks) -> Snapshot:
    """Return the snapshot that starts a query with open sessions, or with stored keys."""
    is_session = isinstance(spec, SessionSpec)
    kind = OpenSession if is_session else StoredKey
    entries = list(state) if isinstance(state, Iterable) else [state]
    for entry in entries:
        if not isinstance(entry, kind):
            found = f"`state` takes {kind.__name__} objects, found {type(entry).__name__}"
            raise DriverError(found, f"write {kind.__name__}(key=..., state=...)")
    if not entries:
        return Snapshot(clocks)
    check_state(spec, entries)
    for entry in entries:
        if entry.state is not None and type(entry.state) is not spec.state:
            what = f"the state of {entry.key!r} must be a"
            raise DriverError(wrong_class(what, spec.state, entry.state))
    entries = [
        attrs.evolve(entry, key=(*named_key(spec, entry.key).values(),)) for entry in entries
    ]
    if is_session:
        memory = memory_of_sessions(spec, entries)
    else:
        memory = memory_of_keys(spec, entries, clocks.processing_ms * MILLISECOND_US)
    return _seeded(spec, [memory], SeedFormat.of(logic_of(spec), BEGINNING_US), clocks)


def check_state(spec: Any, state: Sequence[Any]) -> None:
    """Check that a query can start from open sessions, or stored keys, alone."""
    if isinstance(spec, SessionSpec):
        rules = spec.rules.in_use if spec.rules is not None else ()
        unknown = next((rule.name for rule in rules if rule.fields(spec.event)), None)
        for what, is_asked in (
            ("a spec without functions", not isinstance(spec.logic, Functions)),
            ("`with_events`", spec.results.with_events),
            (f"`{unknown}`", unknown is not None),
        ):
            if is_asked:
                found = f"`state` can't start {what}: it stores more of a session than its state"
                raise DriverError(found, "add the events in place of the state")
        for entry in state:
            if not entry.session_start <= entry.last_event_time <= entry.session_end:
                found = f"the session of {entry.key!r} must start before its last event and its end"
                raise DriverError(found, "give session_start and session_end, in this order")
    elif any(d.clock == "event_time" for d in deadlines_of(spec.timeout)):
        for entry in state:
            if entry.last_event_time is None:
                found = f"the timeout counts from the last event, and {entry.key!r} has none"
                raise DriverError(found, "give StoredKey(..., last_event_time=at(...))")


def after_migration(old: AnySpec, new: AnySpec, left: Snapshot) -> Snapshot:
    """Return the snapshot that starts a query under another spec."""
    check_migration(old, new)
    memories = memories_of(old, left)
    until_us, floors, ends = None, [BEGINNING_US], [latest_end(old, left.clocks.in_force_us)]
    if left.seed is not None:
        until_us, floors = left.seed.until_us, [left.seed.idle_us]
        ends.append(left.seed.ends_us)
    floors += [memory.idle.floor for memory in memories if memory.idle is not None]
    instants = left.clocks.in_force_us, until_us, max(floors), max(ends)
    form = SeedFormat.of(logic_of(new), *instants)
    memories = [migrated(old, new, memory) for memory in memories]
    seeded = _seeded(new, memories, form, Clocks(processing=left.clocks.processing))
    waiting = (row if isinstance(row, Erasure) else read_row(new, row) for row in left.unread)
    return attrs.evolve(seeded, waiting=tuple(waiting))


def _seeded(
    spec: AnySpec, memories: Iterable[GroupState], form: SeedFormat, clocks: Clocks
) -> Snapshot:
    """Return a snapshot with the state of groups as a seed, under the watermark of its format."""
    rows: dict[int, list[dict[str, Any]]] = {}
    for memory in memories:
        for name, table in ((KEPT_COLUMN, memory.kept), (HELD_COLUMN, memory.buffered)):
            places: dict[int, list[int]] = {}
            for place, key in enumerate(decode_keys(spec, table)):
                places.setdefault(bucket_of(spec, key._asdict()), []).append(place)
            for group, in_group in places.items():
                packs = packing.packs_of(whole_batch(table.take(pa.array(in_group))))
                rows.setdefault(group, []).extend({name: pack} for _, pack in packs)
    columns = [packing.EVENTS_COLUMN, packing.REJECTED_COLUMN, KEPT_COLUMN, HELD_COLUMN]
    frames = {g: pd.DataFrame(packs, columns=columns, dtype=object) for g, packs in rows.items()}
    return Snapshot(attrs.evolve(clocks, since_us=form.watermark_us), form, frames)
