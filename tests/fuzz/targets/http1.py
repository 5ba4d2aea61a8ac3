"""Requests of clients and responses of backends.

Contract, for both parsers: only BadRequest or BadResponse escapes; requests or responses, bodies, the error and what
follows are equal whether the bytes are read whole or one by one, and whether their header lines are parsed or found in
the cache of heads. A packed request is parsed to an equal request.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

from gripproxy.grip.websocket_handshake import is_upgrade
from gripproxy.http1 import head_cache, request_parser, response_parser
from gripproxy.http1.head_cache import REQUESTS, RESPONSES, HeadCache
from gripproxy.http1.request_parser import BadRequest, Request, RequestParser, parse_packed
from gripproxy.http1.response_parser import BadResponse, ResponseParser
from tests.fuzz.coverage import untraced
from tests.fuzz.target import Target, gist, pieces, require_equal

__all__ = ["REQUEST", "RESPONSE"]

_HEAD_LIMIT: Final = 300
"""Bytes of a request's head, so few that inputs reach the limit."""

Events = list[Any]


def _forget(cache: HeadCache[Any]) -> None:
    cache.clear()
    HeadCache.__init__(cache)


class _RequestLog:
    """Events of one client connection; pieces of a body are joined."""

    def __init__(self) -> None:
        self.events: Events = []
        self.requests: list[Request] = []

    def request_begun(self, request: Request) -> None:
        self.requests.append(request)
        self.events.append(
            (
                request.method,
                request.target,
                list(request.headers),
                request.minor,
                request.keep_alive,
                request.length,
                request.expect,
                request.upgrade,
                request.host,
                request.check,
            )
        )

    def request_body(self, request: Request, data: bytes) -> None:
        request.body.append(data)
        if self.events[-1][0] == "body":
            self.events[-1] = ("body", self.events[-1][1] + data)
        else:
            self.events.append(("body", data))

    def request_complete(self, request: Request) -> None:
        self.events.append(("complete", request.size))


def _requests(reads: Sequence[bytes]) -> tuple[Events, list[Request], str]:
    """Feed a client's bytes as its connection does; return events, requests and the gist of the outcome."""
    log = _RequestLog()
    requests = RequestParser(log, _HEAD_LIMIT)
    outcome = ""
    try:
        for i, data in enumerate(reads):
            known = requests.known(data) if not i else None
            if known is None:
                requests.feed(data)
            else:
                body, known.body = known.body, []
                log.request_begun(known)
                for piece in body:
                    log.request_body(known, piece)
                log.request_complete(known)
    except BadRequest as error:
        outcome = f"{error.status} {gist(error)}"
        log.events.append(("refused", error.status, error.reason, gist(error)))
    else:
        # Behind a request that closes the connection nothing is read.
        if not requests.closing:
            log.events.append((requests.upgraded, requests.rest, requests.between, requests.in_head))
    requests.close()
    return log.events, log.requests, outcome


def _check_request(data: bytes) -> Hashable:
    _forget(REQUESTS)
    events, requests, outcome = _requests([data])
    for _ in range(2):
        require_equal("parsed, from the cache of heads", events, _requests([data])[0])
    with untraced(data):
        require_equal("whole, byte by byte", events, _requests(pieces(data, 1))[0])
        for request in requests:
            if request.complete and request.upgrade is None:
                body = b"".join(request.body)
                again = parse_packed(request.pack(body))
                require_equal("packed request", _fields(request), _fields(again))
                require_equal("packed body", body, b"".join(again.body))
    return min(len(requests), 3), outcome


def _fields(request: Request) -> object:
    framing = (b"content-length", b"transfer-encoding", b"expect")
    headers = [header for header in request.headers if header[0].lower() not in framing]
    return request.method, request.target, headers, request.minor, request.host, request.check


class _ResponseLog:
    """Events of one backend connection; pieces of a body are joined."""

    def __init__(self) -> None:
        self.events: Events = []
        self.complete = False

    def response_begun(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self.events.append(("begun", code, reason, list(headers)))

    def response_body(self, data: bytes) -> None:
        if self.events[-1][0] == "body":
            self.events[-1] = ("body", self.events[-1][1] + data)
        else:
            self.events.append(("body", data))

    def response_complete(self) -> None:
        self.complete = True
        self.events.append(("complete",))

    def interim_response(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self.events.append(("interim", code, reason, list(headers)))


def _response(reads: Sequence[bytes], head: bool, upgrade: bool, whole: bool = False) -> tuple[Events, str]:
    """Feed a backend's bytes as its connection does; return events and the gist of the outcome."""
    log = _ResponseLog()
    responses = ResponseParser(log)
    responses.expect(head, upgrade)
    outcome = ""
    try:
        for data in reads:
            if responses.switched:
                # Of the other protocol from now on.
                responses.rest += data
                continue
            if log.complete:
                # The connection is closed by the first byte behind a response.
                break
            cached = responses.feed(data, whole)
            if cached is not None:
                log.response_begun(cached.code, cached.reason, list(cached.headers))
                if data[cached.end :]:
                    log.response_body(data[cached.end :])
                log.response_complete()
    except BadResponse as error:
        outcome = gist(error)
        log.events.append(("refused", outcome))
    else:
        if responses.switched:
            # Without these headers it is no switch of protocols, and refused: where a WebSocket would begin is open.
            switch = is_upgrade(log.events[-2][3])
            log.events.append(("switched", responses.rest if switch else None))
        elif not log.complete:
            log.events.append(("eof", responses.eof(), responses.to_eof))
    responses.close()
    return log.events, outcome


def _check_response(data: bytes) -> Hashable:
    flags, data = data[:1], data[1:]
    head, upgrade = flags == b"H", flags == b"U"
    _forget(RESPONSES)
    events, outcome = _response([data], head, upgrade)
    for whole in (False, False, True):
        require_equal("parsed, from the cache of heads", events, _response([data], head, upgrade, whole)[0])
    with untraced(data):
        require_equal("whole, byte by byte", events, _response(pieces(data, 1), head, upgrade)[0])
    return min(len(events), 5), events[-1][0], outcome


REQUEST: Final = Target(
    "request",
    _check_request,
    (request_parser, head_cache),
    (
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /a?b=c HTTP/1.1\r\nHost: a:80\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc"
        b"GET / HTTP/1.0\r\n\r\n",
        b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nTrailer: x\r\n\r\n",
        b"GET /w HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x00",
        b"GET http://b:80/c?d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /",
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nab"
        b"GET / HTTP/1.1\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: [::1]\r\nPushpin-Check: x\r\n\r\n",
    ),
    (
        b"GET ", b"POST ", b"OPTIONS * ", b"CONNECT ", b"X-UNKNOWN ", b"PRI * ", b"http://a/", b"https://[::1]:80?",
        b"/",
        b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b" HTTP/2.0\r\n", b"\r\n", b"\r\n\r\n", b"\n", b"\r", b": ",
        b"Host: a\r\n", b"Content-Length: 3\r\n", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: ", b"gzip", b"Connection: close\r\n", b"Connection: keep-alive\r\n",
        b"Connection: upgrade\r\n", b"Upgrade: websocket\r\n", b"Upgrade: x\r\n",
        b"Expect: 100-continue\r\n", b"Pushpin-Check: 1\r\n",
        b"0\r\n\r\n", b"3\r\nabc\r\n", b";a=b", b"\r\n ", b"\t",
    ),
)  # fmt: skip

RESPONSE: Final = Target(
    "response",
    _check_response,
    (response_parser, head_cache),
    (
        b"-HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
        b"-HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"HHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
        b"UHTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x00",
        b"-HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nabc",
        b"-HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
        b"-HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
        b"-HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nGrip-Hold: stream\r\nContent-Encoding: gzip\r\n\r\nabc",
    ),
    (
        b"HTTP/1.1 ", b"HTTP/1.0 ", b"HTTP/2.0 ", b"200 OK\r\n", b"100 \r\n", b"101 Switching Protocols\r\n",
        b"103 \r\n",
        b"204 \r\n", b"304 \r\n", b"099 ", b"\r\n", b"\r\n\r\n", b"\n", b": ", b"Content-Length: 2\r\n",
        b"Content-Length: ",
        b"Content-Type: application/grip-instruct\r\n", b"Content-Encoding: deflate\r\n", b"Grip-Channel: a\r\n",
        b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding: gzip\r\n",
        b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"Connection: upgrade\r\n", b"Upgrade: websocket\r\n",
        b"0\r\n\r\n", b"3\r\nabc\r\n", b";a=b", b"\r\n ", b"\t",
    ),
)  # fmt: skip
