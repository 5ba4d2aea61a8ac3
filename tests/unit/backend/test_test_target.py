"""The built-in test target."""

from __future__ import annotations

import pytest

from gripproxy.backend.test_target import BODY_MAX, respond
from gripproxy.grip.close_frame import close_payload
from gripproxy.grip.frames import CLOSE, PING, PONG, TEXT, FrameParser, serialise
from gripproxy.grip.instruct_parser import parse_instruct
from gripproxy.grip.item import Item, MessageFormat
from tests.support.doubles import Browser, House, Parsed, Transport
from tests.support.sockets import HANDSHAKE


def channels(path: bytes, query: bytes) -> list[bytes]:
    return [channel.name for channel in parse_instruct(respond(path, query, 0)).channels]


def test_the_first_page() -> None:
    assert respond(b"/", b"", 0).body == b"Hello from the gripproxy test handler!\n"
    assert respond(b"/", b"x", 0).code == 200


@pytest.mark.parametrize("mode", ["response", "stream"])
def test_holds(mode: str) -> None:
    instruct = parse_instruct(respond(b"/" + mode.encode(), b"", 0))
    assert (instruct.mode, [channel.name for channel in instruct.channels]) == (mode, [b"test"])


def test_channels_are_named_by_the_query() -> None:
    assert channels(b"/stream", b"channel=a&channel=b%20c") == [b"a", b"b c"]


@pytest.mark.parametrize("name", [b"a%2Cb", b"a%3Bfilter=x", b"a%22", b"a%0D%0AX:y"])
def test_a_name_that_would_be_something_else_in_a_header_is_left_out(name: bytes) -> None:
    assert channels(b"/stream", b"channel=" + name) == [b"test"]


def test_others_are_not_found_and_bodies_have_a_bound() -> None:
    assert respond(b"/x", b"", 0).code == 404
    assert respond(b"/", b"", BODY_MAX).code == 200
    assert respond(b"/", b"", BODY_MAX + 1).code == 413


@pytest.mark.parametrize(
    ("prefix", "path", "code"),
    [("/p", "/p/", 200), ("/p/", "/p/", 200), ("/p", "/p/x", 404), ("/p", "/p", 404), ("/", "/", 200)],
)
def test_the_routes_prefix_is_taken_off(prefix: str, path: str, code: int) -> None:
    house = House(f"*,path_beg={prefix} test")
    browser = house.browser().says(b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n" % path.encode())
    house.pass_time(0)
    assert Parsed(browser.take()).code == code


def test_a_held_stream() -> None:
    house = House("* test")
    browser = house.browser().says(b"GET /stream?channel=a HTTP/1.1\r\nHost: h\r\n\r\n")
    house.pass_time(0)
    house.confirm()
    assert b"[stream opened]\n" in browser.take()
    assert len(house.worker.registry.held) == 1


def test_head_has_no_body() -> None:
    house = House("* test")
    browser = house.browser().says(b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n")
    house.pass_time(0)
    answer = Parsed(browser.take())
    assert (answer.code, answer.get(b"Content-Length"), answer.rest) == (200, b"39", b"")


class TestWebSocket:
    """It answers pings and the close, and is silent otherwise."""

    def open(self, house: House, target: bytes = b"/ws") -> Transport:
        browser = house.browser().says(HANDSHAKE.replace(b"/path", target))
        house.pass_time(0)
        house.confirm()
        assert Parsed(browser.transport.out.pop(0)).code == 101
        return browser.transport

    def heard(self, house: House, client: Transport) -> list[tuple[int, bytes]]:
        house.pass_time(0)
        return [(frame.opcode, frame.payload) for frame in FrameParser(False, 10**6).feed(client.take())]

    def test_subscribes_to_the_channels_of_the_query(self) -> None:
        house = House("*,path_beg=/p test")
        client = self.open(house, b"/p/ws?channel=a&x=y&channel=b%20c")
        house.publish(*(Item(name, message=MessageFormat("send", "text", name)) for name in (b"a", b"b c", b"test")))
        assert self.heard(house, client) == [(TEXT, b"a"), (TEXT, b"b c")]

    def test_answers_a_ping_and_drops_messages(self) -> None:
        house = House("* test")
        client = self.open(house)
        for opcode, payload in ((TEXT, b"x" * 100_000), (PING, b"p")):
            client.protocol.data_received(serialise(opcode, payload, mask=True))
        assert self.heard(house, client) == [(PONG, b"p")]

    def test_answers_a_close(self) -> None:
        house = House("* test")
        client = self.open(house)
        client.protocol.data_received(serialise(CLOSE, close_payload(4000, b"bye"), mask=True))
        assert self.heard(house, client) == [(CLOSE, close_payload(4000, b"bye"))]
        assert client.closing
        assert not client.aborted

    def test_is_left_when_the_client_vanishes(self) -> None:
        house = House("* test")
        self.open(house).lose()
        house.pass_time(0)
        assert house.worker.registry.sockets == {}

    def test_has_nothing_else(self) -> None:
        house = House("* test")
        browser = house.browser().says(HANDSHAKE)
        house.pass_time(0)
        answer = Parsed(browser.take())
        assert (answer.code, answer.body) == (404, b"no such test resource\n")


class TestBodies:
    """The answer does not depend on how a request's body is split."""

    HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
    CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"

    @pytest.fixture
    def house(self) -> House:
        return House("* test")

    def say(self, house: House, *pieces: bytes) -> Browser:
        browser = house.browser()
        for piece in pieces:
            browser.says(piece)
            house.pass_time(0)
        return browser

    def codes(self, browser: Browser) -> list[int]:
        data, codes = browser.take(), []
        while data:
            answer = Parsed(data)
            codes.append(answer.code)
            data = answer.rest[int(answer.get(b"Content-Length") or 0) :]
        return codes

    def test_a_body_in_pieces_is_awaited(self, house: House) -> None:
        browser = self.say(house, self.HEAD % BODY_MAX, b"x" * (BODY_MAX - 1))
        assert browser.take() == b""
        browser.says(b"x" + self.HEAD % 0)
        house.pass_time(0)
        assert self.codes(browser) == [200, 200]

    def test_a_chunked_body_is_awaited(self, house: House) -> None:
        browser = self.say(house, self.CHUNKED, b"2\r\nab\r\n")
        assert browser.take() == b""
        browser.says(b"0\r\n\r\n")
        house.pass_time(0)
        assert self.codes(browser) == [200]

    def test_a_length_over_the_bound_is_answered_at_once(self, house: House) -> None:
        assert self.codes(self.say(house, self.HEAD % (BODY_MAX + 1))) == [413]

    def test_chunks_over_the_bound_are_answered_when_they_are_too_many(self, house: House) -> None:
        browser = self.say(house, self.CHUNKED, b"%x\r\n%b\r\n" % (BODY_MAX, b"x" * BODY_MAX))
        assert browser.take() == b""
        browser.says(b"1\r\nx\r\n")
        house.pass_time(0)
        assert self.codes(browser) == [413]

    def test_a_client_that_leaves_meanwhile(self, house: House) -> None:
        browser = self.say(house, self.HEAD % 2)
        browser.says(b"ab")
        browser.transport.lose()
        house.pass_time(0)
        assert browser.take() == b""
        assert house.worker.registry.in_flight == 0
