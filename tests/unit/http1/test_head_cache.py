"""Heads that come again: what is kept is bounded, and whoever comes again gets what he got the first time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gripproxy.http1 import head_cache
from gripproxy.http1.head_cache import (
    BLOCK_MAX,
    FORWARDERS_MAX,
    HEADS_MAX,
    REQUESTS,
    RESPONSES,
    SEEN_MAX,
    SIZE_MAX,
    HeadCache,
)
from gripproxy.http1.request_parser import BadRequest, Request
from gripproxy.http1.response_parser import BadResponse
from tests.support.doubles import Backend, Browser, House
from tests.unit.http1.test_request_parser import Requests, cut
from tests.unit.http1.test_response_parser import Responses

BLOCK = b"\r\nHost: h\r\nAccept: */*\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nServer: s\r\nContent-Length: 5\r\n\r\n"


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """What another test left is not known, and what one leaves is forgotten."""
    _clear()
    yield
    _clear()


def _clear() -> None:
    for memory in (REQUESTS, RESPONSES):
        memory.clear()
        memory._once.clear()
        memory._size = 0


class TestHeads:
    def test_what_comes_twice_is_kept(self) -> None:
        memory: HeadCache[int] = HeadCache()
        assert not memory.again(b"a")
        assert not memory.again(b"b")
        assert memory.again(b"a")
        memory.keep(b"a", 1)
        assert memory == {b"a": 1}

    def test_a_long_block_is_not(self) -> None:
        memory: HeadCache[int] = HeadCache()
        for size, kept in ((BLOCK_MAX, True), (BLOCK_MAX + 1, False)):
            memory.again(b"x" * size)
            assert memory.again(b"x" * size) is kept

    def test_one_more_than_there_may_be(self) -> None:
        memory: HeadCache[int] = HeadCache()
        for number in range(HEADS_MAX):
            memory.keep(b"%d" % number, number)
        assert len(memory) == HEADS_MAX
        memory.keep(b"more", 0)
        assert memory == {b"more": 0}

    def test_more_bytes_than_there_may_be(self) -> None:
        memory: HeadCache[int] = HeadCache()
        fitting = SIZE_MAX // BLOCK_MAX
        for number in range(fitting):
            memory.keep(b"%d" % number + b"x" * (BLOCK_MAX - len(b"%d" % number)), number)
        assert len(memory) == fitting
        memory.keep(b"more", 0)
        assert memory == {b"more": 0}
        for number in range(fitting - 1):
            memory.keep(b"%d" % number + b"x" * (BLOCK_MAX - len(b"%d" % number)), number)
        assert len(memory) == fitting

    def test_what_came_once_is_bounded(self) -> None:
        memory: HeadCache[int] = HeadCache()
        for number in range(3 * SEEN_MAX):
            memory.again(b"%d" % number)
            assert len(memory._once) <= SEEN_MAX
        assert not memory


class TestRequest:
    def known(self, data: bytes, limit: int = 1000) -> Request | None:
        return Requests(limit).parser.known(data)

    def learn(self, data: bytes) -> None:
        """Have it come twice."""
        for _ in range(2):
            requests = Requests()
            assert requests.parser.known(data) is None
            requests.feed(data)

    def test_the_third_is_not_parsed(self) -> None:
        self.learn(b"GET /x?y HTTP/1.1" + BLOCK)
        request = self.known(b"DELETE /z HTTP/1.1" + BLOCK)
        assert request is not None
        assert (request.method, request.target, request.host) == (b"DELETE", b"/z", b"h")
        assert request.headers == [(b"Host", b"h"), (b"Accept", b"*/*")]
        assert request.complete
        assert request.keep_alive

    def test_the_size_is_that_of_the_long_way(self) -> None:
        data = b"GET /x HTTP/1.1" + BLOCK
        self.learn(data)
        [long] = Requests().feed(data).all
        short = self.known(data)
        assert short is not None
        assert short.size == long.size == len(data)
        assert self.known(data, len(data)) is not None
        assert self.known(data, len(data) - 1) is None

    def test_what_one_does_to_the_headers_is_not_seen_by_others(self) -> None:
        data = b"GET /x HTTP/1.1" + BLOCK
        self.learn(data)
        first, second = self.known(data), self.known(data)
        assert first is not None
        assert second is not None
        first.headers.append((b"A", b"b"))
        first.headers = [(b"C", b"d"), *first.headers]
        assert second.headers == [(b"Host", b"h"), (b"Accept", b"*/*")]
        assert first.head is None

    def test_few_ways_of_forwarding_it_are_kept(self) -> None:
        self.learn(b"GET /x HTTP/1.1" + BLOCK)
        request = self.known(b"GET /x HTTP/1.1" + BLOCK)
        assert request is not None
        assert request.head is not None
        house = House(*(f"*,path_beg=/{number} one:80" for number in range(FORWARDERS_MAX + 1)))
        forwarders = [house.worker.router.forwarder(route, 0) for route in house.worker.router.routes.routes]
        for count, forwarder in enumerate(forwarders):
            assert len(request.head.forwarded) == count
            forwarder.head(request, 0, bytes, False, False)
            assert forwarder in request.head.forwarded
            if count == FORWARDERS_MAX - 1:
                break
        forwarders[-1].head(request, 0, bytes, False, False)
        assert list(request.head.forwarded) == [forwarders[-1]]

    @pytest.mark.parametrize(
        "line",
        [
            b"CONNECT /x HTTP/1.1",
            b"GET /x HTTP/1.0",
            b"GET http://h/x HTTP/1.1",
            b"GET * HTTP/1.1",
            b"GET  /x HTTP/1.1",
            b"GET /x y HTTP/1.1",
            b"GET /\xc3 HTTP/1.1",
            b"GET /\x7f HTTP/1.1",
            b"get /x HTTP/1.1",
            b"BREW /x HTTP/1.1",
            b"\r\nGET /x HTTP/1.1",
            b"GET /x HTTP/1.1 ",
            b"GET /x",
        ],
    )
    def test_another_line_goes_the_long_way(self, line: bytes) -> None:
        self.learn(b"GET /x HTTP/1.1" + BLOCK)
        assert self.known(line + BLOCK) is None

    @pytest.mark.parametrize(
        "lines",
        [
            b"Connection: close",
            b"Content-Length: 2",
            b"Transfer-Encoding: chunked",
            b"Upgrade: websocket\r\nConnection: upgrade",
            b"Upgrade: h2c\r\nConnection: upgrade",
            b"Expect: 100-continue",
        ],
    )
    def test_lines_that_say_more_go_the_long_way(self, lines: bytes) -> None:
        data = b"GET /x HTTP/1.1\r\nHost: h\r\n%b\r\n\r\n" % lines
        for _ in range(3):
            requests = Requests()
            assert requests.parser.known(data) is None
            requests.feed(data)
        assert not REQUESTS

    def test_what_could_not_be_kept_is_not_looked_for(self) -> None:
        head = b"GET /x HTTP/1.1\r\nX: "
        for size, found in ((BLOCK_MAX, True), (BLOCK_MAX + 1, False)):
            data = head + b"x" * (size - len(b"\r\nX: \r\n\r\n")) + b"\r\n\r\n"
            for _ in range(2):
                requests = Requests(10_000)
                assert requests.parser.known(data) is None
                requests.feed(data)
            assert (self.known(data, 10_000) is not None) is found

    @pytest.mark.parametrize("more", [b"GET /y HTTP/1.1" + BLOCK, b"G", b"\r\n"])
    def test_with_something_behind_it_goes_the_long_way(self, more: bytes) -> None:
        data = b"GET /x HTTP/1.1" + BLOCK
        for _ in range(3):
            requests = Requests()
            assert requests.parser.known(data + more) is None
            requests.feed(data + more)
        assert not REQUESTS
        self.learn(data)
        assert self.known(data + more) is None

    @pytest.mark.parametrize("body", [b"12345", b"a\r\n\r\n"])
    def test_a_request_with_its_whole_body_is_known_too(self, body: bytes) -> None:
        data = b"POST /x HTTP/1.1\r\nHost: h\r\ncontent-LENGTH: 5\r\n\r\n" + body
        whole = b"POST /y HTTP/1.1" + data[len(b"POST /x HTTP/1.1") : -5]
        self.learn(data[:-5] + b"abcde")
        request = self.known(whole + b"vwxyz")
        assert request is not None
        assert (request.method, request.target, request.host, request.body) == (b"POST", b"/y", b"h", [b"vwxyz"])
        assert request.complete
        assert request.length == 5
        [long] = Requests().feed(whole + b"vwxyz").all
        assert request.size == long.size == len(whole) + 5

    @pytest.mark.parametrize("body", [b"", b"1234", b"123456", b"12345GET / HTTP/1.1\r\n\r\n", b"12345\r\n\r\n"])
    def test_another_length_than_the_announced_one_goes_the_long_way(self, body: bytes) -> None:
        head = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n"
        self.learn(head + b"abcde")
        assert self.known(head + body) is None

    @pytest.mark.parametrize(
        "line",
        [
            b"Transfer-Encoding: chunked",
            b"Content-Length: 5\r\nExpect: 100-continue",
            b"Content-Length: 5\r\nConnection: close",
            b"Content-Length: 5\r\nConnection: upgrade\r\nUpgrade: x",
            b"Content-Length: +5",
            b"X: 1",
        ],
    )
    def test_another_framing_of_a_body_goes_the_long_way(self, line: bytes) -> None:
        data = b"POST /x HTTP/1.1\r\nHost: h\r\n" + line + b"\r\n\r\nabcde"
        for _ in range(3):
            requests = Requests()
            assert requests.parser.known(data) is None
            with contextlib.suppress(BadRequest):
                requests.feed(data)
        assert not REQUESTS

    def test_a_request_that_has_begun_goes_the_long_way(self) -> None:
        data = b"GET /x HTTP/1.1" + BLOCK
        self.learn(data)
        for begun in (b"GET /a HTTP/1.1\r\nX: ", b"POST /a HTTP/1.1\r\nContent-Length: 900\r\n\r\n", b"\r\n"):
            requests = Requests()
            requests.feed(begun)
            assert requests.parser.known(data) is None

    def test_after_the_last_request_of_a_connection_nothing_is_known(self) -> None:
        data = b"GET /x HTTP/1.1" + BLOCK
        self.learn(data)
        for last in (
            b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        ):
            requests = Requests()
            requests.feed(last)
            assert requests.parser.known(data) is None


class TestResponse:
    def learn(self, data: bytes) -> None:
        for _ in range(2):
            Responses().feed(data)

    def test_the_third_is_not_parsed(self) -> None:
        self.learn(OK + b"hello")
        responses = Responses()
        head = responses.parser.feed(OK + b"world", whole=True)
        assert head is not None
        assert (head.code, head.reason, head.length, head.end) == (200, b"OK", 5, len(OK))
        assert head.headers == ((b"Server", b"s"), (b"Content-Length", b"5"))
        assert head.same
        assert not responses.parser.asked
        assert responses.parser.reusable

    def test_what_is_not_for_the_client_is_left_out(self) -> None:
        data = OK.replace(b"Server: s", b"Connection: keep-alive") + b"hello"
        self.learn(data)
        head = Responses().parser.feed(data, whole=True)
        assert head is not None
        assert not head.same
        assert head.relay == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"

    @pytest.mark.parametrize(
        "data",
        [
            OK + b"hell",
            OK + b"hello!",
            OK[:-2] + b"Grip-Hold: stream\r\n\r\nhello",
            OK[:-2] + b"Content-Type: application/grip-instruct\r\n\r\nhello",
            OK[:-2] + b"Content-Encoding: gzip\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK + b"hello",
            b"HTTP/1.1 200 OK\r\n\r\nhello",
        ],
    )
    def test_what_is_not_only_to_be_relayed_whole_is_told_in_pieces(self, data: bytes) -> None:
        told = []
        for _ in range(4):
            responses = Responses()
            assert responses.parser.feed(data, whole=True) is None
            told.append((responses.told, responses.parser.reusable, responses.parser.asked, responses.parser.head_size))
        assert told.count(told[0]) == 4

    @pytest.mark.parametrize(
        "head", [b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b"HTTP/1.1 204 No\r\n\r\n"]
    )
    def test_without_a_body(self, head: bytes) -> None:
        self.learn(head)
        found = Responses().parser.feed(head, whole=True)
        assert found is not None
        assert found.length == 0
        assert found.same

    def test_an_answer_to_head_goes_the_long_way(self) -> None:
        self.learn(OK + b"hello")
        assert Responses(head=True).parser.feed(OK, whole=True) is None
        assert Responses(head=True).feed(OK).told[-1] == "complete"
        assert Responses(head=True).parser.feed(OK + b"hello", whole=True) is None

    def test_a_response_that_has_begun_goes_the_long_way(self) -> None:
        self.learn(OK + b"hello")
        responses = Responses()
        responses.feed(OK[:9])
        assert responses.parser.feed(OK[9:] + b"hello", whole=True) is None
        assert responses.told[1:] == [b"hello", "complete"]

    def test_nothing_is_known_where_nothing_was_asked(self) -> None:
        self.learn(OK + b"hello")
        responses = Responses()
        assert responses.parser.feed(OK + b"hello", whole=True) is not None
        with pytest.raises(BadResponse, match="answer no request"):
            responses.parser.feed(OK + b"hello", whole=True)


# --- the remembered way and the long one

names = st.sampled_from(
    b"Accept accept-encoding Cookie Connection Keep-Alive X-Forwarded-For x-forwarded-proto Content-Length Expect "
    b"Transfer-Encoding Upgrade Grip-Sig Grip-Feature TE CDN-Loop Host Pushpin-Route Content-Type eb9bf0f5-x Date "
    b"Content-Encoding ETag Grip-Hold Grip-Channel Trailer X Bad( X\x01".split()
)
values = st.sampled_from(
    b";a;close;keep-alive;0;2; 2 ;02;+2;2, 2;chunked;gzip;100-continue;websocket;h2c;upgrade;Upgrade, keep-alive;https;"
    b"b;10.1.2.3, ::1;text/html;x\0y;\xff\xfe;stream;response;application/grip-instruct;a\r\n folded;a\nb;h\x7f".split(
        b";"
    )
)
lines = st.lists(st.tuples(names, values).map(lambda pair: b"%b: %b\r\n" % pair), max_size=4).map(b"".join)
common_lines = st.sampled_from(
    (
        b"Host: h\r\n",
        b"Host: H:80\r\nUser-Agent: x\r\nConnection: keep-alive\r\n",
        b"Host: h\r\nX-Forwarded-For: 10.1.2.3\r\nGrip-Sig: x\r\nX-Forwarded-Proto: https\r\n",
        b"",
    )
)
request_lines = st.sampled_from(
    b"GET /x HTTP/1.1;HEAD /x HTTP/1.1;POST /y?z HTTP/1.1;GET /x HTTP/1.0;GET http://o/x HTTP/1.1;"
    b"OPTIONS * HTTP/1.1;PUT /\xff HTTP/1.1;GET /a HTTP/1.1".split(b";")
)
tails = st.sampled_from((b"", b"", b"", b"ab", b"2\r\nab\r\n0\r\n\r\n", b"GET /behind HTTP/1.1\r\nHost: h\r\n\r\n"))
asking = st.tuples(request_lines, common_lines, lines, tails).map(lambda parts: b"%b\r\n%b%b\r\n%b" % parts)
status_lines = st.sampled_from(
    b"HTTP/1.1 200 OK;HTTP/1.1 200 OK;HTTP/1.0 200 OK;HTTP/1.1 204 No;HTTP/1.1 304 Not Modified;HTTP/1.1 404 ;"
    b"HTTP/1.1 101 S;HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK;HTTP/1.1 999 X;HTTX".split(b";")
)
answer_lines = st.sampled_from(
    (
        b"Content-Length: 2\r\n",
        b"Server: s\r\nContent-Length: 2\r\nConnection: keep-alive\r\n",
        b"Content-Length: 0\r\n",
        b"",
    )
)
answer_tails = st.sampled_from((b"hi", b"hi", b"", b"hi!", b"0\r\n\r\n", b"2\r\nhi\r\n0\r\n\r\n", b"h"))
answering = st.tuples(status_lines, answer_lines, lines, answer_tails).map(lambda parts: b"%b\r\n%b%b\r\n%b" % parts)
places = st.lists(st.integers(0, 300), max_size=2)

CONFIGS: list[dict[str, Any]] = [
    {},
    {"x_forwarded_for": ("append",), "set_x_forwarded_protocol": "true", "accept_x_forwarded_protocol": True},
    {"auto_cross_origin": True, "cdn_loop": "me", "accept_pushpin_route": True, "orig_headers_need_mark": ("x",)},
]
ROUTES = (
    "* one:80,over_http",
    "h one:80",
    "h,path_beg=/a one:80",
    "o,orig_headers,replace_beg=/new,header=X:set one:80",
)


class _Talk:
    """Clients that ask one after the other, on the same connection while it lasts, and what comes of it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.house = House(*ROUTES, **{"trace_headers": ("none",), **settings})
        for route in self.house.worker.router.routes.routes:
            self.house.worker.router.forwarder(route, 0)._clock = lambda: 1_700_000_000.0
        self.browser: Browser | None = None

    def ask(self, request: list[bytes], answer: list[bytes]) -> list[Any]:
        """Say what the backend got, what the client got, and how the connections are after that."""
        house = self.house
        if self.browser is None:
            self.browser = house.browser()
        browser = self.browser
        for piece in request:
            if not browser.transport.closing and browser.transport.reading:
                browser.says(piece)
        seen: list[Any] = []
        backend: Backend | None = house.pool.connect() if house.pool.wanted else None
        for used in house.pool.opened if backend is None else [backend]:
            asked = used.take()
            if asked:
                backend = used
                seen.append(asked)
        if backend is not None:
            for piece in answer:
                if not backend.transport.closing and backend.transport.reading:
                    backend.says(piece)
            house.confirm()
            house.pipe.take()
            seen += [backend.take(), backend.free, backend.transport.closing, backend.connection.head_size]
        figures = {name: getattr(house.worker.stats.others, name) for name in house.worker.stats.others.__slots__}
        seen += [browser.take(), browser.transport.closing, browser.transport.reading, browser.connection.deadline]
        seen += [house.worker.registry.in_flight, house.worker.registry.requests, house.worker.events.bad, figures]
        if browser.transport.closing or browser.connection.exchange is not None or browser.connection._hold is not None:
            browser.transport.lose()
            self.browser = None
        if backend is not None and backend.transport.closing:
            backend.transport.lose()
        return seen


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(asking, places, answering, places), min_size=1, max_size=3), st.sampled_from(CONFIGS))
@example([(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n", [], OK + b"hello", [])], {})
@example([(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n", [], OK + b"hello", [len(OK)])], {})
def test_whoever_comes_again_gets_what_he_got_the_first_time(
    talks: list[tuple[bytes, list[int], bytes, list[int]]], config: dict[str, Any]
) -> None:
    def transcript() -> list[Any]:
        _clear()
        talk = _Talk(config)
        return [
            talk.ask(cut(request, where) if request else [], cut(answer, there))
            for request, where, answer, there in talks * 4
        ]

    with mock.patch.object(HeadCache, "again", return_value=False):
        long = transcript()
        assert not head_cache.REQUESTS
        assert not head_cache.RESPONSES
    assert transcript() == long


def test_both_memories_are_used() -> None:
    talk = _Talk({})
    for _ in range(2):
        talk.ask([b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"], [OK + b"hello"])
    with (
        mock.patch("gripproxy.http1.request_parser.RequestParser.feed", side_effect=AssertionError),
        mock.patch("gripproxy.backend.connection.BackendConnection.response_begun", side_effect=AssertionError),
    ):
        seen = talk.ask([b"GET /y HTTP/1.1\r\nHost: h\r\n\r\n"], [OK + b"world"])
    assert seen[0].startswith(b"GET /y HTTP/1.1\r\nHost: h\r\n")
    assert OK + b"world" in seen
