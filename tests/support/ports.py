"""Ports that nobody listens at."""

import socket


def free_ports(count: int) -> list[int]:
    """Return as many ports of this machine as are asked for, all different."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
