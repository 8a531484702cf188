"""The server of the metrics, with connections that say nothing."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.request import urlopen

import pytest

pytest.importorskip("prometheus_client")

from sessionkit.addons.monitor import PrometheusEndpoint, QueryStatus


@pytest.fixture(name="endpoint")
def _endpoint() -> Iterator[PrometheusEndpoint]:
    """Serve the metrics of a query."""
    endpoint = PrometheusEndpoint(0)
    endpoint(QueryStatus(name="visits"))
    yield endpoint
    endpoint.close()


def connected(endpoint: PrometheusEndpoint, sent: bytes = b"") -> socket.socket:
    """Return a connection on which something was said, and no request."""
    host, port = endpoint.url.removeprefix("http://").removesuffix("/metrics").split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(sent)
    return connection


def fetched(endpoint: PrometheusEndpoint) -> str:
    with urlopen(endpoint.url, timeout=10) as answer:  # noqa: S310 (it is one of http)
        text: str = answer.read().decode()
    return text


def test_connections_that_say_nothing_keep_nobody_waiting(endpoint: PrometheusEndpoint) -> None:
    """Whoever asks is answered, whether the others have said nothing or half of a request."""
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(connected(endpoint))
            stack.enter_context(connected(endpoint, b"GET /metrics HTTP/1.1\r\nHost: "))
        assert 'query="visits"' in fetched(endpoint)
    assert 'query="visits"' in fetched(endpoint)
