"""The one place that knows httptools (llhttp), with ``gripproxy.http1.response_parser``: bytes of a client's connection
in, requests out.

llhttp refuses most means of request smuggling: bare LF, folded headers, a length beside a coding, lengths that differ,
spaces before a colon, control characters in chunk extensions. This module decides the points llhttp leaves open:
trailers arrive as headers after the head and are dropped; head bytes are counted; any coding but ``chunked``, and any
coding on HTTP/1.0, is refused; so are lengths of 2^63 and more, and a malformed Host; CONNECT is refused; an Upgrade to
an unknown protocol does not swallow the request behind it.

No decision about a request depends on how its bytes arrive. llhttp gets them in pieces that end where a request can
end, so that the beginning of each request, and the bytes of its head, are known.

A request without a body whose header lines are in the cache of heads, byte for byte, is not parsed (``known``).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, Protocol

import httptools

from gripproxy.grip.errors import ClientError
from gripproxy.http1.head_cache import BLOCK_MAX, HEAD_END, REQUESTS, RequestHead
from gripproxy.http1.header_classes import HeaderClasses

__all__ = ["LENGTH_MAX", "BadRequest", "Request", "RequestParser", "parse_packed"]

_REQUEST_LINE: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ \S+ HTTP/1\.[01]\r\n").match
_UNFINISHED_LINE: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+(?: [^\r\n]*\r?)?").fullmatch
"""A request line whose method llhttp does not know, and one that may yet become such a line."""

START_KEPT: Final = 64
"""First bytes of a head that are kept until it is complete: more than the longest method that llhttp knows."""

_COMMON_LINE: Final = re.compile(rb"(GET|HEAD|POST|PUT|DELETE|PATCH|OPTIONS) (/[!-~]*) HTTP/1\.1(?=\r\n)").match
"""A request line whose header lines have one meaning for all methods and targets here; llhttp takes each."""

_ANNOUNCED: Final = re.compile(rb"(?i)\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n").search
"""Length of a body in a block of header lines; the parser judges whether it counts."""

UPGRADE_WEBSOCKET: Final = b"websocket"

LENGTH_DIGITS: Final = 100
"""Digits that a length may have, leading zeros included: converting them takes more than linear time."""

LENGTH_MAX: Final = 2**63 - 1
"""Largest length of a body in bytes. Beyond it signed numbers of 64 bits, which many backends count with, are negative
(RFC 9112 §6.3 asks for a check against overflow)."""

_HOST_PATTERN: Final = re.compile(
    rb"(?:\[[0-9A-Fa-f:.]+(?:%[0-9A-Za-z.%_~-]+)?\]|[^\x00-\x20\x7f\"#/:<>?@\[\\\]^`{|}]+)(?::[0-9]*)?"
).fullmatch
"""A Host or authority (RFC 9110 §7.2, RFC 3986 §3.2.2): a name or an address, with or without a port. Names may have
bytes above 127, which some clients send as they are."""

HOSTS_MAX: Final = 256
"""Number of hosts known to be well formed or not, each no longer than a head; the least recently used is dropped."""


@lru_cache(HOSTS_MAX)
def _is_host(host: bytes) -> bool:
    return _HOST_PATTERN(host) is not None


LINE_REST: Final = 14
"""Bytes of a request line beside method and target, and of the blank line."""

HOST, EXPECT, UPGRADE, CHECK, LENGTH, CODING = range(1, 7)
_REQUEST_KINDS: Final = HeaderClasses(
    lambda name: {
        b"host": HOST,
        b"expect": EXPECT,
        b"upgrade": UPGRADE,
        b"pushpin-check": CHECK,
        b"content-length": LENGTH,
        b"transfer-encoding": CODING,
    }.get(name, 0)
)
"""Headers of a request that mean something here."""


class BadRequest(ClientError, ValueError):
    """The bytes of the client are no request, or one that is refused: the client's fault.

    Args:
        text: the fault, for the client and the log.
        status: status code of the answer.
        reason: its reason phrase.
    """

    def __init__(self, text: str, status: int = 400, reason: bytes = b"Bad Request") -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason


class Request:
    """One client request: head complete, body arriving.

    ``length`` is the announced body length in bytes, -1 for a chunked body. ``body`` collects the pieces not passed on
    yet; ``complete`` is true from the end of the request on. ``size``: bytes of head and body so far.

    Args:
        method: method, as sent.
        target: request target in origin form, or ``*``.
        headers: names and values in order; None to take those of ``head``.
        minor: HTTP/1 minor version.
        head: entry of the cache of heads with these header lines, None if there is none.
    """

    __slots__ = (
        "_headers",
        "body",
        "check",
        "complete",
        "expect",
        "head",
        "host",
        "keep_alive",
        "length",
        "method",
        "minor",
        "size",
        "target",
        "upgrade",
    )

    def __init__(
        self,
        method: bytes,
        target: bytes,
        headers: list[tuple[bytes, bytes]] | None,
        minor: int,
        head: RequestHead | None = None,
    ) -> None:
        self.method = method
        self.target = target
        self._headers = headers
        self.minor = minor
        self.keep_alive = True
        self.length = 0
        self.expect = False
        self.upgrade: bytes | None = None
        self.body: list[bytes] = []
        self.head = head
        if head is not None:
            self.host = head.host
            self.check = head.check
            self.complete = True
            self.size = len(method) + len(target) + head.size + LINE_REST
        else:
            self.host = None
            self.check = False
            self.complete = False
            self.size = 0

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Names and values in order."""
        headers = self._headers
        if headers is None:
            # A copy: a cached head belongs to all requests with these lines.
            headers = self._headers = list(self.head.headers) if self.head is not None else []
        return headers

    @headers.setter
    def headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        self._headers = headers
        self.head = None

    def pack(self, body: bytes) -> bytes:
        """Return the request as the bytes of an HTTP/1 message, for ``parse_packed``; small while it is held.

        Args:
            body: the whole body.
        """
        lines = [b"%b %b HTTP/1.%d" % (self.method, self.target, self.minor)]
        lines += [
            b"%b: %b" % header
            for header in self.headers
            if header[0].lower() not in (b"content-length", b"transfer-encoding", b"expect")
        ]
        if self.length:
            lines.append(b"Content-Length: %d" % len(body))
        return b"\r\n".join(lines) + b"\r\n\r\n" + body

    def uri(self, tls: bool) -> bytes:
        """Return the request's URI, base of relative ones; ``tls``: whether its connection has TLS."""
        return b"%b://%b%b" % (b"https" if tls else b"http", self.host or b"localhost", self.target)


class RequestOwner(Protocol):
    """Receiver of the requests of one connection: the client connection."""

    def request_begun(self, request: Request) -> None:
        """Take a request whose head is complete."""
        ...

    def request_body(self, request: Request, data: bytes) -> None:
        """Take the next piece, ``data``, of the body of ``request``."""
        ...

    def request_complete(self, request: Request) -> None:
        """Note the end of ``request``; the next one may begin before this returns to the reader."""
        ...


class RequestParser:
    """Parser of the bytes of one client connection; several requests may follow each other.

    ``owner`` gets ``request_begun`` when a head is complete, ``request_body`` for each piece of body, and
    ``request_complete``. ``head_limit`` is the most bytes a head may have.
    """

    __slots__ = (
        "_alone",
        "_body_of",
        "_count",
        "_current",
        "_headers",
        "_left",
        "_limit",
        "_new",
        "_owner",
        "_parser",
        "_start",
        "_tail",
        "_target",
        "_trailer",
        "_unknown",
        "_unseen",
        "closing",
        "rest",
        "upgraded",
    )

    def __init__(self, owner: RequestOwner, head_limit: int) -> None:
        self._owner = owner
        self._limit = head_limit
        self._parser: Any = httptools.HttpRequestParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        # Many at a time: each client has one of these.
        # count: bytes of the head so far, empty lines before it included, 0 between requests; left: bytes that the body
        # still has, if its length is known; unseen: bytes of extensions and trailers since the body went on.
        self._count = self._left = self._unseen = 0
        # tail: last bytes fed, which may be the beginning of the end of a head or of a chunked body; start: first bytes
        # of a head that is not complete; unknown: of a request line whose method llhttp does not know; new: header
        # lines to be kept if they are those of a whole request, while they are parsed.
        self._target = self._tail = self._start = self._unknown = self._new = b""
        self._current: Request | None = None
        # alone: the next bytes fed are one head and nothing else.
        self._trailer = self._alone = False
        self._body_of: Request | None = None
        """Request with a body and an Upgrade that is not followed, until its body is parsed."""
        self.upgraded = False
        """A request asked for a WebSocket: the bytes behind it are kept in ``rest``, unparsed."""
        self.rest = b""
        self.closing = False
        """A request had ``Connection: close``: the bytes behind it are ignored."""

    @property
    def between(self) -> bool:
        """True if the bytes fed so far end exactly where a request ends."""
        return self._current is None and not self._count

    @property
    def in_head(self) -> bool:
        """True while a head has begun and is not complete."""
        return self._current is None and self._count > 0

    def known(self, data: bytes) -> Request | None:
        """Look up a read that is one whole request.

        To be called with the first bytes behind a request. The owner is not called for the request returned.

        Args:
            data: the bytes read.

        Returns:
            The request, if its header lines are in the cache of heads; None if the bytes are to be fed.
        """
        if self._count or self.upgraded or self.closing:
            return None
        # A request too long for the cache is not looked up.
        if not data.endswith(HEAD_END):
            return self._known_with_body(data)
        line = _COMMON_LINE(data)
        if line is None or len(data) - line.end() > BLOCK_MAX:
            return None
        block = data[line.end() :]
        head = REQUESTS.get(block)
        if head is None:
            if block.find(HEAD_END) == len(block) - 4:
                self._alone = True
                if REQUESTS.again(block):
                    self._new = block
            return None
        if head.length:
            # Its body has not arrived.
            return None
        request = Request(line[1], line[2], None, 1, head)
        return request if request.size <= self._limit else None

    def _known_with_body(self, data: bytes) -> Request | None:
        """Look up a read that is one whole request with a body: its length is one of the header lines."""
        end = data.find(HEAD_END) + len(HEAD_END)
        line = _COMMON_LINE(data) if end >= len(HEAD_END) else None
        if line is None or end - line.end() > BLOCK_MAX:
            return None
        block = data[line.end() : end]
        head = REQUESTS.get(block)
        if head is None:
            announced = _ANNOUNCED(block)
            if announced is not None and int(announced[1]) == len(data) - end and REQUESTS.again(block):
                self._new = block
            return None
        length = head.length
        if not length or length != len(data) - end:
            return None
        request = Request(line[1], line[2], None, 1, head)
        if request.size > self._limit:
            return None
        request.length = length
        request.size += length
        request.body.append(data[end:])
        return request

    def feed(self, data: bytes) -> None:
        """Parse ``data``. Raises BadRequest, after which the parser is not to be used again."""
        start, size = 0, len(data)
        if self._alone:
            self._alone = False
            start = size - self._feed(data)
        while start < size and not self.closing:
            if self.upgraded:
                self.rest += data[start:]
                break
            end = min(start + self._left, size) if self._left else self._end(data, start)
            start = end - self._feed(data[start:end])
        self._new = b""

    def _end(self, data: bytes, start: int) -> int:
        """Return where a request may end whose head, or body of unknown length, goes on at ``start``."""
        tail = self._tail
        if tail and not start:
            self._tail = b""
            end = (tail + data[:3]).find(HEAD_END)
            if end >= 0:
                return end + 4 - len(tail)
        end = data.find(HEAD_END, start)
        if end < 0:
            self._tail = (tail + data[-3:])[-3:] if not start else data[max(start, len(data) - 3) :]
            return len(data)
        return end + 4

    def _feed(self, data: bytes) -> int:
        """Parse ``data`` and return how many bytes of it are left behind an Upgrade that is not followed."""
        current = self._current
        if current is None:
            count = self._count = self._count + len(data)
            if count > self._limit:
                # As if fed one by one: an error in the first bytes goes before their number.
                data = data[: len(data) - count + self._limit + 1]
            if self._unknown:
                self._judge(self._unknown + data)
                return 0
        else:
            size = current.size
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self.upgraded:
                self.rest = data[upgrade.args[0] :]
                return 0
            # Not by recursion: one read may bring thousands of them.
            self._parser = httptools.HttpRequestParser(self)
            if self._body_of is not None:
                # A head of our own for the body that llhttp takes for the other protocol.
                length = self._body_of.length
                framing = b"Transfer-Encoding: chunked" if length < 0 else b"Content-Length: %d" % length
                self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % framing)
            return len(data) - int(upgrade.args[0])
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if isinstance(cause, BadRequest):
                raise cause from None
            raise
        except httptools.HttpParserInvalidMethodError as error:
            self._judge((self._start + data).lstrip(b"\r\n"), error)
            return 0
        except httptools.HttpParserError as error:
            if self.closing:
                return 0
            raise BadRequest(str(error)) from error
        if self._current is None:
            if self._count:
                if self._count > self._limit:
                    raise self._too_large()
                if len(self._start) < START_KEPT:
                    self._start = (self._start + data).lstrip(b"\r\n")[:START_KEPT]
        elif current is self._current:
            # Between its chunks a body may have extensions and trailers, which are not passed on.
            self._unseen = self._unseen + len(data) if current.size == size else 0
            if self._unseen > self._limit:
                raise BadRequest(f"more than {self._limit} bytes of chunk extensions or trailers")
        return 0

    def _judge(self, line: bytes, error: Exception | None = None) -> None:
        """Distinguish a request with an unknown method from other bytes once the line ends. Raises BadRequest."""
        if _REQUEST_LINE(line):
            raise BadRequest("unknown method", 501, b"Not Implemented") from error
        if not _UNFINISHED_LINE(line):
            raise BadRequest("no request line") from error
        if self._count > self._limit:
            raise self._too_large()
        self._unknown = line

    def close(self) -> None:
        """Drop the parser: it and this object refer to each other, and would wait for the collector."""
        self._parser = None

    def _too_large(self) -> BadRequest:
        return BadRequest(
            f"Request header size exceeded limit of {self._limit} bytes.", 431, b"Request Header Fields Too Large"
        )

    # Callbacks of llhttp, in this order.

    def on_message_begin(self) -> None:
        self._headers = []
        self._target = b""
        self._trailer = False
        self._count = self._count or 1

    def on_url(self, url: bytes) -> None:
        # A target cut by the end of a read arrives in pieces.
        self._target = self._target + url if self._target else url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._trailer:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._trailer = True
        self._start = b""
        if self._body_of is not None:
            self._body_of = None
            return
        parser = self._parser
        method: bytes = parser.get_method()
        version: str = parser.get_http_version()
        headers = self._headers
        if version != "1.1" and version != "1.0":
            raise BadRequest(
                f"HTTP version {version}, HTTP/1.0 and HTTP/1.1 are spoken", 505, b"HTTP Version Not Supported"
            )
        if method == b"CONNECT":
            raise BadRequest("CONNECT is not supported", 405, b"Method Not Allowed")
        request = Request(method, self._target, headers, 1 if version == "1.1" else 0)
        request.keep_alive = parser.should_keep_alive()
        hosts = 0
        for name, value in headers:
            kind = _REQUEST_KINDS[name]
            if not kind:
                continue
            if kind == HOST:
                request.host = value
                hosts += 1
            elif kind == EXPECT:
                request.expect = request.expect or value.lower() == b"100-continue"
            elif kind == UPGRADE:
                if value.strip().lower() == UPGRADE_WEBSOCKET and request.minor and parser.should_upgrade():
                    # In any letter case (RFC 6455 §4.2.1).
                    request.upgrade = UPGRADE_WEBSOCKET
                    self.upgraded = True
            elif kind == CHECK:
                request.check = True
            elif kind == LENGTH:
                if len(value) > LENGTH_DIGITS:
                    raise BadRequest("Content-Length has too many digits")
                request.length = int(value)
                if request.length > LENGTH_MAX:
                    raise BadRequest(f"Content-Length of more than {LENGTH_MAX} bytes")
            elif kind == CODING:
                if not request.minor:
                    raise BadRequest("Transfer-Encoding on HTTP/1.0")
                if value.strip().lower() != b"chunked":
                    raise BadRequest("Transfer-Encoding other than chunked", 501, b"Not Implemented")
                request.length = -1
        if self._count > self._limit:
            raise self._too_large()
        if hosts:
            if hosts > 1:
                raise BadRequest("more than one Host header")
            if request.host and not _is_host(request.host):
                request.host = self._host(request.host)
        if not self._target.startswith(b"/"):
            self._absolute(request)
        request.size = self._count
        if request.length > 0:
            self._left = request.length
        if request.length and parser.should_upgrade():
            request.upgrade = None
            self.upgraded = False
            self._body_of = request
        self._current = request
        self._owner.request_begun(request)

    def _host(self, value: bytes) -> bytes:
        """Return a Host without the blanks behind it. Raises BadRequest."""
        host = value.rstrip(b" \t")
        if host and not _is_host(host):
            raise BadRequest(f"Host {host[:80]!r} is not a name or an address, with or without a port")
        return host

    def _absolute(self, request: Request) -> None:
        """Take an absolute-form target apart; its authority goes before Host (RFC 9112 §3.2.2)."""
        target = request.target
        if target == b"*" and request.method == b"OPTIONS":
            return
        scheme, mark, rest = target.partition(b"://")
        if not mark or scheme.lower() not in (b"http", b"https"):
            raise BadRequest("request target is neither a path nor an http URI")
        end = min((i for i in (rest.find(b"/"), rest.find(b"?")) if i >= 0), default=len(rest))
        authority, path = rest[:end], rest[end:]
        if not authority or not _is_host(authority):
            raise BadRequest("request target has no usable host")
        request.target = path if path.startswith(b"/") else b"/" + path
        # Instead of the client's own Host, so that it is the same wherever the request goes.
        request.headers = [(b"Host", authority), *(h for h in request.headers if h[0].lower() != b"host")]
        request.host = authority

    def on_body(self, data: bytes) -> None:
        request = self._current
        if request is not None:
            size = len(data)
            request.size += size
            if self._left:
                self._left -= size
            self._owner.request_body(request, data)

    def on_message_complete(self) -> None:
        if self._body_of is not None:
            return
        request = self._current
        self._current = None
        self._count = 0
        if request is not None:
            if not request.keep_alive:
                self.closing = True
            elif self._new and request.length >= 0 and request.upgrade is None:
                self._keep(request)
            request.complete = True
            self._owner.request_complete(request)

    def _keep(self, request: Request) -> None:
        """Keep the parsed header lines: they are all of the request but its line."""
        parser = self._parser
        if parser.should_upgrade() or request.expect:
            return
        if request.length and any(_REQUEST_KINDS[name] == UPGRADE for name, _ in request.headers):
            # Its body had a parser of its own.
            return
        length = request.length
        size = request.size - length - len(request.method) - len(request.target) - LINE_REST
        REQUESTS.keep(self._new, RequestHead(request.headers, request.host, request.check, size, length))


class _PackedOwner:
    """Takes the one request out of its packed form."""

    def __init__(self) -> None:
        self.request: Request | None = None

    def request_begun(self, request: Request) -> None:
        self.request = request

    def request_body(self, request: Request, data: bytes) -> None:
        request.body.append(data)

    def request_complete(self, request: Request) -> None:
        pass


def parse_packed(packed: bytes) -> Request:
    """Return the request that ``Request.pack`` packed, its body in ``body``."""
    owner = _PackedOwner()
    parser = RequestParser(owner, len(packed) + 1024)
    parser.feed(packed)
    parser.close()
    request = owner.request
    assert request is not None
    assert request.complete
    return request
