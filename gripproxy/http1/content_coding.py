"""Content codings of backends' responses: clients get the body decoded (docs/grip.md §2.5). Sans-I/O."""

from __future__ import annotations

import zlib
from typing import Final

from gripproxy.grip.errors import BackendError

__all__ = ["CODINGS", "PIECE", "BodyDecoder", "DecodingError"]

PIECE: Final = 64 * 1024
"""Decoded bytes produced at a time: the decoded size of a small body has no bound."""

_GZIP: Final = 47
_DEFLATE: Final = 15
CODINGS: Final = {b"gzip": _GZIP, b"x-gzip": _GZIP, b"deflate": _DEFLATE}
"""Content codings that are decoded, each with its window bits for zlib."""


class DecodingError(BackendError, ValueError):
    """The backend's body is not in the coding it names."""


class BodyDecoder:
    """Decoder of one body, piece by piece, at the pace of the reader.

    Args:
        window: window bits for zlib, a value of ``CODINGS``.
    """

    __slots__ = ("_begun", "_decompressor", "_waiting", "_window")

    def __init__(self, window: int) -> None:
        self._window = window
        self._begun = False
        self._decompressor = zlib.decompressobj(window)
        self._waiting = b""

    @classmethod
    def of(cls, coding: bytes) -> BodyDecoder | None:
        """Return a decoder.

        Args:
            coding: value of Content-Encoding.

        Returns:
            The decoder; None for a coding that is passed on as it is.
        """
        window = CODINGS.get(coding.strip().lower())
        return None if window is None else cls(window)

    @property
    def waiting(self) -> bool:
        """True while input is left to decode."""
        return bool(self._waiting)

    @property
    def held(self) -> int:
        """Bytes of input not decoded yet."""
        return len(self._waiting)

    @property
    def whole(self) -> bool:
        """True where the body may end: at the end of the encoded stream, or with no input at all."""
        return self._decompressor.eof or not self._begun

    def put(self, data: bytes) -> None:
        """Add encoded bytes, ``data``."""
        self._begun = True
        self._waiting = self._waiting + data if self._waiting else data

    def take(self) -> bytes:
        """Return the next decoded bytes, at most PIECE; may be empty. Raises DecodingError."""
        if self._decompressor.eof:
            # Another member of a gzip file (RFC 1952 §2.2), else padding, which is skipped.
            if self._window == _DEFLATE or not self._waiting.startswith(b"\x1f"):
                self._waiting = b""
                return b""
            self._decompressor = zlib.decompressobj(self._window)
        try:
            piece = self._decompressor.decompress(self._waiting, PIECE)
        except zlib.error as error:
            self._waiting = b""
            raise DecodingError(str(error)) from error
        self._waiting = self._decompressor.unconsumed_tail or self._decompressor.unused_data
        return piece
