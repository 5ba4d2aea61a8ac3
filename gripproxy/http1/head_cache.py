"""Cache of parsed header blocks, keyed by their bytes, for the whole process.

A client sends the same header lines with each request of a connection, a backend nearly the same head with each
response. The meaning of such a block depends on its bytes alone, so a block is kept from its second time on, with the
parsed headers and everything derived from them: ``gripproxy.http1.request_parser`` looks it up instead of parsing.
Entries are never changed: each belongs to all requests, or responses, with these bytes.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from gripproxy.grip.instruct import INSTRUCT_TYPE, is_instruct_type
from gripproxy.http1.content_coding import CODINGS
from gripproxy.http1.header_classes import CODING, DROP, GRIP, LENGTH, RESPONSE_NAMES, TYPE
from gripproxy.http1.serializer import framing_lines

__all__ = [
    "BLOCK_MAX",
    "FORWARDERS_MAX",
    "HEADS_MAX",
    "HEAD_END",
    "REQUESTS",
    "RESPONSES",
    "SEEN_MAX",
    "SIZE_MAX",
    "HeadCache",
    "RequestHead",
    "ResponseHead",
    "interim_lines",
    "relayed_lines",
]

HEAD_END: Final = b"\r\n\r\n"

HEADS_MAX: Final = 1000
"""Number of entries. Beyond it, or SIZE_MAX, the whole cache is cleared: blocks in use return after two requests,
and a hit costs no bookkeeping. With everything derived from it a browser's block takes about seven times its bytes,
some 8 MB for a full cache."""
SIZE_MAX: Final = 1024 * 1024
"""Bytes of all blocks in the cache."""
BLOCK_MAX: Final = 4096
"""Bytes of the longest block that is kept."""

_HOPS: Final = frozenset((b"upgrade", b"proxy-connection", b"te", b"trailer"))
"""Names of headers of one connection (RFC 9110 §7.6.1) beside those never relayed; dropped from interim responses."""

FORWARDERS_MAX: Final = 4
"""Forwarders whose lines a block keeps; beyond that all of them are dropped."""

SEEN_MAX: Final = 4000
"""Number of blocks known to have been seen once. Most blocks seen once are never seen again, and are not kept."""

Headers = list[tuple[bytes, bytes]]
Head = TypeVar("Head")


class HeadCache(dict[bytes, Head]):
    """Cache of heads by the bytes of their block."""

    __slots__ = ("_once", "_size")

    def __init__(self) -> None:
        super().__init__()
        self._once: set[int] = set()
        self._size = 0

    def again(self, block: bytes) -> bool:
        """Return whether ``block``, which is not in the cache, was seen before, so that it is to be kept."""
        if len(block) > BLOCK_MAX:
            return False
        # Two with one hash only have one of them kept at the first time.
        mark = hash(block)
        once = self._once
        if mark in once:
            return True
        if len(once) >= SEEN_MAX:
            once.clear()
        once.add(mark)
        return False

    def keep(self, block: bytes, head: Head) -> None:
        """Keep a parsed block.

        Args:
            block: its bytes.
            head: the meaning of the block.
        """
        self._size += len(block)
        if len(self) >= HEADS_MAX or self._size > SIZE_MAX:
            self.clear()
            self._size = len(block)
        self[block] = head


class RequestHead:
    """Parsed header lines of a request, for any request line.

    Args:
        headers: names and values in order.
        host: value of Host, None without one.
        check: whether the request has a ``Pushpin-Check`` header.
        size: bytes of the lines.
        length: bytes of the body, 0 for none.
    """

    __slots__ = ("check", "events", "forwarded", "headers", "host", "length", "loggable", "name", "size", "trace")

    def __init__(self, headers: Headers, host: bytes | None, check: bool, size: int, length: int = 0) -> None:
        self.headers = tuple(headers)
        self.host = host
        self.check = check
        self.size = size
        """Bytes of the lines."""
        self.length = length
        """Bytes of the body."""
        shown = host or b"localhost"
        self.loggable = shown if shown.isascii() and shown.decode("ascii").isprintable() else None
        """Host for log lines; None if part of it has to be escaped."""
        self.name: bytes | None = None
        """Host without port, as routes name it; None until the first lookup."""
        self.events: bool | None = None
        """True if the request looks like WebSocket-over-HTTP; None until the first lookup."""
        self.trace: Any = None
        """Ids that the lines have for ``gripproxy.backend.trace_headers``; None until the first lookup."""
        self.forwarded: dict[object, tuple[bytes, tuple[bytes, ...]]] = {}
        """By forwarder: the lines that go to the backend, and the values of X-Forwarded-For."""

    def keep_forwarded(self, forwarder: object, lines: tuple[bytes, tuple[bytes, ...]]) -> None:
        """Keep the forwarded form of these lines, one for each ``forwarder``: the path decides between them."""
        if len(self.forwarded) >= FORWARDERS_MAX:
            self.forwarded.clear()
        self.forwarded[forwarder] = lines


class ResponseHead:
    """Parsed head of a response, and the head that the client gets.

    Args:
        block: bytes of the head.
        code: status code.
        reason: reason phrase.
        headers: names and values in order.
        length: bytes of the body that follows.
        reusable: whether the backend keeps the connection open.
    """

    __slots__ = ("code", "end", "headers", "length", "reason", "relay", "reusable", "same", "size")

    def __init__(self, block: bytes, code: int, reason: bytes, headers: Headers, length: int, reusable: bool) -> None:
        self.code = code
        self.reason = reason
        self.headers = tuple(headers)
        self.length = length
        """Bytes of the body that follows."""
        self.reusable = reusable
        """The backend keeps the connection open."""
        self.end = len(block)
        self.size = sum([len(name) + len(value) + 4 for name, value in headers])
        lines, grip, sized, coding = relayed_lines(code, headers)
        self.relay = b""
        """The head for a client that speaks HTTP/1.1 and stays; empty if there is more to do than to pass it on."""
        if (sized or code == 204 or code == 304) and not grip and coding is None:
            first = b"HTTP/1.1 %d %b" % (code, reason)
            self.relay = b"\r\n".join([first, *lines, framing_lines(1, False, True, False)])
        self.same = self.relay == block
        """True if the client gets the head unchanged."""


def interim_lines(headers: Headers) -> bytes:
    """Return the header lines of an interim response that are passed on: none that concern the connection or a body.

    Args:
        headers: Those of the backend's response with a status code below 200 (RFC 9110 §15.2).
    """
    return b"".join(
        [
            b"%b: %b\r\n" % header
            for header in headers
            if RESPONSE_NAMES[header[0]] not in (DROP, LENGTH, GRIP) and header[0].lower() not in _HOPS
        ]
    )


def relayed_lines(code: int, headers: Headers, decode: bool = True) -> tuple[list[bytes], bool, bool, bytes | None]:
    """Return the header lines of a backend's response that are passed on, and their meaning for the proxy.

    Args:
        code: status; the length of a 204, which may not have one (RFC 9110 §8.6), is left out.
        headers: names and values in order.
        decode: whether a body in a known content coding is decoded; the line of the coding is left out then.

    Returns:
        The lines; whether there is an instruct; whether there is a length; the coding to be decoded, or None.
    """
    line = b": ".join
    out: list[bytes] = []
    grip = sized = False
    coding = None
    for header in headers:
        kind = RESPONSE_NAMES[header[0]]
        if kind:
            if kind == DROP:
                continue
            if kind == LENGTH:
                if code == 204:
                    continue
                sized = True
            elif kind == GRIP:
                grip = True
            elif kind == TYPE:
                # Most types are shorter, and need no closer look.
                if len(header[1]) >= len(INSTRUCT_TYPE):
                    grip = grip or is_instruct_type(header[1])
            elif kind == CODING and decode and header[1].strip().lower() in CODINGS:
                coding = header[1]
                continue
        out.append(line(header))
    return out, grip, sized, coding


REQUESTS: Final[HeadCache[RequestHead]] = HeadCache()
RESPONSES: Final[HeadCache[ResponseHead]] = HeadCache()
