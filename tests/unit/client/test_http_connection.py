"""Client connections: order of requests, bounds, times, holds and their ends. The rest of the worker is real too."""

from __future__ import annotations

import pytest

from gripproxy import pipe
from gripproxy.client.http_connection import UNHEARD_MAX
from gripproxy.client.retry import RetriedExchange
from gripproxy.grip.item import Item, ResponseFormat, StreamFormat
from tests.support.doubles import Backend, Browser, House, Parsed, unchunk

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


@pytest.fixture
def house() -> House:
    return House()


def get(path: bytes = b"/x", *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"GET %b HTTP/1.1\r\nHost: h\r\n%b\r\n" % (path, lines)


def numbered(n: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % n


def response_hold(body: bytes = b"timeout", channel: bytes = b"ch", *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 200 OK\r\nGrip-Hold: response\r\nGrip-Channel: %b\r\n%bContent-Length: %d\r\n\r\n%b" % (
        channel,
        lines,
        len(body),
        body,
    )


def stream_hold(body: bytes = b"open", channel: bytes = b"ch", *headers: bytes) -> bytes:
    return response_hold(body, channel, *headers).replace(b"Grip-Hold: response", b"Grip-Hold: stream")


def held(house: House, answer: bytes, request: bytes | None = None) -> tuple[Browser, Backend]:
    browser = house.browser().says(request or get())
    backend = house.pool.connect() if house.pool.wanted else house.pool.opened[-1]
    backend.says(answer)
    house.confirm()
    backend.take()
    return browser, backend


def published(body: bytes) -> Item:
    return Item(b"ch", response=ResponseFormat(body=body))


class TestOrder:
    def test_pipelined_requests_are_answered_in_order_one_at_a_time(self, house: House) -> None:
        browser = house.browser().says(get(b"/1") + get(b"/2") + get(b"/3"))
        backend = house.pool.connect()
        for n in (1, 2, 3):
            assert backend.take().startswith(b"GET /%d " % n)
            assert house.pool.wanted == []
            backend.says(numbered(n))
            assert Parsed(browser.take()).body == b"%d" % n

    def test_one_that_comes_while_another_is_in_flight(self, house: House) -> None:
        browser = house.browser().says(get(b"/1"))
        backend = house.pool.connect()
        backend.take()
        browser.says(get(b"/2"))
        assert backend.take() == b""
        backend.says(numbered(1))
        assert backend.take().startswith(b"GET /2 ")

    def test_one_behind_a_body(self, house: House) -> None:
        browser = house.browser().says(b"POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbo")
        backend = house.pool.connect()
        browser.says(b"dy" + get(b"/2"))
        assert backend.take().endswith(b"body")
        backend.says(numbered(1))
        assert backend.take().startswith(b"GET /2 ")

    def test_very_many_that_are_answered_at_once(self) -> None:
        house = House("other one:80")
        request = b"GET / HTTP/1.1\r\n\r\n"
        browser = house.browser().says(request * 10_000)
        assert browser.take().count(b"HTTP/1.1 502 Bad Gateway\r\n") == 10_000

    def test_nothing_is_answered_behind_a_close(self, house: House) -> None:
        browser = house.browser().says(get(b"/1", b"Connection: close") + get(b"/2"))
        backend = house.pool.connect()
        backend.says(OK)
        assert Parsed(browser.take()).get(b"Connection") == b"close"
        assert browser.transport.closing

    @pytest.mark.parametrize("split", ["whole", "after the good ones", "bytes"])
    @pytest.mark.parametrize(
        "bad", [b"\0\0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", b"BREW / HTTP/1.1\r\n\r\n"]
    )
    def test_a_bad_request_is_answered_behind_the_good_ones(self, house: House, bad: bytes, split: str) -> None:
        """However it is split: an answer at once would be taken for the answer to the first."""
        good = get(b"/1") + get(b"/2")
        data = good + bad + get(b"/never")
        pieces = {"whole": [data], "after the good ones": [good, data[len(good) :]]}.get(split)
        browser = house.browser()
        for piece in pieces or [data[n : n + 1] for n in range(len(data))]:
            browser.says(piece)
        backend = house.pool.connect()
        for n in (1, 2):
            assert backend.take().startswith(b"GET /%d " % n)
            assert not browser.transport.closing
            backend.says(numbered(n))
            answer = browser.take()
            assert Parsed(answer).body == b"%d" % n
        alone = house.browser().says(bad)
        # What the two get is the same, and nothing of what came behind it reaches the backend.
        assert answer.removeprefix(numbered(2)) == alone.take() != b""
        assert browser.transport.eof_written
        assert backend.take() == b""
        assert house.pool.wanted == []
        assert house.worker.events.bad == 2

    def test_a_body_that_is_none_is_answered_before_the_backend_answers(self, house: House) -> None:
        browser = house.browser().says(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi")
        backend = house.pool.connect()
        assert backend.take().endswith(b"2\r\nhi\r\n")
        browser.says(b"\r\nzz\r\n")
        assert Parsed(browser.take()).code == 400
        assert backend.transport.aborted
        assert house.worker.registry.in_flight == 0

    def test_a_body_that_is_none_ends_an_answer_that_has_begun(self, house: House) -> None:
        browser = house.browser().says(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi")
        backend = house.pool.connect()
        backend.says(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
        assert browser.take().endswith(b"he")
        browser.says(b"\r\nzz\r\n")
        assert browser.take() == b""
        assert browser.transport.aborted

    def test_a_body_that_is_none_behind_a_request_in_flight(self, house: House) -> None:
        browser = house.browser().says(get(b"/1"))
        backend = house.pool.connect()
        browser.says(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi")
        browser.says(b"\r\nzz\r\n")
        backend.take()
        backend.says(OK)
        assert browser.take().startswith(OK + b"HTTP/1.1 400 Bad Request\r\n")
        assert backend.take() == b""

    def test_behind_a_held_one_it_waits_for_the_hold(self, house: House) -> None:
        browser, _ = held(house, response_hold())
        browser.says(b"\0\0\r\n\r\n")
        assert not browser.transport.closing
        house.publish(published(b"news"))
        answer = Parsed(browser.take())
        assert answer.body == b"news"
        assert Parsed(answer.rest[4:]).code == 400
        assert browser.transport.eof_written

    def test_what_comes_behind_it_is_thrown_away_up_to_a_bound(self, house: House) -> None:
        browser = house.browser().says(get(b"/1") + b"\0\0\r\n\r\n")
        house.pool.connect()
        for _ in range(16):
            browser.says(b"x" * (UNHEARD_MAX // 16))
        assert not browser.transport.closing
        browser.says(b"x")
        assert browser.transport.aborted


class TestHalfClosed:
    """A client that has closed its sending side."""

    def test_it_is_answered_if_the_answer_has_not_begun(self, house: House) -> None:
        browser = house.browser().says(get())
        assert browser.connection.eof_received()
        house.pool.connect().says(OK)
        assert browser.take() == OK
        assert browser.transport.closing
        assert not browser.transport.aborted

    def test_what_it_sent_before_is_answered_in_order(self, house: House) -> None:
        browser = house.browser().says(
            get(b"/1") + get(b"/2") + b"POST /cut HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n"
        )
        assert browser.connection.eof_received()
        backend = house.pool.connect()
        for n in (1, 2):
            assert backend.take().startswith(b"GET /%d " % n)
            assert not browser.transport.closing
            backend.says(numbered(n))
        assert browser.take() == numbered(1) + numbered(2)
        assert browser.transport.closing
        assert backend.take() == b""

    def test_what_is_no_request_behind_it_is_answered_too(self, house: House) -> None:
        browser = house.browser().says(get(b"/1") + b"\0\0\r\n\r\n")
        assert browser.connection.eof_received()
        house.pool.connect().says(OK)
        assert browser.take().startswith(OK + b"HTTP/1.1 400 Bad Request\r\n")

    def test_it_has_left_if_the_answer_has_begun(self, house: House) -> None:
        browser = house.browser().says(get())
        house.pool.connect().says(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
        assert not browser.connection.eof_received()

    def test_it_has_left_if_its_body_is_not_complete(self, house: House) -> None:
        browser = house.browser().says(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe")
        house.pool.connect()
        assert not browser.connection.eof_received()

    def test_it_has_left_if_it_asked_for_nothing_or_comes_by_tls(self, house: House) -> None:
        assert not house.browser().connection.eof_received()
        assert not house.browser(secure=True).says(get()).connection.eof_received()

    @pytest.mark.parametrize("answer", [response_hold(), stream_hold()])
    def test_a_hold_ends(self, house: House, answer: bytes) -> None:
        browser, _ = held(house, answer)
        assert not browser.connection.eof_received()

    @pytest.mark.parametrize(
        "answer",
        [
            response_hold(b"timeout", b"ch", b"Grip-Timeout: 50"),
            stream_hold(b"timeout"),
            stream_hold(b"timeout", b"ch; prev-id=1", b'Grip-Link: </n>; rel="next"'),
        ],
    )
    def test_what_would_be_held_is_answered_at_once(self, house: House, answer: bytes) -> None:
        browser = house.browser().says(get())
        assert browser.connection.eof_received()
        house.pool.connect().says(answer)
        assert Parsed(browser.take()).body == b"timeout"
        assert browser.transport.closing
        assert house.worker.registry.held == {}
        assert house.pipe.take() == []

    def test_a_held_one_that_is_repeated_has_left(self, house: House) -> None:
        browser, _ = held(house, response_hold(b"timeout", b"ch; prev-id=1"))
        house.worker.scheduler.add(browser.connection._hold)  # type: ignore[arg-type]
        house.pass_time(5)
        assert isinstance(browser.connection.exchange, RetriedExchange)
        assert not browser.connection.eof_received()

    def test_it_is_let_go_at_the_response_timeout(self) -> None:
        house = House(response_timeout=3)
        browser = house.browser().says(get())
        house.pool.connect()
        assert browser.connection.eof_received()
        house.pass_time(5)
        house.worker._sweep()
        assert Parsed(browser.take()).code == 504
        assert browser.transport.closing


class TestAhead:
    """What a client may send while it waits for a response."""

    @pytest.fixture(params=["in flight", "held"])
    def waiting(self, request: pytest.FixtureRequest) -> Browser:
        house = House(client_buffer_size=500)
        browser = house.browser().says(get())
        backend = house.pool.connect()
        if request.param == "held":
            backend.says(response_hold())
            house.confirm()
        return browser

    def test_up_to_the_bound_it_is_kept(self, waiting: Browser) -> None:
        waiting.says(b"GET /" + b"x" * 495)
        assert not waiting.transport.closing

    def test_over_the_bound_it_is_closed(self, waiting: Browser) -> None:
        for _ in range(2):
            waiting.says(get(b"/" + b"x" * 200))
        assert not waiting.transport.closing
        waiting.says(get(b"/" + b"x" * 200))
        assert waiting.transport.aborted
        assert waiting.take() == b""

    def test_a_head_over_the_bound_is_answered_in_its_turn(self) -> None:
        house = House(client_buffer_size=500)
        browser = house.browser().says(get())
        browser.says(b"GET /" + b"x" * 300)
        browser.says(b"x" * 300)
        assert browser.take() == b""
        house.pool.connect().says(OK)
        assert browser.take().startswith(OK + b"HTTP/1.1 431 ")

    def test_what_was_answered_does_not_count(self) -> None:
        house = House(client_buffer_size=500)
        browser = house.browser().says(get())
        backend = house.pool.connect()
        for _ in range(50):
            browser.says(get())
            backend.says(OK)
        assert not browser.transport.closing


class TestExpect:
    POST = b"POST / HTTP/1.%d\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"

    def test_it_is_answered_at_once_and_not_passed_on(self, house: House) -> None:
        browser = house.browser().says(self.POST % 1)
        assert browser.take() == b"HTTP/1.1 100 Continue\r\n\r\n"
        browser.says(b"body")
        backend = house.pool.connect()
        assert b"Expect" not in backend.take()
        backend.says(OK)
        assert browser.take() == OK

    def test_not_to_those_who_do_not_wait(self, house: House) -> None:
        assert house.browser().says(self.POST % 1 + b"body").take() == b""
        assert house.browser().says(self.POST % 1 + b"bo").take() == b""

    def test_not_to_http_1_0(self, house: House) -> None:
        assert house.browser().says(self.POST % 0).take() == b""

    def test_in_its_turn(self, house: House) -> None:
        browser = house.browser().says(get(b"/1") + self.POST % 1)
        backend = house.pool.connect()
        assert browser.take() == b""
        backend.says(numbered(1))
        assert browser.take() == numbered(1) + b"HTTP/1.1 100 Continue\r\n\r\n"


class TestTimes:
    def test_a_head_that_does_not_come(self, house: House) -> None:
        browser = house.browser()
        house.pass_time(14)
        assert not browser.transport.closing
        house.pass_time(3)
        assert (browser.transport.closing, browser.take()) == (True, b"")

    def test_a_head_that_is_not_complete_in_time(self, house: House) -> None:
        browser = house.browser()
        for letter in b"GET / HTTP/1.1":
            browser.says(bytes([letter]))
            house.pass_time(1)
        assert browser.take() == b""
        house.pass_time(3)
        response = Parsed(browser.take())
        assert (response.code, response.get(b"Connection")) == (408, b"close")
        house.pass_time(3)
        assert browser.transport.aborted

    def test_an_idle_connection(self, house: House) -> None:
        browser = house.browser().says(get())
        house.pool.connect().says(OK)
        browser.take()
        house.pass_time(74)
        assert not browser.transport.closing
        house.pass_time(3)
        assert (browser.transport.closing, browser.take()) == (True, b"")

    def test_the_next_head_on_a_connection_has_its_own_time(self, house: House) -> None:
        browser = house.browser().says(get())
        house.pool.connect().says(OK)
        browser.take()
        house.pass_time(70)
        browser.says(b"GET / HT")
        house.pass_time(14)
        assert not browser.transport.closing
        house.pass_time(3)
        assert Parsed(browser.take()).code == 408

    def test_a_body_that_stops(self, house: House) -> None:
        browser = house.browser().says(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n")
        backend = house.pool.connect()
        for _ in range(4):
            house.pass_time(50)
            browser.says(b"x")
        assert not browser.transport.closing
        house.pass_time(62)
        assert browser.transport.aborted
        assert backend.transport.aborted

    def test_a_held_client_has_none(self, house: House) -> None:
        browser, _ = held(house, stream_hold())
        house.pass_time(1_000)
        assert not browser.transport.closing


class TestBadRequest:
    @pytest.mark.parametrize(
        ("data", "code", "text"),
        [
            (
                b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
                400,
                "Failed to parse request: more than one Host header\n",
            ),
            (b"GET /" + b"x" * 9000, 431, "Request header size exceeded limit of 8192 bytes.\n"),
            (b"CONNECT h:1 HTTP/1.1\r\n\r\n", 405, "CONNECT is not supported\n"),
        ],
    )
    def test_it_is_told_once_and_closed(self, house: House, data: bytes, code: int, text: str) -> None:
        browser = house.browser().says(data)
        response = Parsed(browser.take())
        assert (response.code, response.body.decode(), response.get(b"Connection")) == (code, text, b"close")
        assert (response.get(b"Allow") is not None) == (code == 405)
        assert browser.transport.eof_written
        browser.says(get())
        assert (browser.take(), house.pool.wanted) == (b"", [])
        house.pass_time(3)
        assert browser.transport.aborted


class TestLimits:
    def test_more_requests_than_are_proxied_at_once(self) -> None:
        house = House(max_open_requests=1)
        first = house.browser().says(get(b"/1"))
        backend = house.pool.connect()
        second = house.browser().says(get(b"/2"))
        assert Parsed(second.take()).code == 503
        backend.says(response_hold())
        house.confirm()
        # A held request is with nobody, so another may go out.
        third = house.browser().says(get(b"/3"))
        assert house.worker.registry.in_flight == 1
        assert first.take() == b""
        third.transport.lose()
        assert house.worker.registry.in_flight == 0

    def test_too_many_connections(self) -> None:
        house = House(client_maxconn=1)
        first = house.browser()
        second = house.browser()
        assert Parsed(second.take()).code == 503
        first.transport.lose()
        second.transport.lose()
        assert house.browser().take() == b""
        assert house.worker.registry.connections == 1

    def test_every_connection_is_forgotten(self, house: House) -> None:
        browsers = [house.browser().says(get()), held(house, stream_hold())[0], house.browser()]
        for browser in browsers:
            browser.transport.lose()
        registry = house.worker.registry
        assert (registry.connections, registry.active, registry.held) == (0, {}, {})
        assert len(house.worker.table) == 0


class TestResponseHold:
    def test_published_and_the_connection_goes_on(self, house: House) -> None:
        browser, backend = held(house, response_hold())
        assert browser.take() == b""
        house.publish(published(b"news"))
        assert Parsed(browser.take()).body == b"news"
        browser.says(get(b"/next"))
        assert backend.take().startswith(b"GET /next ")

    def test_a_request_sent_meanwhile_is_answered_afterwards(self, house: House) -> None:
        browser, backend = held(house, response_hold())
        browser.says(get(b"/next"))
        assert backend.take() == b""
        house.publish(published(b"news"))
        assert Parsed(browser.take()).body == b"news"
        assert backend.take().startswith(b"GET /next ")

    def test_its_timeout(self, house: House) -> None:
        browser, _ = held(house, response_hold(b"none", b"ch", b"Grip-Timeout: 10"))
        house.pass_time(9.5)
        assert browser.take() == b""
        house.pass_time(1)
        assert Parsed(browser.take()).body == b"none"

    def test_head_has_no_body(self, house: House) -> None:
        browser, _ = held(house, response_hold(), b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n")
        house.publish(published(b"news"))
        response = Parsed(browser.take())
        assert (response.get(b"Content-Length"), response.rest) == (b"4", b"")

    @pytest.mark.parametrize("request_", [b"GET / HTTP/1.0\r\n\r\n", get(b"/", b"Connection: close")])
    def test_the_connection_ends_if_the_request_said_so(self, house: House, request_: bytes) -> None:
        browser, _ = held(house, response_hold(), request_)
        house.publish(published(b"news"))
        assert Parsed(browser.take()).version == request_.split(b"\r\n")[0].rsplit(b" ", 1)[1]
        assert browser.transport.closing

    def test_cross_origin_headers(self) -> None:
        house = House("*,aco one:80")
        browser, _ = held(house, response_hold(), get(b"/", b"Origin: http://o"))
        house.publish(published(b"news"))
        assert Parsed(browser.take()).get(b"Access-Control-Allow-Origin") == b"http://o"

    def test_the_handler_does_not_answer(self, house: House) -> None:
        browser = house.browser().says(get())
        house.pool.connect().says(response_hold())
        house.pass_time(7.9)
        assert browser.take() == b""
        house.pass_time(0.2)
        response = Parsed(browser.take())
        assert (response.code, response.body) == (500, b"Accept service unavailable.\n")

    def test_the_client_leaves(self, house: House) -> None:
        browser, _ = held(house, response_hold())
        browser.transport.lose()
        assert (pipe.UNSUBSCRIBE, b"ch", True) in house.pipe.take()
        house.publish(published(b"news"))
        assert browser.take() == b""


class TestRetry:
    REQUEST = b"POST /p?q HTTP/1.1\r\nHost: h\r\nX-C: 1\r\nContent-Length: 4\r\n\r\nbody"

    def test_the_request_goes_out_again_as_it_was(self, house: House) -> None:
        browser, backend = held(house, response_hold(b"", b"ch; prev-id=5"), self.REQUEST)
        house.publish(Item(b"ch", response=ResponseFormat("hint")))
        again = backend.take()
        assert again.startswith(b"POST /p?q HTTP/1.1\r\nHost: h\r\nX-C: 1\r\n")
        assert b"Grip-Last: ch; last-id=5\r\n" in again
        assert b"Content-Length: 4\r\n" in again
        assert again.endswith(b"\r\n\r\nbody")
        backend.says(OK)
        assert browser.take() == OK
        browser.says(get(b"/next"))
        assert backend.take().startswith(b"GET /next ")

    def test_it_may_be_held_again_with_a_new_time(self, house: House) -> None:
        browser, backend = held(house, response_hold(b"one", b"ch", b"Grip-Timeout: 10"))
        house.pass_time(9)
        house.publish(Item(b"ch", response=ResponseFormat("hint")))
        backend.says(response_hold(b"two", b"ch", b"Grip-Timeout: 10"))
        house.confirm()
        house.pass_time(9.5)
        assert browser.take() == b""
        house.pass_time(1)
        assert Parsed(browser.take()).body == b"two"

    def test_a_conflict_is_asked_about_once(self, house: House) -> None:
        browser = house.browser().says(get())
        backend = house.pool.connect()
        backend.says(response_hold(b"", b"ch; prev-id=5"))
        backend.take()
        house.confirm(b"6")
        assert b"Grip-Last: ch; last-id=5\r\n" in backend.take()
        backend.says(response_hold(b"", b"ch; prev-id=5"))
        house.confirm(b"6")
        assert (backend.take(), browser.take()) == (b"", b"")
        assert (pipe.CONFLICT, b"ch", b"6", b"5") in house.pipe.take()

    def test_its_connection_id_stays(self, house: House) -> None:
        _, backend = held(house, response_hold())
        (serial,) = house.worker.registry.held
        house.publish(Item(b"ch", response=ResponseFormat("hint")))
        backend.says(response_hold())
        assert list(house.worker.registry.held) == [serial]

    def test_the_client_leaves_while_it_is_asked_again(self, house: House) -> None:
        browser, backend = held(house, response_hold())
        house.publish(Item(b"ch", response=ResponseFormat("hint")))
        browser.transport.lose()
        assert backend.transport.aborted
        assert house.worker.registry.held == {}


class TestStreamHold:
    def test_it_opens_carries_items_and_ends(self, house: House) -> None:
        browser, backend = held(house, stream_hold(b"open"))
        response = Parsed(browser.take())
        assert (response.get(b"Transfer-Encoding"), unchunk(response.rest)) == (b"chunked", (b"open", False))
        house.publish(*(Item(b"ch", stream=StreamFormat("send", text)) for text in (b"a", b"b")))
        assert browser.take() == b"1\r\na\r\n1\r\nb\r\n"
        house.publish(Item(b"ch", stream=StreamFormat("close")))
        assert browser.take() == b"0\r\n\r\n"
        browser.says(get(b"/next"))
        assert backend.take().startswith(b"GET /next ")

    def test_http_1_0_ends_with_the_connection(self, house: House) -> None:
        browser, _ = held(house, stream_hold(), b"GET / HTTP/1.0\r\n\r\n")
        assert Parsed(browser.take()).rest == b"open"
        house.publish(Item(b"ch", stream=StreamFormat("send", b"a")), Item(b"ch", stream=StreamFormat("close")))
        assert browser.take() == b"a"
        assert browser.transport.closing

    @pytest.mark.parametrize("code", [b"204 No Content", b"304 Not Modified"])
    def test_there_is_nothing_to_hold_behind_some_heads(self, house: House, code: bytes) -> None:
        browser = house.browser().says(get())
        house.pool.connect().says(stream_hold(b"").replace(b"200 OK", code).replace(b"Content-Length: 0\r\n", b""))
        assert Parsed(browser.take()).rest == b""
        assert house.pipe.take() == []

    def test_a_head_request_is_not_held_either(self, house: House) -> None:
        browser = house.browser().says(b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n")
        backend = house.pool.connect()
        backend.says(stream_hold(b"open").removesuffix(b"open"))
        response = Parsed(browser.take())
        assert (response.rest, response.get(b"Content-Length")) == (b"", None)
        assert house.pipe.take() == []
        assert house.worker.stats.others.client_header_bytes_sent > 0
        backend.take()
        browser.says(get(b"/next"))
        assert backend.take().startswith(b"GET /next ")

    def test_a_slow_client_is_cut_off_at_the_bound(self) -> None:
        house = House(stream_buffer_max=1000)
        browser, _ = held(house, stream_hold())
        browser.take()
        browser.blocks()
        for _ in range(11):
            house.publish(Item(b"ch", stream=StreamFormat("send", b"x" * 90)))
        assert browser.transport.aborted
        assert browser.take() == b""
        assert house.worker.registry.held == {}
        browser.transport.lose()
        assert house.worker.registry.connections == 0

    def test_a_slow_client_catches_up(self, house: House) -> None:
        browser, _ = held(house, stream_hold())
        browser.take()
        browser.blocks()
        house.publish(Item(b"ch", stream=StreamFormat("send", b"a")))
        house.publish(Item(b"ch", stream=StreamFormat("send", b"b")))
        assert browser.take() == b""
        browser.blocks(False)
        assert browser.take() == b"1\r\na\r\n1\r\nb\r\n"


class TestDraining:
    def test_what_is_held_is_answered_and_closed(self, house: House) -> None:
        poll, _ = held(house, response_hold(b"timeout"))
        stream, _ = held(house, stream_hold())
        stream.take()
        house.worker.drain.stop()
        assert Parsed(poll.take()).body == b"timeout"
        assert stream.take() == b"0\r\n\r\n"
        assert poll.transport.closing
        assert stream.transport.closing

    def test_what_is_in_flight_is_finished(self, house: House) -> None:
        browser = house.browser().says(get())
        idle = house.browser()
        backend = house.pool.connect()
        house.worker.drain.stop()
        assert idle.transport.closing
        assert not browser.transport.closing
        backend.says(OK)
        assert browser.take() == OK
        assert browser.transport.closing

    def test_a_hold_that_begins_now_ends_at_once(self, house: House) -> None:
        browser = house.browser().says(get())
        backend = house.pool.connect()
        house.worker.drain.stop()
        backend.says(response_hold(b"timeout"))
        assert Parsed(browser.take()).body == b"timeout"
        assert browser.transport.closing
        assert (house.pipe.take(), len(house.worker.table)) == ([], 0)

    def test_a_stream_that_begins_now_is_refused(self, house: House) -> None:
        browser = house.browser().says(get())
        backend = house.pool.connect()
        house.worker.drain.stop()
        backend.says(stream_hold())
        assert Parsed(browser.take()).code == 500
        assert browser.transport.closing
        assert house.pipe.take() == []

    def test_new_connections_are_turned_away(self, house: House) -> None:
        house.worker.drain.stop()
        assert Parsed(house.browser().take()).code == 503

    def test_it_waits_for_the_last_one_but_not_for_ever(self, house: House) -> None:
        browser = house.browser().says(get())
        house.pool.connect()
        house.worker.drain.stop()
        house.pass_time(4.9)
        assert not house.worker._stopped.done()
        house.pass_time(0.2)
        assert house.worker._stopped.done()
        assert browser.transport.aborted
