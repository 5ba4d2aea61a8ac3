"""Failover and repetition: the step that follows each failure, for each kind of request."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Callable

import pytest

from gripproxy.backend.filter_requests import FilterRequests
from gripproxy.backend.pool import Blocked
from gripproxy.grip.filters import Ask
from gripproxy.grip.frames import TEXT, serialise
from gripproxy.sessions.context import LinkRequest
from tests.support.doubles import Backend, House
from tests.support.sockets import EVENTS, GRIP, HANDSHAKE

BASE = b"http://example/base"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

NEXT, REPEATED, LATER, FAILED = "next target", "repeated", "repeated later", "failed"


class Reader:
    """A reader of a link's response; takes everything."""

    def on_link_body(self, data: bytes, framed: bytes) -> None: ...
    def on_link_end(self, uri: bytes, instruct: object, problem: str) -> None: ...
    def on_link_failed(self) -> None: ...


def request(line: bytes, body: bytes = b"") -> Callable[[House], None]:
    """A client's request."""
    data = b"%b /x HTTP/1.1\r\nHost: example\r\nContent-Length: %d\r\n\r\n%b" % (line, len(body), body)

    def start(house: House) -> None:
        house.browser().says(data)

    return start


def handshake(house: House) -> None:
    """A WebSocket handshake; with ``over_http`` the backend receives OPEN."""
    house.browser().says(HANDSHAKE)


def events(house: House) -> None:
    """Events of an open WebSocket."""
    idle, house.pool.idle = house.pool.idle, []
    client = house.browser().says(HANDSHAKE).transport
    house.pool.connect().says(b"HTTP/1.1 200 OK\r\n%b%bContent-Length: 6\r\n\r\nOPEN\r\n" % (EVENTS, GRIP))
    house.pool.idle = idle
    client.protocol.data_received(serialise(TEXT, b"x", mask=True))


def link(house: House) -> None:
    """The next link of a session."""
    house.worker.links.fetch(LinkRequest(house.worker.router.routes.routes[0], BASE, b"/link", (), True), Reader())


def filtered(house: House) -> None:
    """The request of a filter."""
    ask = Ask(BASE, [], b"", lambda answer: None)  # type: ignore[arg-type,return-value]
    FilterRequests(house.worker.context).ask(
        ask, BASE, house.worker.router.routes.routes[0], False, lambda answer: None
    )


def gone(house: House) -> None:
    """The request to a gone link."""
    house.worker.context.gone.send(house.worker.router.routes.routes[0], BASE, b"/gone", False)


DIRECT = "* one:80 two:81"
OVER_HTTP = "* one:80,over_http two:81,over_http"


def outcome(house: House, one: str = "one") -> str:
    """What follows a failure at the target ``one``."""
    wanted = [target.host for _, target in house.pool.wanted]
    if not wanted:
        house.pass_time(3)
        wanted = [target.host for _, target in house.pool.wanted]
        return LATER if wanted == [one] else FAILED
    return REPEATED if wanted == [one] else NEXT


class TestNoConnection:
    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (ConnectionRefusedError("refused"), NEXT),
            (TimeoutError("late"), NEXT),
            (ssl.SSLError("certificate"), NEXT),
            (OSError(errno.EHOSTUNREACH, "unreachable"), NEXT),
            (Blocked("policy"), FAILED),
            (OSError(errno.EMFILE, "no descriptor"), FAILED),
        ],
    )
    def test_leads_to_the_next_target_or_not(self, error: Exception, expected: str) -> None:
        results = {}
        for name, routes, start in (
            ("request", DIRECT, request(b"POST", b"x")),
            ("handshake", DIRECT, handshake),
            ("OPEN", OVER_HTTP, handshake),
            ("link", DIRECT, link),
            ("filter", DIRECT, filtered),
            ("gone", DIRECT, gone),
            ("events", OVER_HTTP, events),
        ):
            house = House(routes)
            start(house)
            house.pool.refuse(error)
            results[name] = outcome(house)
        assert results == dict.fromkeys(results, expected) | {"events": LATER}

    def test_a_link_that_leads_elsewhere_has_one_target(self) -> None:
        house = House(DIRECT)
        house.worker.context.gone.send(house.worker.router.routes.routes[0], BASE, b"http://other/gone", False)
        house.pool.refuse()
        assert outcome(house, "other") == FAILED


class TestReusedConnection:
    """A connection that served before, and ends before the first byte of the response (RFC 9112 §9.3.1)."""

    def failed(self, routes: str, start: Callable[[House], None], error: Exception | None) -> House:
        house = House(routes)
        request(b"GET")(house)
        backend = house.pool.connect()
        backend.says(OK)
        backend.take()
        start(house)
        assert backend.take()
        house.pool.idle.clear()
        backend.transport.closing = backend.transport.lost = True
        backend.connection.connection_lost(error)
        return house

    @pytest.mark.parametrize(
        ("routes", "start", "closed", "reset"),
        [
            (DIRECT, request(b"GET"), REPEATED, REPEATED),
            (DIRECT, request(b"PUT", b"x"), REPEATED, REPEATED),
            (DIRECT, request(b"POST", b"x"), FAILED, FAILED),
            (OVER_HTTP, handshake, FAILED, FAILED),
            (OVER_HTTP, events, REPEATED, FAILED),
            (DIRECT, link, REPEATED, REPEATED),
            (DIRECT, filtered, REPEATED, FAILED),
            (DIRECT, gone, REPEATED, FAILED),
        ],
    )
    def test_is_replaced_by_a_new_one_or_not(
        self, routes: str, start: Callable[[House], None], closed: str, reset: str
    ) -> None:
        assert outcome(self.failed(routes, start, None)) == closed
        assert outcome(self.failed(routes, start, ConnectionResetError("reset"))) == reset

    @pytest.mark.parametrize(
        ("routes", "start"),
        [
            (DIRECT, request(b"GET")),
            (OVER_HTTP, events),
            (DIRECT, link),
            (DIRECT, filtered),
            (DIRECT, gone),
        ],
    )
    def test_is_replaced_once(self, routes: str, start: Callable[[House], None]) -> None:
        house = self.failed(routes, start, None)
        house.pool.connect().leaves()
        assert outcome(house) == FAILED

    def test_does_not_serve_a_handshake(self) -> None:
        house = House(DIRECT)
        request(b"GET")(house)
        house.pool.connect().says(OK)
        assert house.pool.idle
        handshake(house)
        assert [target.host for _, target in house.pool.wanted] == ["one"]


@pytest.mark.parametrize(
    ("routes", "start"),
    [
        (DIRECT, request(b"GET")),
        (DIRECT, handshake),
        (OVER_HTTP, handshake),
        (OVER_HTTP, events),
        (DIRECT, link),
        (DIRECT, filtered),
        (DIRECT, gone),
    ],
)
@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"])
def test_a_new_connection_that_breaks_is_not_replaced(
    routes: str, start: Callable[[House], None], answer: bytes
) -> None:
    house = House(routes)
    start(house)
    backend: Backend = house.pool.connect() if house.pool.wanted else house.pool.opened[-1]
    backend.connection.reused = False
    backend.says(answer)
    if not backend.transport.closing:
        backend.leaves()
    assert outcome(house) == FAILED
