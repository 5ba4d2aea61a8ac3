"""Transfer of a large value to a child, in parts between which other frames go. Sans-I/O.

A socket takes some 200 KB a turn of the loop, so a frame of 10 MB is on its way for a long time while the processors
are busy, and every frame behind it would be, too.
"""

from __future__ import annotations

from typing import Any, Final

from griphub.processes.frames import FRAME_MAX, FrameError, frame, packed, unpacked

__all__ = ["PART_SIZE", "LargeTransfer", "PartBuffer"]

PART_SIZE: Final = 128 * 1024
"""Bytes of a part: beyond the high-water mark of a transport, which then reports a full socket."""


class LargeTransfer:
    """Parts of one value, as frames.

    Args:
        kind: first element of each frame, which is ``(kind, bytes, whether it is the last)``.
        value: tuple or list of plain values.

    Raises:
        FrameError: the value is too large.
    """

    __slots__ = ("_body", "_kind", "_place")

    def __init__(self, kind: int, value: Any) -> None:
        self._kind = kind
        self._body = packed(value)
        self._place = 0

    @property
    def complete(self) -> bool:
        """True once the last part was returned."""
        return self._place >= len(self._body)

    def part(self) -> bytes:
        """Return the next part as a frame; allowed while not ``complete``."""
        data = self._body[self._place : self._place + PART_SIZE]
        self._place += PART_SIZE
        return frame((self._kind, data, self.complete))


class PartBuffer:
    """Parts that have arrived: of one value at a time, of ``FRAME_MAX`` bytes at most."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, data: bytes) -> None:
        """Take a part.

        Args:
            data: bytes of the value.

        Raises:
            FrameError: the value is beyond the largest.
        """
        if len(self._bytes) + len(data) > FRAME_MAX:
            raise FrameError(f"a value in parts has more than {FRAME_MAX} bytes")
        self._bytes += data

    def take(self) -> Any:
        """Return the value: the last part was taken."""
        body, self._bytes = self._bytes, bytearray()
        return unpacked(body)
