"""Free ports for the servers under measurement, whose configuration files name their ports."""

from __future__ import annotations

import random
import socket

__all__ = ["free_ports"]

RANGE = range(20_000, 32_000)
"""Below the ports that the kernel gives to outgoing connections (ip_local_port_range), of which a run makes many."""


def free_ports(number: int) -> list[int]:
    """Return ``number`` different ports of 127.0.0.1 on which no process listens."""
    found: list[int] = []
    for port in random.sample(RANGE, len(RANGE)):
        if len(found) == number:
            break
        with socket.socket() as sock:
            # As servers do: a connection in TIME_WAIT does not block a port.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found
