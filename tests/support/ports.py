"""Free ports for servers that are started with a port in their configuration."""

from __future__ import annotations

import functools
import itertools
import random
import socket

__all__ = ["free_port", "free_ports"]

FIRST, LAST = 20_000, 32_000
"""Below the range from which the kernel takes the ports of outgoing connections, so no process gets one by
accident before the server binds it."""
PARTS = 40
"""Processes side by side that have a part of the range each."""
MOVED = 30
"""The last ports of a part are not given away: ``--id`` and port_offset move a server so far up at most."""


def _claim(part: int) -> bool:
    """Make a part ours until this process ends, however it does; False if another process has it.

    Between the time when a port is given away and that when a server binds it, nothing else would keep it from others.
    """
    sock = socket.socket(socket.AF_UNIX)
    try:
        # An abstract name: no file that could be left behind.
        sock.bind(f"\0gripproxy test ports {part}")
    except OSError:
        sock.close()
        return False
    sock.detach()
    return True


@functools.cache
def _candidates() -> itertools.cycle[int]:
    """All ports of this process's part.

    In turn, and not at random: a port that was just given away is the last to be given again.
    """
    size = (LAST - FIRST) // PARTS
    parts = random.sample(range(PARTS), PARTS)
    part = next(filter(_claim, parts), parts[0])
    return itertools.cycle(range(FIRST + part * size, FIRST + (part + 1) * size - MOVED))


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port of ``host`` without a listener."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in itertools.islice(_candidates(), (LAST - FIRST) // PARTS):
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
