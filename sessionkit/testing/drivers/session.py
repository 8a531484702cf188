"""A session spec on a stream, in a unit test: no JVM, no Spark, time moved by hand."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import attrs
import pandas as pd

from sessionkit._engine.counts import Counts
from sessionkit._engine.sessions.view import OpenSession, open_sessions_of
from sessionkit._engine.worker import BucketWorker
from sessionkit._spec import check_kind
from sessionkit.session import SESSION_COLUMNS, SessionSpec
from sessionkit.state import codec_of
from sessionkit.testing.drivers.clocks import Clocks, aware
from sessionkit.testing.drivers.frames import Rejection, Row, built_result, key_of, read_output
from sessionkit.testing.drivers.query import Query, Snapshot

__all__ = ["BatchResult", "ClosedSession", "SessionDriver", "read_sessions"]

E = TypeVar("E")
S = TypeVar("S")
R = TypeVar("R")


@attrs.frozen
class ClosedSession(Generic[R]):
    """
    One result row of a session that is over.

    Attributes:
        key: The key: a named tuple with the columns of `SessionSpec.keys`.
        id: The session's id.
        start: The time of its first event, in UTC.
        end: The time of its last event plus the gap, exclusive.
        result: The row that `finish` returned.
    """

    key: Any
    id: str
    start: datetime
    end: datetime
    result: R


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
    _query: Query
    _sessions: list[ClosedSession[R]]
    _rejections: list[Rejection]

    def __init__(
        self, spec: SessionSpec[E, S, R], *, processing_time: datetime | None = None
    ) -> None:
        check_kind(spec, SessionSpec, "StatefulDriver")
        clocks = Clocks(processing=aware(processing_time, "processing_time"))
        self.spec = spec
        self.counts = Counts()
        self._query = Query(spec, _worker(spec), clocks)
        self._sessions, self._rejections = [], []

    @classmethod
    def restore(cls, spec: SessionSpec[E, S, R], snapshot: Snapshot) -> "SessionDriver[E, S, R]":
        """
        Start a query again from what a stopped one left behind.

        As in Spark, sessions that are due do not close before new data has come: a query runs no
        batch without data until it has run one with data.
        """
        driver = cls(spec)
        driver._query = Query.restore(spec, _worker(spec), snapshot)
        return driver

    def snapshot(self) -> Snapshot:
        """Return what the query would leave behind if it stopped now."""
        return self._query.snapshot()

    def add(self, key: Any, event_time: datetime | None, event: E, **passthrough: Any) -> None:
        """
        Put an event before the source; it is read by the next batch.

        Args:
            key: The value of the key column, a tuple of values where there are several.
            event_time: When it happened, with a time zone.
            event: The event.
            passthrough: The carried columns.

        Raises:
            ScriptError: The key has another number of values, the event another class, or a value
                another type.
        """
        self._query.add(key, event_time, event, passthrough)

    def add_row(self, row: Mapping[str, Any]) -> None:
        """
        Put a row before the source, by its column names; what is missing is a null.

        Raises:
            ScriptError: There is no such column, or a value has another type than its column.
        """
        self._query.add_row(row)

    @property
    def watermark(self) -> datetime | None:
        """The watermark that the next batch will have, in UTC; None while there is none."""
        return self._query.clocks.watermark(self.spec)

    def advance_watermark_to(self, instant: datetime) -> None:
        """
        Move the watermark of the next batch, as an event one delay later would have done.

        Raises:
            ScriptError: It would go back, is not a whole millisecond, or lies so near to 1970 that
                Spark's own watermark would not be past the epoch.
        """
        self._query.advance_watermark_to(instant)

    def advance_processing_time(self, span: timedelta) -> None:
        """
        Move the processing time of the next batch.

        Raises:
            ScriptError: It would go back, or the driver was built without a processing time.
        """
        self._query.advance_processing_time(span)

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
        ran = self._query.run_batch(sink_fails=sink_fails)
        sessions, rejections, counts = read_sessions(self.spec, ran.frames)
        counts = attrs.evolve(counts, dropped=ran.dropped)
        result = BatchResult(ran.batch_id, ran.watermark, sessions, rejections, counts)
        if not sink_fails:
            self.counts += counts
            self._sessions += sessions
            self._rejections += rejections
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
            for _, value in self._query.stored()
            for session in open_sessions_of(self.spec, bytes(value[-1]))
        ]
        return sorted(found, key=lambda session: (session.key, session.start))


def _worker(spec: SessionSpec[Any, Any, Any]) -> BucketWorker:
    return BucketWorker(spec, with_rejected=True)


def read_sessions(
    spec: SessionSpec[Any, Any, R], frames: Iterable[pd.DataFrame]
) -> tuple[list[ClosedSession[R]], list[Rejection], Counts]:
    """Return what the worker handed out as typed objects, and the sum of its counts."""
    rows, rejections, counts = read_output(spec, frames)
    return [_closed(spec, row) for row in rows], rejections, counts


def _closed(spec: SessionSpec[Any, Any, R], row: Row) -> ClosedSession[R]:
    identifier, start, end = (row[name] for name in SESSION_COLUMNS)
    return ClosedSession(key_of(spec, row), identifier, start, end, built_result(spec.result, row))
