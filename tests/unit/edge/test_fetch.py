"""Requests of our own: where they go, what they carry, how they end; and the pace of many."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from gripproxy.edge.fetch import FETCH_MAX, Fetch, Pace
from gripproxy.grip.response import Response
from tests.unit.edge.doubles import Backend, House

BASE = b"http://example/base"


class Asking:
    """One fetch, and what it gave."""

    def __init__(self, house: House, link: bytes = b"/link", body: bytes = b"", **more: Any) -> None:
        self.house = house
        self.answers: list[Response | None] = []
        method = b"POST" if body else b"GET"
        route = house.worker.routes.routes[0]
        loop_args = (house.worker, route, BASE, link, method, [(b"X-Own", b"1")], body, 10.0)
        Fetch(*loop_args, self.answers.append, **more)

    def connect(self) -> tuple[Backend, bytes]:
        backend = self.house.pool.connect()
        return backend, backend.take()


def answer(body: bytes, code: int = 200) -> bytes:
    return b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n%b" % (code, len(body), body)


@pytest.fixture
def house() -> House:
    return House("*,sig_iss=me,sig_key=secret one:80 two:81")


class TestWhere:
    def test_the_sessions_own_host_goes_by_its_route(self) -> None:
        house = House("*,path_beg=/,replace_beg=/new/ one:80")
        backend, request = Asking(house, b"/link?a=b").connect()
        assert backend.target.host == "one"
        assert request.startswith(b"GET /new/link?a=b HTTP/1.1\r\n")

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
        backend, request = Asking(house, link).connect()
        assert (backend.target.host, backend.target.port) == where
        assert backend.target.ssl == tls
        assert not backend.target.untrusted
        assert request.startswith(b"GET /x HTTP/1.1\r\n")

    @pytest.mark.parametrize("routes", ["* one:80,untrusted", "* one:80 two:81,untrusted", "* one:80"])
    @pytest.mark.parametrize("untrusted", [True, False])
    def test_the_policy_follows_the_link_and_not_the_first_target(self, routes: str, untrusted: bool) -> None:
        backend, _ = Asking(House(routes), b"http://other/x", untrusted=untrusted).connect()
        assert backend.target.untrusted == untrusted

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
        backend, _ = Asking(House("* one:80 two:81,untrusted"), link).connect()
        assert backend.target.untrusted == untrusted

    @pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
    def test_redirects_are_not_followed(self, house: House, code: int) -> None:
        asking = Asking(house)
        backend, _ = asking.connect()
        backend.says(b"HTTP/1.1 %d Moved\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n" % code)
        assert [response and response.code for response in asking.answers] == [code]
        assert house.pool.wanted == []

    def test_the_next_target_is_asked_if_there_is_no_connection(self, house: House) -> None:
        asking = Asking(house)
        assert house.pool.refuse().host == "one"
        backend, _ = asking.connect()
        assert backend.target.host == "two"
        backend.says(answer(b"x"))
        assert [response and response.body for response in asking.answers] == [b"x"]

    def test_without_a_descriptor_no_other_target_is_asked(self, house: House) -> None:
        asking = Asking(house)
        house.pool.refuse(OSError(errno.EMFILE, "no descriptor within 10 s"))
        assert asking.answers == [None]
        assert house.pool.wanted == []

    def test_nobody_is_there(self, house: House) -> None:
        asking = Asking(house)
        house.pool.refuse()
        house.pool.refuse()
        assert asking.answers == [None]

    def test_a_link_that_leads_nowhere_fails_in_a_later_turn(self, house: House) -> None:
        asking = Asking(house, b"ftp://example/x")
        assert asking.answers == []
        house.pass_time(0)
        assert asking.answers == [None]


class TestRequest:
    def test_carries_our_headers_and_the_last_ids_and_nothing_of_a_client(self, house: House) -> None:
        _, request = Asking(house, last_ids=((b"a", b"1"), (b"b", b"2"))).connect()
        lines = request.split(b"\r\n")
        assert lines[0] == b"GET /link HTTP/1.1"
        names = {line.partition(b":")[0] for line in lines[1:] if line}
        assert names == {b"Host", b"X-Own", b"Grip-Sig", b"Grip-Feature", b"Grip-Last"}
        assert [line for line in lines if line.startswith(b"Grip-Last: ")] == [
            b"Grip-Last: a; last-id=1",
            b"Grip-Last: b; last-id=2",
        ]

    def test_of_another_host_carries_them_too(self, house: House) -> None:
        _, request = Asking(house, b"http://other:99/x", last_ids=((b"a", b"1"),)).connect()
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
        _, request = Asking(house, link, untrusted=untrusted).connect()
        assert (b"\r\nGrip-Sig: " in request) == signed
        assert b"\r\nGrip-Feature: " in request

    @pytest.mark.parametrize("link", [b"/link", b"http://other/link"])
    def test_with_a_body(self, house: House, link: bytes) -> None:
        _, request = Asking(house, link, body=b"body").connect()
        assert request.startswith(b"POST ")
        assert b"\r\nContent-Length: 4\r\n" in request
        assert request.endswith(b"\r\n\r\nbody")


class TestTrust:
    """Whose data an answer is."""

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
    def test_of_an_answer(self, link: bytes, given: bool, first_answers: bool, untrusted: bool) -> None:
        house = House("* one:80 two:81,untrusted")
        answers: list[Response | None] = []
        route = house.worker.routes.routes[0]
        fetch = Fetch(house.worker, route, BASE, link, b"GET", [], b"", 10.0, answers.append, untrusted=given)
        if not first_answers:
            house.pool.refuse()
        house.pool.connect().says(answer(b"x"))
        assert len(answers) == 1
        assert fetch.untrusted == untrusted


class TestAnswer:
    def test_is_given_once_and_the_connection_kept(self, house: House) -> None:
        asking = Asking(house)
        backend, _ = asking.connect()
        data = answer(b"hello", 404)
        backend.says(data[:20])
        backend.says(data[20:])
        [response] = asking.answers
        assert response is not None
        assert (response.code, response.body) == (404, b"hello")
        assert backend.free
        house.pass_time(100)
        assert len(asking.answers) == 1

    @pytest.mark.parametrize(("size", "fine"), [(FETCH_MAX, True), (FETCH_MAX + 1, False)])
    def test_has_a_bound(self, house: House, size: int, fine: bool) -> None:
        asking = Asking(house)
        backend, _ = asking.connect()
        backend.says(answer(b"x" * size))
        assert [response is not None for response in asking.answers] == [fine]
        assert backend.free

    def test_does_not_come(self, house: House) -> None:
        asking = Asking(house)
        backend, _ = asking.connect()
        backend.says(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
        house.pass_time(10)
        assert asking.answers == [None]
        assert backend.transport.aborted

    def test_does_not_come_for_there_is_no_connection_yet(self, house: House) -> None:
        asking = Asking(house)
        house.pass_time(10)
        assert asking.answers == [None]
        assert house.pool.wanted == []

    def test_breaks_off(self, house: House) -> None:
        asking = Asking(house)
        backend, _ = asking.connect()
        backend.says(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
        backend.leaves()
        assert asking.answers == [None]

    def test_an_idle_connection_that_ends_just_then_is_replaced(self, house: House) -> None:
        backend, _ = Asking(house).connect()
        backend.says(answer(b""))
        asking = Asking(house)
        backend.leaves()
        assert asking.answers == []
        again, _ = asking.connect()
        again.says(answer(b"x"))
        assert [response and response.body for response in asking.answers] == [b"x"]


class TestPace:
    class Loop:
        def __init__(self) -> None:
            self.timers: list[tuple[float, Callable[[], None]]] = []

        def __call__(self, seconds: float, callback: Callable[[], None]) -> None:
            self.timers.append((seconds, callback))

        def fire(self) -> None:
            [(_, callback)] = self.timers
            self.timers.clear()
            callback()

    def test_so_many_at_a_time_in_order(self) -> None:
        loop, log = self.Loop(), []
        pace = Pace(20, 0.1, 100, loop)
        for n in range(5):
            assert pace.add(lambda n=n: log.append(n))  # type: ignore[misc]
        assert log == [0]
        loop.fire()
        assert log == [0, 1, 2]
        assert loop.timers[0][0] == 0.1
        loop.fire()
        assert log == [0, 1, 2, 3, 4]
        loop.fire()
        assert loop.timers == []

    def test_after_a_rest_the_next_goes_at_once(self) -> None:
        loop, log = self.Loop(), []
        pace = Pace(10, 0.1, 100, loop)
        pace.add(lambda: log.append(1))
        loop.fire()
        pace.add(lambda: log.append(2))
        assert log == [1, 2]

    def test_only_so_many_wait(self) -> None:
        loop, log = self.Loop(), []
        pace = Pace(10, 0.1, 2, loop)
        assert [pace.add(lambda: log.append(1)) for _ in range(4)] == [True, True, True, False]
