"""Handshakes of WebSockets: the checks of the client's request, and the session that begins."""

from __future__ import annotations

import pytest

from gripproxy import pipe
from gripproxy.grip.frames import TEXT, serialise
from gripproxy.grip.item import Item, MessageFormat
from tests.support.doubles import House, Parsed
from tests.support.sockets import HANDSHAKE, KEY, asked, frames, switching

OVER_HTTP = "* one:80,over_http"
ERROR = b"Error while proxying to origin.\n"
SUBSCRIBE = b'c:{"type":"subscribe","channel":"ch"}'


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
        assert house.worker.events.bad == 1

    def test_without_a_route(self) -> None:
        house = House("other one:80")
        answer = Parsed(house.browser().says(HANDSHAKE).take())
        assert (answer.code, answer.body) == (502, b"No route for host: example\n")


class TestCompression:
    OFFER = b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"

    @pytest.mark.parametrize("allowed", [True, False])
    def test_is_agreed_on_with_the_client_alone(self, allowed: bool) -> None:
        browser, backend, request = asked(House(allow_compression=allowed), self.OFFER)
        assert b"deflate" not in request
        backend.says(switching(request))
        extension = Parsed(browser.take()).get(b"Sec-WebSocket-Extensions")
        assert (extension or b"").startswith(b"permessage-deflate") == allowed


def test_a_route_may_give_every_socket_channels() -> None:
    house = House("* one:80,sub=all")
    browser, backend, request = asked(house)
    backend.says(switching(request))
    house.confirm()
    house.publish(Item(b"all", message=MessageFormat("send", "text", b"x")))
    assert frames(Parsed(browser.take()).rest) == [(TEXT, b"x")]


def test_items_for_a_client_that_is_blocked_at_the_opening_wait() -> None:
    house = House("* one:80,sub=all")
    browser, backend, request = asked(house)
    browser.blocks()
    backend.says(switching(request))
    house.confirm()
    browser.take()
    house.publish(Item(b"all", message=MessageFormat("send", "text", b"x")))
    assert browser.take() == b""
    browser.transport.protocol.resume_writing()
    assert frames(browser.take()) == [(TEXT, b"x")]


def test_one_that_opens_while_the_process_ends_is_closed() -> None:
    house = House()
    browser, backend, request = asked(house)
    house.worker.registry.draining = True
    backend.says(switching(request))
    house.pass_time(0)
    assert frames(Parsed(browser.take()).rest) == [(8, b"\x03\xe9")]


@pytest.mark.parametrize("over_http", [False, True])
@pytest.mark.parametrize("reserved", [False, True])
def test_only_a_reserved_route_may_subscribe_to_reserved_channels(over_http: bool, reserved: bool) -> None:
    control = b'c:{"type":"subscribe","channel":"hub/1"}'
    house = House(
        f"*{',reserved' if reserved else ''} one:80{',over_http' if over_http else ''}", reserved_prefix="hub/"
    )
    if over_http:
        browser = house.browser().says(HANDSHAKE)
        backend = house.pool.connect()
        events = b"OPEN\r\nTEXT %x\r\n%b\r\n" % (len(control), control)
        headers = b"Content-Type: application/websocket-events\r\nSec-WebSocket-Extensions: grip\r\n"
        backend.says(b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (headers, len(events), events))
    else:
        browser, backend, request = asked(house)
        backend.says(switching(request, b"Sec-WebSocket-Extensions: grip\r\n"))
        backend.transport.protocol.data_received(serialise(TEXT, control))
    house.pass_time(1)
    subscribed = [message[1] for message in house.pipe.take() if message[0] == pipe.SUBSCRIBE]
    assert subscribed == ([b"hub/1"] if reserved else [])
    assert Parsed(browser.take()).code == 101
