"""A server of metrics that nobody can make grow, by connections that say nothing."""

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

__all__ = ["MOST_CONNECTIONS", "served"]

MOST_CONNECTIONS: Final = 16
PATIENCE_S: Final = 5.0
LOG: Final = logging.getLogger("sessionkit.monitor")


def served(app: Callable[..., Any], port: int, address: str) -> WSGIServer:
    """
    Return a server of an application, in a thread of its own.

    It has at most 16 connections, each in a thread: a further one ends the oldest. One that says
    nothing for 5 seconds ends too.
    """
    family = socket.getaddrinfo(address, port)[0][0]
    kind = type("_Server", (_Server,), {"address_family": family})
    server: WSGIServer = make_server(address, port, app, kind, _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name of the base)
        """Log nothing."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *args: Any, **settings: Any) -> None:
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        self._free = threading.Semaphore(MOST_CONNECTIONS)
        super().__init__(*args, **settings)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, once there is one."""
        if not self._free.acquire(blocking=False):
            self._end_the_oldest()
            self._free.acquire()
        with self._lock:
            self._open[request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        with self._lock:
            self._open.pop(request, None)
            super().shutdown_request(request)

    def handle_error(self, _: Any, client_address: Any) -> None:
        """Say that a connection broke off: it's the client's business."""
        LOG.debug("the connection of %s broke off", client_address)

    def _end_the_oldest(self) -> None:
        """Let whoever reads from it, or writes to it, find that it has ended."""
        with self._lock:
            oldest = next(iter(self._open), None)
            if oldest is not None:
                del self._open[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
