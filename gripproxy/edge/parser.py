"""The one place that knows httptools (llhttp): bytes of a connection in, requests and responses out.

llhttp refuses most of what request smuggling needs: bare LF, folded headers, a length beside a coding, lengths that
differ, spaces before a colon, control characters in chunk extensions. What it leaves open is settled here: trailers
arrive as headers after the head and are dropped; head bytes are counted; any coding but ``chunked``, and any coding on
HTTP/1.0, is refused; CONNECT is refused; an Upgrade we do not speak does not swallow the request behind it; a HEAD
answer has no body whatever its length says; a response without length ends with the connection.
"""

from __future__ import annotations

import re
from typing import Any, Final, Protocol

import httptools

from gripproxy.edge.names import Names

__all__ = ["BadRequest", "BadResponse", "Request", "RequestParser", "ResponseParser", "parse_packed"]

_REQUEST_LINE: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ \S+ HTTP/1\.[01]\r\n")

UPGRADE_WEBSOCKET: Final = b"websocket"

RESPONSE_HEAD_MAX: Final = 256 * 1024
"""Bytes the head of a backend's response may have."""


HOST, EXPECT, UPGRADE, CHECK, LENGTH, CODING = range(1, 7)
_REQUEST_KINDS: Final = Names(
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

_RESPONSE_KINDS: Final = Names(lambda name: int(name in (b"content-length", b"transfer-encoding")))
"""Headers of a response that say where its body ends."""


class BadRequest(ValueError):
    """The client's fault: what it sent is not a request we take.

    ``status`` is the answer's status code, ``reason`` its phrase, the text says what was wrong.
    """

    def __init__(self, text: str, status: int = 400, reason: bytes = b"Bad Request") -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason


class BadResponse(ValueError):
    """The backend's fault: what it sent is not an HTTP/1 response."""


class Request:
    """One client request: head complete, body arriving.

    ``length`` is the announced body length in bytes, -1 for a chunked body. ``body`` collects what has arrived and was
    not passed on yet; ``complete`` says that nothing more will come. ``size``: bytes of head and body so far.
    """

    __slots__ = (
        "body",
        "check",
        "complete",
        "expect",
        "headers",
        "host",
        "keep_alive",
        "length",
        "method",
        "minor",
        "size",
        "target",
        "upgrade",
    )

    def __init__(self, method: bytes, target: bytes, headers: list[tuple[bytes, bytes]], minor: int) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.minor = minor
        self.host: bytes | None = None
        self.keep_alive = True
        self.length = 0
        self.expect = False
        self.upgrade: bytes | None = None
        self.check = False
        self.body: list[bytes] = []
        self.complete = False
        self.size = 0

    def pack(self, body: bytes) -> bytes:
        """Return the request as the bytes of an HTTP/1 message, small enough to keep while it is held.

        ``body`` is the whole body. ``parse_packed`` undoes it.
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


class RequestOwner(Protocol):
    """Who is told about requests: a client connection."""

    def request_begun(self, request: Request) -> None: ...
    def request_body(self, request: Request, data: bytes) -> None: ...
    def request_complete(self, request: Request) -> None: ...


class RequestParser:
    """Parses what one client sends; several requests may follow each other.

    ``owner`` gets ``request_begun`` when a head is complete, ``request_body`` for each piece of body, and
    ``request_complete``. ``head_limit`` is the most bytes a head may have.
    """

    __slots__ = (
        "_body_of",
        "_count",
        "_current",
        "_headers",
        "_limit",
        "_owner",
        "_parser",
        "_target",
        "_trailer",
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
        self._target = b""
        self._count = 0
        self._current: Request | None = None
        self._trailer = False
        self._unseen = 0
        self._body_of: Request | None = None
        """A request with a body and an Upgrade that nobody follows, until its body is parsed."""
        self.upgraded = False
        """A request asked for a WebSocket: what follows it is kept in ``rest``, unparsed."""
        self.rest = b""
        self.closing = False
        """A request said ``Connection: close``: whatever follows it is ignored."""

    @property
    def between(self) -> bool:
        """Whether the bytes fed so far end exactly where a request ends."""
        return self._current is None and not self._count

    @property
    def in_head(self) -> bool:
        """Whether a head has begun and is not complete."""
        return self._current is None and self._count > 0

    def feed(self, data: bytes) -> None:
        """Parse ``data``. Raises BadRequest, after which the parser is not to be used again."""
        while data and not self.closing:
            if self.upgraded:
                self.rest += data
                return
            data = self._feed(data)

    def _feed(self, data: bytes) -> bytes:
        """Parse ``data`` and return what is left of it behind an Upgrade that nobody follows."""
        if self._current is None:
            self._count += len(data)
        current = self._current
        size = current.size if current is not None else 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if self.upgraded:
                self.rest = rest
                return b""
            # Not by recursion: one read may bring thousands of them.
            self._parser = httptools.HttpRequestParser(self)
            if self._body_of is not None:
                # A head of our own for the body that llhttp takes for the other protocol.
                length = self._body_of.length
                framing = b"Transfer-Encoding: chunked" if length < 0 else b"Content-Length: %d" % length
                self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % framing)
            return rest
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if isinstance(cause, BadRequest):
                raise cause from None
            raise
        except httptools.HttpParserInvalidMethodError as error:
            if _REQUEST_LINE.match(data):
                raise BadRequest("unknown method", 501, b"Not Implemented") from error
            raise BadRequest("no request line") from error
        except httptools.HttpParserError as error:
            if self.closing:
                return b""
            raise BadRequest(str(error)) from error
        if self._current is None:
            # A head in many small pieces is counted here, on_headers_complete has the size of a whole one.
            if self._count > self._limit:
                raise self._too_large()
        elif current is self._current:
            # Between its chunks a body may have extensions and trailers, which nobody gets to see.
            self._unseen = self._unseen + len(data) if current.size == size else 0
            if self._unseen > self._limit:
                raise BadRequest(f"more than {self._limit} bytes of chunk extensions or trailers")
        return b""

    def close(self) -> None:
        """Let go of the parser: it and this object refer to each other, and would wait for the collector."""
        self._parser = None

    def _too_large(self) -> BadRequest:
        return BadRequest(
            f"Request header size exceeded limit of {self._limit} bytes.", 431, b"Request Header Fields Too Large"
        )

    # What llhttp calls, in this order.

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
        size = len(self._target) + len(method) + 14
        hosts = 0
        for name, value in headers:
            size += len(name) + len(value) + 4
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
                request.length = int(value)
            elif kind == CODING:
                if not request.minor:
                    raise BadRequest("Transfer-Encoding on HTTP/1.0")
                if value.strip().lower() != b"chunked":
                    raise BadRequest("Transfer-Encoding other than chunked", 501, b"Not Implemented")
                request.length = -1
        if size > self._limit:
            raise self._too_large()
        if hosts > 1:
            raise BadRequest("more than one Host header")
        if not self._target.startswith(b"/"):
            self._absolute(request)
        request.size = size
        if request.length and parser.should_upgrade():
            request.upgrade = None
            self.upgraded = False
            self._body_of = request
        self._current = request
        self._owner.request_begun(request)

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
        if not authority or b"@" in authority:
            raise BadRequest("request target has no usable host")
        request.target = path if path.startswith(b"/") else b"/" + path
        # Instead of the client's own Host, so that it is the same wherever the request goes.
        request.headers = [(b"Host", authority), *(h for h in request.headers if h[0].lower() != b"host")]
        request.host = authority

    def on_body(self, data: bytes) -> None:
        request = self._current
        if request is not None:
            request.size += len(data)
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
            request.complete = True
            self._owner.request_complete(request)


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


class ResponseOwner(Protocol):
    """Who is told about responses: a backend connection."""

    def response_begun(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None: ...
    def response_body(self, data: bytes) -> None: ...
    def response_complete(self) -> None: ...
    def interim_response(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None: ...


class ResponseParser:
    """Parses what a backend answers on one connection, one response per ``expect`` call.

    After ``response_complete`` any further byte is an error: nothing was asked.
    """

    __slots__ = (
        "_bodyless",
        "_head_size",
        "_headers",
        "_interim",
        "_owner",
        "_parser",
        "_reason",
        "_trailer",
        "_upgrade",
        "asked",
        "begun",
        "head_size",
        "rest",
        "reusable",
        "switched",
        "to_eof",
    )

    def __init__(self, owner: ResponseOwner) -> None:
        self._owner = owner
        self._parser: Any = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self._bodyless = False
        self._head_size = 0
        self._trailer = False
        self._interim = False
        self.asked = False
        """A request was sent and its response is not complete."""
        self.begun = False
        """The head of the final response is complete."""
        self.head_size = 0
        """Bytes of the header lines of the newest final response."""
        self.to_eof = False
        """The response has no length: it ends when the backend closes."""
        self.switched = False
        """The backend answered 101."""
        self.rest = b""
        self._upgrade = False
        self.reusable = True
        """Another request may be sent on this connection after the response."""

    def expect(self, head: bool, upgrade: bool = False) -> None:
        """A request was sent; ``head`` says that its method was HEAD (RFC 9112 §6.3: no body in the answer),
        ``upgrade`` that it asked for a WebSocket: then 101 is an answer, and ``rest`` has what came behind it."""
        self._upgrade = upgrade
        self.asked = True
        self.begun = False
        self.to_eof = False
        self._head_size = 0
        self._bodyless = head

    def feed(self, data: bytes) -> None:
        """Parse ``data``. Raises BadResponse, after which the connection is of no use."""
        if not self.asked:
            raise BadResponse("bytes that answer no request")
        if not self.begun:
            self._head_size += len(data)
            if self._head_size > RESPONSE_HEAD_MAX + 65536:
                raise BadResponse(f"its head has more than {RESPONSE_HEAD_MAX} bytes")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            if not self.switched:
                raise BadResponse("a switch of protocols nobody asked for") from error
            self.rest = data[error.args[0] :]
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if isinstance(cause, BadResponse):
                raise cause from None
            raise
        except httptools.HttpParserError as error:
            if self.begun and not self.asked:
                # Complete, with something behind it: the answer stands, the connection does not.
                self.reusable = False
                return
            raise BadResponse(str(error)) from error

    def close(self) -> None:
        """Let go of the parser: it and this object refer to each other, and would wait for the collector."""
        self._parser = None

    def eof(self) -> bool:
        """The backend closed. Returns whether that completed a response (one without length)."""
        if self.asked and self.begun and self.to_eof:
            self.asked = False
            self._owner.response_complete()
            return True
        return False

    def on_message_begin(self) -> None:
        if not self.asked:
            self.reusable = False
        self._headers = []
        self._reason = b""
        self._trailer = False

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._trailer:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._trailer = True
        if not self.asked:
            return
        parser = self._parser
        code: int = parser.get_status_code()
        self._interim = False
        if 100 <= code < 200:
            if code == 101:
                if not self._upgrade:
                    raise BadResponse("101 to a request that asked for no other protocol")
                self.switched = self.begun = True
                self.reusable = False
                self._owner.response_begun(code, self._reason, self._headers)
                return
            self._interim = True
            self._owner.interim_response(code, self._reason, self._headers)
            return
        size, framed = 0, False
        for name, value in self._headers:
            size += len(name) + len(value) + 4
            if _RESPONSE_KINDS[name]:
                framed = True
        self.head_size = size
        if size > RESPONSE_HEAD_MAX:
            raise BadResponse(f"its head has more than {RESPONSE_HEAD_MAX} bytes")
        self.begun = True
        self.reusable = parser.should_keep_alive()
        if not self._bodyless and code != 204 and code != 304:
            self.to_eof = not framed
            if not framed:
                self.reusable = False
        self._owner.response_begun(code, self._reason, self._headers)
        if self._bodyless:
            # llhttp now waits for the body that a HEAD answer only announces.
            self._parser = httptools.HttpResponseParser(self)
            self.asked = False
            self._owner.response_complete()

    def on_body(self, data: bytes) -> None:
        if self.asked:
            self._owner.response_body(data)
        else:
            self.reusable = False

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        elif self.asked and self.begun:
            self.asked = False
            self._owner.response_complete()
