"""An endpoint for Prometheus, with the metrics of queries."""

from collections.abc import Iterator
from typing import Any, Final

import attrs
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from sessionkit.addons.monitor.metrics import METRICS, samples
from sessionkit.addons.monitor.query_status import QueryStatus
from sessionkit.arguments import explained

FAMILIES: Final = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


@attrs.define(eq=False)
class _Statuses(Collector):
    statuses: dict[str, QueryStatus] = attrs.field(factory=dict)

    def collect(self) -> Iterator[Any]:
        statuses = list(self.statuses.items())
        for metric in METRICS:
            labels = ["query", "part"] if metric.name == "batch_part_seconds" else ["query"]
            family = FAMILIES[metric.kind](
                metric.full_name.removesuffix("_total"), metric.meaning, labels=labels
            )
            for name, status in statuses:
                for part, value in samples(metric, status):
                    family.add_metric([name] if part is None else [name, part], value)
            yield family


@explained()
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
        Serve the metrics, or let a server that already exists serve them.

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
            self._server, _ = start_http_server(port, address, self._registry)

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
        """Stop serving, and leave the registry."""
        self._registry.unregister(self._collector)
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
