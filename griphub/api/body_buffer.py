"""Buffer of a body that arrives in pieces. Sans-I/O.

Pieces are kept as they are, and joined once: a buffer that grows is moved again and again, 100 MB in all for a body of
10 MB, in memory that the system has to clear. Small pieces are put together, so that bytes sent one by one take no more
memory than their number.
"""

from __future__ import annotations

from typing import Final

__all__ = ["SMALL", "BodyBuffer"]

SMALL: Final = 4096
"""Bytes below which a piece, or the end of the buffer, is put together with the next piece."""


class BodyBuffer:
    """Pieces of one body."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: list[bytes | bytearray] = []

    def add(self, data: bytes) -> None:
        """Add a piece.

        Args:
            data: the piece.
        """
        pieces = self._pieces
        last = pieces[-1] if pieces else None
        if last is None or len(last) >= SMALL:
            pieces.append(data)
        elif isinstance(last, bytearray):
            last += data
        else:
            pieces[-1] = bytearray(last) + data

    def take(self) -> bytes:
        """Return the body; the buffer is empty then."""
        pieces, self._pieces = self._pieces, []
        if len(pieces) == 1 and isinstance(pieces[0], bytes):
            return pieces[0]
        return b"".join(pieces)

    def clear(self) -> None:
        """Drop the pieces."""
        self._pieces.clear()
