"""Content codings of backends' responses: clients get the body decoded (docs/grip.md §2.5). Sans-I/O."""

from __future__ import annotations

import zlib
from typing import Final

__all__ = ["CODINGS", "PIECE", "BodyDecoder", "DecodingError"]

PIECE: Final = 64 * 1024
"""Decoded bytes produced at a time: what a small body can grow to has no bound."""

_GZIP: Final = 47
_DEFLATE: Final = 15
CODINGS: Final = {b"gzip": _GZIP, b"x-gzip": _GZIP, b"deflate": _DEFLATE}
"""Content codings that are decoded, each with what zlib is to be told."""


class DecodingError(ValueError):
    """The backend's body is not in the coding it names."""


class BodyDecoder:
    """Decodes one body piece by piece, at the pace of whoever takes it."""

    __slots__ = ("_begun", "_decompressor", "_waiting", "_window")

    def __init__(self, window: int) -> None:
        self._window = window
        self._begun = False
        self._decompressor = zlib.decompressobj(window)
        self._waiting = b""

    @classmethod
    def of(cls, coding: bytes) -> BodyDecoder | None:
        """Return a decoder for a Content-Encoding, None for one that is passed on as it is."""
        window = CODINGS.get(coding.strip().lower())
        return None if window is None else cls(window)

    @property
    def waiting(self) -> bool:
        """Whether more can be decoded of what was put in."""
        return bool(self._waiting)

    @property
    def held(self) -> int:
        """Encoded bytes that were put in and not decoded."""
        return len(self._waiting)

    @property
    def whole(self) -> bool:
        """Whether the body may end here: at the end of what was encoded, or with nothing at all."""
        return self._decompressor.eof or not self._begun

    def put(self, data: bytes) -> None:
        """Add encoded bytes."""
        self._begun = True
        self._waiting = self._waiting + data if self._waiting else data

    def take(self) -> bytes:
        """Return the next decoded bytes, at most PIECE; may be empty. Raises DecodingError."""
        if self._decompressor.eof:
            # Another member of a gzip file (RFC 1952 §2.2), else padding, which nobody reads.
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
