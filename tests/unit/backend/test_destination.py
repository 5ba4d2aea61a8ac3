"""Destinations of the proxy's own requests: targets, access policy, signature, head."""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy.backend.destination import Destination
from gripproxy.grip.links import LinkError
from gripproxy.sessions.context import LinkRequest
from tests.support.doubles import House

BASE = b"http://example/base"


def lead(house: House, link: bytes, untrusted: bool = False) -> Destination:
    """The destination of a link on the first route."""
    foreign = house.worker.context.proxy.sign_foreign_links
    return Destination(house.worker.router.routes.routes[0], BASE, link, untrusted, foreign)


def written(house: House, link: bytes = b"/link", body: bytes = b"", untrusted: bool = False, **more: Any) -> bytes:
    """The head of a request to a link."""
    destination = lead(house, link, untrusted)
    forwarder = house.worker.router.forwarder(destination.route, 0, destination.signed)
    last_ids = more.get("last_ids", ())
    return destination.head(
        forwarder, b"POST" if body else b"GET", [(b"X-Own", b"1")], len(body), last_ids, more.get("trace", b"")
    )


@pytest.fixture
def house() -> House:
    return House("*,sig_iss=me,sig_key=secret one:80 two:81")


class TestTargets:
    def test_the_sessions_own_host_goes_by_its_route(self) -> None:
        house = House("*,path_beg=/,replace_beg=/new/ one:80 two:81")
        assert [target.host for target in lead(house, b"/link?a=b").targets] == ["one", "two"]
        assert written(house, b"/link?a=b").startswith(b"GET /new/link?a=b HTTP/1.1\r\n")

    @pytest.mark.parametrize(
        ("link", "where", "tls"),
        [
            (b"http://other/x", ("other", 80), False),
            (b"http://example:81/x", ("example", 81), False),
            (b"https://example/x", ("example", 443), True),
            (b"//[::1]:99/x", ("::1", 99), False),
        ],
    )
    def test_another_one_is_connected_to_directly(self, link: bytes, where: tuple[str, int], tls: bool) -> None:
        house = House("*,path_beg=/,replace_beg=/new/ one:80")
        [target] = lead(house, link).targets
        assert (target.host, target.port) == where
        assert target.ssl == tls
        assert not target.untrusted
        assert written(house, link).startswith(b"GET /x HTTP/1.1\r\n")

    @pytest.mark.parametrize("routes", ["* one:80,untrusted", "* one:80 two:81,untrusted", "* one:80"])
    @pytest.mark.parametrize("untrusted", [True, False])
    def test_the_policy_follows_the_link_and_not_the_first_target(self, routes: str, untrusted: bool) -> None:
        [target] = lead(House(routes), b"http://other/x", untrusted).targets
        assert target.untrusted == untrusted

    @pytest.mark.parametrize(
        ("link", "untrusted"),
        [
            (b"http://two:81/x", True),
            (b"http://TWO:81/x", True),
            (b"https://two:81/x", False),
            (b"http://two:82/x", False),
            (b"http://one:80/x", False),
        ],
    )
    def test_a_trusted_link_to_an_untrusted_target(self, link: bytes, untrusted: bool) -> None:
        [target] = lead(House("* one:80 two:81,untrusted"), link).targets
        assert target.untrusted == untrusted

    def test_a_link_that_is_no_uri_of_the_web(self, house: House) -> None:
        with pytest.raises(LinkError):
            lead(house, b"ftp://example/x")


class TestHead:
    def test_carries_our_headers_and_the_last_ids_and_nothing_of_a_client(self, house: House) -> None:
        lines = written(house, last_ids=((b"a", b"1"), (b"b", b"2"))).split(b"\r\n")
        assert lines[0] == b"GET /link HTTP/1.1"
        names = {line.partition(b":")[0] for line in lines[1:] if line}
        assert names == {b"Host", b"X-Own", b"Grip-Sig", b"Grip-Feature", b"Grip-Last"}
        assert [line for line in lines if line.startswith(b"Grip-Last: ")] == [
            b"Grip-Last: a; last-id=1",
            b"Grip-Last: b; last-id=2",
        ]

    def test_of_another_host_carries_them_too(self, house: House) -> None:
        request = written(house, b"http://other:99/x", last_ids=((b"a", b"1"),))
        assert b"\r\nHost: other:99\r\n" in request
        assert b"\r\nX-Own: 1\r\n" in request
        assert b"\r\nGrip-Sig: " in request
        assert b"\r\nGrip-Last: a; last-id=1\r\n" in request

    @pytest.mark.parametrize(
        ("link", "untrusted", "foreign", "signed"),
        [
            # link, steered by an untrusted target, sign_foreign_links, has Grip-Sig
            (b"/link", False, True, True),
            (b"/link", False, False, True),
            (b"/link", True, True, False),
            (b"http://other/link", False, True, True),
            (b"http://other/link", False, False, False),
            (b"http://other/link", True, True, False),
            (b"http://two:81/link", False, False, True),
            (b"http://two:81/link", True, True, False),
            (b"http://two:82/link", False, False, False),
            (b"https://two:81/link", False, False, False),
        ],
    )
    def test_is_signed(self, link: bytes, untrusted: bool, foreign: bool, signed: bool) -> None:
        house = House(
            "*,sig_iss=me,sig_key=secret one:80 two:81", "other,sig_key=x other:80", sign_foreign_links=foreign
        )
        request = written(house, link, untrusted=untrusted)
        assert (b"\r\nGrip-Sig: " in request) == signed
        assert b"\r\nGrip-Feature: " in request

    @pytest.mark.parametrize("link", [b"/link", b"http://other/link"])
    def test_has_the_length_of_the_body_once(self, house: House, link: bytes) -> None:
        request = written(house, link, body=b"body")
        assert request.startswith(b"POST ")
        assert [line for line in request.split(b"\r\n") if b"ength" in line] == [b"Content-Length: 4"]
        assert request.endswith(b"\r\n\r\n")

    @pytest.mark.parametrize("link", [b"/gone", b"http://other/gone"])
    def test_has_the_length_of_no_body_too(self, house: House, link: bytes) -> None:
        house.worker.context.gone.send(house.worker.router.routes.routes[0], BASE, link, False)
        request = house.pool.connect().take()
        assert [line for line in request.split(b"\r\n") if b"ength" in line] == [b"Content-Length: 0"]


class Reader:
    """A reader of a link's response; takes everything."""

    def on_link_body(self, data: bytes, framed: bytes) -> None: ...
    def on_link_end(self, uri: bytes, instruct: object, problem: str) -> None: ...
    def on_link_failed(self) -> None: ...


class TestTrust:
    @pytest.mark.parametrize(
        ("link", "given", "first_answers", "untrusted"),
        [
            (b"/link", False, True, False),
            (b"/link", False, False, True),
            (b"/link", True, True, True),
            (b"http://other/link", False, True, False),
            (b"http://other/link", True, True, True),
            (b"http://two:81/link", False, True, True),
        ],
    )
    def test_of_a_response(self, link: bytes, given: bool, first_answers: bool, untrusted: bool) -> None:
        house = House("* one:80 two:81,untrusted")
        request = LinkRequest(house.worker.router.routes.routes[0], BASE, link, (), True, given)
        reading = house.worker.links.fetch(request, Reader())
        if not first_answers:
            house.pool.refuse()
        house.pool.connect().says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
        assert reading.untrusted == untrusted


class TestFailures:
    @pytest.mark.parametrize(
        ("link", "name", "text"),
        [(b"/x", "one:80", "why"), (b"http://other/x", "links-of:r", "other:80: why")],
    )
    def test_all_other_hosts_have_one_name(self, link: bytes, name: str, text: str) -> None:
        destination = lead(House("*,id=r one:80"), link)
        assert destination.failure(destination.targets[0], "why") == (name, text)
