"""The metrics of a query, and their endpoint for Prometheus."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from sessionkit import Counts
from sessionkit._for_addons import check_extra, explained
from sessionkit.addons.monitor.query_status import QueryStatus

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

Kind: TypeAlias = Literal["counter", "gauge"]
Value: TypeAlias = float | Mapping[str, float] | None
PREFIX: Final = "sessionkit_"


@attrs.frozen
class Metric:
    """
    A metric of a query.

    Attributes:
        name: Its name without the prefix `sessionkit_` and the suffix `_total` of counters.
        kind: A counter only grows while the exporting process lives; a gauge goes up and down.
        read: Returns its value in a status. An unknown value, None, isn't exported; a mapping has
            a value for each `part` of a micro-batch.
    """

    name: str
    kind: Kind
    meaning: str
    read: Callable[[QueryStatus], Value] = attrs.field(eq=False, repr=False)

    @property
    def full_name(self) -> str:
        """The name in Prometheus."""
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


def number_in(status: QueryStatus, path: str) -> float | None:
    """Return an attribute of a status as a number, times in seconds; None if it's unknown."""
    value: Any = status
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    if isinstance(value, datetime):
        return value.timestamp()
    return value.total_seconds() if isinstance(value, timedelta) else value


def _number(path: str) -> Callable[[QueryStatus], Value]:
    return lambda status: number_in(status, path)


COUNTERS: Final = (
    *(
        (count.metric, count.meaning, f"totals.{count.name}")
        for count in Counts.declared()
        if count.metric is not None
    ),
    ("dropped", "Rows that Spark itself dropped as late", "dropped"),
    ("batches", "Micro-batches", "batches"),
    ("unbalanced_batches", "Micro-batches that didn't balance", "unbalanced"),
    ("uncounted_batches", "Micro-batches without counts", "uncounted"),
)
GAUGES: Final = (
    ("open_sessions", "Open sessions, or keys", "open_sessions"),
    ("buffered_events", "Events that wait for the watermark", "buffered"),
    ("oldest_open_session_timestamp_seconds", "When the oldest open session began", "oldest_open"),
    ("rows_in_per_second", "Events a second", "rows_in_per_second"),
    ("rows_out_per_second", "Result rows a second", "rows_out_per_second"),
    ("opened_per_second", "Sessions that opened, a second", "opened_per_second"),
    ("closed_per_second", "Sessions that closed, a second", "closed_per_second"),
    ("batch_seconds", "How long the last micro-batch took", "seconds"),
    ("batch_part_seconds", "What it took that time for", "parts"),
    ("watermark_timestamp_seconds", "The watermark in force", "watermark"),
    (
        "watermark_lag_seconds",
        "How far the watermark was from the clock, as the last micro-batch began",
        "watermark_lag",
    ),
    ("behind_p50_seconds", "By how much half of the events came behind", "behind.p50"),
    ("behind_p99_seconds", "By how much 99 % of the events came behind", "behind.p99"),
    ("behind_p999_seconds", "By how much 99.9 % of the events came behind", "behind.p999"),
    ("behind_max_seconds", "By how much the last of them came behind", "behind.maximum"),
    ("newest_event_timestamp_seconds", "The latest event time", "newest_event"),
    ("state_bytes", "The memory of Spark's state stores", "state_bytes"),
    ("stored_bytes", "What sessionkit keeps in them", "stored_bytes"),
    ("largest_bucket_bytes", "What it keeps of the largest bucket", "largest_bucket.stored_bytes"),
    ("bucket_skew_ratio", "The largest bucket, divided by the mean", "skew"),
    ("last_report_timestamp_seconds", "When Spark last reported on the query", "reported"),
)
METRICS: Final[tuple[Metric, ...]] = (
    *(Metric(name, "counter", meaning, _number(path)) for name, meaning, path in COUNTERS),
    *(Metric(name, "gauge", meaning, _number(path)) for name, meaning, path in GAUGES),
    Metric(
        "query_active", "gauge", "1 while the query runs, and 0 then", lambda s: float(s.is_active)
    ),
    Metric(
        "query_failed", "gauge", "1 where it has failed", lambda s: float(s.failure is not None)
    ),
)
"""
The metrics that `PrometheusEndpoint` reports of a query, in this order.

Durations are in seconds, points in time in seconds since 1970 (UTC), and sizes in bytes; the names
end in the unit.
"""


@explained()
class PrometheusEndpoint:
    """
    Serve the metrics of queries to Prometheus.

    Pass it to `monitor`, or call it with a `QueryStatus`. A metric whose value isn't known is left
    out. Needs the extra `monitor`.

    With `port=None`, it starts no server, and only registers the metrics.
    """

    def __init__(
        self,
        port: int | None = None,
        *,
        address: str = "127.0.0.1",
        registry: "CollectorRegistry | None" = None,
    ) -> None:
        """
        Serve the metrics, or register them for a server that already exists.

        Args:
            port: The port; 0 for any free port. None starts no server: another server must serve
                the registry.
            address: The address to listen on; `"0.0.0.0"` for all addresses of this machine.
            registry: The registry for the metrics; by default a new one.
        """
        check_extra("monitor", "prometheus_client", "`PrometheusEndpoint`", "where it runs")
        import prometheus_client  # noqa: PLC0415 (an extra)

        self._statuses: dict[str, QueryStatus] = {}
        self._registry = registry or prometheus_client.CollectorRegistry()
        self._collector = _Collector(self._statuses)
        self._registry.register(self._collector)
        self._server: Any = None
        if port is not None:
            serve = prometheus_client.start_http_server
            self._server, _ = serve(port, address, self._registry)

    def __call__(self, status: QueryStatus) -> None:
        """Serve this status as the latest one of its query."""
        self._statuses[status.name] = status

    @property
    def url(self) -> str:
        """The address, such as `http://127.0.0.1:9464/metrics`; an empty text without a server."""
        if self._server is None:
            return ""
        return url_of(*self._server.server_address[:2])

    def close(self) -> None:
        """Stop the server, if there is one, and take the metrics out of the registry."""
        self._registry.unregister(self._collector)
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def url_of(host: str, port: int) -> str:
    """Return the URL of the metrics; an IPv6 address has colons, and `%` before an interface."""
    host = f"[{host.replace('%', '%25')}]" if ":" in host else host
    return f"http://{host}:{port}/metrics"


@attrs.frozen(eq=False)
class _Collector:
    statuses: dict[str, QueryStatus]

    def collect(self) -> Iterator[Any]:
        from prometheus_client import core  # noqa: PLC0415 (an extra)

        families = {"counter": core.CounterMetricFamily, "gauge": core.GaugeMetricFamily}
        for metric in METRICS:
            labels = ["query", "part"] if metric.name == "batch_part_seconds" else ["query"]
            name = metric.full_name.removesuffix("_total")
            family = families[metric.kind](name, metric.meaning, labels=labels)
            for query, status in list(self.statuses.items()):
                value = metric.read(status)
                for part, number in value.items() if isinstance(value, Mapping) else ():
                    family.add_metric([query, part], number)
                if isinstance(value, float | int):
                    family.add_metric([query], value)
            yield family
