"""What the kernel knows of a connection's peer, on real sockets."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gripproxy.client.peer import GONE, HALF, closed_sides, descriptor, peer_text, taken


class Pipe:
    """A transport of one socket: what does not fit into the kernel waits here."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock: socket.socket | None = sock
        self.waiting = 0

    def get_extra_info(self, name: str) -> Any:
        if name == "peername":
            return self.sock.getpeername() if self.sock is not None else None
        return {"socket": self.sock}.get(name)

    def get_write_buffer_size(self) -> int:
        return self.waiting


def pair(family: socket.AddressFamily) -> tuple[socket.socket, socket.socket]:
    if family == socket.AF_UNIX:
        return socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one, server.accept()[0]


@pytest.fixture(params=[socket.AF_INET, socket.AF_UNIX], ids=["TCP", "unix"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = pair(request.param)
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def fill(sock: socket.socket) -> int:
    """Write until nothing more fits into the kernel; return how much that was."""
    total = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            total += sock.send(b"x" * 65536)
    return total


class TestTaken:
    def test_stands_still_while_the_peer_does_not_read(self, ends: tuple[socket.socket, socket.socket]) -> None:
        ours, _ = ends
        pipe = Pipe(ours)
        fill(ours)
        before = settled(pipe)
        assert taken(pipe) == before

    def test_changes_when_the_peer_reads(self, ends: tuple[socket.socket, socket.socket]) -> None:
        ours, theirs = ends
        pipe = Pipe(ours)
        size = fill(ours)
        before = settled(pipe)
        while size:
            size -= len(theirs.recv(1 << 20))
            if ours.family == socket.AF_INET and taken(pipe) != before:
                break
        assert changes(pipe, before)

    def test_of_what_is_closed_is_nothing(self) -> None:
        pipe = Pipe(socket.socket())
        assert pipe.sock is not None
        pipe.sock.close()
        assert taken(pipe) == 0
        assert taken(None) == 0
        assert descriptor(None) == descriptor(pipe) == -1


def settled(pipe: Pipe) -> int:
    """Return the number once it stands still: what was written may be on its way."""
    before = taken(pipe)
    for _ in range(1000):
        time.sleep(0.01)
        now = taken(pipe)
        if now == before:
            return now
        before = now
    raise AssertionError("it does not settle")


def changes(pipe: Pipe, before: int) -> bool:
    """Whether the number becomes another one within some seconds."""
    for _ in range(1000):
        if taken(pipe) != before:
            return True
        time.sleep(0.01)
    return False


def closed(sock: socket.socket, wanted: int) -> bool:
    """Whether the kernel says so within some seconds: the peer's end is on its way."""
    for _ in range(1000):
        if closed_sides([sock.fileno()]).get(sock.fileno(), 0) & wanted:
            return True
        time.sleep(0.01)
    return False


class TestClosedSides:
    def test_of_an_open_one_are_none(self, ends: tuple[socket.socket, socket.socket]) -> None:
        ours, theirs = ends
        theirs.send(b"unread")
        assert closed_sides([ours.fileno()]) == {}

    def test_an_end_behind_what_is_not_read_is_seen(self, ends: tuple[socket.socket, socket.socket]) -> None:
        ours, theirs = ends
        theirs.send(b"unread")
        theirs.shutdown(socket.SHUT_WR)
        assert closed(ours, HALF)
        assert not closed_sides([ours.fileno()])[ours.fileno()] & GONE

    def test_a_reset_is_seen(self) -> None:
        ours, theirs = pair(socket.AF_INET)
        with ours:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            theirs.close()
            assert closed(ours, GONE)

    def test_a_closed_unix_socket_is_seen(self) -> None:
        ours, theirs = pair(socket.AF_UNIX)
        with ours:
            theirs.close()
            assert closed(ours, GONE)


class TestText:
    def test_of_an_address(self) -> None:
        ours, theirs = pair(socket.AF_INET)
        with ours, theirs:
            assert peer_text(Pipe(ours)) == f"127.0.0.1:{theirs.getsockname()[1]}"

    def test_of_a_unix_socket(self) -> None:
        ours, theirs = pair(socket.AF_UNIX)
        with ours, theirs:
            assert peer_text(Pipe(ours)) == "unix socket"

    def test_of_none(self) -> None:
        assert peer_text(None) == "unknown peer"
