"""An endpoint for Prometheus, with the metrics of queries."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import attrs
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from sessionkit._arguments import explained
from sessionkit.spark.monitor.metrics import METRICS, samples
from sessionkit.spark.monitor.query_status import LOG, QueryStatus

MOST_CONNECTIONS: Final = 16
"""Each has a thread; a further connection ends the oldest."""
PATIENCE_S: Final = 5.0
FAMILIES: Final = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name of the base)
        pass


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *args: Any, **settings: Any) -> None:
        self._open: dict[socket.socket, None] = {}
        self._changed = threading.Condition()
        super().__init__(*args, **settings)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            if len(self._open) == MOST_CONNECTIONS:
                with suppress(OSError):
                    next(iter(self._open)).shutdown(socket.SHUT_RDWR)
                self._changed.wait_for(lambda: len(self._open) < MOST_CONNECTIONS)
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._changed:
            self._open.pop(request, None)
            self._changed.notify()
            super().shutdown_request(request)

    def handle_error(self, _: Any, client_address: Any) -> None:
        LOG.debug("the connection of %s broke off", client_address)


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
            family = socket.getaddrinfo(address, port)[0][0]
            kind = type("_Server", (_Server,), {"address_family": family})
            self._server = make_server(address, port, make_wsgi_app(self._registry), kind, _Handler)
            threading.Thread(target=self._server.serve_forever, daemon=True).start()

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
