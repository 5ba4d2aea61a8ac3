"""A handler that does not answer: holds are refused after ``hold_confirm_timeout``, WebSockets that subscribe dropped.

Nobody is held who would not get what is published (docs/grip.md §2.6, §8.6).
"""

from __future__ import annotations

import http.server
import os
import pathlib
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.e2e.test_survival import PATIENCE, Gripproxy
from tests.support.service import freeze

CONTROL = b'c:{"type": "subscribe", "channel": "test"}'
EVENTS = b"OPEN\r\nTEXT %x\r\n%b\r\nTEXT 5\r\nhello\r\n" % (len(CONTROL), CONTROL)
HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Backend(http.server.BaseHTTPRequestHandler):
    """Opens every WebSocket with a subscription and a greeting behind it."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = EVENTS if body.startswith(b"OPEN") else b""
        self.send_response(200)
        self.send_header("Content-Type", "application/websocket-events")
        self.send_header("Sec-WebSocket-Extensions", 'grip; message-prefix=""')
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def backend() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield int(server.server_address[1])
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def running(backend: int, tmp_path: pathlib.Path) -> Iterator[Gripproxy]:
    """A service whose handler stops, and is not missed before the test is over."""
    lines = "[proxy]\nhold_confirm_timeout=0.5"
    routes = ("--route=*,proto=http test", f"--route=*,proto=ws 127.0.0.1:{backend},over_http")
    running = Gripproxy(tmp_path, lines, routes, "")
    handler = running.ready().child("handler")
    running.service.wait_for_log(r"worker joined: worker=\d channels=0(.|\n)*worker joined: worker=\d channels=0")
    freeze(handler)
    yield running
    os.kill(handler, signal.SIGCONT)
    running.close()


def test_a_handler_that_does_not_confirm(running: Gripproxy) -> None:
    for path in ("/response", "/stream"):
        client = running.get(path)
        assert client.status == b"HTTP/1.0 500 Internal Server Error\r\n"
        assert client.rest() == b"Accept service unavailable.\n"
    # What is not held is not touched.
    assert running.get("/").rest() == b"Hello from the gripproxy test handler!\n"
    with socket.create_connection(("127.0.0.1", running.port), PATIENCE) as sock:
        sock.sendall(HANDSHAKE)
        answer = b""
        try:
            while data := sock.recv(4096):
                answer += data
        except ConnectionResetError:
            pass
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    # Neither what stood behind the subscription, nor a close.
    assert rest == b""
