"""The contract of the parser's wrapper: what its docstring promises over llhttp, and that nothing else escapes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.http1.request_parser import LENGTH_MAX, BadRequest, Request, RequestParser, parse_packed


class Requests:
    """Collects what a client's bytes become."""

    def __init__(self, limit: int = 1000) -> None:
        self.all: list[Request] = []
        self.bodies: list[bytes] = []
        self.done: list[bool] = []
        self.parser = RequestParser(self, limit)

    def request_begun(self, request: Request) -> None:
        self.all.append(request)
        self.bodies.append(b"")
        self.done.append(False)

    def request_body(self, request: Request, data: bytes) -> None:
        assert request is self.all[-1]
        self.bodies[-1] += data

    def request_complete(self, request: Request) -> None:
        assert request is self.all[-1]
        assert request.complete
        self.done[-1] = True

    def feed(self, *pieces: bytes) -> Requests:
        for piece in pieces:
            self.parser.feed(piece)
        return self

    @property
    def told(self) -> list[tuple[Any, ...]]:
        """Everything that must not depend on how the bytes were cut."""
        return [
            (r.method, r.target, r.headers, r.minor, r.host, r.keep_alive, r.length, body, done)
            for r, body, done in zip(self.all, self.bodies, self.done, strict=True)
        ]

    @property
    def one(self) -> Request:
        (request,) = self.all
        return request


def refused(data: bytes, limit: int = 1000) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        Requests(limit).feed(data)
    return caught.value


GET = b"GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n"


class TestRequest:
    def test_a_plain_one(self) -> None:
        requests = Requests().feed(GET)
        request = requests.one
        assert (request.method, request.target, request.headers) == (b"GET", b"/a?b", [(b"Host", b"h")])
        assert (request.minor, request.host, request.keep_alive, request.length) == (1, b"h", True, 0)
        assert (request.complete, request.expect, request.upgrade, request.check) == (True, False, None, False)
        assert requests.parser.between
        assert not requests.parser.in_head

    def test_a_body_with_length(self) -> None:
        requests = Requests().feed(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe")
        assert (requests.one.length, requests.one.complete, requests.bodies) == (5, False, [b"he"])
        assert not requests.parser.between
        requests.feed(b"llo")
        assert (requests.one.complete, requests.bodies) == (True, [b"hello"])

    def test_a_chunked_body_and_its_trailers_which_are_dropped(self) -> None:
        requests = Requests().feed(
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"5;ext=1\r\nhello\r\n0\r\nX-Trailer: 1\r\nHost: evil\r\n\r\n",
            GET,
        )
        first, second = requests.all
        assert (first.length, requests.bodies[0]) == (-1, b"hello")
        assert first.headers == [(b"Host", b"h"), (b"Transfer-Encoding", b"chunked")]
        assert second.headers == [(b"Host", b"h")]

    def test_one_after_the_other_in_one_read(self) -> None:
        requests = Requests().feed(GET * 3)
        assert [request.target for request in requests.all] == [b"/a?b"] * 3

    def test_http_1_0(self) -> None:
        request = Requests().feed(b"GET / HTTP/1.0\r\n\r\n").one
        assert (request.minor, request.host, request.keep_alive) == (0, None, False)
        assert Requests().feed(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").one.keep_alive

    def test_what_follows_a_close_is_ignored(self) -> None:
        requests = Requests().feed(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" + GET)
        requests.feed(b"\0garbage", GET)
        assert len(requests.all) == 1
        assert requests.parser.closing

    def test_expect_and_check(self) -> None:
        request = Requests().feed(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nPushpin-Check: 1\r\n\r\n").one
        assert (request.expect, request.check) == (True, True)

    def test_the_size_is_that_of_head_and_body(self) -> None:
        data = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
        assert abs(Requests().feed(data).one.size - len(data)) <= 2


class TestTarget:
    def test_absolute_form_goes_before_host(self) -> None:
        request = Requests().feed(b"GET http://other:81/p?q HTTP/1.1\r\nX: 1\r\nHost: h\r\n\r\n").one
        assert (request.target, request.host) == (b"/p?q", b"other:81")
        assert request.headers == [(b"Host", b"other:81"), (b"X", b"1")]

    @pytest.mark.parametrize(
        ("target", "path"),
        [(b"http://h", b"/"), (b"http://h?q", b"/?q"), (b"HTTPS://h/", b"/"), (b"http://h/a//b", b"/a//b")],
    )
    def test_absolute_form_without_path(self, target: bytes, path: bytes) -> None:
        assert Requests().feed(b"GET %b HTTP/1.1\r\n\r\n" % target).one.target == path

    def test_asterisk_is_for_options(self) -> None:
        assert Requests().feed(b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").one.target == b"*"
        assert refused(b"GET * HTTP/1.1\r\nHost: h\r\n\r\n").status == 400

    @pytest.mark.parametrize("target", [b"http://", b"http:///p", b"http://u@h/", b"ftp://h/", b"a/b", b"https://@/"])
    def test_others_are_refused(self, target: bytes) -> None:
        assert refused(b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n" % target).status == 400


class TestRefused:
    @pytest.mark.parametrize(
        ("data", "status"),
        [
            (b"CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n", 405),
            (b"BREW / HTTP/1.1\r\nHost: h\r\n\r\n", 501),
            (b"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505),
            (b"GET / HTTP/0.9\r\nHost: h\r\n\r\n", 505),
            (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
            (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n", 501),
            (b"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
            (b"GET /\r\n\r\n", 505),
            (b"GET / HTTP/1.1 \r\nHost: h\r\n\r\n", 400),
        ],
    )
    def test_by_our_own_rules(self, data: bytes, status: int) -> None:
        assert refused(data).status == status

    @pytest.mark.parametrize(
        "data",
        [
            b"GET / HTTP/1.1\nHost: h\n\n",
            b"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9223372036854775808\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost : h\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n",
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
        ],
    )
    def test_what_smuggling_needs(self, data: bytes) -> None:
        assert refused(data).status == 400

    def test_the_longest_length_is_taken(self) -> None:
        data = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % LENGTH_MAX
        assert Requests().feed(data).one.length == LENGTH_MAX

    @pytest.mark.parametrize("host", [b"a b", b"a/b", b"u@a", b"a:b", b"a:1:2", b"::1", b"[::1", b":80", b"a#b"])
    def test_a_host_that_is_none(self, host: bytes) -> None:
        error = refused(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host)
        assert (error.status, str(error)) == (400, f"Host {host!r} is not a name or an address, with or without a port")
        if b"/" not in host and b"#" not in host:
            assert refused(b"GET http://%b/ HTTP/1.1\r\nHost: h\r\n\r\n" % host).status == 400

    @pytest.mark.parametrize("host", [b"", b"a", b"A_b.c:80", b"a:", b"[::1]", b"[fe80::1%25en0]:8", b"\xc3\xa9"])
    def test_a_host_that_is_one(self, host: bytes) -> None:
        assert Requests().feed(b"GET / HTTP/1.1\r\nHost: %b \t\r\n\r\n" % host).one.host == host

    def test_the_error_says_what_was_wrong(self) -> None:
        error = refused(b"CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (str(error), error.reason) == ("CONNECT is not supported", b"Method Not Allowed")


def test_a_length_of_more_digits_than_python_reads() -> None:
    data = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %b2\r\n\r\nhi"
    assert Requests(9000).feed(data % (b"0" * 50)).bodies == [b"hi"]
    assert refused(data % (b"0" * 5000), 9000).status == 400


class TestHeadLimit:
    def head(self, size: int) -> bytes:
        """A request head of so many bytes."""
        start, end = b"GET / HTTP/1.1\r\nHost: h\r\nX: ", b"\r\n\r\n"
        return start + b"x" * (size - len(start) - len(end)) + end

    def test_both_sides_of_it(self) -> None:
        assert Requests(500).feed(self.head(500)).done == [True]
        error = refused(self.head(503), 500)
        assert (error.status, str(error)) == (431, "Request header size exceeded limit of 500 bytes.")

    def test_in_pieces(self) -> None:
        data = self.head(500)
        assert Requests(500).feed(*(data[i : i + 7] for i in range(0, len(data), 7))).done == [True]
        with pytest.raises(BadRequest):
            Requests(500).feed(*(self.head(600)[i : i + 1] for i in range(600)))

    def test_a_head_that_does_not_end_is_refused_before_it_does(self) -> None:
        assert refused(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200, 500).status == 431
        assert refused(b"GET /" + b"x" * 1000, 500).status == 431

    def test_empty_lines_before_a_request_are_counted(self) -> None:
        assert refused(b"\r\n" * 1000, 500).status == 431
        assert Requests(500).feed(b"\r\n\r\n", GET).done == [True]

    def test_a_body_behind_a_head_that_was_cut_in_its_last_line_is_no_head(self) -> None:
        head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5000\r\n\r\n"
        for cut in (1, 2, 3):
            requests = Requests(500).feed(head[:-cut], head[-cut:] + b"x" * 5000)
            assert requests.bodies == [b"x" * 5000]

    def test_requests_of_a_read_do_not_add_up(self) -> None:
        assert len(Requests(500).feed(GET * 100).all) == 100

    def test_endless_extensions_and_trailers_are_bounded(self) -> None:
        head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        for more in (b"5;" + b"x" * 100, b"0\r\n" + b"X: y\r\n" * 20):
            requests = Requests(500).feed(head)
            with pytest.raises(BadRequest, match=r"chunk extensions or trailers|exceeded"):
                requests.feed(more, *[b"x" * 100] * 20)


BAD: list[bytes] = [
    b"BREW / HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GETS / HTTP/1.1\r\nHost: h\r\n\r\n",
    b"G E T / HTTP/1.1\r\nHost: h\r\n\r\n",
    b"nonsense\r\n\r\n",
    b"\r\n\r\nX-OWN /a HTTP/1.1\r\nHost: h\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/1.1\r\nHost: h\r\nX:" + b" " * 1000 + b"a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 1000 + b"\r\nY : z\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nY : z\r\nX: " + b"a" * 1000 + b"\r\n\r\n",
    b"BREW /" + b"a" * 1000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h h\r\n\r\n",
    b"GET / HTTP/2.0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n\r\n\r\nzz\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n\r\n\r\nBREW / HTTP/1.1\r\n\r\n",
]
GOOD: list[bytes] = [
    b"",
    GET,
    GET * 3,
    b"\r\n" + GET,
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\na\r\n\r\nb\r\n",
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n\r\n\r\na\r\n0\r\nX: y\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\n\r\n\r\na",
]


class TestHoweverItIsCut:
    """The same requests, and the same error behind them, for one packet as for single bytes and any two pieces."""

    @pytest.mark.parametrize("bad", BAD)
    @pytest.mark.parametrize("good", GOOD)
    def test_the_error_is_the_same(self, good: bytes, bad: bytes) -> None:
        def outcome(*pieces: bytes) -> tuple[list[tuple[Any, ...]], int, str]:
            requests = Requests()
            with pytest.raises(BadRequest) as caught:
                requests.feed(*pieces)
            return requests.told, caught.value.status, str(caught.value)

        data = good + bad
        whole = outcome(data)
        assert outcome(*(data[n : n + 1] for n in range(len(data)))) == whole
        for place in {*range(0, len(data), 7), len(good), len(good) + 1, *range(max(0, len(good) - 4), len(good))}:
            assert outcome(data[:place], data[place:]) == whole

    def test_it_is_that_of_its_own_line(self) -> None:
        assert [refused(GET + bad).status for bad in BAD[:7]] == [501, 501, 400, 400, 501, 400, 431]

    def test_an_unknown_method_is_judged_by_its_whole_line(self) -> None:
        requests = Requests().feed(b"BREW", b" /a HTTP", b"/1.1\r")
        assert requests.parser.in_head
        with pytest.raises(BadRequest) as caught:
            requests.feed(b"\n")
        assert caught.value.status == 501


class TestUpgrade:
    def test_one_that_nobody_follows_does_not_swallow_the_next_request(self) -> None:
        upgrade = b"GET /u HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
        requests = Requests().feed(upgrade + GET, GET)
        assert [request.target for request in requests.all] == [b"/u", b"/a?b", b"/a?b"]
        assert requests.all[0].upgrade is None

    def test_very_many_in_one_read(self) -> None:
        upgrade = b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
        assert len(Requests().feed(upgrade * 2000).all) == 2000

    @pytest.mark.parametrize("name", [b"h2c", b"websocket"])
    @pytest.mark.parametrize("pieces", [1, 4, 1000])
    def test_a_body_is_a_body_and_no_request(self, name: bytes, pieces: int) -> None:
        """Else the body of a request that passes one proxy would be a request to the next."""
        smuggled = b"GET /evil HTTP/1.1\r\nHost: h\r\n\r\n"
        head = b"POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: %b\r\n" % name
        sized = head + b"Content-Length: %d\r\n\r\n" % len(smuggled) + smuggled
        chunked = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(smuggled), smuggled)
        for data in (sized, chunked):
            step = -(-len(data) // pieces)
            requests = Requests().feed(*(data[i : i + step] for i in range(0, len(data), step)), GET)
            assert requests.bodies == [smuggled, b""]
            assert [request.target for request in requests.all] == [b"/", b"/a?b"]
            assert requests.done == [True, True]
            assert requests.all[0].upgrade is None

    @pytest.mark.parametrize("name", [b"websocket", b"WebSocket"])
    def test_what_follows_a_websocket_request_is_kept_unparsed(self, name: bytes) -> None:
        data = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: %b\r\n\r\n" % name
        requests = Requests().feed(data + b"\x81\x85", b"\x01\x02")
        assert requests.one.upgrade == b"websocket"
        assert requests.parser.upgraded
        assert requests.parser.rest == b"\x81\x85\x01\x02"


class TestPacked:
    def test_a_request_is_the_same_again(self) -> None:
        data = b"POST http://other/p HTTP/1.1\r\nHost: h\r\nX: 1\r\nTransfer-Encoding: chunked\r\nExpect: x\r\n\r\n"
        requests = Requests().feed(data + b"3\r\nabc\r\n0\r\n\r\n")
        again = parse_packed(requests.one.pack(requests.bodies[0]))
        assert (again.method, again.target, again.minor, again.host) == (b"POST", b"/p", 1, b"other")
        assert again.headers == [(b"Host", b"other"), (b"X", b"1"), (b"Content-Length", b"3")]
        assert (b"".join(again.body), again.length, again.complete) == (b"abc", 3, True)

    @pytest.mark.parametrize("connection", [b"close", b"keep-alive"])
    @pytest.mark.parametrize("minor", [0, 1])
    def test_the_life_of_the_connection_is_kept(self, minor: int, connection: bytes) -> None:
        request = Requests().feed(b"GET / HTTP/1.%d\r\nHost: h\r\nConnection: %b\r\n\r\n" % (minor, connection)).one
        again = parse_packed(request.pack(b""))
        assert (again.minor, again.keep_alive) == (minor, connection == b"keep-alive")


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data cut at these places (taken modulo its length)."""
    edges = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


places = st.lists(st.integers(0, 10_000), max_size=12)
request_pieces = st.sampled_from(
    [
        GET,
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3;x=y\r\ncde\r\n0\r\nT: 1\r\n\r\n",
        b"GET http://o/p HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"PUT / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
        b"HEAD /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        b"\r\n",
    ]
)
request_junk = st.sampled_from(
    [b"\r", b"\n", b"\r\n\r\n", b" ", b"\0", b":", b"Host: x\r\n", b"0\r\n\r\n", b"GET", b"HTTP/1.1", b"\xff\xfe"]
) | st.sampled_from(
    [
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Upgrade: websocket\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n\r\n",
    ]
)


class TestFuzz:
    @given(st.lists(request_pieces, max_size=5), places)
    def test_good_requests_are_the_same_however_they_are_cut(self, pieces: list[bytes], where: list[int]) -> None:
        data = b"".join(pieces)
        assert Requests().feed(*cut(data, where)).told == Requests().feed(data).told

    @given(st.lists(request_pieces | request_junk | st.binary(max_size=10), max_size=8), places)
    def test_mangled_requests_end_in_bad_request_or_none(self, pieces: list[bytes], where: list[int]) -> None:
        requests = Requests(200)
        try:
            requests.feed(*cut(b"".join(pieces), where))
        except BadRequest:
            pass
        for request in requests.all:
            assert sum(len(name) + len(value) for name, value in request.headers) <= 300
            assert request.target.startswith(b"/") or request.target == b"*"

    @given(st.binary(max_size=300), places)
    def test_any_bytes_to_a_server(self, data: bytes, where: list[int]) -> None:
        try:
            Requests(100).feed(*cut(data, where))
        except BadRequest:
            pass
