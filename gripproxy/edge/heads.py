"""Heads that come again: what was worked out of their bytes is kept for the next time, for the whole process.

A client sends the same header lines with each request of a connection, a backend nearly the same head with each
response. What such a block of lines says depends on its bytes alone, so blocks that came twice are kept with what the
parser made of them, and with what was made of that: ``gripproxy.edge.parser`` finds them again instead of parsing.
Nobody may change what is kept here: it belongs to all requests, or responses, with these bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from gripproxy.edge.decoding import CODINGS
from gripproxy.edge.encoding import framing_lines
from gripproxy.edge.names import CODING, DROP, GRIP, LENGTH, RESPONSE_NAMES, TYPE
from gripproxy.grip.instruct import INSTRUCT_TYPE

if TYPE_CHECKING:
    from gripproxy.edge.forwarding import Forwarder

__all__ = [
    "BLOCK_MAX",
    "FORWARDERS_MAX",
    "HEADS_MAX",
    "HEAD_END",
    "REQUESTS",
    "RESPONSES",
    "SEEN_MAX",
    "SIZE_MAX",
    "Heads",
    "RequestHead",
    "ResponseHead",
    "interim_lines",
    "relayed_lines",
]

HEAD_END: Final = b"\r\n\r\n"

HEADS_MAX: Final = 1000
SIZE_MAX: Final = 1024 * 1024
BLOCK_MAX: Final = 4096
"""Blocks that are kept, their bytes, and the bytes of one. With more of them all are forgotten: those that come again
are back after two requests, and nothing is to be done for each use. With what was made of it a browser's block takes
about seven times its bytes, which is some 8 MB for as many as there may be."""

_HOPS: Final = frozenset((b"upgrade", b"proxy-connection", b"te", b"trailer"))
"""Names of headers of one connection (RFC 9110 §7.6.1) beside those never relayed; dropped from interim responses."""

FORWARDERS_MAX: Final = 4
"""Targets for which a block is kept as it goes to them; beyond that all of them are forgotten."""

SEEN_MAX: Final = 4000
"""Blocks of which is known that they came once. Most that come once never come again, and are not worth keeping."""

Headers = list[tuple[bytes, bytes]]
Head = TypeVar("Head")


class Heads(dict[bytes, Head]):
    """Heads by the bytes of their block."""

    __slots__ = ("_once", "_size")

    def __init__(self) -> None:
        super().__init__()
        self._once: set[int] = set()
        self._size = 0

    def again(self, block: bytes) -> bool:
        """Return whether a block that is not here came before, so that it is to be kept."""
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
        """Keep what a block says."""
        self._size += len(block)
        if len(self) >= HEADS_MAX or self._size > SIZE_MAX:
            self.clear()
            self._size = len(block)
        self[block] = head


class RequestHead:
    """What the header lines of a request without a body say, whatever its request line is."""

    __slots__ = ("check", "events", "forwarded", "headers", "host", "loggable", "name", "size")

    def __init__(self, headers: Headers, host: bytes | None, check: bool, size: int) -> None:
        self.headers = tuple(headers)
        self.host = host
        self.check = check
        self.size = size
        """Bytes of the lines."""
        shown = host or b"localhost"
        self.loggable = shown if shown.isascii() and shown.decode("ascii").isprintable() else None
        """The host as it may stand in a log line; None if something of it has to be escaped."""
        self.name: bytes | None = None
        """The host without port as routes have it, once it was looked for."""
        self.events: bool | None = None
        """Whether the request looks like WebSocket-over-HTTP, once that was looked for."""
        self.forwarded: dict[Forwarder, tuple[bytes, tuple[bytes, ...]]] = {}
        """By who wrote them: the lines that go to the backend, and what X-Forwarded-For had."""

    def keep_forwarded(self, forwarder: Forwarder, lines: tuple[bytes, tuple[bytes, ...]]) -> None:
        """Keep what a forwarder makes of these lines; the same lines may go several ways, by the path."""
        if len(self.forwarded) >= FORWARDERS_MAX:
            self.forwarded.clear()
        self.forwarded[forwarder] = lines


class ResponseHead:
    """What a response's head says, and what the client gets of it."""

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
        """The client gets what the backend sent."""


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
    """Return the header lines of a backend's response that are passed on, and what else they say.

    That is: whether they have an instruct, whether the length of the body, and its coding if it is to be decoded
    (``decode``: it is, if we can). The lines for the coding are left out then. So is the length of a 204, the response
    with status ``code`` that may not have one (RFC 9110 §8.6).
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
                    grip = grip or header[1].partition(b";")[0].strip().lower() == INSTRUCT_TYPE
            elif kind == CODING and decode and header[1].strip().lower() in CODINGS:
                coding = header[1]
                continue
        out.append(line(header))
    return out, grip, sized, coding


REQUESTS: Final[Heads[RequestHead]] = Heads()
RESPONSES: Final[Heads[ResponseHead]] = Heads()
