"""Journal: write-ahead log of messages that are in no closed segment yet, so that the recorder's death loses none.

A file of frames, appended with one ``write`` each before anything else is done with the messages. A frame holds the
messages that were taken off a socket at one time, unchanged: replaying a journal is recording again. Nothing but
the frame is needed to understand it; session and number stand in the file's name.

    magic 4 | bytes behind the header, u32 | CRC-32 of all bytes behind this field, u32
    length of the endpoint u16 | flags u16 | number of messages u32 | received i64 | elapsed i64 | sequence number u64
    endpoint | length of each message, u32 each | the messages

All numbers little-endian. A write survives the death of the process immediately, a power failure after the next
:meth:`Writer.sync`.
"""

from __future__ import annotations

import os
import pathlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["Frame", "Reader", "Writer", "pack"]

MAGIC: Final = b"gsj\x01"
_HEADER: Final = struct.Struct("<4sIIHHIqqQ")
_CRC_FROM: Final = 12  # magic, length and the CRC itself are not covered by it
_OWN: Final = 1
MAX_ENDPOINT: Final = 4096
"""Longest endpoint in bytes."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Messages taken at one time.

    Attributes:
        endpoint: stats socket that sent them.
        received: wall clock, µs since 1970.
        elapsed: µs since the session began, by a clock that never jumps.
        seq: number of the first message in the session.
        messages: bytes of each message.
        own: made by the recorder itself.
    """

    endpoint: str
    received: int
    elapsed: int
    seq: int
    messages: list[bytes]
    own: bool = False


def pack(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    endpoint = frame.endpoint.encode()
    messages = frame.messages
    count = len(messages)
    payload = b"".join([endpoint, struct.pack(f"<{count}I", *map(len, messages)), *messages])
    header = _HEADER.pack(
        MAGIC,
        len(payload),
        0,
        len(endpoint),
        _OWN if frame.own else 0,
        count,
        frame.received,
        frame.elapsed,
        frame.seq,
    )
    crc = zlib.crc32(payload, zlib.crc32(header[_CRC_FROM:]))
    return b"".join([header[:8], crc.to_bytes(4, "little"), header[_CRC_FROM:], payload])


class Writer:
    """New journal at ``path``. ``size`` is the number of bytes written."""

    def __init__(self, path: pathlib.Path) -> None:
        """Create the file.

        Raises:
            OSError: the file exists, or cannot be created.
        """
        self.path = path
        self.size = 0
        self._synced = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def append(self, frame: Frame) -> None:
        """Write a frame, whole or not at all.

        Args:
            frame: messages to append.

        Raises:
            OSError: the frame could not be written; the bytes of it that were are removed.
        """
        data = memoryview(pack(frame))
        at = 0
        try:
            # A disk that fills up takes a part first and reports the reason with the next write.
            while at < len(data):
                at += os.write(self._file, data[at:])
        except OSError:
            os.ftruncate(self._file, self.size)
            os.lseek(self._file, self.size, os.SEEK_SET)
            raise
        self.size += at

    def sync(self) -> None:
        """Make all frames written so far survive a power failure.

        Raises:
            OSError: the disk refuses.
        """
        if self._synced != self.size:
            os.fdatasync(self._file)
            self._synced = self.size

    def close(self) -> None:
        """Close the file; it stays where it is."""
        os.close(self._file)


class Reader:
    """Frames of the journal at ``path``: iterate once.

    Torn and broken frames are skipped and counted in ``bytes_dropped`` and ``events_dropped``: the messages in them, as
    far as they follow from the sequence numbers or from the header of the last frame.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.bytes_dropped = 0
        self.events_dropped = 0

    def __iter__(self) -> Iterator[Frame]:
        """Yield the frames that are whole, in order.

        Raises:
            OSError: the file cannot be read.
        """
        data = self.path.read_bytes()
        at = 0
        expected: int | None = None
        while at < len(data):
            frame, end = _unpack(data, at)
            if frame is None:
                following = data.find(MAGIC, at + 1)
                # Something that looks like a frame may be part of a broken one: the next whole frame counts.
                while following >= 0 and _unpack(data, following)[0] is None:
                    following = data.find(MAGIC, following + 1)
                if following < 0:
                    self.events_dropped += _promised(data, at)
                    self.bytes_dropped += len(data) - at
                    return
                self.bytes_dropped += following - at
                at = following
                continue
            if expected is not None and frame.seq > expected:
                self.events_dropped += frame.seq - expected
            expected = frame.seq + len(frame.messages)
            yield frame
            at = end


def _promised(data: bytes, at: int) -> int:
    """Number of messages that the header of a torn frame names, 0 if the header is torn or broken too."""
    if len(data) - at < _HEADER.size:
        return 0
    magic, length, _, endpoint_size, _, count, *_ = _HEADER.unpack_from(data, at)
    # Each message takes at least the four bytes of its length.
    return int(count) if magic == MAGIC and endpoint_size + 4 * count <= length else 0


def _unpack(data: bytes, at: int) -> tuple[Frame | None, int]:
    """Return the frame at ``at`` and where it ends, or None if there is no whole frame."""
    start = at + _HEADER.size
    if start > len(data):
        return None, at
    magic, length, crc, endpoint_size, flags, count, received, elapsed, seq = _HEADER.unpack_from(data, at)
    end = start + length
    if magic != MAGIC or end > len(data):
        return None, at
    view = memoryview(data)
    if zlib.crc32(view[start:end], zlib.crc32(view[at + _CRC_FROM : start])) != crc:
        return None, at
    endpoint = data[start : start + endpoint_size].decode()
    at = start + endpoint_size
    sizes = struct.unpack_from(f"<{count}I", data, at)
    at += 4 * count
    messages = []
    for size in sizes:
        messages.append(data[at : at + size])
        at += size
    return Frame(endpoint, received, elapsed, seq, messages, bool(flags & _OWN)), end
