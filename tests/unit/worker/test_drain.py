"""A worker whose successor serves: who is let go when, on a loop, transports and a pipe that are only memory."""

from __future__ import annotations

import os

import pytest

from gripproxy import pipe
from gripproxy.grip.close_frame import close_payload
from gripproxy.grip.frames import CLOSE, TEXT
from gripproxy.grip.item import Item, ResponseFormat, StreamFormat
from gripproxy.process.log import log
from tests.support.doubles import Backend, Browser, House, Parsed
from tests.support.sockets import Talk


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "level", -1)
    monkeypatch.setattr(log, "process", log.process)


@pytest.fixture
def house() -> House:
    return House()


GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def backend(house: House) -> Backend:
    return house.pool.connect() if house.pool.wanted else house.pool.opened[-1]


def hold(house: House, mode: bytes, extra: bytes = b"", channel: bytes = b"ch", confirm: bool = True) -> Browser:
    browser = house.browser().says(GET)
    answered = backend(house)
    head = b"HTTP/1.1 200 OK\r\nGrip-Hold: %b\r\nGrip-Channel: %b\r\n%bContent-Length: 5\r\n\r\nhello"
    answered.says(head % (mode, channel, extra))
    answered.take()
    if confirm:
        house.confirm()
        browser.take()
    return browser


def poll(house: House) -> Browser:
    return hold(house, b"response")


def stream(house: House) -> Browser:
    return hold(house, b"stream")


def reliable(house: House) -> Browser:
    return hold(house, b"stream", b"Grip-Link: </next>; rel=next\r\n", b"ch; prev-id=1")


def leave(*browsers: Browser) -> None:
    """Those whose connection was closed are gone."""
    for browser in browsers:
        if browser.transport.closing:
            browser.transport.lose()


def ended(house: House) -> bool:
    return house.worker._stopped.done()


def test_the_end_comes_when_nobody_is_left_and_all_that_arrived_is_counted(house: House) -> None:
    house.worker.drain.retire(60, 30)
    house.pass_time(0.9)
    assert not ended(house)
    house.pass_time(0.3)
    assert ended(house)


def test_the_handler_is_told_and_again_after_a_reconnect(house: House) -> None:
    house.worker.drain.retire(60, 30)
    house.worker.messages.announce_retiring()
    assert house.pipe.take() == [(pipe.RETIRING, os.getpid())] * 2


def test_a_client_that_arrived_before_is_served_and_asked_to_go(house: House) -> None:
    quiet = house.browser()
    house.worker.drain.retire(60, 30)
    late = house.browser().says(GET)
    backend(house).says(OK)
    assert Parsed(late.take()).get(b"Connection") == b"close"
    assert late.transport.closing
    leave(late)
    house.pass_time(5)
    assert not ended(house)
    quiet.says(GET)
    backend(house).says(OK)
    answer = Parsed(quiet.take())
    assert (answer.code, answer.get(b"Connection")) == (200, b"close")
    leave(quiet)
    house.pass_time(0.2)
    assert ended(house)


def test_a_response_that_has_begun_ends_as_it_began(house: House) -> None:
    browser = house.browser().says(GET)
    backend(house).says(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
    house.worker.drain.retire(60, 30)
    house.pool.opened[-1].says(b"cd")
    assert Parsed(browser.take()).body == b"abcd"
    assert not browser.transport.closing
    browser.says(GET)
    backend(house).says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
    answer = Parsed(browser.take())
    assert (answer.get(b"Connection"), answer.body) == (b"Transfer-Encoding, close", b"hi")
    assert browser.transport.closing


def test_long_polls_are_answered_first_spread_over_the_time(house: House) -> None:
    polls = [poll(house) for _ in range(20)]
    other = stream(house)
    house.worker.drain.retire(60, 2)
    counts = []
    for _ in range(4):
        house.pass_time(0.5)
        counts.append(sum(browser.transport.closing for browser in polls))
    assert counts[0] in range(4, 8)
    assert counts == sorted(counts)
    assert counts[-1] == 20
    for browser in polls:
        answer = Parsed(browser.take())
        assert (answer.code, answer.body, answer.get(b"Connection")) == (200, b"hello", b"close")
    assert other.take() == b""
    assert not other.transport.closing


def test_those_who_can_miss_nothing_go_last(house: House) -> None:
    last = [reliable(house) for _ in range(5)]
    first = [stream(house) for _ in range(5)]
    house.worker.drain.retire(10, 1)
    house.pass_time(9.9)
    assert not any(browser.transport.closing for browser in (*first, *last))
    house.pass_time(0.65)
    assert all(browser.transport.closing for browser in first)
    assert not any(browser.transport.closing for browser in last[1:])
    house.pass_time(0.5)
    assert all(browser.transport.closing for browser in last)
    assert {browser.take() for browser in (*first, *last)} == {b"0\r\n\r\n"}
    leave(*first, *last)
    house.pass_time(0.2)
    assert ended(house)


def test_items_arrive_until_the_end(house: House) -> None:
    held, asking = stream(house), poll(house)
    house.worker.drain.retire(10, 1)
    house.pass_time(5)
    leave(asking)
    house.publish(Item(b"ch", stream=StreamFormat("send", b"news")))
    assert held.take() == b"4\r\nnews\r\n"


def test_an_item_for_a_long_poll_asks_it_to_go(house: House) -> None:
    held = poll(house)
    house.worker.registry.retiring = True
    house.publish(Item(b"ch", response=ResponseFormat("send", body=b"news")))
    answer = Parsed(held.take())
    assert (answer.body, answer.get(b"Connection")) == (b"news", b"close")
    assert held.transport.closing


def test_a_hold_that_is_not_confirmed_yet_is_not_refused(house: House) -> None:
    waiting = hold(house, b"stream", confirm=False)
    house.worker.drain.retire(1, 1)
    house.pass_time(1.5)
    assert waiting.take() == b""
    house.confirm()
    assert waiting.take().startswith(b"HTTP/1.1 200 ")
    house.pass_time(0.6)
    assert waiting.take() == b"0\r\n\r\n"


def test_who_does_not_go_is_cut_off_within_shutdown_timeout() -> None:
    house = House(shutdown_timeout=3)
    stuck = house.browser().says(GET)
    backend(house)
    house.worker.drain.retire(1, 1)
    house.pass_time(4.5)
    assert not stuck.transport.aborted
    house.pass_time(0.7)
    assert stuck.transport.aborted
    assert ended(house)


def test_a_stop_meanwhile_goes_before(house: House) -> None:
    held = stream(house)
    house.worker.drain.retire(60, 30)
    house.worker.drain.stop()
    assert held.take() == b"0\r\n\r\n"
    leave(held)
    house.pass_time(0.1)
    assert ended(house)
    house.pass_time(100)


def test_twice_is_once_and_nothing_follows_a_stop(house: House) -> None:
    house.worker.drain.retire(60, 30)
    house.worker.drain.retire(1, 1)
    assert len(house.pipe.take()) == 1
    other = House()
    other.worker.drain.stop()
    other.worker.drain.retire(1, 1)
    assert other.pipe.take() == []


def test_a_gone_link_is_told_before_the_end(house: House) -> None:
    held = hold(house, b"stream", b"Grip-Link: </gone>; rel=gone\r\n")
    house.worker.drain.retire(1, 1)
    house.pass_time(2)
    assert held.transport.closing
    leave(held)
    house.pass_time(0.2)
    assert not ended(house)
    told = backend(house)
    assert told.take().startswith(b"POST /gone ")
    told.says(OK)
    house.pass_time(0.1)
    assert ended(house)


def test_a_websocket_is_closed_as_going_away() -> None:
    talk = Talk()
    talk.house.worker.drain.retire(10, 1)
    talk.house.pass_time(9.9)
    talk.says(TEXT, b"still here")
    assert talk.backend_heard() == [(TEXT, b"still here")]
    assert talk.heard() == []
    talk.house.pass_time(0.3)
    assert talk.heard() == [(CLOSE, close_payload(1001))]
    assert not ended(talk.house)


def test_what_the_backend_is_told_of_a_websocket_is_told_before_the_end() -> None:
    talk = Talk(over_http=True)
    talk.backend.take()
    talk.house.worker.drain.retire(1, 0)
    talk.house.pass_time(1.1)
    assert talk.heard() == [(CLOSE, close_payload(1001))]
    talk.says(CLOSE, close_payload(1001))
    talk.client.lose()
    talk.house.pass_time(0.5)
    assert not ended(talk.house)
    assert talk.backend.take().endswith(b"\r\n\r\nCLOSE\r\n")
    talk.answers(b"")
    talk.house.pass_time(0.5)
    assert ended(talk.house)
