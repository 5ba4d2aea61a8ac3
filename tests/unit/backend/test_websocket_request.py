"""Requests for WebSockets to backends: what is sent, which responses open a WebSocket, targets that fail."""

from __future__ import annotations

import errno
import gc
import re
from collections.abc import Iterator

import pytest

from gripproxy.backend.pool import Blocked
from gripproxy.backend.websocket_request import REJECTION_MAX, WebSocketRequest
from gripproxy.client.websocket_handshake import WebSocketHandshake
from gripproxy.grip.frames import TEXT, FrameParser, serialise
from gripproxy.grip.item import Item, MessageFormat
from gripproxy.grip.websocket_handshake import accept_key
from tests.support.doubles import House, Parsed
from tests.support.sockets import GRIP, HANDSHAKE, KEY, asked, events_of, frames, head_of, switching

OVER_HTTP = "* one:80,over_http"
ERROR = b"Error while proxying to origin.\n"
SUBSCRIBE = b'c:{"type":"subscribe","channel":"ch"}'


@pytest.fixture
def collector_off() -> Iterator[None]:
    """No garbage collection within the test, and nothing to collect from others."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def without_ids(request: bytes) -> bytes:
    """Return a request without the ids that each request has for itself."""
    return re.sub(rb"(X-Request-Id|traceparent): .*\r\n", b"", request)


class TestDirectBackend:
    def test_is_asked_with_a_key_of_our_own(self) -> None:
        _, _, request = asked(House(), b"Cookie: a=b\r\nSec-WebSocket-Extensions: permessage-deflate\r\n")
        line, headers = head_of(request)
        assert line == b"GET /path HTTP/1.1"
        assert headers[b"upgrade"] == b"websocket"
        assert headers[b"sec-websocket-version"] == b"13"
        assert headers[b"sec-websocket-extensions"] == b"grip"
        assert headers[b"sec-websocket-key"] != KEY
        assert headers[b"cookie"] == b"a=b"

    def test_accepts_and_the_client_has_its_headers(self) -> None:
        browser, backend, request = asked(House(), b"Sec-WebSocket-Protocol: chat\r\n")
        backend.says(switching(request, GRIP + b"Sec-WebSocket-Protocol: chat\r\nX-Own: 1\r\n"))
        answer = Parsed(browser.take())
        assert answer.code == 101
        assert answer.get(b"Sec-WebSocket-Accept") == accept_key(KEY)
        assert answer.get(b"Sec-WebSocket-Protocol") == b"chat"
        assert answer.get(b"X-Own") == b"1"
        assert answer.get(b"Sec-WebSocket-Extensions") is None
        assert [name.lower() for name, _ in answer.headers].count(b"upgrade") == 1

    def test_what_both_sides_say_at_once_is_not_lost(self) -> None:
        house = House()
        browser = house.browser().says(HANDSHAKE + serialise(TEXT, b"early", mask=True))
        backend = house.pool.connect()
        backend.says(switching(backend.take(), GRIP) + serialise(TEXT, b"m:first"))
        assert frames(Parsed(browser.take()).rest) == [(TEXT, b"first")]
        [frame] = FrameParser(True, 1000).feed(backend.take())
        assert frame.payload == b"early"

    def test_with_the_wrong_accept_is_refused(self) -> None:
        browser, backend, request = asked(House())
        backend.says(switching(request).replace(b"Accept: ", b"Accept: x"))
        answer = Parsed(browser.take())
        assert (answer.code, answer.body) == (502, ERROR)
        assert backend.transport.aborted

    def test_with_a_subprotocol_that_was_not_offered_is_refused(self) -> None:
        browser, backend, request = asked(House(debug=True), b"Sec-WebSocket-Protocol: chat\r\n")
        backend.says(switching(request, b"Sec-WebSocket-Protocol: news\r\n"))
        answer = Parsed(browser.take())
        assert answer.code == 502
        assert answer.body == b"the backend's 101: Sec-WebSocket-Protocol is 'news', which was not offered\n"
        assert backend.transport.aborted

    def test_that_refuses_is_relayed(self) -> None:
        house = House()
        browser, backend, _ = asked(house)
        backend.says(b"HTTP/1.1 403 No\r\nX-Own: 1\r\nContent-Length: 4\r\n\r\nno!\n")
        answer = Parsed(browser.take())
        assert (answer.code, answer.reason, answer.get(b"X-Own"), answer.body) == (403, b"No", b"1", b"no!\n")
        assert browser.transport.closing
        assert backend.free

    @pytest.mark.parametrize(("size", "code"), [(REJECTION_MAX, 403), (REJECTION_MAX + 1, 502)])
    def test_that_refuses_at_length(self, size: int, code: int) -> None:
        browser, backend, _ = asked(House())
        backend.says(b"HTTP/1.1 403 No\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
        assert Parsed(browser.take()).code == code

    def test_that_goes_is_an_error(self) -> None:
        browser, backend, _ = asked(House())
        backend.leaves()
        assert Parsed(browser.take()).code == 502

    def test_that_does_not_answer_is_an_error(self) -> None:
        house = House(response_timeout=5)
        browser, backend, _ = asked(house)
        house.pass_time(8)
        assert Parsed(browser.take()).code == 502
        assert backend.transport.aborted

    def test_whose_client_leaves(self) -> None:
        house = House()
        browser, backend, _ = asked(house)
        browser.transport.lose()
        assert backend.transport.aborted
        assert house.worker.registry.sockets == {}

    def test_grip_is_not_acted_upon_if_the_route_says_so(self) -> None:
        house = House("*,no_grip one:80")
        browser, backend, request = asked(house)
        assert b"Sec-WebSocket-Extensions" not in request
        backend.says(switching(request, GRIP) + serialise(TEXT, SUBSCRIBE))
        assert frames(Parsed(browser.take()).rest) == [(TEXT, SUBSCRIBE)]


class TestTargets:
    def test_the_next_one_is_asked_if_there_is_no_connection(self) -> None:
        house = House("* one:80 two:80,over_http three:80")
        browser = house.browser().says(HANDSHAKE)
        assert [house.pool.refuse().host for _ in range(2)] == ["one", "two"]
        backend = house.pool.connect()
        assert backend.target.host == "three"
        backend.says(switching(backend.take()))
        assert Parsed(browser.take()).code == 101

    @pytest.mark.parametrize("debug", [True, False])
    def test_none_is_there(self, debug: bool) -> None:
        house = House("* one:80 two:81,over_http", debug=debug)
        browser = house.browser().says(HANDSHAKE)
        for _ in range(2):
            house.pool.refuse()
        answer = Parsed(browser.take())
        assert answer.code == 502
        assert answer.body == (b"Unable to connect to any targets. Tried: one:80, two:81\n" if debug else ERROR)

    def test_a_blocked_one_is_the_end(self) -> None:
        house = House("* one:80,untrusted two:80", debug=True)
        browser = house.browser().says(HANDSHAKE)
        house.pool.refuse(Blocked("no"))
        assert Parsed(browser.take()).body == b"Error: Origin host/IP blocked.\n"

    @pytest.mark.parametrize("how", ["", ",over_http"])
    def test_no_descriptor_is_not_the_backends_fault(self, how: str) -> None:
        house = House(f"* one:80{how} two:80{how}")
        browser = house.browser().says(HANDSHAKE)
        house.pool.refuse(OSError(errno.EMFILE, "no descriptor within 10 s"))
        assert Parsed(browser.take()).code == 503
        assert house.pool.wanted == []

    def test_the_client_leaves_before_there_is_a_connection(self) -> None:
        house = House("* one:80 two:80")
        house.browser().says(HANDSHAKE).transport.lose()
        assert house.pool.wanted == []


class TestOverHttp:
    def test_open_is_posted(self) -> None:
        _, _, request = asked(House(OVER_HTTP), b"Cookie: a=b\r\n")
        line, headers = head_of(request)
        assert line == b"POST /path HTTP/1.1"
        assert request.endswith(b"\r\n\r\nOPEN\r\n")
        assert headers[b"content-type"] == headers[b"accept"] == b"application/websocket-events"
        assert headers[b"content-length"] == b"6"
        assert headers[b"sec-websocket-key"] == KEY
        assert headers[b"sec-websocket-extensions"] == b"grip"
        assert headers[b"cookie"] == b"a=b"
        assert len(headers[b"connection-id"]) == 36
        assert b"upgrade" not in headers

    def test_the_answer_opens_and_may_carry_more(self) -> None:
        house = House(OVER_HTTP)
        browser, backend, _ = asked(house)
        body = b"OPEN\r\nTEXT %x\r\n%b\r\nTEXT 7\r\nm:hello\r\n" % (len(SUBSCRIBE), SUBSCRIBE)
        more = (GRIP, b"X-Own: 1\r\n", b"Set-Meta-User: me\r\n", b"Keep-Alive-Interval: 30\r\n")
        backend.says(events_of(body, *more))
        house.confirm()
        house.publish(Item(b"ch", message=MessageFormat("send", "text", b"news")))
        answer = Parsed(browser.take())
        assert answer.code == 101
        assert answer.get(b"X-Own") == b"1"
        hidden = (b"Set-Meta-User", b"Keep-Alive-Interval", b"Content-Type", b"Content-Length")
        assert [answer.get(name) for name in hidden] == [None] * 4
        assert frames(answer.rest) == [(TEXT, b"hello"), (TEXT, b"news")]
        house.pass_time(31)
        _, headers = head_of(backend.take())
        assert headers[b"meta-user"] == b"me"
        assert headers[b"content-length"] == b"0"

    @pytest.mark.usefixtures("collector_off")
    def test_handshake_and_request_are_freed_when_it_is_open(self) -> None:
        browser, backend, _ = asked(House(OVER_HTTP))
        backend.says(events_of(b"OPEN\r\n"))
        assert Parsed(browser.take()).code == 101
        alive = {WebSocketRequest, WebSocketHandshake} & {type(each) for each in gc.get_objects()}
        assert alive == set(), "objects in a circle live until a collection: over 1 KB for each WebSocket"

    @pytest.mark.usefixtures("collector_off")
    def test_the_request_is_freed_when_it_is_rejected(self) -> None:
        browser, backend, _ = asked(House(OVER_HTTP))
        backend.says(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        assert Parsed(browser.take()).code == 404
        assert not any(isinstance(each, WebSocketRequest) for each in gc.get_objects())

    def test_the_id_stays_the_same(self) -> None:
        browser, backend, request = asked(House(OVER_HTTP))
        backend.says(events_of(b"OPEN\r\n"))
        browser.transport.protocol.data_received(serialise(TEXT, b"x", mask=True))
        assert head_of(backend.take())[1][b"connection-id"] == head_of(request)[1][b"connection-id"]

    def test_not_decided_yet_is_asked_again_at_the_interval(self) -> None:
        house = House(OVER_HTTP)
        browser, backend, request = asked(house)
        backend.says(events_of(b"", b"Keep-Alive-Interval: 20\r\n"))
        house.pass_time(19)
        assert backend.take() == browser.take() == b""
        house.pass_time(1)
        assert without_ids(backend.take()) == without_ids(request)
        backend.says(events_of(b"OPEN\r\n"))
        assert Parsed(browser.take()).code == 101

    def test_not_decided_and_the_client_leaves(self) -> None:
        house = House(OVER_HTTP)
        browser, backend, _ = asked(house)
        backend.says(events_of(b"", b"Keep-Alive-Interval: 20\r\n"))
        browser.transport.lose()
        house.pass_time(60)
        assert backend.take() == b""

    @pytest.mark.parametrize("body", [b"", b"TEXT 1\r\nx\r\n", b"TEXT x\r\n", b"CLOSE\r\nOPEN\r\n"])
    def test_without_open_first_is_an_error(self, body: bytes) -> None:
        browser, backend, _ = asked(House(OVER_HTTP))
        backend.says(events_of(body))
        assert (Parsed(browser.take()).code, browser.transport.closing) == (502, True)

    @pytest.mark.parametrize(
        ("answer", "code", "body"),
        [
            (events_of(b"no", code=b"401 Who"), 401, b"no"),
            (b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhm", 200, b"hm"),
            (b"HTTP/1.1 403 No\r\nContent-Length: %d\r\n\r\n" % REJECTION_MAX + b"x" * REJECTION_MAX, 403, None),
            (b"HTTP/1.1 403 No\r\nContent-Length: 100001\r\n\r\n" + b"x" * 100_001, 502, ERROR),
        ],
    )
    def test_anything_else_is_relayed(self, answer: bytes, code: int, body: bytes | None) -> None:
        browser, backend, _ = asked(House(OVER_HTTP))
        backend.says(answer)
        got = Parsed(browser.take())
        assert got.code == code
        assert body is None or got.body == body

    def test_a_backend_that_goes_is_not_asked_twice(self) -> None:
        house = House("* one:80,over_http two:80")
        browser, backend, _ = asked(house)
        backend.leaves()
        assert Parsed(browser.take()).code == 502
        assert house.pool.wanted == []

    def test_a_backend_that_does_not_answer(self) -> None:
        house = House(OVER_HTTP, response_timeout=5)
        browser, backend, _ = asked(house)
        house.pass_time(8)
        assert Parsed(browser.take()).code == 502
        assert backend.transport.aborted

    def test_bad_meta_in_the_answer_drops_the_client(self) -> None:
        browser, backend, _ = asked(House(OVER_HTTP))
        backend.says(events_of(b"OPEN\r\n", *(b"Set-Meta-%d: x\r\n" % n for n in range(101))))
        assert browser.transport.aborted
