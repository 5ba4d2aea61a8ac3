"""Frames of the pipe: a length of 4 bytes, big-endian, and the marshal of a *list* of messages.

Messages queued in one turn of the event loop travel, and are decoded, as one frame. Both ends are processes of one
installation on one machine, connected by a Unix stream socket in a directory of mode 0700: ``marshal`` trusts its
input. ``HELLO`` carries the protocol version.
"""

from __future__ import annotations

import marshal
import struct
from typing import Final

from gripproxy.grip.errors import InternalError
from gripproxy.pipe.messages import Message

__all__ = ["MAX_FRAME", "Decoder", "PipeError", "encode"]


MAX_FRAME: Final = 256 * 1024 * 1024
"""Longest frame taken, in bytes. A longer one means the two ends disagree, and the link is closed."""


_LENGTH = struct.Struct(">I")


class PipeError(InternalError, ValueError):
    """The bytes of the peer are no frame of this protocol: a fault of gripproxy, or two versions meeting."""


def encode(messages: list[Message]) -> bytes:
    """Return one frame holding ``messages`` (plain tuples, bytes, ints, str, None, lists and dicts only)."""
    body = marshal.dumps(messages)
    return _LENGTH.pack(len(body)) + body


class Decoder:
    """Decoder of the bytes of one link, sans-I/O.

    An unfinished frame (at most one) is kept in the pieces that were fed: joining them with each piece would copy a
    long frame as often as it has pieces.
    """

    __slots__ = ("_missing", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._missing = 0

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that the next bytes complete.

        Args:
            data: bytes of the link, in order.

        Raises:
            PipeError: a frame is longer than MAX_FRAME, cannot be decoded, or is no list.
        """
        if self._pieces:
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return []
            data = b"".join(self._pieces)
            self._pieces = []
        messages: list[Message] = []
        missing = 4
        start, size = 0, len(data)
        while size - start >= 4:
            (length,) = _LENGTH.unpack_from(data, start)
            if length > MAX_FRAME:
                raise PipeError(f"frame of {length} bytes, at most {MAX_FRAME} are allowed")
            end = start + 4 + length
            if end > size:
                missing = 4 + length
                break
            try:
                frame = marshal.loads(memoryview(data)[start + 4 : end])
            except (ValueError, EOFError, TypeError) as error:
                raise PipeError(f"frame of {length} bytes cannot be decoded: {error}") from error
            if type(frame) is not list:
                raise PipeError(f"frame holds a {type(frame).__name__}, expected a list of messages")
            messages += frame
            start = end
        if start < size:
            self._pieces.append(data[start:] if start else data)
            self._missing = missing - (size - start)
        return messages
