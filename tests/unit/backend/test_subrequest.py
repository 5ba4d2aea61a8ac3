"""Subrequests: their response, and how they end."""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy.backend.subrequest import FETCH_MAX, Subrequest
from gripproxy.grip.response import Response
from tests.support.doubles import Backend, House

BASE = b"http://example/base"


class Asking:
    """One fetch, and what it gave."""

    def __init__(self, house: House, link: bytes = b"/link", body: bytes = b"", **more: Any) -> None:
        self.house = house
        self.answers: list[Response | None] = []
        route = house.worker.router.routes.routes[0]
        loop_args = (house.worker.context, route, BASE, link, [(b"X-Own", b"1")], body, 10.0)
        Subrequest(*loop_args, self.answers.append, **more)

    def connect(self) -> tuple[Backend, bytes]:
        backend = self.house.pool.connect()
        return backend, backend.take()


def answer(body: bytes, code: int = 200) -> bytes:
    return b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n%b" % (code, len(body), body)


@pytest.fixture
def house() -> House:
    return House("*,sig_iss=me,sig_key=secret one:80 two:81")


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


class TestTargets:
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
