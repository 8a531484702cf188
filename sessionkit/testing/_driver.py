"""A session spec on a stream, in a unit test: no JVM, no Spark, time moved by hand."""

import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeAlias, TypeVar

import attrs
import pandas as pd

from sessionkit._counts import Counts
from sessionkit._inspection import OpenSession, open_sessions_of
from sessionkit._instants import micros_of
from sessionkit._wire import wire_columns
from sessionkit._worker import BucketWorker
from sessionkit.errors import ScriptError, with_hint
from sessionkit.session import SESSION_COLUMNS, SessionSpec
from sessionkit.state import codec_of
from sessionkit.testing._clocks import Clocks, aware
from sessionkit.testing._frames import ClosedSession, Rejection, check_row, input_frame, read_output
from sessionkit.testing._group_state import FakeGroupState, StoredGroup

__all__ = ["BatchResult", "SessionDriver", "Snapshot"]

E = TypeVar("E")
S = TypeVar("S")
R = TypeVar("R")
Row: TypeAlias = dict[str, Any]


@attrs.frozen
class BatchResult(Generic[R]):
    """
    What one micro-batch did.

    Attributes:
        batch_id: Its number, from 0; None where Spark would have had no reason to run one.
        watermark: The watermark in force, in UTC; None before there is one.
        sessions: The result rows.
        rejections: The events that became part of no session.
        counts: What became of its events.
    """

    batch_id: int | None
    watermark: datetime | None
    sessions: list[ClosedSession[R]]
    rejections: list[Rejection]
    counts: Counts


@attrs.frozen
class Snapshot:
    """
    What a stopped query leaves behind: the stored buckets, the clocks, the rows not yet read.

    It holds bytes and numbers only, so a test can keep it and start several drivers from it.
    """

    groups: Mapping[int, StoredGroup]
    clocks: Clocks
    batch_id: int
    waiting: tuple[Row, ...]
    planned: tuple[Row, ...] | None

    @property
    def next_rows(self) -> tuple[Row, ...]:
        """The rows that the next batch reads: those of a batch that runs again, or all."""
        return self.waiting if self.planned is None else self.planned

    @property
    def unread(self) -> tuple[Row, ...]:
        """The rows that no finished batch has read."""
        return (*(self.planned or ()), *self.waiting)


@attrs.define(init=False)
class SessionDriver(Generic[E, S, R]):
    """
    Runs a `SessionSpec` as a streaming query does, micro-batch by micro-batch, in microseconds.

    The worker that it calls is the one that Spark calls; only the group state and the source of
    the rows differ. `add` puts rows before the source, `run_batch` runs one micro-batch over all
    that wait. The watermark of a batch is that of its start, and moves behind it. Nothing happens
    in the background, and no clock goes back.

    Not simulated, because it cannot change a result: triggers, partitions and the order of rows,
    output modes (a session stream has `append` only), chunks of frames, the retries of a task.
    Not simulated and to be tested on Spark: the check of the input's columns, several watermarks
    of one query, sinks. The rule for event times in the future needs a processing time: without
    one nothing is too far ahead.

    Args:
        spec: The definition of a session.
        processing_time: The processing time of the first batch, with a time zone.

    Raises:
        ScriptError: The processing time has no time zone.
    """

    spec: SessionSpec[E, S, R]
    counts: Counts
    _groups: dict[int, StoredGroup]
    _clocks: Clocks
    _batch_id: int
    _waiting: list[Row]
    _planned: tuple[Row, ...] | None
    _can_run_without_data: bool
    _sessions: list[ClosedSession[R]]
    _rejections: list[Rejection]

    def __init__(
        self, spec: SessionSpec[E, S, R], *, processing_time: datetime | None = None
    ) -> None:
        self.spec = spec
        self.counts = Counts()
        self._groups = {}
        self._clocks = Clocks(processing=aware(processing_time, "processing_time"))
        self._batch_id = 0
        self._waiting = []
        self._planned = None
        self._can_run_without_data = False
        self._sessions, self._rejections = [], []

    @classmethod
    def restore(cls, spec: SessionSpec[E, S, R], snapshot: Snapshot) -> "SessionDriver[E, S, R]":
        """
        Start a query again from what a stopped one left behind.

        As in Spark, sessions that are due do not close before new data has come: a query runs no
        batch without data until it has run one with data.
        """
        driver = cls(spec, processing_time=snapshot.clocks.processing)
        driver._groups = dict(snapshot.groups)
        driver._clocks = snapshot.clocks
        driver._batch_id = snapshot.batch_id
        driver._waiting = list(snapshot.waiting)
        driver._planned = snapshot.planned
        return driver

    def snapshot(self) -> Snapshot:
        """Return what the query would leave behind if it stopped now."""
        waiting = tuple(self._waiting)
        return Snapshot(dict(self._groups), self._clocks, self._batch_id, waiting, self._planned)

    def add(self, key: Any, event_time: datetime | None, event: E, **carry: Any) -> None:
        """
        Put an event before the source; it is read by the next batch.

        Args:
            key: The value of the key column, a tuple of values where there are several.
            event_time: When it happened, with a time zone.
            event: The event.
            carry: The carried columns.

        Raises:
            ScriptError: The key has another number of values, the event another class, or a value
                another type.
        """
        if not isinstance(event, self.spec.event):
            found = f"the event must be a {self.spec.event.__name__}, found {type(event).__name__}"
            raise ScriptError(with_hint(found, "use add_row for a row with nulls"))
        values = key if isinstance(key, tuple) else (key,)
        if len(values) != len(self.spec.keys):
            found = f"the key has no value for each of {list(self.spec.keys)}: {key!r}"
            raise ScriptError(
                with_hint(
                    found, "pass the value, or a tuple of values where there are several columns"
                )
            )
        fields = codec_of(self.spec.event).type.fields
        self.add_row(
            {
                **carry,
                **{field.name: getattr(event, field.name) for field in fields},
                **dict(zip(self.spec.keys, values, strict=True)),
                self.spec.event_time: event_time,
            }
        )

    def add_row(self, row: Mapping[str, Any]) -> None:
        """
        Put a row before the source, by its column names; what is missing is a null.

        Raises:
            ScriptError: There is no such column, or a value has another type than its column.
        """
        known = {self.spec.event_time, *(c.field.name for c in wire_columns(self.spec))}
        unknown = sorted(row.keys() - known)
        if unknown:
            found = f"the spec reads no column `{unknown[0]}`"
            raise ScriptError(with_hint(found, f"it reads {', '.join(sorted(known))}"))
        aware(row.get(self.spec.event_time), self.spec.event_time)
        check_row(self.spec, row)
        self._waiting.append(dict(row))

    @property
    def watermark(self) -> datetime | None:
        """The watermark that the next batch will have, in UTC; None while there is none."""
        return self._clocks.watermark(self.spec)

    def advance_watermark_to(self, instant: datetime) -> None:
        """
        Move the watermark of the next batch, as an event one delay later would have done.

        Raises:
            ScriptError: It would go back, is not a whole millisecond, or lies so near to 1970 that
                Spark's own watermark would not be past the epoch.
        """
        self._check_no_replay("the watermark")
        self._clocks = self._clocks.with_watermark(self.spec, instant)
        self._can_run_without_data = True

    def advance_processing_time(self, span: timedelta) -> None:
        """
        Move the processing time of the next batch.

        Raises:
            ScriptError: It would go back, or the driver was built without a processing time.
        """
        self._check_no_replay("the processing time")
        self._clocks = self._clocks.after(span)

    def run_batch(self, *, sink_fails: bool = False) -> BatchResult[R]:
        """
        Run one micro-batch over the rows that wait; without any, one without data.

        A batch without data runs only where Spark would run one: the watermark has moved since
        the last batch, and there was a batch since the start. Otherwise nothing happens, and the
        result has no `batch_id`.

        Args:
            sink_fails: Let the sink fail behind the batch. Its result is returned, but not kept,
                and the next `run_batch` runs the same rows again under the same watermark.

        Raises:
            UserFunctionError: A function failed, and the spec says `on_error="raise"`; then
                nothing has changed, as in Spark, whose query would stop here.
        """
        planned = self._planned
        if planned is None and not self._waiting and not self._is_due():
            return BatchResult(None, self.watermark, [], [], Counts())
        read = tuple(self._waiting) if planned is None else planned
        dropped, rows, is_future = self._late_filter(read)
        groups, frames = self._call_worker(rows, is_future)
        sessions, rejections, counts = read_output(self.spec, frames)
        counts = attrs.evolve(counts, dropped=dropped)
        result = BatchResult(self._batch_id, self.watermark, sessions, rejections, counts)
        if planned is None:
            self._waiting = []
        self._planned = read if sink_fails else None
        if not sink_fails:
            self._commit(groups, result, read)
        return result

    def run_until_idle(self) -> list[BatchResult[R]]:
        """Run batches as long as Spark would: one over the rows that wait, then without data."""
        results = [self.run_batch()]
        while results[-1].batch_id is not None:
            results.append(self.run_batch())
        return results[:-1]

    def take_sessions(self) -> list[ClosedSession[R]]:
        """Return the sessions that closed since the last call, in order of key and start."""
        taken, self._sessions = self._sessions, []
        return sorted(taken, key=lambda session: (session.key, session.start))

    def take_results(self) -> list[R]:
        """Return the result rows since the last call, in the order of `take_sessions`."""
        return [session.result for session in self.take_sessions()]

    def take_frame(self) -> pd.DataFrame:
        """Return the result rows since the last call, with the columns that Spark's would have."""
        names = [field.name for field in codec_of(self.spec.result).type.fields]
        rows = [
            [*s.key, s.id, s.start, s.end, *(getattr(s.result, name) for name in names)]
            for s in self.take_sessions()
        ]
        return pd.DataFrame(rows, columns=[*self.spec.keys, *SESSION_COLUMNS, *names])

    def take_rejections(self, kind: str | None = None) -> list[Rejection]:
        """Return what was rejected since the last call: all, or one kind of it."""
        chosen = [r for r in self._rejections if kind is None or r.kind == kind]
        self._rejections = [r for r in self._rejections if r not in chosen]
        return chosen

    def open_sessions(self) -> list[OpenSession[S]]:
        """
        Return the sessions that are not over, in order of key and start.

        Under `order="event_time"` events that wait for their turn are folded in for this view.
        """
        found = [
            session
            for group in self._groups.values()
            if group.value is not None
            for session in open_sessions_of(self.spec, bytes(group.value[-1]))
        ]
        return sorted(found, key=lambda session: (session.key, session.start))

    def _check_no_replay(self, clock: str) -> None:
        if self._planned is not None:
            found = f"{clock} cannot move: a batch whose sink failed waits to run again as it was"
            raise ScriptError(with_hint(found, "call run_batch() first"))

    def _is_due(self) -> bool:
        return self._can_run_without_data and self._clocks.hard_ms > self._clocks.before_ms

    def _late_filter(self, read: Sequence[Row]) -> tuple[int, list[Row], list[bool]]:
        """Drop what Spark drops: rows at or behind its watermark of the batch before."""
        is_future = [self._is_future(row) for row in read]
        kept = [
            (row, future)
            for row, future in zip(read, is_future, strict=True)
            if future or not self._clocks.is_dropped(self._time_us(row))
        ]
        rows = [row for row, _ in kept]
        return len(read) - len(rows), rows, [future for _, future in kept]

    def _call_worker(
        self, rows: list[Row], is_future: list[bool]
    ) -> tuple[dict[int, StoredGroup], list[pd.DataFrame]]:
        """Call the worker for every bucket with rows, then for those whose timer went off."""
        worker = BucketWorker(self.spec, with_rejected=True)
        groups, frames = dict(self._groups), []
        labels = [_bucket(self.spec, row) for row in rows]
        for label in sorted(set(labels)):
            chosen = [place for place, other in enumerate(labels) if other == label]
            frame = input_frame(
                self.spec, [rows[p] for p in chosen], [is_future[p] for p in chosen]
            )
            frames += self._call(worker, groups, label, frame)
        for label, group in list(groups.items()):
            timer = group.timeout_timestamp_ms
            if label not in labels and timer is not None and timer < self._clocks.hard_ms:
                frames += self._call(worker, groups, label, None)
        return groups, frames

    def _call(
        self,
        worker: BucketWorker,
        groups: dict[int, StoredGroup],
        label: int,
        frame: pd.DataFrame | None,
    ) -> list[pd.DataFrame]:
        stored = groups.get(label) or StoredGroup(None, None)
        state = FakeGroupState(
            value=stored.value,
            timeout="EventTimeTimeout",
            watermark_ms=self._clocks.hard_ms,
            has_timed_out=frame is None,
            stored_timeout_ms=stored.timeout_timestamp_ms,
        )
        frames = list(worker((label,), [] if frame is None else [frame], state))
        after = state.stored_after()
        if after is None:
            groups.pop(label, None)
        else:
            groups[label] = after
        return frames

    def _commit(
        self, groups: dict[int, StoredGroup], result: BatchResult[R], read: Sequence[Row]
    ) -> None:
        sane = [self._time_us(row) for row in read if not self._is_future(row)]
        self._clocks = self._clocks.after_events(self.spec, max(sane, default=0))
        self._groups = groups
        self._can_run_without_data = True
        self._batch_id += 1
        self.counts += result.counts
        self._sessions += result.sessions
        self._rejections += result.rejections

    def _time_us(self, row: Row) -> int:
        """Return the event time in microseconds, 0 where Spark's watermark would not see one."""
        instant = row.get(self.spec.event_time)
        event_us = 0 if instant is None else micros_of(instant)
        return event_us if event_us <= self.spec.latest_event_us else 0

    def _is_future(self, row: Row) -> bool:
        return self._clocks.is_future(self.spec, self._time_us(row))


def _bucket(spec: SessionSpec[Any, Any, Any], row: Row) -> int:
    """Choose the bucket of a row; no result depends on it, so it need not be Spark's."""
    return zlib.crc32(repr([row.get(name) for name in spec.keys]).encode()) % spec.bucket_count
