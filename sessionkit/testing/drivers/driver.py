"""A streaming query in a unit test: no JVM, no Spark, clocks moved by hand."""

import html
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

import attrs
import pandas as pd

from sessionkit._arguments import explained_methods, explains_with, one_of
from sessionkit._engine.counts import Counts
from sessionkit._engine.keys.program import StoredKey
from sessionkit._engine.sessions.view import OpenSession
from sessionkit._engine.shell.storage import logic_of
from sessionkit._engine.shell.worker import Worker
from sessionkit._instants import Duration
from sessionkit._shown import Listed, set_fields
from sessionkit.errors import DriverError
from sessionkit.spec.base import AnySpec
from sessionkit.spec.calls import check_kind
from sessionkit.spec.session import SessionSpec
from sessionkit.testing.drivers import watch
from sessionkit.testing.drivers.query import (
    Clocks,
    MicroBatch,
    Snapshot,
    after_batch,
    after_migration,
    on_clock,
    with_state,
)
from sessionkit.testing.drivers.results import (
    REJECTIONS,
    BatchResult,
    KeyRow,
    Output,
    Rejection,
    SessionEvent,
    SessionRow,
    frame_of,
    read_output,
)
from sessionkit.testing.drivers.rows import Erasure, event_row, nulls_of_pandas, read_row
from sessionkit.testing.literals import clock_text
from sessionkit.testing.svg import svg_of
from sessionkit.testing.timeline import MOST_BATCHES, Timeline, timeline_of

Spec = TypeVar("Spec", bound=AnySpec)
Event = TypeVar("Event")
Row = TypeVar("Row", bound=SessionRow[Any] | KeyRow[Any])
Result = TypeVar("Result")
Stored = TypeVar("Stored", bound=OpenSession[Any] | StoredKey[Any])


def _place(row: Any) -> tuple[Any, ...]:
    """Return the key of a row, and the start of its session, if it's of one."""
    return row.key, getattr(row, "session_start", None)


@explained_methods
@attrs.define(init=False, repr=False)
class Driver(Generic[Spec, Event, Row, Result, Stored]):
    """
    Runs a spec as a streaming query does, micro-batch by micro-batch.

    The base class of `SessionDriver` and `StatefulDriver`.
    """

    _spec_class: ClassVar[type[Any]]
    _other_driver: ClassVar[str]

    spec: Spec
    counts: Counts
    # What the query would leave if it stopped now, without waiting rows and counts.
    _left: Snapshot
    _worker: Worker
    # The calls of user functions that changed a state without `set`.
    _lost: list[str]
    # The user functions that may lack a `return` of the state.
    _unreturned: list[watch.Unreturned]
    _waiting: list[dict[str, Any]]
    _can_run_without_data: bool
    # Whether the test has moved the watermark since the last micro-batch.
    _moved: bool
    _rows: list[Row]
    _rejections: list[Rejection]
    _events: list[SessionEvent]
    # The processing time of the last micro-batch since the start.
    _ran_at: datetime | None
    # The latest batches, for pictures, each with the snapshot before it.
    _batches: deque[tuple[Snapshot, BatchResult[Any]]] = attrs.field(eq=False)

    def __init__(
        self,
        spec: Spec,
        *,
        state: Iterable[Stored] = (),
        processing_time: datetime | None = None,
    ) -> None:
        check_kind(spec, self._spec_class, self._other_driver)
        if processing_time is None and spec.clock == "processing_time":
            found = "the spec has a clock in processing time, and the driver was given none"
            raise DriverError(found, "pass processing_time=datetime(..., tzinfo=UTC)")
        self.spec = spec
        self._rows, self._rejections, self._events = [], [], []
        self._batches = deque(maxlen=MOST_BATCHES)
        clocks = Clocks(processing=on_clock(processing_time, "processing_time"))
        self._start(with_state(spec, state, clocks))

    def _start(self, left: Snapshot) -> None:
        """Start a query from what another one left, or from a seed."""
        spec, self._unreturned = watch.counting(self.spec)
        self._worker = Worker(logic_of(spec), with_rejected=True, seed=left.seed)
        self._lost = watch.watched(self._worker)
        self._left, self._waiting, self.counts = left, list(left.waiting), left.counts
        # Spark runs no batch without data before one with data since the start.
        self._can_run_without_data = False
        self._ran_at = None
        self._moved = False

    @classmethod
    def restore(cls, spec: Spec, snapshot: Snapshot) -> Self:
        """
        Restart a stopped query from its snapshot; its counts continue.

        As in Spark, due sessions and timers wait until new data arrives: a query runs no batch
        without data before its first batch with data.
        """
        if not isinstance(snapshot, Snapshot):
            found = f"`snapshot` must be what `snapshot()` of a driver returns, found {snapshot!r}"
            raise DriverError(found, "write restore(spec, driver.snapshot())")
        driver = cls(spec, processing_time=snapshot.clocks.processing)
        driver._start(snapshot)
        return driver

    @classmethod
    def backfill(
        cls,
        spec: Spec,
        history: Iterable[Mapping[str, Any]],
        *,
        until: datetime,
        processing_time: datetime | None = None,
    ) -> Self:
        """
        Start a query where a batch over history ended, as with `bootstrap` on Spark.

        `take_rows` returns the rows of the batch: of the sessions that closed, or of `process` and
        `on_timer`. The first micro-batch takes over what is left: the open sessions, or the keys
        with their states and timers. A row before `until` is late on the stream: the batch may have
        read it.

        Args:
            spec: The definition, of the batch and of the stream.
            history: The rows of the batch, as for `add_row`. Rows at `until` or after are left out.
            until: The event time at which the batch ends and the stream starts.
            processing_time: The processing time of the first micro-batch.

        Raises:
            SpecError: The spec has no event time, or `until` has no time zone.
        """
        driver = cls(spec, processing_time=processing_time)
        left, frames = after_batch(spec, history, until, driver._left.clocks)
        driver._start(left)
        driver._keep(read_output(spec, frames))
        return driver

    def migrate(self, spec: Spec) -> Self:
        """
        Start a query with another spec from the state of this one, as `migrate` does on Spark.

        The new query takes over the unread rows and the clocks; its counts start at 0.

        Raises:
            StateError: The state can't be migrated; the message names each difference.
            StateValueError: A key doesn't fit its new type.
        """
        check_kind(spec, self._spec_class, self._other_driver)
        return self.restore(spec, after_migration(self.spec, spec, self.snapshot()))

    def snapshot(self) -> Snapshot:
        """Return what the query would leave if it stopped now, for any number of restarts."""
        return attrs.evolve(self._left, waiting=tuple(self._waiting), counts=self.counts)

    @overload
    def add(self, key: Any, event: Event, /, **passthrough: Any) -> None: ...
    @overload
    def add(
        self, key: Any, event_time: datetime | None, event: Event, /, **passthrough: Any
    ) -> None: ...
    @explains_with(key='"ann"', time_or_event='at("10:00")', event="View(...)")
    def add(
        self, key: Any, time_or_event: Any, event: Any = attrs.NOTHING, /, **passthrough: Any
    ) -> None:
        """
        Add an event to the source; the next batch reads it.

        Call `add(key, event_time, event)`; or `add(key, event)` if the spec has no event time, or
        if the event class has a field with the name of the event time column.

        Args:
            key: The value of the key column; a tuple of values if there are several columns.
            time_or_event: When it happened, with a time zone; None for a null. Ignored if the spec
                has no event time.
            event: The event.
            passthrough: The values of the columns in `Inputs(passthrough=...)`.

        Raises:
            DriverError: The key has the wrong number of values, the event another class, or a
                value another type; the event has no time; or a field of the event with the key or
                the event time has another value.
        """
        if event is attrs.NOTHING:
            time_or_event, event = attrs.NOTHING, time_or_event
        row = event_row(self.spec, key, time_or_event, event, passthrough)
        self._waiting.append(read_row(self.spec, row))

    def add_row(self, row: Mapping[str, Any]) -> None:
        """
        Add a row to the source, by column name, such as one of `frame.to_dict("records")`.

        A missing column is null. A column that isn't read is ignored, as on Spark. NaN, NaT and NA
        are nulls, as where Spark converts a frame of pandas; `add` takes NaN as a value. A value is
        one of its type, or what a column has for it: text for an `Enum` or a `UUID`, a number for a
        `time` or a span in seconds, a dict or a `Row` for a class, pairs for a `dict`.

        Raises:
            DriverError: One column is missing and another isn't read, as with a misspelled name; or
                a value doesn't have the type of its column.
        """
        self._waiting.append(read_row(self.spec, nulls_of_pandas(row)))

    def erase(self, key: Any) -> None:
        """
        Erase a key in the next batch, as a row of `erase` does on Spark.

        The erasure runs first: the query drops all state of the key, without results, and events of
        the same batch start from nothing. `take_rejections("erased")` then has a row with the
        number of dropped items.

        Args:
            key: The value of the key column; a tuple of values if there are several columns.

        Raises:
            DriverError: The key has the wrong number of values, a null, or a value of another type.
        """
        self._waiting.append(Erasure.of(self.spec, key))

    def __repr__(self) -> str:
        """Show the watermark and the counts; the spec and the rows would fill pages."""
        at = self.watermark and clock_text(self.watermark)
        return f"{type(self).__name__}(watermark={at}, counts={self.counts!r})"

    def __str__(self) -> str:
        """Draw the latest batches: events, clocks, and sessions or timers."""
        return "\n".join([self._title, *self._timeline.as_text()])

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self._title)}</p>{svg_of(self._timeline)}"

    @property
    def _title(self) -> str:
        """The counts, and how many events the next micro-batch will read."""
        counts = ", ".join(f"{name}={number}" for name, number in set_fields(self.counts).items())
        waiting = sum(not isinstance(row, Erasure) for row in self.snapshot().unread)
        waits = f"{waiting} event{' waits' if waiting == 1 else 's wait'}" if waiting else ""
        shown = "; ".join(filter(None, (counts, waits))) or "no event"
        return f"{type(self).__name__}: {shown}"

    @property
    def _timeline(self) -> Timeline:
        return timeline_of(self.spec, [*self._batches], self.snapshot())

    @property
    def watermark(self) -> datetime | None:
        """The watermark of the next batch, in UTC; None while there is none."""
        return self._left.clocks.watermark

    @property
    def is_idle(self) -> bool:
        """Whether no row waits and the watermark hasn't moved since the last batch."""
        left = self._left
        has_rows = left.planned is not None or self._waiting or left.seeded
        has_moved = left.clocks.watermark_ms > left.clocks.before_ms
        return not has_rows and not (self._can_run_without_data and has_moved)

    def advance_watermark_to(self, instant: datetime) -> None:
        """
        Move the watermark of the next batch, as an event one delay later would.

        As in Spark, it never goes back: an earlier instant changes nothing, and warns. A watermark
        before the first micro-batch can make events late, unlike on Spark: `run_batch` warns.

        Raises:
            DriverError: The spec has no watermark, or the instant isn't a whole millisecond after
                1970-01-01.
        """
        self._move("the watermark", self._left.clocks.with_watermark(self.spec, instant))
        self._can_run_without_data = True
        self._moved = True
        watch.check_watermark(instant, self.watermark)

    def advance_processing_time(self, span: Duration) -> None:
        """
        Move the processing time of the next batch.

        Args:
            span: A `timedelta`, or text such as `"5 minutes"`.

        Raises:
            SpecError: A text isn't a duration.
            DriverError: The span is negative, or the driver has no processing time.
        """
        self._move("the processing time", self._left.clocks.after(span))

    def _move(self, name: str, clocks: Clocks) -> None:
        if self._left.planned is not None:
            found = f"{name} can't move: a batch whose sink failed has to run again first"
            raise DriverError(found, "call run_batch() first")
        self._left = attrs.evolve(self._left, clocks=clocks)

    def run_batch(self, *, sink_fails: bool = False) -> BatchResult[Row]:
        """
        Run one micro-batch over the waiting rows, or one without data.

        A batch without data runs only where Spark would run one: after a batch with data since the
        start, and only if the watermark has moved since the last batch. A spec with a clock in
        processing time doesn't need the watermark to move. Otherwise nothing happens, and the
        result has no `batch_id`.

        Args:
            sink_fails: Let the sink fail after the batch. The result is returned but not kept, and
                the next `run_batch` runs the same rows again under the same clocks.

        Raises:
            UserFunctionError: A function failed under `on_error="raise"`. Nothing has changed, as
                on Spark, where the query stops. Or `process` or `on_timer` changed a state without
                `set`, which Spark would lose.
        """
        self._moved = False
        left, watermark = self._left, self.watermark
        by_trigger = self._can_run_without_data and self.spec.clock == "processing_time"
        if self.is_idle and not by_trigger:
            return BatchResult(None, watermark, [], [], Counts())
        before = self.snapshot()
        read = before.next_rows
        after, frames = MicroBatch(self.spec, self._worker, left).run(read)
        watch.check_lost(self._lost)
        now = left.clocks.processing
        stands_still = left.clocks.watermark_ms == left.clocks.before_ms
        waits = stands_still and bool(left.groups)
        watch.check_leap(self.spec, self._ran_at, now, waits=waits)
        if waits:
            watch.check_behind(self.spec, left.clocks)
        self._ran_at = now
        output = read_output(self.spec, frames)
        watch.check_late(left, output.counts)
        if left.planned is None:
            self._waiting = []
        result: BatchResult[Row] = BatchResult(left.batch_id, watermark, *output[:3])
        if sink_fails:
            self._left = attrs.evolve(left, planned=read)
        else:
            self._left, self._can_run_without_data = after, True
            self._keep(output)
            self._batches.append((before, result))
        return result

    def _keep(self, output: Output) -> None:
        self.counts += output.counts
        self._rows += sorted(output.rows, key=_place)
        self._rejections += output.rejections
        self._events += output.events

    def run_until_idle(self) -> list[BatchResult[Row]]:
        """
        Run batches as long as Spark would: one over the waiting rows, then batches without data.

        With a clock in processing time, Spark never stops. This stops after the first batch that
        leaves no row waiting and doesn't move the watermark.
        """
        results = [self.run_batch()]
        while not self.is_idle:
            results.append(self.run_batch())
        return [result for result in results if result.batch_id is not None]

    def take_rows(self) -> list[Row]:
        """
        Return the result rows since the last call, sorted by key, and by start for sessions.

        Where a session may give several rows, they're sorted by micro-batch first, as a table that
        takes each row in place of earlier ones gets them.
        """
        if self._waiting and not self._left.batch_id:
            watch.warn("no rows: no micro-batch has run yet", "call run_batch() first")
        elif self._moved and not self._rows:
            watch.check_due(self._left)
        watch.check_effect(self._unreturned)
        watch.check_quarantined(self.counts, self._rejections)
        rows, self._rows = self._rows, []
        revises = isinstance(self.spec, SessionSpec) and self.spec.revises
        return Listed(rows if revises else sorted(rows, key=_place))

    def take_results(self) -> list[Result]:
        """Return the `result` of each row of `take_rows`."""
        return Listed(row.result for row in self.take_rows())

    def take_frame(self) -> pd.DataFrame:
        """
        Return the result rows since the last call as a frame with the columns and values of Spark.

        An Enum is its value, a UUID its text, a `time` its microseconds, an object a tuple.
        """
        return frame_of(self.spec, self.take_rows())

    def take_rejections(self, kind: str | None = None) -> list[Rejection]:
        """
        Return the rejections since the last call: all, or all of one kind.

        Raises:
            SpecError: There is no such kind.
        """
        if kind is not None:
            one_of(REJECTIONS, "kind", kind, "leave it out for all kinds")
        chosen = Listed(r for r in self._rejections if kind is None or r.kind == kind)
        self._rejections = [r for r in self._rejections if kind is not None and r.kind != kind]
        return chosen
