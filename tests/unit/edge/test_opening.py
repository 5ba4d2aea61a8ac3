"""Handshakes of WebSockets: what the backend is asked, what the client is answered, targets that fail."""

from __future__ import annotations

import errno

import pytest

from gripproxy.edge.backend import Blocked
from gripproxy.edge.opening import REJECTION_MAX
from gripproxy.grip.frames import TEXT, FrameParser, serialise
from gripproxy.grip.handshake import accept_key
from gripproxy.grip.item import Item, MessageFormat
from tests.unit.edge.doubles import Backend, Browser, House, Parsed
from tests.unit.edge.sockets import EVENTS, GRIP, HANDSHAKE, KEY, switching

OVER_HTTP = "* one:80,over_http"
ERROR = b"Error while proxying to origin.\n"
SUBSCRIBE = b'c:{"type":"subscribe","channel":"ch"}'


def head(request: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """First line and headers of a request, names in lower case."""
    line, *lines = request.partition(b"\r\n\r\n")[0].split(b"\r\n")
    pairs = [header.split(b": ", 1) for header in lines]
    return line, {name.lower(): value for name, value in pairs}


def frames(data: bytes) -> list[tuple[int, bytes]]:
    return [(frame.opcode, frame.payload) for frame in FrameParser(False, 10**6).feed(data)]


def events(body: bytes, *headers: bytes, code: bytes = b"200 OK") -> bytes:
    """An answer of a backend over HTTP."""
    lines = b"".join(headers)
    return b"HTTP/1.1 %b\r\n%b%bContent-Length: %d\r\n\r\n%b" % (code, EVENTS, lines, len(body), body)


def asked(house: House, *more: bytes) -> tuple[Browser, Backend, bytes]:
    """A client's handshake, with more headers; the backend's connection, and what it was asked."""
    browser = house.browser().says(HANDSHAKE[:-2] + b"".join(more) + b"\r\n")
    backend = house.pool.connect()
    return browser, backend, backend.take()


class TestHandshake:
    @pytest.mark.parametrize(
        ("old", "new", "code"),
        [
            (b"Sec-WebSocket-Version: 13\r\n", b"Sec-WebSocket-Version: 8\r\n", 426),
            (b"Sec-WebSocket-Version: 13\r\n", b"", 400),
            (KEY, b"short", 400),
            (b"Sec-WebSocket-Key: %b\r\n" % KEY, b"", 400),
            (b"GET", b"POST", 400),
        ],
    )
    def test_a_wrong_one_is_refused_and_nobody_asked(self, old: bytes, new: bytes, code: int) -> None:
        house = House()
        browser = house.browser().says(HANDSHAKE.replace(old, new))
        answer = Parsed(browser.take())
        assert answer.code == code
        assert answer.get(b"Sec-WebSocket-Version") == (b"13" if code == 426 else None)
        assert house.pool.wanted == []
        assert house.worker.bad == 1

    def test_without_a_route(self) -> None:
        house = House("other one:80")
        answer = Parsed(house.browser().says(HANDSHAKE).take())
        assert (answer.code, answer.body) == (502, b"No route for host: example\n")


class TestDirectBackend:
    def test_is_asked_with_a_key_of_our_own(self) -> None:
        _, _, request = asked(House(), b"Cookie: a=b\r\nSec-WebSocket-Extensions: permessage-deflate\r\n")
        line, headers = head(request)
        assert line == b"GET /path HTTP/1.1"
        assert headers[b"upgrade"] == b"websocket"
        assert headers[b"sec-websocket-version"] == b"13"
        assert headers[b"sec-websocket-extensions"] == b"grip"
        assert headers[b"sec-websocket-key"] != KEY
        assert headers[b"cookie"] == b"a=b"

    def test_accepts_and_the_client_has_its_headers(self) -> None:
        browser, backend, request = asked(House())
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
        assert house.worker.sockets == {}

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
        line, headers = head(request)
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
        backend.says(events(body, *more))
        house.confirm()
        house.publish(Item(b"ch", message=MessageFormat("send", "text", b"news")))
        answer = Parsed(browser.take())
        assert answer.code == 101
        assert answer.get(b"X-Own") == b"1"
        hidden = (b"Set-Meta-User", b"Keep-Alive-Interval", b"Content-Type", b"Content-Length")
        assert [answer.get(name) for name in hidden] == [None] * 4
        assert frames(answer.rest) == [(TEXT, b"hello"), (TEXT, b"news")]
        house.pass_time(31)
        _, headers = head(backend.take())
        assert headers[b"meta-user"] == b"me"
        assert headers[b"content-length"] == b"0"

    def test_the_id_stays_the_same(self) -> None:
        browser, backend, request = asked(House(OVER_HTTP))
        backend.says(events(b"OPEN\r\n"))
        browser.transport.protocol.data_received(serialise(TEXT, b"x", mask=True))
        assert head(backend.take())[1][b"connection-id"] == head(request)[1][b"connection-id"]

    def test_not_decided_yet_is_asked_again_at_the_interval(self) -> None:
        house = House(OVER_HTTP)
        browser, backend, request = asked(house)
        backend.says(events(b"", b"Keep-Alive-Interval: 20\r\n"))
        house.pass_time(19)
        assert backend.take() == browser.take() == b""
        house.pass_time(1)
        assert backend.take() == request
        backend.says(events(b"OPEN\r\n"))
        assert Parsed(browser.take()).code == 101

    def test_not_decided_and_the_client_leaves(self) -> None:
        house = House(OVER_HTTP)
        browser, backend, _ = asked(house)
        backend.says(events(b"", b"Keep-Alive-Interval: 20\r\n"))
        browser.transport.lose()
        house.pass_time(60)
        assert backend.take() == b""

    @pytest.mark.parametrize("body", [b"", b"TEXT 1\r\nx\r\n", b"TEXT x\r\n", b"CLOSE\r\nOPEN\r\n"])
    def test_without_open_first_is_an_error(self, body: bytes) -> None:
        browser, backend, _ = asked(House(OVER_HTTP))
        backend.says(events(body))
        assert (Parsed(browser.take()).code, browser.transport.closing) == (502, True)

    @pytest.mark.parametrize(
        ("answer", "code", "body"),
        [
            (events(b"no", code=b"401 Who"), 401, b"no"),
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
        backend.says(events(b"OPEN\r\n", *(b"Set-Meta-%d: x\r\n" % n for n in range(101))))
        assert browser.transport.aborted


class TestCompression:
    OFFER = b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"

    @pytest.mark.parametrize("allowed", [True, False])
    def test_is_agreed_on_with_the_client_alone(self, allowed: bool) -> None:
        browser, backend, request = asked(House(allow_compression=allowed), self.OFFER)
        assert b"deflate" not in request
        backend.says(switching(request))
        extension = Parsed(browser.take()).get(b"Sec-WebSocket-Extensions")
        assert (extension or b"").startswith(b"permessage-deflate") == allowed


class TestTestTarget:
    def test_subscribes_to_the_channels_of_the_query(self) -> None:
        house = House("* test")
        browser = house.browser().says(HANDSHAKE.replace(b"/path", b"/ws?channel=a&x=y&channel=b"))
        house.confirm()
        house.publish(*(Item(name, message=MessageFormat("send", "text", name)) for name in (b"a", b"b", b"test")))
        assert frames(Parsed(browser.take()).rest) == [(TEXT, b"a"), (TEXT, b"b")]

    def test_has_nothing_else(self) -> None:
        assert Parsed(House("* test").browser().says(HANDSHAKE).take()).code == 404


def test_a_route_may_give_every_socket_channels() -> None:
    house = House("* one:80,sub=all")
    browser, backend, request = asked(house)
    backend.says(switching(request))
    house.confirm()
    house.publish(Item(b"all", message=MessageFormat("send", "text", b"x")))
    assert frames(Parsed(browser.take()).rest) == [(TEXT, b"x")]


def test_one_that_opens_while_the_process_ends_is_closed() -> None:
    house = House()
    browser, backend, request = asked(house)
    house.worker.draining = True
    backend.says(switching(request))
    house.pass_time(0)
    assert frames(Parsed(browser.take()).rest) == [(8, b"\x03\xe9")]
