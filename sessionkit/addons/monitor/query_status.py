"""The status of a query from Spark's progress reports, on request or by a listener."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, Final, TypeAlias

import attrs
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit import Counts, SessionkitError, SpecError
from sessionkit._for_addons import (
    DurationSketch,
    KnownBuckets,
    Percentiles,
    bucket_stats_text,
    check_query,
    dropped_in,
    explains,
    has_run,
    instant_in,
    is_connect,
    is_counted,
    newest_event_in,
    progress_value,
    total,
    watermark_in,
)
from sessionkit.errors import BalanceError, UnsupportedError
from sessionkit.spark import Reconciliation, batch_counts

LOG: Final = logging.getLogger("sessionkit.monitor")
RECENT: Final = 10
"""The number of micro-batches in a rate."""
WHOLE: Final = "triggerExecution"
"""Spark's name for the duration from a trigger to the end of its micro-batch."""


@attrs.frozen
class Bucket:
    """
    The stored size of a bucket.

    Attributes:
        number: The number that the inspector of checkpoints shows.
        stored_bytes: The bytes of its row and its pages.
    """

    number: int
    stored_bytes: int


@attrs.frozen
class _Step:
    """The numbers of a micro-batch that rates use."""

    began: datetime
    seconds: float
    events: int
    rows: int | None
    closed: int | None
    opened: int | None
    behind: DurationSketch


@attrs.frozen
class QueryStatus:
    """
    The status of a query over a spec, as of its last micro-batch.

    It's a value: `add` returns a new status. None means that a number isn't known; the attribute
    says when. Nothing is estimated.

    Attributes:
        name: The name of the query; its id if it has none.
        query_id: The id of the query, which restarts keep.
        batch: The number of the last micro-batch; None before the first.
        began: When that micro-batch began, in processing time.
        reported: When Spark last reported on the query, in processing time: the start of a
            micro-batch or, while there is nothing to do, of the check for new data.
        batches: The number of micro-batches so far.
        counts: The counts of the last micro-batch.
        totals: The counts of all micro-batches so far. `totals.unknown` names the counts that are
            too low, since Spark 3.5 reports none for a micro-batch without data.
        uncounted: The number of micro-batches so far for which Spark reported no counts. Spark 3.5
            reports none for a micro-batch without data.
        dropped: The number of rows so far that Spark itself dropped as late, in any stateful
            operator of the query, such as a `dropDuplicates` before the spec. The operator of a
            spec drops none.
        unbalanced: The number of micro-batches so far whose counts didn't balance, or that Spark
            counted more than once or only in part; see `reconcile`.
        buckets: The last known statistics of each bucket, from which `open_sessions`, `buffered`,
            `stored_bytes`, `oldest_open`, `largest_bucket` and `skew` are computed. Empty after a
            micro-batch for which Spark reported no such statistics.
        open_sessions: The exact number of open sessions or, for a `StatefulSpec`, of keys. None
            until Spark has called each bucket once, if the query ran before the first report or
            restarted; after a micro-batch without a report; with more than 1,024 buckets; and under
            `layout="pages"` for a spec that remembers closed sessions.
        watermark: The watermark in force in the last micro-batch, in event time; None before the
            first one. Under `close_idle_after`, the watermark of the bucket furthest ahead.
        newest_event: The latest event time so far; None before the first event.
        seconds: The duration of the last micro-batch, from its trigger to its end.
        parts: The seconds of each phase of the last micro-batch, such as `addBatch`, by its name in
            Spark's `durationMs`. The whole, `triggerExecution`, is in `seconds`.
        state_bytes: The memory of Spark's state stores, as Spark reports it.
        is_active: Whether the query runs.
        failure: The error with which the query failed, or None.
    """

    name: str = ""
    query_id: str | None = None
    batch: int | None = None
    began: datetime | None = None
    reported: datetime | None = None
    batches: int = 0
    counts: Counts = attrs.field(factory=Counts)
    totals: Counts = attrs.field(factory=Counts)
    uncounted: int = 0
    dropped: int = 0
    unbalanced: int = 0
    buckets: KnownBuckets = attrs.field(factory=KnownBuckets)
    open_sessions: int | None = None
    watermark: datetime | None = None
    newest_event: datetime | None = None
    seconds: float | None = None
    parts: Mapping[str, float] = attrs.field(factory=dict)
    state_bytes: int | None = None
    is_active: bool = True
    failure: str | None = None
    _recent: tuple[_Step, ...] = attrs.field(default=(), repr=False)

    # -- of all buckets --------------------------------------------------------------------------

    @property
    def buffered(self) -> int | None:
        """The events that wait for the watermark; None as for `open_sessions`, and for keys."""
        return self.buckets.total("buffered")

    @property
    def stored_bytes(self) -> int | None:
        """The bytes that sessionkit keeps in the state store; None as for `buffered`."""
        return self.buckets.total("stored_bytes")

    @property
    def oldest_open(self) -> datetime | None:
        """
        The start of the oldest open session, in event time; None if none is open.

        None also where `buffered` is None, for a `StatefulSpec`, and under `layout="pages"`.
        """
        return self.buckets.oldest

    @property
    def largest_bucket(self) -> Bucket | None:
        """The bucket with the most bytes; None if `stored_bytes` isn't known."""
        if not (self.buckets.is_whole and self.buckets.known):
            return None
        buckets = [
            Bucket(number, stats.stored_bytes) for number, stats in self.buckets.known.items()
        ]
        return max(buckets, key=lambda bucket: (bucket.stored_bytes, -bucket.number))

    @property
    def skew(self) -> float | None:
        """The size of the largest bucket divided by the mean size; None if it isn't known."""
        largest, total, count = self.largest_bucket, self.stored_bytes, self.buckets.count
        if largest is None or not total or not count:
            return None
        return largest.stored_bytes * count / total

    # -- of the last micro-batches ---------------------------------------------------------------

    @property
    def watermark_lag(self) -> timedelta | None:
        """How far the watermark trailed the processing time when the last micro-batch began."""
        if self.watermark is None or self.began is None:
            return None
        return self.began - self.watermark

    @property
    def rows_in_per_second(self) -> float | None:
        """Events a second over the last ten micro-batches; None before the second one."""
        return self._per_second("events")

    @property
    def rows_out_per_second(self) -> float | None:
        """Result rows a second, likewise; None if Spark didn't count them, see `totals`."""
        return self._per_second("rows")

    @property
    def closed_per_second(self) -> float | None:
        """Closed sessions a second, likewise; None if Spark didn't count them."""
        return self._per_second("closed")

    @property
    def opened_per_second(self) -> float | None:
        """Opened sessions less merged ones, a second; None if `open_sessions` isn't known."""
        return self._per_second("opened")

    @property
    def behind(self) -> Percentiles | None:
        """
        How much older events were than the latest event of earlier micro-batches, in event time.

        Of the last ten micro-batches; `totals.behind` covers all. None if none has a watermark.
        """
        return sum((step.behind for step in self._recent), DurationSketch()).percentiles

    def _per_second(self, name: str) -> float | None:
        numbers = [getattr(step, name) for step in self._recent]
        if len(numbers) < 2 or None in numbers:  # noqa: PLR2004 (two make a span)
            return None
        first, last = self._recent[0], self._recent[-1]
        seconds = (last.began - first.began).total_seconds() + last.seconds
        return sum(numbers) / seconds if seconds > 0 else None

    # -- from now on -----------------------------------------------------------------------------

    def add(self, progress: Any) -> "QueryStatus":
        """
        Return the status after Spark's next report; a repeated micro-batch changes nothing.

        Args:
            progress: As for `batch_counts`.

        Raises:
            SessionkitError: sessionkit didn't build the query of the progress.
        """
        query_id = str(progress_value(progress, "id"))
        reported = progress_value(progress, "timestamp")
        so_far = attrs.evolve(
            self,
            name=str(progress_value(progress, "name") or query_id),
            query_id=query_id,
            reported=self.reported if reported is None else instant_in(reported),
            is_active=True,
            failure=None,
        )
        if not has_run(progress):
            return so_far
        batch = int(progress_value(progress, "batchId"))
        if self.batch is not None and batch <= self.batch:
            return so_far
        counts, began = batch_counts(progress), instant_in(reported)
        is_next = self.batch is None or batch == self.batch + 1
        text = bucket_stats_text(progress)
        buckets = (self.buckets if is_next else KnownBuckets()).after(text, batch)
        durations = progress_value(progress, "durationMs")
        newest = self.newest_event, newest_event_in([progress])
        now = attrs.evolve(
            so_far,
            batch=batch,
            began=began,
            batches=self.batches + 1,
            counts=counts,
            totals=self.totals + counts,
            uncounted=self.uncounted + bool(counts.unknown),
            dropped=self.dropped + dropped_in(progress),
            unbalanced=self.unbalanced + _is_unbalanced(progress),
            buckets=buckets,
            open_sessions=buckets.total("open"),
            watermark=watermark_in(progress),
            newest_event=max(filter(None, newest), default=None),
            seconds=int(durations[WHOLE]) / 1000,
            parts={name: int(durations[name]) / 1000 for name in durations if name != WHOLE},
            state_bytes=total(progress_value(progress, "stateOperators") or [], "memoryUsedBytes"),
        )
        return attrs.evolve(now, recent=(*self._recent, _step(now, self, began))[-RECENT:])


NOTHING_YET: Final = QueryStatus()


@explains
def status(query: StreamingQuery, so_far: QueryStatus = NOTHING_YET) -> QueryStatus:
    """
    Return the status of a query from the progress reports that Spark keeps.

    Spark keeps the last 100 reports of a run, or `spark.sql.streaming.numRecentProgressUpdates`.
    Totals cover these reports. To cover more, pass the status of an earlier call; a report that it
    has is not counted again.

    Args:
        query: A query over the frame that `sessionize` or `apply_with_state` returned, running or
            stopped.
        so_far: The status of an earlier call; by default an empty status.

    Returns:
        A `QueryStatus`. `counts` has the counts of the last micro-batch, `totals` the sums over all
        that it covers. `watermark`, `open_sessions`, `rows_in_per_second`, `is_active` and
        `failure` say how the query stands.

    Raises:
        SessionkitError: sessionkit didn't build the query, or `so_far` is of another query.
    """
    *_, last = statuses(query, so_far)
    return last


def statuses(query: StreamingQuery, so_far: QueryStatus) -> list[QueryStatus]:
    """Return the status after each report that Spark keeps, and last the present one."""
    check_query(query)
    if not isinstance(so_far, QueryStatus):
        found = f"`so_far` must be what an earlier `status` returned, found {so_far!r}"
        raise SpecError(found, "leave it out to begin with the reports that Spark keeps")
    if so_far.query_id not in {None, str(query.id)}:
        text = f"the query is {query.id}, and what has been added up is of {so_far.query_id}"
        hint = "start again with status(query): with a new checkpoint it's another query"
        raise SessionkitError(text, hint)
    found = [*accumulate(query.recentProgress, QueryStatus.add, initial=so_far)]
    failure = query.exception()
    present = attrs.evolve(
        found[-1],
        name=query.name or str(query.id),
        query_id=str(query.id),
        is_active=query.isActive,
        failure=None if failure is None else str(failure),
    )
    return [*found[1:], present]


def _step(now: QueryStatus, before: QueryStatus, began: datetime) -> _Step:
    open_before = 0 if now.batch == 0 else before.open_sessions
    opened = None
    if open_before is not None and now.open_sessions is not None:
        opened = now.open_sessions - open_before + now.counts.sessions
    counts = now.counts
    rows = None if "rows" in counts.unknown else counts.rows
    closed = None if "sessions" in counts.unknown else counts.sessions
    return _Step(began, now.seconds or 0.0, counts.events, rows, closed, opened, counts.behind)


def _is_unbalanced(progress: Any) -> bool:
    try:
        Reconciliation(first=int(progress_value(progress, "batchId"))).add(progress)
    except BalanceError:
        return True
    return False


Receiver: TypeAlias = Callable[[QueryStatus], None]
"""
A function that `monitor` calls on the driver with the status of a query.
"""


@explains
def monitor(spark: SparkSession, *receivers: Receiver) -> StreamingQueryListener:
    """
    Call functions of yours with the status of each query, at each report of Spark.

    That is each query over a frame of `sessionize` or `apply_with_state`.

    Spark reports after each micro-batch, every few seconds while there is no data, and when the
    query ends. The listener covers all queries of the Spark session, running and future ones; their
    totals start with the first report. Spark calls it from a separate thread, so no query waits for
    a function. If a function raises, the error is logged, and the query goes on.

    Args:
        spark: The session of the queries.
        receivers: Functions that take a `QueryStatus`, or a `PrometheusEndpoint`; `status` says
            what a `QueryStatus` has.

    Returns:
        The listener; `spark.streams.removeListener(listener)` ends it.

    Raises:
        UnsupportedError: On Spark Connect before Spark 4.0, where a listener runs in the server.
    """
    if is_connect(spark) and spark.version.startswith("3."):
        found = f"on Connect, Spark {spark.version} calls a listener in the server, not here"
        raise UnsupportedError(found, "call status(query) every few seconds")
    listener = _Listener(receivers)
    spark.streams.addListener(listener)
    return listener


@attrs.define(eq=False)
class _Listener(StreamingQueryListener):
    receivers: tuple[Receiver, ...]
    _statuses: dict[str, QueryStatus] = attrs.field(factory=dict, init=False)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        self._change(str(event.id), is_active=True, failure=None)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        query_id = str(progress_value(event.progress, "id"))
        if query_id in self._statuses or is_counted(event.progress):
            self._notify(self._statuses.get(query_id, QueryStatus()).add(event.progress))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        self._change(str(event.id), reported=instant_in(event.timestamp))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        self._change(str(event.id), is_active=False, failure=event.exception)

    def _change(self, query_id: str, **changes: Any) -> None:
        status = self._statuses.get(query_id)
        if status is not None:
            self._notify(attrs.evolve(status, **changes))

    def _notify(self, status: QueryStatus) -> None:
        self._statuses[str(status.query_id)] = status
        for receiver in self.receivers:
            try:
                receiver(status)
            except Exception:
                LOG.exception("a receiver failed on %s", status.name)
