"""Memory of the heads of requests: a publisher repeats its head, byte for byte, and its request is parsed once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from griphub.api.request import Request

__all__ = ["HEADS_MAX", "HeadMemory", "KnownHead"]

HEADS_MAX: Final = 512
"""Greatest number of remembered heads. A full memory is cleared."""

HEAD_KEPT: Final = 4096
"""Greatest size of a remembered head, in bytes."""

_UNLIKE: Final = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"idempotency-key", b"grip-last", b"if-match"})
"""Headers of requests that are parsed each time: their framing is another, or their head is not repeated."""


@dataclass(frozen=True, slots=True)
class KnownHead:
    """Head of a request that was carried out.

    Attributes:
        request: the request; those with an equal head share all but the body.
        length: bytes of the body.
        keep_alive: whether the connection stays open.
    """

    request: Request
    length: int
    keep_alive: bool


class HeadMemory:
    """Heads of requests that arrived whole, in one read."""

    __slots__ = ("heads",)

    def __init__(self) -> None:
        self.heads: dict[bytes, KnownHead] = {}
        """By their bytes, with the empty line."""

    def remember(self, data: bytes, request: Request, *, keep_alive: bool) -> None:
        """Remember the head of a request, if its framing and its headers are those of most.

        Args:
            data: bytes of the whole request.
            request: the request.
            keep_alive: whether the connection stays open.
        """
        end = data.find(b"\r\n\r\n") + 4
        if end > HEAD_KEPT or any(name in _UNLIKE for name, _ in request.headers):
            return
        lengths = [value for name, value in request.headers if name == b"content-length"]
        length = len(data) - end
        if lengths != [b"%d" % length] and (lengths or length):
            return
        if len(self.heads) >= HEADS_MAX:
            self.heads.clear()
        # Without the body, which may be a large one.
        first = Request(request.method, request.target, request.headers, b"", request.raw_target, request.memo)
        self.heads[data[:end]] = KnownHead(first, length, keep_alive)
