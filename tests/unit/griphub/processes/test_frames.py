"""Frames: values out as they went in, however their bytes are divided."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from griphub.processes import frames
from griphub.processes.frames import FrameBuffer, FrameError, FrameSocket, frame

VALUES = [(0, "text é", b"\x00\xff", None, -1, 2**60, 1.5, True), [], ("x" * 100_000,)]


@pytest.mark.parametrize("part", [1, 3, 4, 5, 1000, 10**6])
def test_parts_of_any_size(part: int) -> None:
    data = b"".join(map(frame, VALUES))
    buffer, got = FrameBuffer(), []
    for start in range(0, len(data), part):
        got += buffer.feed(data[start : start + part])
    assert got == VALUES


def test_a_value_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FRAME_MAX", 1000)
    assert FrameBuffer().feed(frame("x" * 995)) == ["x" * 995]
    with pytest.raises(FrameError, match="a frame of 1001 bytes, the largest has 1000"):
        frame("x" * 996)
    with pytest.raises(FrameError, match="2000 bytes is announced"):
        FrameBuffer().feed((2000).to_bytes(4, "big"))


class Ends:
    """A socket with a child's end."""

    def __init__(self) -> None:
        self.hub, child = socket.socketpair()
        self.hub.settimeout(10)
        self.wake_end, self.wakeup = os.pipe()
        os.set_blocking(self.wake_end, False)
        self.sock = child
        self.child = FrameSocket(child, self.wake_end)

    def close(self) -> None:
        self.hub.close()
        self.sock.close()
        os.close(self.wake_end)
        os.close(self.wakeup)


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.close()


def test_all_that_has_arrived_is_received_together(ends: Ends) -> None:
    for value in VALUES:
        ends.hub.sendall(frame(value))
    assert ends.child.receive(10) == VALUES
    assert ends.child.receive(0) == []
    assert not ends.child.ended


def test_no_more_is_received_than_is_worked_on(ends: Ends) -> None:
    data = frame("x" * 1000)
    ends.hub.sendall(data * 50)
    received = ends.child.receive(10, 1)
    assert received == ["x" * 1000] * len(received)
    while len(received) < 50:
        received += ends.child.receive(10, 1)


def test_a_wait_ends_with_the_other_end(ends: Ends) -> None:
    ends.hub.sendall(frame("last"))
    ends.hub.close()
    assert ends.child.receive(None) == ["last"]
    assert ends.child.receive(None) == []
    assert ends.child.ended


def test_a_wait_ends_at_a_wakeup_and_in_time(ends: Ends) -> None:
    os.write(ends.wakeup, b"\0")
    assert ends.child.receive(None) == []
    assert ends.child.receive(0.001) == []


def test_a_frame_that_arrives_in_parts_is_waited_for(ends: Ends) -> None:
    data = frame("x" * 1000)
    ends.hub.sendall(data[:500])
    thread = threading.Timer(0.01, ends.hub.sendall, [data[500:]])
    thread.start()
    try:
        assert ends.child.receive(10) == ["x" * 1000]
    finally:
        thread.join()


def test_a_large_value_is_sent_as_the_receiver_reads(ends: Ends) -> None:
    value, buffer = "x" * 3_000_000, FrameBuffer()
    got: list[object] = []
    thread = threading.Thread(target=ends.child.send, args=[value])
    thread.start()
    try:
        while not got:
            got += buffer.feed(ends.hub.recv(65536))
    finally:
        thread.join()
    assert got == [value]


def test_nothing_is_sent_to_an_end_that_is_gone(ends: Ends) -> None:
    ends.hub.close()
    ends.child.send("x" * 1_000_000)
    assert ends.child.receive(0) == []
    assert ends.child.ended
