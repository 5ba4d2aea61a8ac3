"""TCP keep-alive of clients, on the running service: the kernel's own table says that its timer runs."""

from __future__ import annotations

import pathlib
import socket
import time
from typing import Final

from tests.wire.wirekit import Setup, Site

KEEPALIVE: Final = 2
"""``timer_active`` in /proc/net/tcp (proc(5)): this one of the timers is running."""


def timer(port: int, peer: int) -> int | None:
    """Return which timer runs for the service's end of a connection; None if there is no such connection."""
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        local, remote = (int(address.split(":")[1], 16) for address in fields[1:3])
        if (local, remote) == (port, peer):
            return int(fields[5].split(":")[0], 16)
    return None


def test_a_quiet_client_is_probed() -> None:
    config = {"runner.client_keepalive": 30}
    with Site(Setup(config=config)) as site, socket.create_connection(("127.0.0.1", site.port)) as sock:
        deadline = time.monotonic() + 30
        # Not before the connection has been accepted, or while something is being sent.
        while timer(site.port, sock.getsockname()[1]) != KEEPALIVE:
            assert time.monotonic() < deadline, "no keep-alive timer"
            time.sleep(0.05)
