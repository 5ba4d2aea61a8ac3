"""Requests to backends and their answers: what the client says, what the backend gets, and the way back."""

from __future__ import annotations

import errno
import gzip
import re
import zlib

import pytest

from gripproxy.backend.connection import HIGH_WATER
from gripproxy.backend.pool import Blocked
from gripproxy.client.exchange import GRIP_REQUEST_MAX, GRIP_RESPONSE_MAX, UPLOAD_WAIT_MAX
from gripproxy.grip.item import Item, StreamFormat
from tests.support.doubles import Backend, Browser, House, Parsed, unchunk

GET = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


@pytest.fixture
def house() -> House:
    return House()


def asked(house: House, request: bytes = GET) -> tuple[Browser, Backend]:
    """A request that has reached its backend."""
    browser = house.browser().says(request)
    backend = house.pool.connect()
    return browser, backend


def error(browser: Browser, code: int) -> str:
    response = Parsed(browser.take())
    assert (response.code, response.get(b"Content-Type")) == (code, b"text/plain")
    return response.body.decode()


class TestRelay:
    def test_a_response_goes_through_and_both_connections_stay(self, house: House) -> None:
        browser, backend = asked(house)
        assert backend.take().startswith(b"GET /x HTTP/1.1\r\nHost: h\r\n")
        backend.says(OK)
        assert browser.take() == OK
        assert backend.free
        browser.says(GET)
        assert house.pool.wanted == []
        backend.says(OK)
        assert browser.take() == OK

    def test_a_body_of_no_length_is_chunked_for_the_client(self, house: House) -> None:
        browser, backend = asked(house)
        backend.says(b"HTTP/1.1 200 OK\r\n\r\nhel")
        backend.says(b"lo")
        assert not browser.transport.closing
        backend.leaves()
        response = Parsed(browser.take())
        assert response.get(b"Connection") == b"Transfer-Encoding"
        assert unchunk(response.rest) == (b"hello", True)
        assert not browser.transport.closing

    def test_chunks_are_chunked_anew_and_trailers_dropped(self, house: House) -> None:
        browser, backend = asked(house)
        backend.says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n")
        backend.says(b"0\r\nX-Trailer: 1\r\n\r\n")
        data = browser.take()
        assert unchunk(Parsed(data).rest) == (b"hello", True)
        assert b"X-Trailer" not in data
        assert backend.free

    def test_an_empty_chunked_body(self, house: House) -> None:
        browser, backend = asked(house)
        backend.says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        assert unchunk(Parsed(browser.take()).rest) == (b"", True)

    def test_http_1_0_gets_no_chunks_and_the_end_of_the_connection(self, house: House) -> None:
        browser, backend = asked(house, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        backend.says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
        response = Parsed(browser.take())
        assert (response.version, response.rest, response.get(b"Connection")) == (b"HTTP/1.0", b"hi", None)
        assert browser.transport.closing

    def test_http_1_0_with_a_length_may_stay(self, house: House) -> None:
        browser, backend = asked(house, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        backend.says(OK)
        assert Parsed(browser.take()).get(b"Connection") == b"keep-alive"
        assert not browser.transport.closing

    @pytest.mark.parametrize("framing", [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"])
    def test_head_has_no_body(self, house: House, framing: bytes) -> None:
        browser, backend = asked(house, b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n")
        backend.says(b"HTTP/1.1 200 OK\r\n%b\r\n" % framing)
        response = Parsed(browser.take())
        assert response.rest == b""
        assert response.get(b"Content-Length") == (b"5" if b"5" in framing else None)
        browser.says(GET)
        backend.says(OK)
        assert browser.take() == OK

    @pytest.mark.parametrize("code", [204, 304])
    def test_responses_without_body(self, house: House, code: int) -> None:
        browser, backend = asked(house)
        backend.says(b"HTTP/1.1 %d X\r\n\r\n" % code)
        assert browser.take() == b"HTTP/1.1 %d X\r\n\r\n" % code
        assert not browser.transport.closing

    def test_hop_by_hop_headers_stay_behind(self, house: House) -> None:
        browser, backend = asked(house)
        backend.says(b"HTTP/1.1 200 OK\r\nConnection: close\r\nKeep-Alive: x\r\nX-Y: z\r\nContent-Length: 0\r\n\r\n")
        assert browser.take() == b"HTTP/1.1 200 OK\r\nX-Y: z\r\nContent-Length: 0\r\n\r\n"
        assert not browser.transport.closing
        assert backend.transport.closing

    def test_interim_responses_are_relayed_but_100(self, house: House) -> None:
        browser, backend = asked(house)
        backend.says(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </s>\r\nGrip-X: 1\r\n\r\n")
        assert browser.take() == b"HTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\n"
        backend.says(OK)
        assert browser.take() == OK

    def test_interim_responses_say_nothing_of_the_connection(self, house: House) -> None:
        browser, backend = asked(house)
        lines = b"Connection: close\r\nKeep-Alive: x\r\nContent-Length: 2\r\nUpgrade: x\r\nTrailer: x\r\nLink: </s>\r\n"
        backend.says(b"HTTP/1.1 103 Early Hints\r\n%b\r\n" % lines)
        assert browser.take() == b"HTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\n"

    def test_a_204_is_relayed_without_length(self, house: House) -> None:
        browser, backend = asked(house)
        for _ in range(4):
            backend.take()
            backend.says(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nX: y\r\n\r\n")
            assert browser.take() == b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n"
            browser.says(GET)

    def test_http_1_0_knows_no_interim_responses(self, house: House) -> None:
        browser, backend = asked(house, b"GET / HTTP/1.0\r\n\r\n")
        backend.says(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        assert browser.take() == b""


class TestUpload:
    def test_a_whole_body_has_a_length_even_if_the_client_chunked_it(self, house: House) -> None:
        request = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
        _, backend = asked(house, request)
        sent = backend.take()
        assert b"Content-Length: 5\r\n" in sent
        assert b"Transfer-Encoding" not in sent
        assert sent.endswith(b"\r\n\r\nhello")

    def test_a_body_that_comes_later_is_passed_on_as_it_comes(self, house: House) -> None:
        browser, backend = asked(house, b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe")
        assert backend.take().endswith(b"\r\n\r\nhe")
        browser.says(b"llo")
        assert backend.take() == b"llo"
        backend.says(OK)
        assert browser.take() == OK

    def test_chunks_that_come_later_are_chunks(self, house: House) -> None:
        browser, backend = asked(house, b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n")
        sent = backend.take()
        assert b"Transfer-Encoding: chunked\r\n" in sent
        assert sent.endswith(b"\r\n\r\n2\r\nhe\r\n")
        browser.says(b"3\r\nllo\r\n0\r\n\r\n")
        assert backend.take() == b"3\r\nllo\r\n0\r\n\r\n"

    def test_the_client_waits_for_a_connection_that_takes_long(self, house: House) -> None:
        browser = house.browser().says(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n")
        browser.says(b"x" * UPLOAD_WAIT_MAX)
        assert browser.transport.reading
        browser.says(b"x")
        assert not browser.transport.reading
        backend = house.pool.connect()
        assert browser.transport.reading
        assert backend.take().endswith(b"\r\n\r\n" + b"x" * (UPLOAD_WAIT_MAX + 1))

    def test_a_backend_that_does_not_read_stops_the_client_and_its_clock(self, house: House) -> None:
        browser, backend = asked(house, b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n")
        original = backend.transport.write

        def full(data: bytes) -> None:
            original(data)
            backend.connection.pause_writing()

        backend.transport.write = full  # type: ignore[method-assign]
        browser.says(b"x" * HIGH_WATER)
        assert not browser.transport.reading
        house.pass_time(1000)
        assert not browser.transport.closing
        backend.connection.resume_writing()
        assert browser.transport.reading
        house.pass_time(62)
        assert browser.transport.closing
        assert backend.transport.aborted

    def test_the_end_of_a_body_lets_the_client_be_read_again(self, house: House) -> None:
        """Only a reader sees that a client has left."""
        browser, backend = asked(house, b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n")
        original = backend.transport.write

        def full(data: bytes) -> None:
            original(data)
            backend.connection.pause_writing()

        backend.transport.write = full  # type: ignore[method-assign]
        browser.says(b"body")
        assert browser.transport.reading
        backend.connection.resume_writing()
        backend.says(OK)
        assert browser.take() == OK

    def test_an_answer_before_the_end_of_the_body(self, house: House) -> None:
        browser, backend = asked(house, b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe")
        backend.says(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        assert browser.take().startswith(b"HTTP/1.1 413 Too Large\r\n")
        assert browser.transport.closing
        assert backend.transport.aborted

    def test_the_backends_time_begins_when_the_body_is_complete(self, house: House) -> None:
        browser, _ = asked(house, b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 20\r\n\r\n")
        for _ in range(9):
            house.pass_time(50)
            browser.says(b"xx")
        assert browser.take() == b""
        browser.says(b"xx")
        house.pass_time(59)
        assert browser.take() == b""
        house.pass_time(3)
        assert Parsed(browser.take()).code == 504


class TestTargets:
    def test_the_next_target_is_tried(self) -> None:
        house = House("* one:1,x two:2,y three:3")
        browser = house.browser().says(GET)
        assert str(house.pool.refuse()) == "one:1"
        assert str(house.pool.refuse(TimeoutError("late"))) == "two:2"
        backend = house.pool.connect()
        assert str(backend.target) == "three:3"
        backend.says(OK)
        assert browser.take() == OK

    @pytest.mark.parametrize("debug", [True, False])
    def test_none_can_be_reached(self, debug: bool) -> None:
        house = House("* one:1 two:2", debug=debug)
        browser = house.browser().says(GET)
        house.pool.refuse()
        house.pool.refuse()
        text = "Unable to connect to any targets. Tried: one:1, two:2" if debug else "Error while proxying to origin."
        assert error(browser, 502) == text + "\n"
        assert not browser.transport.closing

    @pytest.mark.parametrize("debug", [True, False])
    def test_a_blocked_address_is_not_failed_over(self, debug: bool) -> None:
        house = House("*,debug one:1,untrusted two:2" if debug else "* one:1,untrusted two:2")
        browser = house.browser().says(GET)
        house.pool.refuse(Blocked("no"))
        expected = "Error: Origin host/IP blocked." if debug else "Error while proxying to origin."
        assert error(browser, 502) == expected + "\n"
        assert house.pool.wanted == []

    def test_no_descriptor_is_not_the_backends_fault(self) -> None:
        house = House("* one:1 two:2")
        browser = house.browser().says(GET)
        house.pool.refuse(OSError(errno.EMFILE, "no descriptor within 10 s"))
        assert error(browser, 503) == "Service unavailable.\n"
        assert house.pool.wanted == []

    def test_a_body_that_was_taken_in_goes_to_the_next_one_too(self) -> None:
        house = House("* one:1 two:2")
        house.browser().says(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello")
        house.pool.refuse()
        assert house.pool.connect().take().endswith(b"\r\n\r\nhello")

    def test_no_route(self) -> None:
        house = House("other one:1")
        browser = house.browser().says(b"GET / HTTP/1.1\r\nHost: h:81\r\n\r\n")
        assert error(browser, 502) == "No route for host: h\n"

    def test_without_host_it_is_localhost(self) -> None:
        house = House("localhost one:1")
        house.browser().says(b"GET / HTTP/1.0\r\n\r\n")
        assert b"Host: localhost\r\n" in house.pool.connect().take()

    def test_events_of_websockets_are_not_for_clients(self) -> None:
        house = House("* one:1,over_http")
        browser = house.browser().says(
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/websocket-events; x=y\r\n\r\n"
        )
        assert error(browser, 403) == "Client not allowed to send WebSocket events directly.\n"

    @pytest.mark.parametrize("method", [b"GET", b"PUT"])
    @pytest.mark.parametrize(
        "line",
        [
            b"Content-Type: text/plain, Application/Websocket-Events",
            b"Content-Type: x/y; a=application/websocket-events",
            b"content_type: application/websocket-events",
        ],
    )
    def test_events_of_websockets_in_disguise(self, method: bytes, line: bytes) -> None:
        house = House("* one:1,over_http")
        for _ in range(3):
            browser = house.browser().says(b"%b / HTTP/1.1\r\nHost: h\r\n%b\r\n\r\n" % (method, line))
            assert error(browser, 403) == "Client not allowed to send WebSocket events directly.\n"
        assert not house.pool.wanted

    def test_the_built_in_target(self) -> None:
        house = House("* test")
        browser = house.browser().says(GET.replace(b"/x", b"/"))
        house.pass_time(0)
        assert Parsed(browser.take()).body == b"Hello from the gripproxy test handler!\n"

    def test_a_check_asks_nobody(self, house: House) -> None:
        browser = house.browser().says(b"GET / HTTP/1.1\r\nHost: h\r\nPushpin-Check: 1\r\n\r\n")
        assert Parsed(browser.take()).code == 200
        assert house.pool.wanted == []


def reused(house: House, request: bytes) -> tuple[Browser, Backend]:
    """A request on a connection that has served before."""
    browser, backend = asked(house)
    backend.says(OK)
    browser.take()
    backend.take()
    browser.says(request)
    assert backend.take()
    return browser, backend


BODY = b" / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"


class TestStale:
    """A reused connection that closes before any byte of its answer (RFC 9112 §9.3.1)."""

    @pytest.mark.parametrize("request_", [GET, b"PUT" + BODY, b"DELETE" + BODY])
    def test_idempotent_requests_are_sent_once_more_on_a_new_connection(self, house: House, request_: bytes) -> None:
        browser, backend = reused(house, request_)
        backend.leaves()
        fresh = house.pool.connect()
        assert fresh.take().split(b" ", 1)[0] == request_.split(b" ", 1)[0]
        fresh.says(OK)
        assert browser.take() == OK

    def test_only_once(self, house: House) -> None:
        browser, backend = reused(house, GET)
        backend.leaves()
        house.pool.connect().leaves()
        assert error(browser, 502) == "Error while proxying to origin.\n"
        assert house.pool.wanted == []

    @pytest.mark.parametrize("method", [b"POST", b"PATCH"])
    def test_others_are_not(self, house: House, method: bytes) -> None:
        browser, backend = reused(house, method + BODY)
        backend.leaves()
        assert error(browser, 502) == "Error while proxying to origin.\n"

    def test_not_after_a_byte_of_the_answer(self, house: House) -> None:
        browser, backend = reused(house, GET)
        backend.says(b"H")
        backend.leaves()
        assert Parsed(browser.take()).code == 502

    def test_not_on_a_connection_that_is_new(self, house: House) -> None:
        browser, backend = asked(house)
        backend.leaves()
        assert Parsed(browser.take()).code == 502
        assert house.pool.wanted == []

    def test_not_when_the_body_is_not_at_hand_any_more(self, house: House) -> None:
        size = GRIP_REQUEST_MAX + 1
        browser, backend = reused(house, b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size)
        browser.says(b"x" * size)
        backend.leaves()
        assert Parsed(browser.take()).code == 502

    def test_an_idle_connection_that_says_something_is_closed(self, house: House) -> None:
        _, backend = asked(house)
        backend.says(OK)
        backend.says(b"HTTP/1.1 408 Timeout\r\n\r\n")
        assert backend.transport.aborted
        assert house.pool.idle == []


class TestBroken:
    @pytest.mark.parametrize("answer", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
    @pytest.mark.parametrize("debug", [True, False])
    def test_no_response_at_all_is_502(self, debug: bool, answer: bytes) -> None:
        house = House(debug=debug)
        browser, backend = asked(house)
        backend.says(answer)
        assert error(browser, 502) == "Error while proxying to origin.\n"
        assert backend.transport.aborted
        assert not browser.transport.closing

    @pytest.mark.parametrize("head", [b"Content-Length: 90\r\n", b"Transfer-Encoding: chunked\r\n"])
    def test_one_that_breaks_off_does_not_look_complete(self, house: House, head: bytes) -> None:
        browser, backend = asked(house)
        backend.says(b"HTTP/1.1 200 OK\r\n%b\r\n4\r\nhell\r\n" % head)
        backend.leaves()
        assert not browser.take().endswith(b"\r\n0\r\n\r\n")
        assert browser.transport.aborted

    @pytest.mark.parametrize("debug", [True, False])
    def test_no_head_in_time_is_504(self, debug: bool) -> None:
        house = House(debug=debug)
        browser, backend = asked(house)
        house.pass_time(59)
        assert browser.take() == b""
        house.pass_time(3)
        text = "The backend did not answer in time." if debug else "Error while proxying to origin."
        assert error(browser, 504) == text + "\n"
        assert backend.transport.aborted

    def test_a_body_that_stops_is_aborted(self, house: House) -> None:
        browser, backend = asked(house)
        backend.says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhell")
        for _ in range(3):
            house.pass_time(50)
            backend.says(b"x")
        assert not browser.transport.closing
        house.pass_time(62)
        assert browser.transport.aborted
        assert backend.transport.aborted

    def test_the_client_leaves(self, house: House) -> None:
        browser, backend = asked(house)
        browser.transport.lose()
        assert backend.transport.aborted

    def test_the_client_leaves_while_a_connection_is_opened(self, house: House) -> None:
        browser = house.browser().says(GET)
        browser.transport.lose()
        assert house.pool.wanted == []


class TestBackPressure:
    def test_a_slow_client_stops_the_backend_and_the_clock(self, house: House) -> None:
        browser, backend = asked(house)
        original = browser.transport.write

        def full(data: bytes) -> None:
            original(data)
            browser.blocks()

        browser.transport.write = full  # type: ignore[method-assign]
        backend.says(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhell")
        assert not backend.transport.reading
        house.pass_time(1000)
        assert not browser.transport.closing
        browser.transport.write = original  # type: ignore[method-assign]
        browser.blocks(False)
        assert backend.transport.reading
        backend.says(b"oooo")
        assert Parsed(browser.take()).body == b"helloooo"
        assert backend.free

    def test_a_client_that_is_slow_from_the_response_before(self, house: House) -> None:
        browser, backend = asked(house)
        browser.blocks()
        house.pass_time(50)
        backend.says(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhe")
        assert not backend.transport.reading
        house.pass_time(500)
        browser.blocks(False)
        backend.says(b"ll")
        assert Parsed(browser.take()).body == b"hell"

    def test_it_does_not_put_off_the_backends_time(self, house: House) -> None:
        browser, _ = asked(house)
        browser.blocks()
        house.pass_time(62)
        assert Parsed(browser.take()).code == 504

    def test_a_connection_that_was_paused_is_read_again_in_the_pool(self, house: House) -> None:
        browser, backend = asked(house)
        original = browser.transport.write

        def full(data: bytes) -> None:
            original(data)
            browser.blocks()

        browser.transport.write = full  # type: ignore[method-assign]
        backend.says(OK)
        assert backend.free
        assert backend.transport.reading


class TestContentCoding:
    def encoded(self, coding: bytes, body: bytes, more: bytes = b"") -> bytes:
        return b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n%b\r\n%b" % (
            coding,
            len(body),
            more,
            body,
        )

    @pytest.mark.parametrize("coding", [b"gzip", b"x-gzip", b"GZip", b"deflate"])
    @pytest.mark.parametrize("cut", [None, 60, 120])
    def test_the_body_is_decoded(self, house: House, coding: bytes, cut: int | None) -> None:
        browser, backend = asked(house)
        content = b"hello " * 20
        body = zlib.compress(content) if coding == b"deflate" else gzip.compress(content)
        data = self.encoded(coding, body)
        for piece in (data[:cut], data[cut:]) if cut else (data,):
            backend.says(piece)
        response = Parsed(browser.take())
        assert response.get(b"Content-Encoding") is None
        assert response.get(b"Content-Length") is None
        assert unchunk(response.rest) == (content, True)

    def test_other_codings_pass(self, house: House) -> None:
        browser, backend = asked(house)
        data = self.encoded(b"br", b"?!")
        backend.says(data)
        assert browser.take() == data

    def test_head_and_empty_bodies_are_left_alone(self, house: House) -> None:
        browser, backend = asked(house, b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n")
        backend.says(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 20\r\n\r\n")
        assert Parsed(browser.take()).get(b"Content-Encoding") == b"gzip"
        browser, backend = asked(House())
        backend.says(self.encoded(b"gzip", b""))
        assert unchunk(Parsed(browser.take()).rest) == (b"", True)

    def test_a_bomb_comes_in_pieces_and_waits_for_the_client(self, house: House) -> None:
        """16 MB in 16 KB: what is decoded is at most a piece ahead of what the client takes."""
        browser, backend = asked(house)
        original = browser.transport.write
        sizes: list[int] = []

        def full(data: bytes) -> None:
            sizes.append(len(data))
            browser.blocks()

        browser.transport.write = full  # type: ignore[method-assign]
        body = gzip.compress(bytes(16 * 1024 * 1024))
        backend.says(self.encoded(b"gzip", body))
        assert sum(sizes) < 300_000
        for _ in range(10):
            browser.blocks(False)
        assert sum(sizes) < 1_000_000
        assert max(sizes) < 70_000
        assert not browser.transport.closing
        browser.transport.write = original  # type: ignore[method-assign]
        browser.blocks(False)
        assert browser.take().endswith(b"0\r\n\r\n")
        assert backend.free

    def test_a_body_that_is_not_what_it_says(self, house: House) -> None:
        browser, backend = asked(house)
        backend.says(self.encoded(b"gzip", b"plain text"))
        assert error(browser, 502) == "Error while proxying to origin.\n"

    def test_one_that_goes_wrong_later_does_not_look_complete(self, house: House) -> None:
        browser, backend = asked(house)
        body = gzip.compress(bytes(range(256)) * 100, 0)
        data = self.encoded(b"gzip", body[:10_000] + b"x" * 10 + body[10_010:])
        backend.says(data[:5_000])
        assert Parsed(browser.take()).code == 200
        backend.says(data[5_000:])
        assert browser.transport.aborted

    def test_one_that_ends_too_early_does_not_look_complete(self, house: House) -> None:
        browser, backend = asked(house)
        data = self.encoded(b"gzip", gzip.compress(bytes(range(256)) * 100)[:-20])
        backend.says(data[:200])
        backend.says(data[200:])
        assert browser.transport.aborted

    def test_a_grip_response_may_be_coded_too(self, house: House) -> None:
        browser, backend = asked(house)
        hold = b"Grip-Hold: stream\r\nGrip-Channel: c\r\n"
        backend.says(self.encoded(b"gzip", gzip.compress(b"hello"), hold))
        house.confirm()
        response = Parsed(browser.take())
        assert response.get(b"Content-Encoding") is None
        assert unchunk(response.rest) == (b"hello", False)


def grip(body: bytes, *headers: bytes, code: bytes = b"200 OK") -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (code, lines, len(body), body)


class TestGrip:
    def test_a_response_that_holds_nothing_is_buffered_and_stripped(self, house: House) -> None:
        browser, backend = asked(house)
        data = grip(b"hello", b"Grip-Status: 404 Nope", b"Grip-Any: 1", b"X-Y: z")
        backend.says(data[:-2])
        assert browser.take() == b""
        backend.says(data[-2:])
        response = Parsed(browser.take())
        assert (response.code, response.reason, response.body) == (404, b"Nope", b"hello")
        assert response.headers == [(b"X-Y", b"z"), (b"Content-Length", b"5")]

    @pytest.mark.parametrize("debug", [True, False])
    def test_a_bad_instruct(self, debug: bool) -> None:
        house = House(debug=debug)
        browser, backend = asked(house)
        backend.says(grip(b"", b"Grip-Hold: maybe"))
        text = error(browser, 502)
        if debug:
            assert re.match(r"Failed to parse accept instructions: .+\n", text)
        else:
            assert text == "Error while proxying to origin.\n"

    @pytest.mark.parametrize(
        ("route", "code"),
        [
            ("*", 502),
            ("*,prefix=hub/", 502),
            ("*,prefix=app-", 200),
            ("*,reserved", 200),
            ("*,reserved,prefix=hub/", 200),
        ],
    )
    def test_one_with_a_reserved_channel(self, route: str, code: int) -> None:
        house = House(f"{route} one:80", reserved_prefix="hub/", debug=True)
        browser, backend = asked(house)
        backend.says(grip(b"", b"Grip-Hold: stream", b"Grip-Channel: hub/1"))
        house.confirm()
        if code == 502:
            text = "Failed to parse accept instructions: channel 'hub/1' is reserved: only routes with the property "
            assert error(browser, 502).startswith(text)
        else:
            assert browser.take().startswith(b"HTTP/1.1 200 ")

    @pytest.mark.parametrize("debug", [True, False])
    @pytest.mark.parametrize("header", [b"Grip-Hold: response\r\nGrip-Channel: c", b"Grip-Status: 200"])
    def test_one_that_is_too_large(self, debug: bool, header: bytes) -> None:
        house = House(debug=debug)
        browser, backend = asked(house)
        backend.says(grip(b"x" * (GRIP_RESPONSE_MAX + 1), header))
        text = "GRIP instruct response too large from one:80" if debug else "Error while proxying to origin."
        assert error(browser, 502) == text + "\n"
        assert backend.transport.aborted

    def test_the_largest_that_is_buffered(self, house: House) -> None:
        browser, backend = asked(house)
        backend.says(grip(b"x" * GRIP_RESPONSE_MAX, b"Grip-Status: 200"))
        assert len(Parsed(browser.take()).body) == GRIP_RESPONSE_MAX

    def test_a_large_stream_is_passed_through_and_held_when_it_is_complete(self, house: House) -> None:
        browser, backend = asked(house)
        body = b"x" * (GRIP_RESPONSE_MAX + 5)
        data = grip(body, b"Grip-Hold: stream", b"Grip-Channel: c", b"X-Y: z")
        backend.says(data[:-3])
        response = Parsed(browser.take())
        assert (response.get(b"X-Y"), response.get(b"Grip-Hold")) == (b"z", None)
        assert unchunk(response.rest) == (body[:-3], False)
        assert house.pipe.take() == []
        backend.says(data[-3:])
        assert unchunk(browser.take()) == (b"xxx", False)
        assert [message[1] for message in house.pipe.sent] == [b"c"]
        house.confirm()
        assert browser.take() == b""

    def test_pages_behind_one_that_the_client_has_not_read_wait_for_it(self, house: House) -> None:
        browser, backend = asked(house)
        data = grip(b"x" * (GRIP_RESPONSE_MAX + 5), b"Grip-Link: </2>; rel=next")
        backend.says(data[:-1])
        browser.blocks()
        backend.connection.data_received(data[-1:])
        browser.take()
        backend.take()
        house.pass_time(1)
        assert backend.take() == b""
        browser.blocks(False)
        house.pass_time(1)
        assert backend.take().startswith(b"GET /2 ")
        backend.says(grip(b"y" * 10, b"Grip-Hold: stream", b"Grip-Channel: c"))
        assert unchunk(browser.take()) == (b"y" * 10, False)

    def test_items_of_a_stream_whose_client_is_blocked_at_its_beginning_wait(self, house: House) -> None:
        browser, backend = asked(house)
        data = grip(b"x" * (GRIP_RESPONSE_MAX + 5), b"Grip-Hold: stream", b"Grip-Channel: c")
        backend.says(data[:-1])
        browser.blocks()
        backend.connection.data_received(data[-1:])
        house.confirm()
        browser.take()
        house.publish(Item(b"c", stream=StreamFormat("send", b"more")))
        assert browser.take() == b""
        browser.blocks(False)
        assert unchunk(browser.take()) == (b"more", False)

    @pytest.mark.parametrize("link", [(), (b"Grip-Link: </n>; rel=next",)])
    def test_one_that_is_passed_through_to_http_1_0(self, house: House, link: tuple[bytes, ...]) -> None:
        browser, backend = asked(house, GET.replace(b"HTTP/1.1", b"HTTP/1.0"))
        body = b"x" * (GRIP_RESPONSE_MAX + 5)
        backend.says(grip(body, b"Grip-Hold: stream", b"Grip-Channel: c", *link))
        assert browser.take().endswith(b"\r\n\r\n" + body)
        house.confirm()
        house.publish(Item(b"c", stream=StreamFormat("send", b"more")))
        assert browser.take() == b"more"

    def test_one_that_breaks_off_while_it_is_passed_through(self, house: House) -> None:
        browser, backend = asked(house)
        backend.says(grip(b"x" * (GRIP_RESPONSE_MAX + 5), b"Grip-Hold: stream", b"Grip-Channel: c")[:-3])
        backend.leaves()
        assert browser.transport.aborted
        assert house.pipe.take() == []

    @pytest.mark.parametrize("mode", [b"response", b"stream"])
    @pytest.mark.parametrize("large", [True, False])
    def test_the_request_must_be_small_enough_to_repeat(self, house: House, mode: bytes, large: bool) -> None:
        size = GRIP_REQUEST_MAX + large
        browser, backend = asked(house, b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size)
        browser.says(b"x" * size)
        backend.says(grip(b"", b"Grip-Hold: " + mode, b"Grip-Channel: c"))
        if large:
            assert error(browser, 400) == "Request too large to accept GRIP instruct.\n"
        else:
            assert browser.take() == b""
            assert len(house.pipe.take()) == 1

    @pytest.mark.parametrize("mode", [b"response", b"stream"])
    @pytest.mark.parametrize("size", [5, GRIP_RESPONSE_MAX + 5])
    def test_a_hold_before_the_end_of_the_request_is_none(self, mode: bytes, size: int) -> None:
        house = House(debug=True)
        browser, backend = asked(house, b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nbod")
        backend.says(grip(b"x" * size, b"Grip-Hold: " + mode, b"Grip-Channel: c"))
        assert error(browser, 502).startswith("GRIP instruct ")
        assert browser.transport.closing
        assert backend.transport.aborted
        assert house.pipe.take() == []

    def test_routes_without_grip_relay_everything(self) -> None:
        house = House("*,no_grip one:80")
        browser, backend = asked(house)
        assert b"Grip-Sig" not in backend.take()
        data = grip(b"x", b"Grip-Hold: response")
        backend.says(data)
        assert browser.take() == data


class TestCors:
    @pytest.mark.parametrize("answer", [OK, grip(b"x", b"Grip-Status: 200"), b"broken\r\n\r\n"])
    def test_every_response_has_the_headers(self, answer: bytes) -> None:
        house = House("*,aco one:80")
        browser, backend = asked(house, b"GET / HTTP/1.1\r\nHost: h\r\nOrigin: http://o\r\n\r\n")
        backend.says(answer)
        assert Parsed(browser.take()).get(b"Access-Control-Allow-Origin") == b"http://o"
