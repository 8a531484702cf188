"""What Spark reports of its queries, handed on as it happens."""

import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from sessionkit.errors import UnsupportedError, with_hint
from sessionkit.spark._progress_times import instant_in
from sessionkit.spark._release import is_connect, release_of
from sessionkit.spark.jobs.progress import entry, is_counted
from sessionkit.spark.monitor.query_status import QueryStatus

__all__ = ["Receiver", "monitor"]

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
    """
    Adds up what Spark reports of each query.

    Attributes:
        receivers: Whom to tell.
    """

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
