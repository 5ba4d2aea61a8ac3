"""The example of reliable messages, started with its one command, and a client of each kind that reads it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import select
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Iterator
from typing import Protocol

from websockets.sync.client import connect

from tests.support.ports import free_ports
from tests.support.service import ROOT, Service, alive, running
from tests.wire.wirekit import Client

__all__ = ["PATIENCE", "LongPoll", "Message", "Reader", "Reliable", "Sse", "WebSocket", "everybody", "heard", "started"]

OPTIONS = ("--port", "--control-port", "--backend-port", "--pull-port", "--sub-port", "--command-port")
PATIENCE = 30.0
"""Seconds for a message that must come."""

Message = tuple[int, str]
"""Its id and its text."""


class Reliable:
    """The running example."""

    def __init__(self, service: Service, ports: list[int], database: pathlib.Path) -> None:
        self.service = service
        self.port, self.control_port, self.backend_port = ports[:3]
        self.database = database

    def post(self, text: str) -> Message:
        """Post a message to the backend itself: gripproxy may not be running."""
        with Client.connect(self.backend_port) as client:
            answer = client.ask("POST", "/messages", body=text)
        assert answer.status == 200, answer
        return int(answer.body.removeprefix(b"Message ")), text

    def store(self, text: str) -> Message:
        """Put a message into the database without publishing it, as a publisher does that dies between both."""
        with contextlib.closing(sqlite3.connect(self.database, timeout=PATIENCE)) as db, db:
            statement = "INSERT INTO message SELECT coalesce(max(id), 0) + 1, ? FROM message RETURNING id"
            return int(db.execute(statement, (text,)).fetchone()[0]), text

    def publish(self, message: Message, **more: object) -> None:
        """Publish a message that is stored, with ``more`` in its item."""
        number, text = message
        data = json.dumps({"id": number, "text": text})
        formats = {
            "http-stream": {"content": f"id: {number}\ndata: {data}\n\n"},
            "http-response": {"body": f"[{data}]\n"},
            "ws-message": {"content": data},
        }
        self.publish_item(
            {"channel": "messages", "id": str(number), "prev-id": str(number - 1), "formats": formats, **more}
        )

    def publish_item(self, item: dict[str, object]) -> None:
        """Publish an item as it is."""
        with Client.connect(self.control_port) as client:
            assert client.ask("POST", "/publish", body=json.dumps({"items": [item]})).status == 200

    def pids(self, name: str) -> list[int]:
        """The living processes of gripproxy that are called so, ``handler`` or ``worker``."""
        pids = [int(pid) for pid in re.findall(rf'process started: name="?{name}[ 0-9]*"? pid=(\d+)', self.service.log)]
        return [pid for pid in pids if alive(pid)]

    def kill(self, name: str) -> None:
        """Kill these processes, and return when they are gone."""
        pids = self.pids(name)
        assert pids
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE
        while any(alive(pid) for pid in pids):
            assert time.monotonic() < deadline
            time.sleep(0.01)


@contextlib.contextmanager
def started(folder: pathlib.Path) -> Iterator[Reliable]:
    """Run the example with its database in a folder."""
    ports = free_ports(len(OPTIONS))
    arguments = [str(part) for pair in zip(OPTIONS, ports, strict=True) for part in pair]
    command = [sys.executable, str(ROOT / "examples" / "start.py"), "reliable", *arguments]
    database = folder / "messages.db"
    with running(command, ports[0], ports[1], environment={"DATABASE": str(database)}) as service:
        service.wait_for_log("Ctrl-C ends it")
        yield Reliable(service, ports, database)


class Reader(Protocol):
    """A client of one kind."""

    def hears(self) -> Message:
        """The next message."""

    def close(self) -> None: ...


class Sse:
    """A reader of server-sent events; ``headers`` are those of its request."""

    def __init__(self, port: int, path: str = "/events", *headers: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        lines = [f"GET {path} HTTP/1.0", "Host: localhost", "Accept: text/event-stream", *headers, "", ""]
        self.socket.sendall("\r\n".join(lines).encode())
        self.file = self.socket.makefile("rb")
        assert self.file.readline() == b"HTTP/1.0 200 OK\r\n"
        while self.file.readline().strip():
            pass

    def hears(self) -> Message:
        while (line := self.file.readline()) in (b":\n", b"\n"):
            pass  # a keep-alive
        data, end = self.file.readline(), self.file.readline()
        message = json.loads(data.removeprefix(b"data: "))
        assert (line, end) == (b"id: %d\n" % message["id"], b"\n")
        return message["id"], message["text"]

    def is_cut_off(self) -> None:
        """Wait for the end, before which nothing comes."""
        with contextlib.suppress(ConnectionResetError):
            assert self.file.read() == b""

    def close(self) -> None:
        self.file.close()
        self.socket.close()


class LongPoll:
    """A reader that asks again and again, each time on a connection of its own."""

    def __init__(self, port: int, after: int = 0) -> None:
        self.port, self.after = port, after
        self.waiting: list[Message] = []
        self.client: Client | None = None

    def ask(self) -> None:
        """Begin to wait for the next answer."""
        self.client = Client.connect(self.port)
        self.client.request("GET", f"/poll?after={self.after}")

    def is_answered(self, patience: float) -> bool:
        """Return whether the answer arrives within ``patience`` seconds."""
        assert self.client is not None
        return bool(select.select([self.client.sock], [], [], patience)[0])

    def hears(self) -> Message:
        while not self.waiting:
            if self.client is None:
                self.ask()
            assert self.client is not None
            answer = self.client.head(timeout=PATIENCE)
            assert answer.status == 200
            self.waiting = [(message["id"], message["text"]) for message in json.loads(self.client.rest())]
            self.close()
        self.after, _ = message = self.waiting.pop(0)
        return message

    def close(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None


class WebSocket:
    """A reader that has a WebSocket."""

    def __init__(self, port: int, after: int = 0) -> None:
        self.stack = contextlib.ExitStack()
        uri = f"ws://127.0.0.1:{port}/ws?after={after}"
        opening = connect(uri, ping_interval=None, max_queue=None, proxy=None, open_timeout=PATIENCE)
        self.connection = self.stack.enter_context(opening)

    def hears(self) -> Message:
        message = json.loads(self.connection.recv(PATIENCE))
        return message["id"], message["text"]

    def close(self) -> None:
        self.stack.close()


@contextlib.contextmanager
def everybody(example: Reliable, after: int = 0) -> Iterator[tuple[Sse, LongPoll, WebSocket]]:
    """One reader of each kind that has the messages up to an id."""
    with contextlib.ExitStack() as stack:
        sse = Sse(example.port, "/events", f"Last-Event-ID: {after}")
        stack.callback(sse.close)
        poll = LongPoll(example.port, after)
        stack.callback(poll.close)
        websocket = WebSocket(example.port, after)
        stack.callback(websocket.close)
        yield sse, poll, websocket


def heard(readers: tuple[Reader, ...], *messages: Message) -> None:
    """Each reader has heard these messages, in this order, and nothing in between."""
    for reader in readers:
        assert [reader.hears() for _ in messages] == list(messages), type(reader).__name__
