"""The metrics of a query: one table, and its way to the log, Prometheus and OpenTelemetry."""

import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from sessionkit import Counts
from sessionkit.addons.monitor.query_status import LOG, QueryStatus, Receiver
from sessionkit.arguments import check_extra, explained, explains
from sessionkit.errors import printable

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from prometheus_client import CollectorRegistry

Kind: TypeAlias = Literal["counter", "gauge"]
Value: TypeAlias = float | Mapping[str, float] | None
PREFIX: Final = "sessionkit_"


@attrs.frozen
class Metric:
    """
    A number about a query.

    Attributes:
        name: Its name, without `sessionkit_`, and without the `_total` that Prometheus adds to
            counters.
        kind: A counter only grows while the process that exports it lives; a gauge goes up and
            down.
        meaning: What it counts or measures.
        read: Its value in a status: None where it isn't known, so that it isn't exported; a
            mapping with a value for each `part` of a micro-batch.
    """

    name: str
    kind: Kind
    meaning: str
    read: Callable[[QueryStatus], Value] = attrs.field(eq=False, repr=False)

    @property
    def full_name(self) -> str:
        """The name under which Prometheus shows it."""
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


def _number(path: str) -> Callable[[QueryStatus], Value]:
    """Return what reads an attribute of a status as a number: a time in seconds, or None."""

    def read(status: QueryStatus) -> Value:
        value: Any = status
        for name in path.split("."):
            value = None if value is None else getattr(value, name)
        if isinstance(value, datetime):
            return value.timestamp()
        return value.total_seconds() if isinstance(value, timedelta) else value

    return read


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
    (
        "largest_bucket_bytes",
        "What it keeps of the largest bucket",
        "largest_bucket.stored_bytes",
    ),
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
What `PrometheusEndpoint` and `to_opentelemetry` report of a query, in this order.

Each `Metric` says what it counts or measures. Durations are in seconds, points in time in seconds
since 1970 (UTC), and sizes in bytes; their names end in the unit.
"""


def _samples(metric: Metric, status: QueryStatus) -> Iterator[tuple[str | None, float]]:
    """Yield each known value of a metric, with the part of a micro-batch that it is of, if any."""
    value = metric.read(status)
    if isinstance(value, Mapping):
        yield from value.items()
    elif value is not None:
        yield None, float(value)


def known_metrics(status: QueryStatus) -> dict[str, float]:
    """Return all that is known of a query by the full names of metrics, or `name.part`."""
    return {
        metric.full_name if part is None else f"{metric.full_name}.{part}": value
        for metric in METRICS
        for part, value in _samples(metric, status)
    }


@explains
def to_log(logger: logging.Logger = LOG, level: int = logging.INFO) -> Receiver:
    """
    Return a receiver that logs each report: `visits batch=12 events_total=1000 late_total=3 ..`.

    Spark reports each micro-batch and, every few seconds, that there was nothing to do. The line
    has all known metrics, under their names in Prometheus. A query that fails is logged as an
    error, and a micro-batch that doesn't balance as a warning.

    Args:
        logger: The logger.
        level: The level where nothing is wrong.
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
            values = {name.removeprefix(PREFIX): n for name, n in known_metrics(status).items()}
            fields = " ".join(f"{name}={number:.10g}" for name, number in values.items())
            logger.log(severity, "%s batch=%s %s", name, status.batch, fields)

    return write


@explained()
class PrometheusEndpoint:
    """
    A receiver that serves the metrics of queries to Prometheus.

    Pass it to `monitor`, or call it with a `QueryStatus`. Metrics that aren't known are left out.
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
            port: The port; 0 for any free one. None starts no server: then another one must serve
                the registry.
            address: The address to listen on; `"0.0.0.0"` for all of this machine's.
            registry: Where to register; by default a new one.
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
        """Serve this status of its query from now on."""
        self._statuses[status.name] = status

    @property
    def url(self) -> str:
        """The URL of the metrics; empty without a server."""
        if self._server is None:
            return ""
        host, port = self._server.server_address[:2]
        return f"http://{host}:{port}/metrics"

    def close(self) -> None:
        """Stop serving, and leave the registry."""
        self._registry.unregister(self._collector)
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


@attrs.frozen(eq=False)
class _Collector:
    statuses: dict[str, QueryStatus]

    def collect(self) -> Iterator[Any]:
        """Yield the metrics of queries as prometheus_client collects them."""
        from prometheus_client import core  # noqa: PLC0415 (an extra)

        families = {"counter": core.CounterMetricFamily, "gauge": core.GaugeMetricFamily}
        for metric in METRICS:
            labels = ["query", "part"] if metric.name == "batch_part_seconds" else ["query"]
            name = metric.full_name.removesuffix("_total")
            family = families[metric.kind](name, metric.meaning, labels=labels)
            for query, status in list(self.statuses.items()):
                for part, value in _samples(metric, status):
                    family.add_metric([query] if part is None else [query, part], value)
            yield family


@explains
def to_opentelemetry(meter: "Meter") -> Receiver:
    """
    Return a receiver that keeps the metrics of queries for a meter to read when it exports.

    They have their names in Prometheus, without `_total`, and the attribute `query`;
    `sessionkit_batch_part_seconds` also has `part`.

    Args:
        meter: A meter of the OpenTelemetry SDK that the process has set up.
    """
    statuses: dict[str, QueryStatus] = {}
    for metric in METRICS:
        make: Any = meter.create_observable_gauge
        if metric.kind == "counter":
            make = meter.create_observable_counter
        name = metric.full_name.removesuffix("_total")
        callback = partial(_observations, metric, statuses)
        make(name, callbacks=[callback], description=metric.meaning)

    def keep(status: QueryStatus) -> None:
        statuses[status.name] = status

    return keep


def _observations(metric: Metric, statuses: dict[str, QueryStatus], options: Any) -> Iterator[Any]:
    from opentelemetry.metrics import Observation  # noqa: PLC0415 (only its users have it)

    del options
    for name, status in list(statuses.items()):
        for part, value in _samples(metric, status):
            yield Observation(value, {"query": name, **({"part": part} if part else {})})
