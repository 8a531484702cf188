"""The server of the metrics, with connections that say nothing."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.request import urlopen

import pytest

pytest.importorskip("prometheus_client")

from sessionkit.spark.monitor import PrometheusEndpoint, QueryStatus, prometheus
from sessionkit.spark.monitor.prometheus import MOST_CONNECTIONS


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


def test_120_half_open_connections_take_16_threads(endpoint: PrometheusEndpoint) -> None:
    """And whoever asks is answered all the same, whether they have said nothing or half of it."""
    before = threading.active_count()
    with ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(connected(endpoint))
            stack.enter_context(connected(endpoint, b"GET /metrics HTTP/1.1\r\nHost: "))
        assert 'query="visits"' in fetched(endpoint)
        assert before + MOST_CONNECTIONS >= threading.active_count()
    assert 'query="visits"' in fetched(endpoint)


def test_silence_ends_a_connection(
    endpoint: PrometheusEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 5 seconds, though there is room; its thread ends with it."""
    assert 5 == prometheus._Handler.timeout
    monkeypatch.setattr(prometheus._Handler, "timeout", 0.2)
    before = threading.active_count()
    with connected(endpoint, b"GET ") as connection:
        began = time.monotonic()
        assert b"" == connection.recv(1)
        assert 0.1 < time.monotonic() - began < 4
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert before == threading.active_count()
