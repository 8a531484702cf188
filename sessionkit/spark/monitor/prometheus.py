"""The metrics of queries, for Prometheus to fetch."""

from collections.abc import Iterator
from typing import Any, Final

import attrs
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from sessionkit.spark.monitor.metrics import METRICS, samples
from sessionkit.spark.monitor.query_status import QueryStatus
from sessionkit.spark.monitor.serving import served

__all__ = ["PrometheusEndpoint"]

FAMILIES: Final = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


@attrs.define(eq=False)
class _Statuses(Collector):
    """How each query stands, as metrics at the moment in which they are fetched."""

    statuses: dict[str, QueryStatus] = attrs.field(factory=dict)

    def collect(self) -> Iterator[Any]:
        """Yield each metric with its value for every query of which it is known."""
        statuses = list(self.statuses.items())
        for metric in METRICS:
            labels = ["query", "part"] if metric.name == "batch_part_seconds" else ["query"]
            family = FAMILIES[metric.kind](
                metric.full_name.removesuffix("_total"), metric.meaning, labels=labels
            )
            for name, status in statuses:
                for _, part, value in samples(status, [metric]):
                    family.add_metric([name] if part is None else [name, part], value)
            yield family


class PrometheusEndpoint:
    """
    A receiver that shows how queries stand where Prometheus fetches it.

    Pass it to `monitor`, or call it with a `QueryStatus`. What isn't known of a query isn't there.
    """

    def __init__(
        self,
        port: int | None = None,
        *,
        address: str = "127.0.0.1",
        registry: CollectorRegistry | None = None,
    ) -> None:
        """
        Serve the metrics, or let a server that there is already serve them.

        The server has at most 16 connections, each in a thread: a further one ends the oldest, and
        5 seconds of silence end one.

        Args:
            port: Where to listen; 0 for any that is free. None starts no server: then something
                else must show the registry.
            address: On which address; `"0.0.0.0"` for all of this machine's.
            registry: Where to register; by default a new one, in which nothing else is.
        """
        self._collector = _Statuses()
        self._registry = registry or CollectorRegistry()
        self._registry.register(self._collector)
        self._server: Any = None
        if port is not None:
            self._server = served(make_wsgi_app(self._registry), port, address)

    def __call__(self, status: QueryStatus) -> None:
        """Show how a query stands from now on."""
        self._collector.statuses[status.name] = status

    @property
    def url(self) -> str:
        """Where the metrics are; empty without a server."""
        if self._server is None:
            return ""
        host, port = self._server.server_address[:2]
        return f"http://{host}:{port}/metrics"

    def close(self) -> None:
        """Stop to serve, and leave the registry."""
        self._registry.unregister(self._collector)
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
