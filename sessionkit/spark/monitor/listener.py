"""Receivers of how a query stands: the log, OpenTelemetry, or a function of the user's."""

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from sessionkit._printable import printable
from sessionkit.errors import UnsupportedError, with_hint
from sessionkit.spark._libraries import is_connect, release_of
from sessionkit.spark.jobs.progress import entry, instant_in, is_counted
from sessionkit.spark.monitor.metrics import METRICS, Metric, samples
from sessionkit.spark.monitor.query_status import QueryStatus

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

LOG: Final = logging.getLogger("sessionkit.monitor")
Receiver: TypeAlias = Callable[[QueryStatus], None]
"""What is called with how a query stands, whenever Spark reports on it."""


def monitor(spark: SparkSession, *receivers: Receiver) -> StreamingQueryListener:
    """
    Tell receivers how each query over a spec stands, whenever Spark reports on it.

    That is after every micro-batch, some seconds apart while there is nothing to do, and when the
    query ends. It concerns all queries of the session that run or are started later; the totals of
    each begin with the first report. Spark calls from a thread of its own, apart from the queries,
    so no query waits for a receiver. What a receiver raises is logged, and goes no further.

    Args:
        spark: The session of the queries.
        receivers: Functions of a `QueryStatus`, such as a `PrometheusEndpoint`, `to_log()`, or
            yours.

    Returns:
        What was added; to end it, `spark.streams.removeListener(found)`.

    Raises:
        UnsupportedError: On Spark Connect before Spark 4.0, where a listener runs in the server.
    """
    if is_connect(spark) and release_of(spark.version) < (4,):
        found = f"on Connect, Spark {spark.version} calls a listener in the server, not here"
        raise UnsupportedError(with_hint(found, "call status(query) every few seconds"))
    listener = _Listener(receivers)
    spark.streams.addListener(listener)
    return listener


@attrs.define(eq=False)
class _Listener(StreamingQueryListener):
    """Adds up what Spark reports of each query."""

    receivers: tuple[Receiver, ...]
    _statuses: dict[str, QueryStatus] = attrs.field(factory=dict, init=False)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Say that a known query runs again."""
        self._change(str(event.id), is_active=True, failure=None)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Add a micro-batch."""
        query_id = str(entry(event.progress, "id"))
        if query_id in self._statuses or is_counted(event.progress):
            self._tell(self._statuses.get(query_id, QueryStatus()).add(event.progress))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Say that Spark has looked for data."""
        self._change(str(event.id), reported=instant_in(event.timestamp))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Say that a query has ended, and why."""
        self._change(str(event.id), is_active=False, failure=event.exception)

    def _change(self, query_id: str, **changes: Any) -> None:
        known = self._statuses.get(query_id)
        if known is not None:
            self._tell(attrs.evolve(known, **changes))

    def _tell(self, status: QueryStatus) -> None:
        self._statuses[str(status.query_id)] = status
        for receiver in self.receivers:
            try:
                receiver(status)
            except Exception:
                LOG.exception("a receiver failed on %s", status.name)


def to_log(logger: logging.Logger = LOG, level: int = logging.INFO) -> Receiver:
    """
    Return what writes a line a report: `visits batch=12 events_total=1000 late_total=3 ..`.

    Spark reports each micro-batch and, some seconds apart, that there was nothing to do. All known
    metrics are in the line, by the names that Prometheus has for them. A query that fails is an
    error, and a micro-batch that doesn't balance a warning.

    Args:
        logger: Where to.
        level: At which level, where nothing is wrong.
    """
    unbalanced: dict[str, int] = {}

    def write(status: QueryStatus) -> None:
        name = printable(status.name)
        if status.failure is not None:
            logger.error("%s failed: %s", name, printable(status.failure, keep="\n\t"))
            return
        grew = status.unbalanced > unbalanced.get(status.name, 0)
        unbalanced[status.name] = status.unbalanced
        severity = max(level, logging.WARNING) if grew else level
        if logger.isEnabledFor(severity):
            logger.log(severity, "%s batch=%s %s", name, status.batch, _fields(status))

    return write


def _fields(status: QueryStatus) -> str:
    return " ".join(
        f"{metric.full_name.removeprefix('sessionkit_')}{f'.{part}' if part else ''}={value:.10g}"
        for metric, part, value in samples(status)
    )


def to_opentelemetry(meter: "Meter") -> Receiver:
    """
    Return what keeps the metrics of queries for a meter, which reads them when it exports.

    They have the names that Prometheus has for them, without `_total`, and the attribute `query`;
    `sessionkit_batch_part_seconds` also has `part`.

    Args:
        meter: A meter of the `opentelemetry` that the process has set up.
    """
    statuses: dict[str, QueryStatus] = {}
    for metric in METRICS:
        make: Any = meter.create_observable_gauge
        if metric.kind == "counter":
            make = meter.create_observable_counter
        name = metric.full_name.removesuffix("_total")
        make(name, callbacks=[_reader(metric, statuses)], description=metric.meaning)

    def keep(status: QueryStatus) -> None:
        statuses[status.name] = status

    return keep


def _reader(metric: Metric, statuses: dict[str, QueryStatus]) -> Callable[[Any], Iterable[Any]]:
    from opentelemetry.metrics import Observation  # noqa: PLC0415 (only who calls this has it)

    def read(options: Any) -> Iterable[Any]:
        del options
        for name, status in list(statuses.items()):
            for _, part, value in samples(status, [metric]):
                yield Observation(value, {"query": name, **({"part": part} if part else {})})

    return read
