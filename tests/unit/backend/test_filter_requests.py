"""The requests of filters: what they ask is tested with the filters, here how many may wait."""

from __future__ import annotations

import pytest

from gripproxy.backend.filter_requests import FilterRequests
from gripproxy.grip.filters import Ask, AskAnswer
from gripproxy.grip.item import Item, StreamFormat
from tests.support.doubles import Browser, House


@pytest.fixture
def house() -> House:
    return House()


def test_a_websockets_url_goes_by_its_route(house: House) -> None:
    answers: list[AskAnswer | None] = []
    ask = Ask(b"http://h/check", [], b"", lambda answer: None)  # type: ignore[arg-type,return-value]
    for base in (b"ws://h/socket", b"http://h/page"):
        FilterRequests(house.worker.context).ask(ask, base, house.worker.router.routes.routes[0], False, answers.append)
        backend = house.pool.connect()
        assert (backend.target.host, backend.target.untrusted) == ("one", False)
        backend.says(b"HTTP/1.1 204 No Content\r\n\r\n")
        house.pool.idle.clear()
    assert [answer and answer.code for answer in answers] == [204, 204]


def held(house: House, users: list[bytes]) -> list[Browser]:
    """Streams whose filter asks, each of a user."""
    browsers = []
    for user in users:
        browser = house.browser().says(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        backend = house.pool.connect() if house.pool.wanted else house.pool.opened[-1]
        backend.says(
            b"HTTP/1.1 200 OK\r\nGrip-Hold: stream\r\nGrip-Channel: ch; filter=http-modify\r\n"
            b'Grip-Set-Meta: url="/check", user=%b\r\nContent-Length: 0\r\n\r\n' % user
        )
        house.confirm()
        browser.take()
        browsers.append(browser)
    house.pool.idle.clear()
    return browsers


def answer_all(house: House) -> int:
    """Answer every request that the filters make, and return how many there were."""
    house.pass_time(1)
    count = 0
    while house.pool.wanted:
        house.pool.connect().says(b"HTTP/1.1 204 No Content\r\n\r\n")
        house.pool.idle.clear()
        count += 1
    house.loop.run()
    return count


def test_equal_requests_are_one(house: House) -> None:
    browsers = held(house, [b"ann", b"ann", b"bob", b"ann"])
    for content in (b"x", b"y"):
        house.publish(Item(b"ch", stream=StreamFormat("send", content)))
        assert answer_all(house) == 2
        assert [browser.take() for browser in browsers] == [b"1\r\n%b\r\n" % content] * 4


def test_requests_that_wait_are_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gripproxy.backend.filter_requests.WAITING_MAX", 2)
    browsers = held(house, [b"user-%d" % number for number in range(6)])
    house.publish(Item(b"ch", stream=StreamFormat("send", b"x")))
    assert answer_all(house) == 3
    assert [browser.take() for browser in browsers] == [b"1\r\nx\r\n"] * 3 + [b""] * 3


def test_bytes_that_wait_are_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gripproxy.backend.filter_requests.WAITING_BYTES", 12_000)
    browsers = held(house, [b"user-%d" % number for number in range(4)])
    for letter in (b"x", b"y"):
        house.publish(Item(b"ch", stream=StreamFormat("send", letter * 5_000)))
        assert answer_all(house) == 2
        assert [len(browser.take()) > 5_000 for browser in browsers] == [True, True, False, False]
