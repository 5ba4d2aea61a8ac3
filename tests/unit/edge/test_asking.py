"""The requests of filters: what they ask is tested with the filters, here how many may wait."""

from __future__ import annotations

import pytest

from gripproxy.edge.asking import Asking
from gripproxy.grip.filters import Ask, AskAnswer
from gripproxy.grip.item import Item, StreamFormat
from tests.unit.edge.doubles import House


@pytest.fixture
def house() -> House:
    return House()


def test_a_websockets_url_goes_by_its_route(house: House) -> None:
    answers: list[AskAnswer | None] = []
    ask = Ask(b"http://h/check", [], b"", lambda answer: None)  # type: ignore[arg-type,return-value]
    for base in (b"ws://h/socket", b"http://h/page"):
        Asking(house.worker).ask(ask, base, house.worker.routes.routes[0], False, answers.append)
        backend = house.pool.connect()
        assert (backend.target.host, backend.target.untrusted) == ("one", False)
        backend.says(b"HTTP/1.1 204 No Content\r\n\r\n")
        house.pool.idle.clear()
    assert [answer and answer.code for answer in answers] == [204, 204]


def test_requests_that_wait_are_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gripproxy.edge.asking.WAITING_MAX", 2)
    browsers = []
    for _ in range(6):
        browser = house.browser().says(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        backend = house.pool.connect() if house.pool.wanted else house.pool.opened[-1]
        backend.says(
            b"HTTP/1.1 200 OK\r\nGrip-Hold: stream\r\nGrip-Channel: ch; filter=http-check\r\n"
            b'Grip-Set-Meta: url="/check"\r\nContent-Length: 0\r\n\r\n'
        )
        house.confirm()
        browser.take()
        browsers.append(browser)
    house.pool.idle.clear()
    house.publish(Item(b"ch", stream=StreamFormat("send", b"x")))
    house.pass_time(1)
    assert len(house.pool.wanted) == 3
    while house.pool.wanted:
        house.pool.connect().says(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        house.pool.idle.clear()
    assert [browser.take() for browser in browsers] == [b"1\r\nx\r\n"] * 3 + [b""] * 3
