"""Free ports for servers that are started with a port in their configuration."""

from __future__ import annotations

import itertools
import os
import random
import re
import socket

__all__ = ["free_port", "free_ports"]

FIRST, LAST = 20_000, 32_000
"""Below the range from which the kernel takes the ports of outgoing connections, so nobody gets one by accident
before the server binds it."""
PARTS = 8
"""Test runs side by side that have a part of the range each."""


def _candidates() -> itertools.cycle[int]:
    """All ports of this run's part, from a random one on, so that runs of different people begin elsewhere.

    In turn, and not at random: a port that was just given away is the last to be given again.
    """
    side = re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", ""))
    size = (LAST - FIRST) // PARTS
    part = int(side) % PARTS if side else random.randrange(PARTS)
    ports = list(range(FIRST + part * size, FIRST + (part + 1) * size))
    start = random.randrange(size)
    return itertools.cycle(ports[start:] + ports[:start])


_ports = _candidates()


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port of ``host`` that nobody listens on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in itertools.islice(_ports, (LAST - FIRST) // PARTS):
        with socket.socket(family) as sock:
            # As servers do: connections that are only waiting to be forgotten are not in the way.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((host, port))
                sock.listen()
            except OSError:
                continue
            return port
    raise AssertionError(f"no free port between {FIRST} and {LAST}")


def free_ports(number: int) -> list[int]:
    """Return so many different free ports of 127.0.0.1."""
    return [free_port() for _ in range(number)]
