"""A bug costs the client or the message that it hit: the others are served, and it is told whose fault it is."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from gripproxy import pipe
from gripproxy.delivery import fanout, turns
from gripproxy.grip.frames import TEXT, serialise
from gripproxy.grip.item import Item, MessageFormat, ResponseFormat, StreamFormat
from gripproxy.grip.item_pack import pack_item
from gripproxy.process.log import log
from gripproxy.sessions.response import ResponseHold
from gripproxy.sessions.stream import StreamHold
from gripproxy.sessions.timer_wheel import Alarm
from gripproxy.sessions.websocket import WebSocketSession
from gripproxy.worker import error_boundary
from gripproxy.worker.error_boundary import ErrorBoundary
from tests.support.doubles import Browser, House, unchunk
from tests.support.sockets import Talk

TELL = ErrorBoundary.tell
"""The real one: for other tests of this folder a mishap is a failure."""

GIVE_UP = StreamHold.abort_on_defect


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    monkeypatch.setattr(ErrorBoundary, "tell", TELL)
    file = tmp_path / "log"
    level = log.level
    log.configure(level=0, file=str(file))
    yield file
    log.configure(level=level)


@pytest.fixture
def house() -> House:
    return House()


def hold(house: House, mode: bytes = b"stream", more: bytes = b"") -> Browser:
    browser = house.browser().says(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    backend = house.pool.connect() if house.pool.wanted else house.pool.opened[-1]
    head = b"HTTP/1.1 200 OK\r\nGrip-Hold: %b\r\nGrip-Channel: ch%b\r\nContent-Length: 0\r\n\r\n"
    backend.says(head % (mode, more))
    house.confirm()
    backend.take()
    browser.take()
    return browser


def item(content: bytes = b"x") -> Item:
    return Item(b"ch", None, None, ResponseFormat(body=content), StreamFormat("send", content))


def fails(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, *victims: object) -> None:
    """Have a method fail for these sessions."""
    method = getattr(kind, name)

    def wrapped(self: object, *args: object) -> Any:
        if self in victims:
            raise KeyError("a bug")
        return method(self, *args)

    monkeypatch.setattr(kind, name, wrapped)


def sessions(house: House) -> list[Any]:
    return list(house.worker.registry.held.values())


def dropped(house: House) -> int:
    return house.worker.totals.totals().get("dropped-error", 0)


FILTER = b"; filter=skip-self"
"""With it each item goes through the session itself."""


class TestOneSession:
    @pytest.mark.parametrize("turn", [1000, 2], ids=["one turn", "several turns"])
    def test_does_not_cost_the_others_their_item(
        self, house: House, monkeypatch: pytest.MonkeyPatch, turn: int, logged: pathlib.Path
    ) -> None:
        if turn == 2:
            monkeypatch.setattr(fanout, "STEP", 2)
            monkeypatch.setattr(fanout, "CAREFUL_STEP", 2)
            monkeypatch.setattr(fanout, "FEW", 2)
            monkeypatch.setattr(turns, "TURN_TIME", 0.0)
        browsers = [hold(house, more=FILTER) for _ in range(5)]
        fails(monkeypatch, StreamHold, "deliver", sessions(house)[1], sessions(house)[3])
        house.publish(item())
        house.loop.run()
        assert [unchunk(browser.take())[0] for browser in browsers] == [b"x", b"", b"x", b"", b"x"]
        assert [browser.transport.closing for browser in browsers] == [False, True, False, True, False]
        assert len(house.worker.registry.held) == 3
        assert dropped(house) == 2
        assert house.worker.fanout.delivered == 3
        house.publish(item(b"y"))
        house.loop.run()
        assert [unchunk(browser.take())[0] for browser in browsers] == [b"y", b"", b"y", b"", b"y"]
        log.flush()
        text = logged.read_text()
        assert text.count("a bug in gripproxy: error=KeyError reason=\"'a bug'\"") == 2
        assert text.count("Traceback") == 1

    @pytest.mark.parametrize("turn", [1000, 2], ids=["one turn", "several turns"])
    def test_that_is_written_to_without_being_asked(
        self, house: House, monkeypatch: pytest.MonkeyPatch, turn: int
    ) -> None:
        if turn == 2:
            monkeypatch.setattr(fanout, "STEP", 2)
            monkeypatch.setattr(fanout, "CAREFUL_STEP", 2)
            monkeypatch.setattr(fanout, "FEW", 2)
            monkeypatch.setattr(turns, "TURN_TIME", 0.0)
        browsers = [hold(house) for _ in range(5)]

        def write(data: bytes) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(browsers[2].transport, "write", write)
        house.publish(item())
        house.loop.run()
        assert [unchunk(browser.take())[0] for browser in browsers] == [b"x", b"x", b"", b"x", b"x"]
        assert len(house.worker.registry.held) == 4
        assert (house.worker.fanout.delivered, dropped(house)) == (4, 1)

    def test_of_several_that_wait_for_a_channel(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        browsers = []
        for _ in range(3):
            browser = house.browser().says(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            backend = house.pool.connect() if house.pool.wanted else house.pool.opened[-1]
            backend.says(b"HTTP/1.1 200 OK\r\nGrip-Hold: stream\r\nGrip-Channel: ch\r\nContent-Length: 0\r\n\r\n")
            browsers.append(browser)
        fails(monkeypatch, StreamHold, "on_confirmed", sessions(house)[0])
        house.confirm()
        house.publish(item())
        assert [b"\r\n1\r\nx\r\n" in browser.take() for browser in browsers] == [False, True, True]

    def test_that_closes(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        """An item that each session decides about."""
        browsers = [hold(house) for _ in range(3)]
        fails(monkeypatch, StreamHold, "deliver", sessions(house)[0])
        house.publish(Item(b"ch", stream=StreamFormat("close")))
        assert [browser.take() for browser in browsers] == [b"", b"0\r\n\r\n", b"0\r\n\r\n"]

    def test_whose_rate_is_limited(self, monkeypatch: pytest.MonkeyPatch) -> None:
        house = House(message_rate=1000)
        browsers = [hold(house) for _ in range(3)]
        fails(monkeypatch, StreamHold, "deliver", sessions(house)[1])
        house.publish(item())
        house.pass_time(1)
        assert [unchunk(browser.take())[0] for browser in browsers] == [b"x", b"", b"x"]
        assert dropped(house) == 1

    def test_a_long_poll(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        browsers = [hold(house, b"response") for _ in range(3)]
        fails(monkeypatch, ResponseHold, "deliver", sessions(house)[1])
        house.publish(item())
        assert [browser.take().endswith(b"x") for browser in browsers] == [True, False, True]
        assert browsers[1].transport.closing
        assert house.worker.registry.held == {}

    def test_a_websocket(self, monkeypatch: pytest.MonkeyPatch) -> None:
        talk = Talk(over_http=True)
        control = b'c:{"type":"subscribe","channel":"ch","filters":["skip-self"]}'
        talk.says(TEXT, b"one")
        talk.answers(b"TEXT %x\r\n%b\r\n" % (len(control), control))
        talk.house.confirm()
        talk.backend.take()
        [session] = talk.house.worker.registry.sockets.values()
        fails(monkeypatch, WebSocketSession, "deliver", session)
        talk.house.publish(Item(b"ch", message=MessageFormat("send", "text", b"x")))
        assert session.over
        assert b"DISCONNECT\r\n" in talk.backend.take()
        assert serialise(TEXT, b"x") not in talk.client.take()
        assert len(talk.house.worker.table) == 0

    def test_that_cannot_even_be_ended(
        self, house: House, monkeypatch: pytest.MonkeyPatch, logged: pathlib.Path
    ) -> None:
        browsers = [hold(house, more=FILTER) for _ in range(2)]
        bad = sessions(house)[0]
        fails(monkeypatch, StreamHold, "deliver", bad)
        fails(monkeypatch, StreamHold, "abort_on_defect", bad)
        house.publish(item())
        house.publish(item(b"y"))
        assert [unchunk(browser.take())[0] for browser in browsers] == [b"", b"xy"]
        assert dropped(house) == 1
        log.flush()
        assert "ending its session failed too" in logged.read_text()


class TestOneTimer:
    def test_of_several_that_are_due_together(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        browsers = [hold(house, b"response", b"\r\nGrip-Timeout: 5") for _ in range(4)]
        fails(monkeypatch, ResponseHold, "on_timer", sessions(house)[1])
        house.pass_time(6)
        assert [b"200 OK" in browser.take() for browser in browsers] == [True, False, True, True]
        assert house.worker.registry.held == {}
        assert browsers[1].transport.closing
        assert dropped(house) == 0

    def test_that_is_no_sessions_own(self, house: House, logged: pathlib.Path) -> None:
        rung: list[float] = []

        def fail(now: float) -> None:
            raise KeyError("a bug")

        due = house.loop.time() + 1
        for call in (rung.append, fail, rung.append):
            house.worker.wheel.set(Alarm(call), due)
        house.pass_time(2)
        assert len(rung) == 2
        log.flush()
        assert "one timer is lost, the others run" in logged.read_text()


class TestOneMessage:
    def test_does_not_cost_the_others(self, house: House, logged: pathlib.Path) -> None:
        browser = hold(house)
        good, bad = (pipe.ITEM, pack_item(item())), (pipe.ITEM, (1, 2))
        house.hears(bad, good, (pipe.COMMAND, 0, "update", {}), good)
        assert unchunk(browser.take())[0] == b"xx"
        assert dropped(house) == 2
        log.flush()
        assert logged.read_text().count("a message of the handler is lost") == 2


class TestTelling:
    def test_tracebacks_are_not_kept_for_any_number_of_places(self, house: House, logged: pathlib.Path) -> None:
        told = house.worker.boundary
        for number in range(error_boundary.PLACES_MAX + 20):
            try:
                exec(compile(f"{number * chr(10)}1 / 0", "made", "exec"))
            except ZeroDivisionError as error:
                told.tell("nothing", error)
        log.flush()
        assert logged.read_text().count("Traceback") == error_boundary.PLACES_MAX
        assert told.count == error_boundary.PLACES_MAX + 20
