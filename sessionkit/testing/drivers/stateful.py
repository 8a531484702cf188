"""A stateful spec on a stream, in a unit test: no JVM, no Spark, both clocks moved by hand."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import attrs
import pandas as pd

from sessionkit._engine.counts import Counts
from sessionkit._engine.keyed_worker import KeyedWorker, PerKeyWorker
from sessionkit._engine.keys.view import StoredKey, stored_keys_of
from sessionkit._spec import check_kind
from sessionkit.errors import ScriptError, with_hint
from sessionkit.state import codec_of
from sessionkit.stateful import StatefulSpec
from sessionkit.testing.drivers.clocks import Clocks, aware
from sessionkit.testing.drivers.frames import Rejection, built_result, key_of, read_output
from sessionkit.testing.drivers.query import Query, Snapshot

__all__ = ["KeyResult", "StatefulBatchResult", "StatefulDriver"]

E = TypeVar("E")
S = TypeVar("S")
R = TypeVar("R")


@attrs.frozen
class KeyResult(Generic[R]):
    """
    One result row.

    Attributes:
        key: The key: a named tuple with the columns of `StatefulSpec.keys`.
        result: The row that `process` or `on_timer` returned.
    """

    key: Any
    result: R


@attrs.frozen
class StatefulBatchResult(Generic[R]):
    """
    What one micro-batch did.

    Attributes:
        batch_id: Its number, from 0; None where Spark would have had no reason to run one.
        watermark: The watermark in force, in UTC; None where there is none.
        rows: The result rows, those of a key in the order in which they were returned.
        rejections: The events that no function was given, and the timers whose function failed.
        counts: What became of its events.
    """

    batch_id: int | None
    watermark: datetime | None
    rows: list[KeyResult[R]]
    rejections: list[Rejection]
    counts: Counts


@attrs.define(init=False)
class StatefulDriver(Generic[E, S, R]):
    """
    Runs a `StatefulSpec` as a streaming query does, micro-batch by micro-batch.

    The worker that it calls is the one that Spark calls; only the group state and the source of
    the rows differ. `add` puts rows before the source, `run_batch` runs one micro-batch over all
    that wait. The watermark of a batch is that of its start, and moves behind it; the processing
    time moves by hand only. Nothing happens in the background, and no clock goes back.

    Not simulated are triggers, partitions and the order of rows, sinks, several watermarks of one
    query, and the check of the input's columns.

    Args:
        spec: The definition.
        processing_time: The processing time of the first batch, with a time zone. Wanted where the
            spec has a clock in processing time; otherwise the functions see 1970-01-01 without
            one, and no event time is too far in the future.

    Raises:
        ScriptError: The processing time has no time zone, or is wanted.
    """

    spec: StatefulSpec[E, S, R]
    counts: Counts
    _query: Query
    _rows: list[KeyResult[R]]
    _rejections: list[Rejection]

    def __init__(
        self, spec: StatefulSpec[E, S, R], *, processing_time: datetime | None = None
    ) -> None:
        check_kind(spec, StatefulSpec, "SessionDriver")
        if processing_time is None and spec.clock == "processing_time":
            found = "the spec has a clock in processing time, and the driver was given none"
            raise ScriptError(with_hint(found, "pass processing_time=datetime(..., tzinfo=UTC)"))
        clocks = Clocks(processing=aware(processing_time, "processing_time"))
        self.spec = spec
        self.counts = Counts()
        self._query = Query(spec, _worker(spec), clocks)
        self._rows, self._rejections = [], []

    @classmethod
    def restore(cls, spec: StatefulSpec[E, S, R], snapshot: Snapshot) -> "StatefulDriver[E, S, R]":
        """
        Start a query again from what a stopped one left behind.

        As in Spark, nothing that is due on either clock happens before new data has come: a query
        runs no batch without data until it has run one with data.
        """
        driver = cls(spec, processing_time=snapshot.clocks.processing)
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
            event_time: When it happened, with a time zone; not looked at where the spec has no
                event time.
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
            ScriptError: The spec has none, it would go back, is not a whole millisecond, or lies
                so near to 1970 that Spark's own watermark would not be past the epoch.
        """
        self._query.advance_watermark_to(instant)

    def advance_processing_time(self, span: timedelta) -> None:
        """
        Move the processing time of the next batch.

        Raises:
            ScriptError: It would go back, or the driver was built without a processing time.
        """
        self._query.advance_processing_time(span)

    def run_batch(self, *, sink_fails: bool = False) -> StatefulBatchResult[R]:
        """
        Run one micro-batch over the rows that wait; without any, one without data.

        A batch without data runs only where Spark would run one: behind one with data since the
        start, and there always where the spec has a clock in processing time, else where the
        watermark has moved since the last batch. Otherwise nothing happens, and the result has no
        `batch_id`.

        Args:
            sink_fails: Let the sink fail behind the batch. Its result is returned, but not kept,
                and the next `run_batch` runs the same rows again under the same clocks.

        Raises:
            UserFunctionError: A function failed, and the spec says `on_error="raise"`; then
                nothing has changed, as in Spark, whose query would stop here.
        """
        ran = self._query.run_batch(sink_fails=sink_fails)
        found, rejections, counts = read_output(self.spec, ran.frames)
        rows = [
            KeyResult(key_of(self.spec, row), built_result(self.spec.result, row)) for row in found
        ]
        counts = attrs.evolve(counts, dropped=ran.dropped)
        if not sink_fails:
            self.counts += counts
            self._rows += rows
            self._rejections += rejections
        return StatefulBatchResult(ran.batch_id, ran.watermark, rows, rejections, counts)

    def run_until_idle(self) -> list[StatefulBatchResult[R]]:
        """Run batches until no row waits and the watermark stands still."""
        results = []
        while not self._query.is_idle:
            results.append(self.run_batch())
        return results

    def take_rows(self) -> list[KeyResult[R]]:
        """Return the result rows since the last call, in the order of their keys."""
        taken, self._rows = self._rows, []
        return sorted(taken, key=lambda row: tuple(row.key))

    def take_results(self) -> list[R]:
        """Return the results since the last call, without their keys, in the same order."""
        return [row.result for row in self.take_rows()]

    def take_frame(self) -> pd.DataFrame:
        """Return the result rows since the last call, with the columns that Spark's would have."""
        names = [field.name for field in codec_of(self.spec.result).type.fields]
        rows = [
            [*row.key, *(getattr(row.result, name) for name in names)] for row in self.take_rows()
        ]
        return pd.DataFrame(rows, columns=[*self.spec.keys, *names])

    def take_rejections(self, kind: str | None = None) -> list[Rejection]:
        """Return what was rejected since the last call: all, or one kind of it."""
        chosen = [r for r in self._rejections if kind is None or r.kind == kind]
        self._rejections = [r for r in self._rejections if r not in chosen]
        return chosen

    def stored_keys(self) -> list[StoredKey[S]]:
        """Return the keys of which something is stored, in their order."""
        found = [
            key
            for group, value in self._query.stored()
            for key in stored_keys_of(self.spec, group, value)
        ]
        return sorted(found, key=lambda stored: tuple(stored.key))


def _worker(spec: StatefulSpec[Any, Any, Any]) -> KeyedWorker | PerKeyWorker:
    worker = PerKeyWorker if spec.layout == "per_key" else KeyedWorker
    return worker(spec, with_rejected=True)
