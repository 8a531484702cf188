"""
Run a worker on Spark's `transformWithState` instead of `applyInPandasWithState`.

Buckets in pages need it, and so do sessions that other stateful operators may follow. Spark stores
the row of a bucket in a value state, its pages in a map state, and a timer. `_BucketState` presents
them to the engine as a `GroupStateLike` and a `PagedStateLike`.

This module imports nothing that Spark 3.5 lacks; Spark requires no base class.
"""

# ruff: noqa: N802, N803 (Spark's names)

from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs
import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from sessionkit._engine.shell.storage import columns_of
from sessionkit._engine.shell.worker import Worker
from sessionkit.errors import SessionkitError, UnsupportedError
from sessionkit.spark._grouping import BUCKET
from sessionkit.spark._settings import is_connect, release_of
from sessionkit.spark._tasks import freeze_imports, message_first, rows_of_task, run_of_task
from sessionkit.spark.jobs.frames import frame_columns
from sessionkit.spec.base import AnySpec
from sessionkit.timeouts._policies import Clock

BUCKET_STATE: Final = "bucket"
PAGES_STATE: Final = "pages"
TIMER: Final = "timer_ms"
"""The column with the registered timer, after the columns of the engine."""
PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
TIME_MODES: Final[dict[Clock | None, str]] = {
    "event_time": "EventTime",
    "processing_time": "ProcessingTime",
    # Under "None", Spark doesn't give the time.
    None: "EventTime",
}
TYPES: Final = {"INT": IntegerType(), "BIGINT": LongType(), "BINARY": BinaryType()}


def uses_transform_with_state(spec: AnySpec) -> bool:
    return spec.storage.layout == "pages" or spec.output_event_time is not None


def transformed(rows: DataFrame, worker: Worker) -> DataFrame:
    """Run a worker on buckets in pages, or for rows that other stateful operators read."""
    spec, columns = worker.logic.spec, columns_of(worker.logic)
    if spec.clock is None:
        # Spark requires a watermark; this one never moves.
        never = F.lit(None).cast("timestamp_ltz").alias("_never")
        rows = rows.select("*", never).withWatermark("_never", "0 seconds")
    has_pages, event_time = spec.storage.layout == "pages", spec.output_event_time
    row, names = _struct(f"{columns}, {TIMER} BIGINT"), tuple(rows.columns)
    run: Any = _Processor(worker, row, names, has_pages, event_time)
    return rows.groupBy(BUCKET).transformWithStateInPandas(
        run,
        frame_columns(worker),
        "append",
        TIME_MODES[spec.clock],
        eventTimeColumnName=event_time or "",
    )


def check_transform_with_state(spark: SparkSession, spec: AnySpec) -> None:
    """Check that Spark can run a spec with `transformWithState`."""
    check_operator(spark, spec)
    provider = spark.conf.get(PROVIDER)
    if "RocksDB" not in (provider or ""):
        found = f"{_asked_by(spec)} needs RocksDB as the state store, found {provider}"
        raise SessionkitError(found, f'spark.conf.set("{PROVIDER}", "{ROCKSDB}")')


def check_operator(spark: SparkSession, spec: AnySpec) -> None:
    """Check that this release of Spark has a sound `transformWithState`."""
    # Before 4.0.2, Spark loses bytes of large state (SPARK-53870). Connect has it since 4.1.
    first, where = ("4.1", " on Connect") if is_connect(spark) else ("4.0.2", "")
    instead = 'write storage=Storage(layout="buckets")'
    if spec.output_event_time is not None:
        instead = "leave it out, and read the rows in a second query"
    if release_of(spark.version) < release_of(first):
        needed = f"Spark {first} or later{where}"
        found = f"{_asked_by(spec)} needs {needed}, and this is {spark.version}"
        raise UnsupportedError(found, f"use {needed}, or {instead}")


def _asked_by(spec: AnySpec) -> str:
    return 'layout="pages"' if spec.output_event_time is None else "carries_watermark=True"


@attrs.define
class _Processor:
    worker: Worker
    row: StructType
    columns: tuple[str, ...]
    """The input columns, since Spark renames columns that start with an underscore."""
    has_pages: bool
    event_time: str | None
    _handle: Any = attrs.field(default=None, init=False)
    _bucket: Any = attrs.field(default=None, init=False)
    _pages: Any = attrs.field(default=None, init=False)

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._bucket = handle.getValueState(BUCKET_STATE, self.row)
        if self.has_pages:
            start, payload = _struct("start BIGINT"), _struct("payload BINARY")
            self._pages = handle.getMapState(PAGES_STATE, start, payload)

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterable[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        renamed = (frame.set_axis(self.columns, axis="columns") for frame in rows)
        yield from self._run(key, renamed, timerValues, None)

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        yield from self._run(key, [], timerValues, expiredTimerInfo.getExpiryTimeInMs())

    def close(self) -> None:
        """Do nothing: Spark requires this method."""

    @message_first
    def _run(
        self, key: tuple[Any, ...], frames: Iterable[pd.DataFrame], times: Any, fired_ms: int | None
    ) -> Iterator[pd.DataFrame]:
        freeze_imports("transform")
        state = _BucketState(self._handle, self._bucket, self._pages, times, fired_ms)
        for frame in self.worker(key, frames, state, run_of_task(), rows_of_task()):
            if self.event_time is not None:
                # Spark would read a time without a zone in the time zone of its session.
                instants = np.array(frame[self.event_time].to_list(), "datetime64[us]")
                frame[self.event_time] = pd.Series(instants).dt.tz_localize("UTC")
            yield frame
        state.save()


@attrs.define(eq=False)
class _BucketState:
    """The state of a bucket during one call: a `PagedStateLike`."""

    handle: Any
    bucket: Any
    pages: Any
    times: Any
    fired_ms: int | None
    """The timer that has fired, which Spark removes after the call."""
    _before: tuple[Any, ...] | None = attrs.field(init=False)
    _after: tuple[Any, ...] | None = attrs.field(default=None, init=False)
    _timer_ms: int | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._before = self.bucket.get()

    @property
    def exists(self) -> bool:
        return self._before is not None

    @property
    def get(self) -> tuple[Any, ...]:
        return () if self._before is None else tuple(self._before[:-1])

    @property
    def hasTimedOut(self) -> bool:
        return self.fired_ms is not None

    def update(self, newValue: tuple[Any, ...]) -> None:
        self._after = newValue

    def remove(self) -> None:
        self._after = None

    def setTimeoutTimestamp(self, timestampMs: int) -> None:
        # This timer fires at the watermark; a group state's timeout fires only past it.
        self._timer_ms = timestampMs + 1

    def setTimeoutDuration(self, durationMs: int) -> None:
        self._timer_ms = self.getCurrentProcessingTimeMs() + durationMs + 1

    def getCurrentWatermarkMs(self) -> int:
        return int(self.times.getCurrentWatermarkInMs())

    def getCurrentProcessingTimeMs(self) -> int:
        return int(self.times.getCurrentProcessingTimeInMs())

    @property
    def has_pages(self) -> bool:
        """Whether any page is stored; Spark looks up only the first."""
        return bool(self.pages.exists())

    def page(self, start: int) -> bytes | None:
        row = self.pages.getValue((start,))
        return None if row is None else bytes(row[0])

    def put_page(self, start: int, payload: bytes) -> None:
        self.pages.updateValue((start,), (payload,))

    def remove_page(self, start: int) -> None:
        self.pages.removeKey((start,))

    def save(self) -> None:
        before_ms = None if self._before is None else self._before[-1]
        if before_ms != self._timer_ms:
            if before_ms not in (None, self.fired_ms):
                self.handle.deleteTimer(before_ms)
            if self._timer_ms is not None:
                self.handle.registerTimer(self._timer_ms)
        if self._after is not None:
            self.bucket.update((*self._after, self._timer_ms))
        elif self._before is not None:
            self.bucket.clear()


def _struct(columns: str) -> StructType:
    parts = (column.split() for column in columns.split(", "))
    return StructType([StructField(name, TYPES[kind]) for name, kind in parts])
