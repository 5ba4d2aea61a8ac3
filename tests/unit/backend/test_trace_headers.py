"""Ids of requests: a client's are passed on, missing ones are made."""

from __future__ import annotations

import re

import pytest

from gripproxy.backend.trace_headers import NAMES, TraceHeaders
from gripproxy.grip.headers import Headers
from gripproxy.http1.request_parser import Request
from tests.support.doubles import House

SEED = bytes(range(12))
ID = b"0001020304050607-2a"
PARENT = b"00-0001020304050607000000000000002a-08090a0b0000002a-00"


def request(headers: Headers) -> Request:
    return Request(b"GET", b"/", headers, 1)


def made(*headers: tuple[bytes, bytes], names: tuple[str, ...] = NAMES) -> tuple[bytes, ...]:
    """Return both ids, the lines for the backend, and the fields of the log."""
    trace, asked = TraceHeaders(names, SEED), request(list(headers))
    return (*trace.ids(asked, 0x2A), trace.lines(asked, 0x2A), trace.text(asked, 0x2A))


class TestIds:
    def test_both_are_made(self) -> None:
        lines = b"X-Request-Id: %b\r\ntraceparent: %b\r\n" % (ID, PARENT)
        assert made((b"Host", b"h")) == (ID, PARENT, lines, b" request_id=%b traceparent=%b" % (ID, PARENT))

    def test_a_made_parent_is_one_of_trace_context(self) -> None:
        """W3C Trace Context §3.2.2: lower-case hexadecimal digits, neither id all zeros."""
        assert re.fullmatch(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", made()[1])

    def test_those_of_the_client_are_passed_on(self) -> None:
        found = made((b"x-request-id", b"mine"), (b"Traceparent", b"00-a-b-01"))
        assert found == (b"mine", b"00-a-b-01", b"", b" request_id=mine traceparent=00-a-b-01")

    def test_the_missing_one_is_made(self) -> None:
        parent = b"traceparent: %b\r\n" % PARENT
        assert made((b"X-Request-ID", b"mine"))[:3] == (b"mine", PARENT, parent)
        assert made((b"traceparent", b"p"))[:3] == (ID, b"p", b"X-Request-Id: %b\r\n" % ID)

    @pytest.mark.parametrize(
        ("names", "lines"),
        [
            (("x-request-id",), b"X-Request-Id: %b\r\n" % ID),
            (("traceparent",), b"traceparent: %b\r\n" % PARENT),
            (("none",), b""),
        ],
    )
    def test_only_those_that_are_wanted_are_made(self, names: tuple[str, ...], lines: bytes) -> None:
        assert made(names=names)[2] == lines
        assert made((b"X-Request-Id", b"mine"), names=("none",))[0] == b"mine"

    def test_a_clients_id_cannot_leave_its_field(self) -> None:
        text = made((b"X-Request-Id", b"a status=200 \xff\x1b" + b"x" * 1000))[3]
        assert text.startswith(rb' request_id="a status=200 \\xff\x1bxxx')
        assert len(text) < 300
        assert text.isascii()

    def test_each_process_has_others(self) -> None:
        one, two = TraceHeaders(NAMES, b"a" * 12), TraceHeaders(NAMES, b"b" * 12)
        assert one.made(1) != two.made(1) != one.made(2)
        assert one.fresh() != one.fresh() != one.made(1)

    def test_links_repeat_those_of_the_client(self) -> None:
        trace = TraceHeaders(NAMES, SEED)
        assert trace.passed_on(request([(b"x-request-id", b"mine")])) == b"X-Request-Id: mine\r\n"
        assert trace.passed_on(request([])) == b""


class TestRequests:
    def test_a_repeated_head_has_new_ids(self) -> None:
        house = House()
        found = []
        for _ in range(3):
            house.browser().says(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
            backend = house.pool.connect() if house.pool.wanted else house.pool.opened[-1]
            found.append(re.findall(rb"\r\nX-Request-Id: (\S+)\r\ntraceparent: (\S+)\r\n", backend.take()))
            backend.says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        assert [len(each) for each in found] == [1, 1, 1]
        assert len({pair for each in found for pair in each}) == 3

    def test_a_repeated_head_with_ids_keeps_them(self) -> None:
        house = House()
        for _ in range(3):
            house.browser().says(b"GET /x HTTP/1.1\r\nHost: h\r\nX-Request-Id: mine\r\n\r\n")
            backend = house.pool.connect() if house.pool.wanted else house.pool.opened[-1]
            head = backend.take()
            assert head.count(b"X-Request-Id: mine\r\n") == head.lower().count(b"x-request-id") == 1
            backend.says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
