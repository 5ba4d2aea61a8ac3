"""A service that runs out of file descriptors: who is there stays, and who comes waits (docs/guarantees.md)."""

from __future__ import annotations

import pathlib
import select
import socket
import sys
import time

from tests.e2e.test_survival import PATIENCE, Gripproxy
from tests.support.service import Service

LIMIT = 96
CLIENTS = 120


class Limited(Gripproxy):
    """A service that may open few files."""

    def command(self, *arguments: str) -> Service:
        limited = ["bash", "-c", f'ulimit -n {LIMIT}; exec "$@"', "bash"]
        return Service([*limited, sys.executable, "-m", "gripproxy", *arguments, f"--config={self.config}"])


def answered(clients: list[socket.socket], number: int) -> list[socket.socket]:
    """Return those who have got something, once they are at least ``number``."""
    deadline = time.monotonic() + PATIENCE
    while True:
        readable, _, _ = select.select(clients, [], [], 0.1)
        if len(readable) >= number:
            return readable
        assert time.monotonic() < deadline, f"{len(readable)} of {number} were answered"


def test_accepting_pauses_and_goes_on(tmp_path: pathlib.Path) -> None:
    running = Limited(tmp_path, "", (), "")
    clients: list[socket.socket] = []
    try:
        running.config.write_text(running.config.read_text().replace("workers=2", "workers=1"))
        running.ready()
        for _ in range(CLIENTS):
            clients.append(socket.create_connection(("127.0.0.1", running.port), PATIENCE))
            clients[-1].sendall(b"GET /stream HTTP/1.0\r\nHost: localhost\r\n\r\n")
        running.service.wait_for_log(rf"accepting pauses: files_max={LIMIT} kept_for_backends={LIMIT // 8}")
        held = answered(clients, LIMIT // 2)
        waiting = [client for client in clients if client not in held]
        assert len(waiting) > CLIENTS - LIMIT
        for client in held:
            assert client.recv(4096).startswith(b"HTTP/1.0 200 OK\r\n")
        running.publish("news\n")
        for client in held:
            client.settimeout(PATIENCE)
            while not client.recv(4096).endswith(b"news\n"):
                pass
        # Nobody who waits is refused or reset: as many as leave are let in, and all of them in the end.
        leaving = held
        while waiting:
            for client in leaving:
                client.close()
            leaving = answered(waiting, min(len(waiting), len(leaving) // 2))
            waiting = [client for client in waiting if client not in leaving]
            for client in leaving:
                assert client.recv(4096).startswith(b"HTTP/1.0 200 OK\r\n")
        assert running.service.log.count("accepting pauses") < 10
        assert " status=502 " not in running.service.log
    finally:
        for client in clients:
            client.close()
        running.close()
