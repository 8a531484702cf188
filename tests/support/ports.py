"""Ports that nobody listens at."""

import socket


def free_ports(count: int) -> list[int]:
    """Return as many ports of this machine as are asked for, all different."""
    sockets = [socket.socket() for _ in range(count)]
    for bound in sockets:
        bound.bind(("127.0.0.1", 0))
    ports = [int(bound.getsockname()[1]) for bound in sockets]
    for bound in sockets:
        bound.close()
    return ports
