"""Reliable streams and WebSockets through the real service.

What is lost on the way comes from the backend (docs/guarantees.md).
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

from tests.e2e.test_survival import PATIENCE, Gripproxy, wait_gone
from tests.wire.wirekit import Client as Wire
from tests.wire.wirekit import request
from tests.wire.wirekit.events import event, subscribe
from tests.wire.wirekit.websocket import Socket, handshake


class Ledger:
    """A backend that has the truth: numbered lines, all of them in order, from any one on."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        ledger = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                asked = (self.headers.get("Grip-Last") or "").rpartition("last-id=")[2]
                after = int(asked) if asked else 0
                now = len(ledger.lines)
                body = "".join(ledger.lines[after:now]).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Grip-Hold", "stream")
                self.send_header("Grip-Channel", f"test; prev-id={now}")
                self.send_header("Grip-Link", "</ledger>; rel=next; timeout=100")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                opening = self.rfile.read(int(self.headers["Content-Length"])) == b"OPEN\r\n"
                asked = (self.headers.get("Grip-Last") or "").rpartition("last-id=")[2]
                now = len(ledger.lines)
                after = int(asked) if asked else now
                events = [event("OPEN")] if opening else []
                events += [event("TEXT", f"m:{line}") for line in ledger.lines[after:now]]
                events.append(subscribe("test", prev_id=str(now)))
                body = b"".join(events)
                self.send_response(200)
                self.send_header("Content-Type", "application/websocket-events")
                if opening:
                    self.send_header("Sec-WebSocket-Extensions", "grip")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self.server.server_address[1])
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def add(self) -> str:
        """Write the next line down, without telling anybody."""
        self.lines.append(f"line {len(self.lines) + 1}\n")
        return self.lines[-1]

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    ledger = Ledger()
    yield ledger
    ledger.close()


@pytest.fixture
def running(ledger: Ledger, tmp_path: pathlib.Path) -> Iterator[Gripproxy]:
    running = Gripproxy(tmp_path, "", (f"--route=* 127.0.0.1:{ledger.port},over_http",), "")
    yield running.ready()
    running.close()


def test_what_came_while_there_was_no_handler(running: Gripproxy, ledger: Ledger) -> None:
    first = ledger.add()
    client = running.get("/ledger")
    assert client.line() == first.encode()
    handler = running.child("handler")
    os.kill(handler, signal.SIGKILL)
    wait_gone(handler)
    # Published to nobody: the backend knows it, the dead handler does not.
    missed = ledger.add()
    assert client.line() == missed.encode()
    # And nothing twice afterwards.
    running.service.wait_for_log(r"(?s)worker joined: worker=\d channels=1.*handler ready")
    third = ledger.add()
    running.publish_item({"channel": "test", "id": "3", "prev-id": "2", "formats": {"http-stream": {"content": third}}})
    assert client.line() == third.encode()
    assert client.untouched


def test_a_lost_item_is_fetched_before_the_next_one(running: Gripproxy, ledger: Ledger) -> None:
    client = running.get("/ledger")
    running.service.wait_for_log('hold: mode="reliable stream" .*channels=test')
    lost, next_one = ledger.add(), ledger.add()
    item = {"channel": "test", "id": "2", "prev-id": "1", "no-seq": True}
    running.publish_item({**item, "formats": {"http-stream": {"content": next_one}}})
    assert client.line() == lost.encode()
    assert client.line() == next_one.encode()


def test_a_client_that_comes_back_after_its_worker_died(running: Gripproxy, ledger: Ledger) -> None:
    one = ledger.add()
    client = running.get("/ledger")
    assert client.line() == one.encode()
    workers = [running.child("worker 1"), running.child("worker 2")]
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    wait_gone(*workers)
    assert client.rest() == b""
    two = ledger.add()
    for number in (1, 2):
        running.child(f"worker {number}", 2)
    with socket.create_connection(("127.0.0.1", running.port), PATIENCE) as sock:
        sock.settimeout(PATIENCE)
        sock.sendall(b"GET /ledger HTTP/1.0\r\nHost: localhost\r\n\r\n")
        with sock.makefile("rb") as answer:
            while answer.readline().strip():
                pass
            assert answer.readline() == one.encode()
            assert answer.readline() == two.encode()


@pytest.fixture
def chatter(running: Gripproxy) -> Iterator[Socket]:
    """A WebSocket that is subscribed."""
    with Wire.connect(running.port) as wire:
        wire.send(request("GET", "/chat", *handshake()))
        assert wire.head().status == 101
        running.service.wait_for_log("WebSocket: .* status=101 ")
        yield Socket(wire, mask=True)


def publish(running: Gripproxy, line: str, number: int) -> None:
    """Publish a line to WebSockets, whatever came before it."""
    ids = {"id": str(number), "prev-id": str(number - 1), "no-seq": True}
    running.publish_item({"channel": "test", **ids, "formats": {"ws-message": {"content": line}}})


def test_a_websocket_while_there_was_no_handler(running: Gripproxy, ledger: Ledger, chatter: Socket) -> None:
    # One that arrives shows that the subscription counts.
    publish(running, ledger.add(), 1)
    assert chatter.says("line 1\n")
    handler = running.child("handler")
    os.kill(handler, signal.SIGKILL)
    wait_gone(handler)
    missed = ledger.add()
    assert chatter.says(missed, PATIENCE)
    running.service.wait_for_log(r"(?s)worker joined: worker=\d channels=1.*handler ready")
    publish(running, ledger.add(), 3)
    assert chatter.says("line 3\n")


def test_a_websocket_gets_a_lost_item_before_the_next_one(running: Gripproxy, ledger: Ledger, chatter: Socket) -> None:
    publish(running, ledger.add(), 1)
    assert chatter.says("line 1\n")
    ledger.add()
    publish(running, ledger.add(), 3)
    assert chatter.says("line 2\n")
    assert chatter.says("line 3\n")
    publish(running, ledger.add(), 4)
    assert chatter.says("line 4\n")
