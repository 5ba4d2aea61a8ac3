"""Frames: values on a Unix socket between the hub and a child, each with its length in front.

The values are plain: tuples, lists, texts, numbers, bytes, None. ``marshal`` reads them several times faster than any
format of data, and both ends run one interpreter from one installation.
"""

from __future__ import annotations

import marshal
import os
import select
import socket
import struct
from typing import Any, Final

from gripproxy.grip.errors import InternalError

__all__ = ["FRAME_MAX", "FrameBuffer", "FrameError", "FrameSocket", "frame", "packed", "unpacked"]

FRAME_MAX: Final = 64 * 1024 * 1024
"""Bytes of the largest frame: contents of 10 MB in which each byte became an escape of six."""

FORMAT: Final = 2
"""Version of ``marshal`` without references: these would be looked up for each value."""

RECEIVE: Final = 256 * 1024
"""Bytes received in one call."""

_LENGTH: Final = struct.Struct(">I")


class FrameError(InternalError):
    """Value that does not fit in a frame, or bytes that are none."""


def frame(value: Any) -> bytes:
    """Return a value as a frame.

    Args:
        value: tuple or list of plain values.

    Raises:
        FrameError: it is too large.
    """
    body = packed(value)
    return _LENGTH.pack(len(body)) + body


def packed(value: Any) -> bytes:
    """Return a value as bytes.

    Args:
        value: tuple or list of plain values.

    Raises:
        FrameError: it is too large for a frame.
    """
    body = marshal.dumps(value, FORMAT)
    if len(body) > FRAME_MAX:
        raise FrameError(f"a frame of {len(body)} bytes, the largest has {FRAME_MAX}")
    return body


def unpacked(body: bytes | bytearray) -> Any:
    """Return the value of bytes that ``packed`` made.

    Args:
        body: all of them.
    """
    return marshal.loads(body)


class FrameBuffer:
    """Bytes received, and the values in them. Holds one incomplete frame at most, of ``FRAME_MAX`` bytes."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Return the values that further bytes complete.

        Args:
            data: received bytes.

        Raises:
            FrameError: a length is beyond the largest.
        """
        buffer = self._bytes
        buffer += data
        values: list[Any] = []
        start, size = 0, len(buffer)
        while size - start >= 4:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > FRAME_MAX:
                raise FrameError(f"a frame of {length} bytes is announced, the largest has {FRAME_MAX}")
            end = start + 4 + length
            if end > size:
                break
            with memoryview(buffer) as view, view[start + 4 : end] as body:
                values.append(marshal.loads(body))
            start = end
        if start:
            del buffer[:start]
        return values


class FrameSocket:
    """Child's end of the socket: receives and sends while nothing else is done.

    Args:
        sock: connected Unix socket.
        wakeup: descriptor that becomes readable when a wait must end early.
    """

    def __init__(self, sock: socket.socket, wakeup: int) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._wakeup = wakeup
        self._buffer = FrameBuffer()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._poll.register(wakeup, select.POLLIN)
        self.ended = False
        """True once the hub sends no more."""
        self._deaf = False
        """True once the hub receives no more."""

    def receive(self, wait: float | None, size: int = RECEIVE) -> list[Any]:
        """Return the values that have arrived; wait for the first one.

        Args:
            wait: greatest time to wait, in seconds; None for no bound.
            size: bytes after which no more are received, so that the values are carried out first.

        Returns:
            Values in order; none if the time is over, at a wake-up, or at the end.
        """
        values = self._received(size)
        if values or self.ended or wait == 0:
            return values
        # A frame may arrive in parts: only the wake-up and the time end the wait before it is complete.
        while not values and not self.ended:
            ready = self._poll.poll(None if wait is None else wait * 1000)
            if not ready:
                break
            if any(descriptor == self._wakeup for descriptor, _ in ready):
                _drain(self._wakeup)
                values = self._received(size)
                break
            values = self._received(size)
        return values

    def _received(self, size: int) -> list[Any]:
        values: list[Any] = []
        while size > 0 and not self.ended:
            try:
                data = self._sock.recv(RECEIVE)
            except BlockingIOError:
                break
            except ConnectionError:
                data = b""
            if not data:
                self.ended = True
                break
            values += self._buffer.feed(data)
            if len(data) < RECEIVE:
                # All that has arrived; a further call would only show that.
                break
            size -= len(data)
        return values

    def send(self, value: Any) -> None:
        """Send a value; it is dropped if the hub has ended.

        Args:
            value: tuple or list of plain values.

        Raises:
            FrameError: it is too large.
        """
        view = memoryview(frame(value))
        while view and not self._deaf:
            try:
                view = view[self._sock.send(view) :]
            except BlockingIOError:
                writable = select.poll()
                writable.register(self._sock, select.POLLOUT)
                writable.poll()
            except ConnectionError:
                # Answers have no receiver; values that were received are carried out nevertheless.
                self._deaf = True


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        pass
