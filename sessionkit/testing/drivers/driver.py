"""What the drivers of both kinds of spec share: a query, and what came out of it."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

import attrs
import pandas as pd

from sessionkit._engine.carrying import carried, check_carried
from sessionkit._engine.clocks import check_until, end_us
from sessionkit._engine.counts import Counts
from sessionkit._engine.logic import Memory
from sessionkit._engine.seed import SeedFormat
from sessionkit._engine.storage import logic_of, stored_memory
from sessionkit._engine.wire.outbound import output_frame
from sessionkit._engine.wire.packing import Packs
from sessionkit._engine.worker import worker_of
from sessionkit._instants import BEGINNING_US, micros_of
from sessionkit.errors import ScriptError, with_hint
from sessionkit.spec.shared import AnySpec, check_kind
from sessionkit.state import codec_of
from sessionkit.testing.drivers.clocks import Clocks, on_clock
from sessionkit.testing.drivers.events import event_row
from sessionkit.testing.drivers.frames import Rejection, SessionEvent, input_frame, read_events
from sessionkit.testing.drivers.query import Query, Snapshot, group_of
from sessionkit.testing.drivers.results import BatchResult, ResultRow, read_rows
from sessionkit.testing.drivers.seeds import seed_of

__all__ = ["Driver"]

Spec = TypeVar("Spec", bound=AnySpec)
E = TypeVar("E")
Row = TypeVar("Row", bound=ResultRow)
R = TypeVar("R")


@attrs.define(init=False)
class Driver(Generic[Spec, E, Row, R]):
    """
    Runs a spec as a streaming query does, micro-batch by micro-batch.

    Use `SessionDriver` or `StatefulDriver`: what they add says which spec, and what is stored.
    """

    _spec_class: ClassVar[type[Any]]
    _other_driver: ClassVar[str]
    _order: ClassVar[tuple[str, ...]]

    spec: Spec
    counts: Counts
    _query: Query
    _rows: list[Row]
    _rejections: list[Rejection]
    _events: list[SessionEvent]

    def __init__(self, spec: Spec, *, processing_time: datetime | None = None) -> None:
        check_kind(spec, self._spec_class, self._other_driver)
        if processing_time is None and spec.clock == "processing_time":
            found = "the spec has a clock in processing time, and the driver was given none"
            raise ScriptError(with_hint(found, "pass processing_time=datetime(..., tzinfo=UTC)"))
        clocks = Clocks(processing=on_clock(processing_time, "processing_time"))
        self.spec = spec
        self.counts = Counts()
        self._query = Query(spec, worker_of(spec, with_rejected=True), clocks)
        self._rows, self._rejections, self._events = [], [], []

    @classmethod
    def restore(cls, spec: Spec, snapshot: Snapshot) -> Self:
        """
        Start a query again from what a stopped one left; its counts go on.

        As in Spark, nothing that is due happens until new data has come: a query runs no batch
        without data until it has run one with data.
        """
        driver = cls(spec, processing_time=snapshot.clocks.processing)
        driver.counts = snapshot.counts
        seed = None if snapshot.seed is None else snapshot.seed.format
        worker = worker_of(spec, with_rejected=True, seed=seed)
        driver._query = Query.restore(spec, worker, snapshot)
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
        Start a query where a batch over history left off, as with `hand_over` on Spark.

        `take_rows` returns what the batch has closed; its first micro-batch opens what was open. A
        row of before `until` that the stream reads is late: the batch may have read it.

        Args:
            spec: The definition, of the batch and of the stream.
            history: The rows of the batch, by column name. Those at `until` or after are left out.
            until: The event time at which the batch ends and the stream goes on.
            processing_time: The processing time of the first micro-batch.

        Raises:
            SpecError: The spec has no event time, or `until` has no time zone.
        """
        check_until(spec, until)
        name, until_us = spec.event_time or "", micros_of(until)
        taken = [dict(row) for row in history if row.get(name) is None or row[name] < until]
        frames = [input_frame(spec, taken, [False] * len(taken))] if taken else []
        worker, clocks = (
            worker_of(spec, with_rejected=True),
            Clocks(processing=on_clock(processing_time, "processing_time")),
        )
        packs = Packs.of_frames(frames)
        output, memory = worker.until(packs, clocks.processing_ms * 1000, end_us(until))
        form = SeedFormat.of(logic_of(spec), end_us(until), until_us)
        driver = cls._sown(spec, [memory], form, processing_time)
        frames = [output_frame(output)]
        driver._rows, driver._rejections, driver.counts = read_rows(spec, frames)  # noqa: SLF001 (one of this class)
        driver._events = read_events(spec, frames)  # noqa: SLF001
        return driver

    def carry_over(self, spec: Spec) -> Self:
        """
        Start a query under other rules from what this one remembers, as `carry_over` on Spark does.

        The new query has the rows that this one has not read, its clocks, and none of its counts.

        Raises:
            StateMismatchError: It can't be carried over; the message names each difference.
            StateValueError: A key doesn't fit its new type.
        """
        check_carried(self.spec, spec)
        clocks = self._query.clocks
        memories = [carried(self.spec, spec, memory) for memory in self._memories()]
        seed = None if self._query.seed is None else self._query.seed.format
        until_us = None if seed is None else seed.until_us
        floors = [memory.idle.floor for memory in self._memories() if memory.idle is not None]
        idle_us = max([BEGINNING_US if seed is None else seed.idle_us, *floors])
        form = SeedFormat.of(logic_of(spec), clocks.in_force_us, until_us, idle_us)
        driver = self._sown(spec, memories, form, clocks.processing)
        for row in self.snapshot().unread:
            driver.add_row(row)
        return driver

    def _memories(self) -> list[Memory]:
        """Return what each group remembers."""
        logic = logic_of(self.spec)
        return [stored_memory(logic, group, row) for group, row in self._query.stored()]

    @classmethod
    def _sown(
        cls,
        spec: Spec,
        memories: Iterable[Memory],
        form: SeedFormat,
        processing_time: datetime | None,
    ) -> Self:
        driver = cls(spec, processing_time=processing_time)
        seed = seed_of(spec, memories, form, group_of)
        worker = worker_of(spec, with_rejected=True, seed=seed.format)
        clocks = attrs.evolve(driver._query.clocks, since_us=form.watermark_us)
        driver._query = Query(spec, worker, clocks, seed)
        return driver

    def snapshot(self) -> Snapshot:
        """Return what the query would leave if it stopped now; a test can keep and reuse it."""
        return self._query.snapshot(self.counts)

    @overload
    def add(self, key: Any, event: E, /, **passthrough: Any) -> None: ...
    @overload
    def add(
        self, key: Any, event_time: datetime | None, event: E, /, **passthrough: Any
    ) -> None: ...
    def add(
        self, key: Any, time_or_event: Any, event: Any = attrs.NOTHING, /, **passthrough: Any
    ) -> None:
        """
        Add an event to the source; the next batch reads it.

        `add(key, event_time, event)`, or `add(key, event)` where the event class has the event
        time, as a field with the name of that column, and where the spec has no event time.

        Args:
            key: The value of the key column; a tuple of values if there are several columns.
            time_or_event: When it happened, with a time zone; None for a null. It isn't looked at
                where the spec has no event time.
            event: The event.
            passthrough: The values of the passthrough columns.

        Raises:
            ScriptError: The key has the wrong number of values, the event another class, or a
                value another type; the event has no time; or it has a key column or the event time
                as a field, with another value.
        """
        if event is attrs.NOTHING:
            time_or_event, event = attrs.NOTHING, time_or_event
        self._query.add_row(event_row(self.spec, key, time_or_event, event, passthrough))

    def add_row(self, row: Mapping[str, Any]) -> None:
        """
        Add a row to the source, by column name; a column that is missing is null.

        Raises:
            ScriptError: There is no such column, or a value doesn't have the type of its column.
        """
        self._query.add_row(row)

    @property
    def watermark(self) -> datetime | None:
        """The watermark that the next batch will have, in UTC; None while there is none."""
        return self._query.clocks.watermark

    @property
    def is_idle(self) -> bool:
        """Whether no row waits and the watermark hasn't moved since the last batch."""
        return self._query.is_idle

    def advance_watermark_to(self, instant: datetime) -> None:
        """
        Move the watermark of the next batch, as an event one delay later would have done.

        As in Spark, it never goes back: an earlier instant leaves it where it is.

        Raises:
            ScriptError: The spec has no watermark, or this one isn't a whole millisecond, or isn't
                after 1970-01-01.
        """
        self._query.advance_watermark_to(instant)

    def advance_processing_time(self, span: timedelta) -> None:
        """
        Move the processing time of the next batch.

        Raises:
            ScriptError: It would go back, or the driver was built without a processing time.
        """
        self._query.advance_processing_time(span)

    def run_batch(self, *, sink_fails: bool = False) -> BatchResult[Row]:
        """
        Run one micro-batch over the rows that wait; if none wait, one without data.

        A batch without data runs only where Spark would run one: after a batch with data since the
        start, and only if the watermark has moved since the last batch. A spec with a clock in
        processing time doesn't need the watermark to move. Otherwise nothing happens, and the
        result has no `batch_id`.

        Args:
            sink_fails: Let the sink fail after the batch. Its result is returned but not kept, and
                the next `run_batch` runs the same rows again under the same clocks.

        Raises:
            UserFunctionError: A function failed, and the spec says `on_error="raise"`. Nothing
                has changed then, as in Spark, whose query would stop here.
        """
        ran = self._query.run_batch(sink_fails=sink_fails)
        rows, rejections, counts = read_rows(self.spec, ran.frames)
        if not sink_fails:
            self.counts += counts
            self._rows += rows
            self._rejections += rejections
            self._events += read_events(self.spec, ran.frames)
        return BatchResult(ran.batch_id, ran.watermark, rows, rejections, counts)

    def run_until_idle(self) -> list[BatchResult[Row]]:
        """
        Run batches as long as Spark would: one over the rows that wait, then without data.

        With a clock in processing time Spark always runs one more. This stops after the first one
        that leaves no row waiting and the watermark where it was.
        """
        results = [self.run_batch()]
        while not self.is_idle:
            results.append(self.run_batch())
        return [result for result in results if result.batch_id is not None]

    def take_rows(self) -> list[Row]:
        """Return the result rows since the last call, sorted by key, and by start for sessions."""
        taken, self._rows = self._rows, []
        return sorted(taken, key=attrgetter(*self._order))

    def take_results(self) -> list[R]:
        """Return what the functions returned since the last call, in the order of `take_rows`."""
        return [row.result for row in self.take_rows()]

    def take_frame(self) -> pd.DataFrame:
        """Return the result rows since the last call as a frame with the columns that Spark has."""
        names = [field.name for field in self.spec.result_fields]
        return pd.DataFrame([_values(self.spec, row) for row in self.take_rows()], columns=names)

    def take_rejections(self, kind: str | None = None) -> list[Rejection]:
        """Return what was rejected since the last call: all, or one kind of it."""
        chosen = [r for r in self._rejections if kind is None or r.kind == kind]
        self._rejections = [r for r in self._rejections if kind is not None and r.kind != kind]
        return chosen


def _values(spec: AnySpec, row: Any) -> list[Any]:
    fields = codec_of(type(row.result)).type.fields
    shown = [getattr(row, field.name.removeprefix("session_")) for field in spec.own_fields]
    return [*row.key, *shown, *(getattr(row.result, field.name) for field in fields)]
