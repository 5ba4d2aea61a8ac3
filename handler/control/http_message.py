"""HTTP messages of the control port and the metrics ports: head of a request, bytes of an answer. Sans-I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gripproxy.grip.headers import Headers

__all__ = ["TEXT", "ApiRequest", "Plan", "Response", "answer"]

PHRASES: Final = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    406: b"Not Acceptable",
    408: b"Request Timeout",
    411: b"Length Required",
    503: b"Service Unavailable",
}

TEXT: Final = b"text/plain"
_HEADS: Final[dict[tuple[int, bytes, bytes, bool], bytes]] = {}


class Plan(NamedTuple):
    """Answer to a request that publishes with a valid body, its log line, and the bytes of its body."""

    answer: bytes
    line: bytes
    size: int


@dataclass(slots=True)
class ApiRequest:
    """The head of a request on the control port; requests with equal heads share one."""

    method: bytes
    target: bytes
    """Path and query, as received."""
    http_1_1: bool = True
    keep_alive: bool = False
    """True if the connection stays open after the answer."""
    headers: Headers = field(default_factory=list)
    plan: Plan | None = None
    """Memo of ``Api``, for a request that publishes: the answer if its body is valid."""


class Response(NamedTuple):
    """Status, body and headers of an answer."""

    code: int
    body: bytes
    content_type: bytes = TEXT
    extra: bytes = b""
    """Further header lines with their line ends."""

    def to(self, request: ApiRequest) -> bytes:
        """Return the bytes of this answer to ``request``."""
        return answer(
            self.code,
            self.body,
            self.content_type,
            self.extra,
            http_1_1=request.http_1_1,
            keep_alive=request.keep_alive,
            head=request.method == b"HEAD",
        )


def answer(
    code: int,
    body: bytes,
    content_type: bytes = TEXT,
    extra: bytes = b"",
    *,
    http_1_1: bool = True,
    keep_alive: bool = False,
    head: bool = False,
) -> bytes:
    """Return the bytes of a response, with Pushpin's order of headers.

    Args:
        code: status, one of PHRASES.
        body: of the response.
        content_type: of the body.
        extra: further header lines with their line ends, put first.
        http_1_1: version of the request: HTTP/1.1, else HTTP/1.0.
        keep_alive: whether the connection stays open.
        head: whether the body is left out (HEAD).
    """
    key = (code, content_type, extra, http_1_1)
    start = _HEADS.get(key)
    if start is None:
        # Bounded: as many entries as combinations of literals in this package.
        version = b"1.1" if http_1_1 else b"1.0"
        start = b"HTTP/%b %d %b\r\n%bContent-Type: %b\r\n" % (version, code, PHRASES[code], extra, content_type)
        _HEADS[key] = start
    close = b"" if keep_alive else b"Connection: close\r\n"
    return b"%b%bContent-Length: %d\r\n\r\n%b" % (start, close, len(body), b"" if head else body)
