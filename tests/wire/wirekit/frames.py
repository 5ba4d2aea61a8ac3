"""WebSocket frames (RFC 6455 §5), good and bad ones, byte by byte."""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass

__all__ = ["BINARY", "CLOSE_FRAME", "CONTINUATION", "PING", "PONG", "TEXT", "Frame", "closing", "frame", "take_frame"]

CONTINUATION, TEXT, BINARY, CLOSE_FRAME, PING, PONG = 0, 1, 2, 8, 9, 10
MASK = b"\x11\x22\x33\x44"
"""One key for all: what it is makes no difference to the proxy, and dumps of a failed case stay readable."""


@dataclass(frozen=True)
class Frame:
    """One frame as it came over the wire, unmasked."""

    opcode: int
    payload: bytes = b""
    fin: bool = True
    masked: bool = False
    reserved: int = 0
    """The three reserved bits as a number: 4 is RSV1."""


def _mask(data: bytes) -> bytes:
    key = (MASK * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(len(data), "big")


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, mask: bool = True, reserved: int = 0, length: int = -1
) -> bytes:
    """Return a frame as bytes. `length` claims another length than the payload has; nothing is checked."""
    size = len(payload) if length < 0 else length
    first = opcode | (0x80 if fin else 0) | reserved << 4
    bit = 0x80 if mask else 0
    if size < 126:
        head = struct.pack("!BB", first, bit | size)
    elif size < 65536:
        head = struct.pack("!BBH", first, bit | 126, size)
    else:
        head = struct.pack("!BBQ", first, bit | 127, size)
    return head + (MASK + _mask(payload) if mask else payload)


def closing(code: int | None = None, reason: str | bytes = "") -> bytes:
    """Return the payload of a close frame, also the content of a CLOSE event."""
    text = reason.encode() if isinstance(reason, str) else reason
    return b"" if code is None else struct.pack("!H", code) + text


def take_frame(buffer: bytes) -> tuple[Frame, bytes] | None:
    """Return the first frame of the buffer and what is behind it, None while it is not complete."""
    if len(buffer) < 2:
        return None
    size, start = buffer[1] & 0x7F, 2
    if size == 126:
        if len(buffer) < 4:
            return None
        size, start = struct.unpack_from("!H", buffer, 2)[0], 4
    elif size == 127:
        if len(buffer) < 10:
            return None
        size, start = struct.unpack_from("!Q", buffer, 2)[0], 10
    masked = bool(buffer[1] & 0x80)
    key = buffer[start : start + 4] if masked else b""
    start += 4 if masked else 0
    if len(buffer) < start + size:
        return None
    payload = buffer[start : start + size]
    if masked:
        payload = bytes(b ^ k for b, k in zip(payload, itertools.cycle(key)))
    first = buffer[0]
    return Frame(first & 15, payload, bool(first & 0x80), masked, first >> 4 & 7), buffer[start + size :]
