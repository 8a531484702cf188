"""The metrics of a query: one table, from which every exporter and the live view take them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Final, Literal, TypeAlias

import attrs

from sessionkit._engine.counts import DECLARED
from sessionkit.spark.monitor.query_status import QueryStatus

Kind: TypeAlias = Literal["counter", "gauge"]
Value: TypeAlias = float | Mapping[str, float] | None


@attrs.frozen
class Metric:
    """
    A number that says something of a query.

    Attributes:
        name: Its name, without `sessionkit_`, and without the `_total` that Prometheus adds to
            counters.
        kind: A counter only grows while the process that exports it lives; a gauge goes up and
            down.
        meaning: What it counts or measures.
        read: Its value in a status. None says that it isn't known: then it isn't exported. A
            mapping has a value for each `part` of a micro-batch.
    """

    name: str
    kind: Kind
    meaning: str
    read: Callable[[QueryStatus], Value] = attrs.field(eq=False, repr=False)

    @property
    def full_name(self) -> str:
        """The name under which Prometheus shows it."""
        return f"sessionkit_{self.name}{'_total' if self.kind == 'counter' else ''}"


def _counter(name: str, meaning: str, read: Callable[[QueryStatus], Value]) -> Metric:
    return Metric(name, "counter", meaning, read)


def _gauge(name: str, meaning: str, read: Callable[[QueryStatus], Value]) -> Metric:
    return Metric(name, "gauge", meaning, read)


def _seconds(instant: datetime | None) -> float | None:
    return None if instant is None else instant.timestamp()


METRICS: Final[tuple[Metric, ...]] = (
    *(
        _counter(count.metric, count.meaning, attrgetter(f"totals.{count.name}"))
        for count in DECLARED
        if count.metric is not None
    ),
    _counter("dropped", "Rows that Spark itself dropped as late", lambda s: s.dropped),
    _counter("batches", "Micro-batches", lambda s: s.batches),
    _counter("unbalanced_batches", "Micro-batches that didn't balance", lambda s: s.unbalanced),
    _counter("uncounted_batches", "Micro-batches without counts", lambda s: s.uncounted),
    _gauge("open_sessions", "Open sessions, or keys", lambda s: s.open_sessions),
    _gauge("buffered_events", "Events that wait for the watermark", lambda s: s.buffered),
    _gauge(
        "oldest_open_session_timestamp_seconds",
        "When the oldest open session began",
        lambda s: _seconds(s.oldest_open),
    ),
    _gauge("rows_in_per_second", "Events a second", lambda s: s.rows_in_per_second),
    _gauge("rows_out_per_second", "Result rows a second", lambda s: s.rows_out_per_second),
    _gauge("opened_per_second", "Sessions that opened, a second", lambda s: s.opened_per_second),
    _gauge("closed_per_second", "Sessions that closed, a second", lambda s: s.closed_per_second),
    _gauge("batch_seconds", "How long the last micro-batch took", lambda s: s.seconds),
    _gauge("batch_part_seconds", "What it took that time for", lambda s: s.parts),
    _gauge(
        "watermark_timestamp_seconds", "The watermark in force", lambda s: _seconds(s.watermark)
    ),
    _gauge(
        "watermark_lag_seconds",
        "How far the watermark was from the clock, as the last micro-batch began",
        lambda s: None if s.watermark_lag is None else s.watermark_lag.total_seconds(),
    ),
    _gauge(
        "newest_event_timestamp_seconds",
        "The latest event time",
        lambda s: _seconds(s.newest_event),
    ),
    _gauge("state_bytes", "The memory of Spark's state stores", lambda s: s.state_bytes),
    _gauge("stored_bytes", "What sessionkit keeps in them", lambda s: s.stored_bytes),
    _gauge(
        "largest_bucket_bytes",
        "What it keeps of the largest bucket",
        lambda s: None if s.largest_bucket is None else s.largest_bucket.stored_bytes,
    ),
    _gauge("bucket_skew_ratio", "The largest bucket, divided by the mean", lambda s: s.skew),
    _gauge(
        "last_report_timestamp_seconds",
        "When Spark last reported on the query",
        lambda s: _seconds(s.reported),
    ),
    _gauge("query_active", "1 while the query runs, and 0 then", lambda s: float(s.is_active)),
    _gauge("query_failed", "1 where it has failed", lambda s: float(s.failure is not None)),
)


def samples(
    status: QueryStatus, metrics: Iterable[Metric] = METRICS
) -> Iterator[tuple[Metric, str | None, float]]:
    """Yield what is known of a query: metric, part of a micro-batch where it has parts, value."""
    for metric in metrics:
        value = metric.read(status)
        if isinstance(value, Mapping):
            for part, seconds in value.items():
                yield metric, part, seconds
        elif value is not None:
            yield metric, None, float(value)
