"""Which route a request takes, and whether it counts as TLS (docs/grip.md §1.5, §2.1, §2.2)."""

from __future__ import annotations

import pytest

from gripproxy.grip.x_forwarded_for import ForwardedFor
from gripproxy.http1.request_parser import Request
from gripproxy.routing.forward_settings import ForwardSettings
from gripproxy.routing.grammar import parse_routes
from gripproxy.routing.match import find_route, is_secure

TABLE, _ = parse_routes(
    "*,id=any localhost:80\na.example,id=a localhost:81\na.example,proto=ws,id=aws localhost:82\n"
    "s.example,ssl=yes,id=s localhost:83\nlocalhost,id=none localhost:84\n",
    "routes",
)


def settings(accept_proto: bool = False, accept_route: bool = False) -> ForwardSettings:
    nothing = ForwardedFor()
    return ForwardSettings(nothing, nothing, accept_proto, "false", frozenset(), accept_route, b"", None)


def request(host: bytes | None, *headers: tuple[bytes, bytes]) -> Request:
    made = Request(b"GET", b"/x?y=1", list(headers), 1)
    made.host = host
    return made


@pytest.mark.parametrize(
    ("host", "ws", "secure", "expected"),
    [
        (b"a.example", False, False, b"a"),
        (b"A.Example:8080", False, False, b"a"),
        (b"a.example", True, False, b"aws"),
        (b"elsewhere", False, False, b"any"),
        (b"s.example", False, True, b"s"),
        (None, False, False, b"none"),
    ],
)
def test_by_host(host: bytes | None, ws: bool, secure: bool, expected: bytes) -> None:
    route = find_route(request(host), ws, secure, TABLE, settings())
    assert route is not None
    assert route.id == expected


def test_a_named_host_hides_the_others() -> None:
    assert find_route(request(b"s.example"), False, False, TABLE, settings()) is None


def test_by_id_where_that_is_allowed() -> None:
    asked = request(b"a.example", (b"Pushpin-Route", b"any"))
    plain = find_route(asked, False, False, TABLE, settings())
    named = find_route(asked, False, False, TABLE, settings(accept_route=True))
    assert plain is not None
    assert named is not None
    assert (plain.id, named.id) == (b"a", b"any")


def test_an_unknown_id_is_not_looked_up_by_host() -> None:
    asked = request(b"a.example", (b"pushpin-route", b"nope"))
    assert find_route(asked, False, False, TABLE, settings(accept_route=True)) is None


@pytest.mark.parametrize("name", [b"X-Forwarded-Proto", b"x-forwarded-protocol"])
@pytest.mark.parametrize(("value", "expected"), [(b"https", True), (b" WSS ", True), (b"http", False), (b"", False)])
def test_a_proxy_in_front_may_vouch_for_tls(name: bytes, value: bytes, expected: bool) -> None:
    asked = request(b"a", (name, value))
    assert is_secure(asked, False, settings(accept_proto=True)) is expected
    assert is_secure(asked, False, settings()) is False
    assert is_secure(asked, True, settings()) is True
