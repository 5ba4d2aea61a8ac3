"""Commands of the handler to a worker, over the pipe: what they set off and what is answered."""

from __future__ import annotations

import pytest

from gripproxy import pipe
from gripproxy.grip.frames import TEXT
from gripproxy.process.log import log
from tests.support.doubles import Browser, House
from tests.support.sockets import Talk


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "level", -1)


@pytest.fixture
def house() -> House:
    return House()


def hold(house: House, mode: bytes = b"response", channel: bytes = b"ch") -> Browser:
    browser = house.browser().says(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    backend = house.pool.connect() if house.pool.wanted else house.pool.opened[-1]
    head = b"HTTP/1.1 200 OK\r\nGrip-Hold: %b\r\nGrip-Channel: %b\r\nContent-Length: 0\r\n\r\n"
    backend.says(head % (mode, channel))
    house.confirm()
    backend.take()
    browser.take()
    return browser


def answer(house: House, name: str, **args: object) -> object:
    """What the worker answers to a command."""
    house.pipe.take()
    house.hears((pipe.COMMAND, 7, name, args))
    ((kind, number, value),) = house.pipe.take()
    assert (kind, number) == (pipe.ANSWER, 7)
    return value


class TestCommands:
    def test_update_asks_again_for_the_channels_polls(self, house: House) -> None:
        hold(house, channel=b"a")
        hold(house, channel=b"b")
        answer(house, "update", channel=b"a")
        answer(house, "update", channel=b"unknown")
        assert len(house.worker.scheduler) == 1
        house.pass_time(0.15)
        assert len(house.worker.scheduler) == 0
        assert len(house.worker.registry.held) == 1

    def test_recover_after_a_time_without_a_handler_asks_for_those_with_ids(self, house: House) -> None:
        plain, named = hold(house, channel=b"a"), hold(house, channel=b"b; prev-id=5")
        house.hears((pipe.COMMAND, 0, "recover", {"missed": True}))
        house.pass_time(0.2)
        (backend,) = [backend for backend in house.pool.opened if backend.transport.out]
        assert b"\r\nGrip-Last: b; last-id=5\r\n" in backend.take()
        assert (plain.take(), named.take()) == (b"", b"")

    def test_a_request_that_was_under_way_when_all_recovered_is_repeated_once(self, house: House) -> None:
        head = b"HTTP/1.1 200 OK\r\nGrip-Hold: response\r\nGrip-Channel: ch; prev-id=5\r\nContent-Length: 0\r\n\r\n"
        house.browser().says(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        backend = house.pool.connect()
        backend.take()
        house.hears((pipe.COMMAND, 0, "recover", {"missed": True}))
        backend.says(head)
        house.confirm()
        house.pass_time(0.2)
        assert b"\r\nGrip-Last: ch; last-id=5\r\n" in backend.take()
        backend.says(head)
        house.confirm()
        house.pass_time(1)
        assert backend.take() == b""

    def test_recover_asks_again_for_all_that_can_ask(self, house: House) -> None:
        for mode in (b"response", b"response", b"stream"):
            hold(house, mode)
        answer(house, "recover")
        # A stream without a link has nothing to ask.
        assert len(house.worker.scheduler) == 2

    @pytest.mark.parametrize("reason", ["recover", "update", "lost"])
    def test_a_reliable_websocket_asks_too(self, reason: str) -> None:
        talk = Talk(over_http=True)
        talk.says(TEXT, b"hello")
        talk.backend.take()
        subscribe = b'c:{"type":"subscribe","channel":"ch","prev-id":"5"}'
        talk.answers(b"TEXT %x\r\n%b\r\n" % (len(subscribe), subscribe))
        talk.house.confirm()
        if reason == "lost":
            talk.house.hears((pipe.LOST,))
        else:
            answer(talk.house, reason, channel=b"ch")
        talk.house.pass_time(0.2)
        assert b"\r\nGrip-Last: ch; last-id=5\r\n" in talk.backend.take()

    def test_conncheck_knows_who_is_still_there(self, house: House) -> None:
        hold(house)
        gone = hold(house)
        first, second = (house.worker.registry.connection_id(serial) for serial in house.worker.registry.held)
        gone.transport.lose()
        odd = first + b" ", first.replace(b"-", b"-0"), b"other:1-1-1", b"", house.worker.registry.connection_id(0)
        assert answer(house, "conncheck", ids=[first, second, *odd]) == [first]

    def test_refresh_of_what_is_not_here(self, house: House) -> None:
        assert answer(house, "refresh", cid=b"x") is False
        assert answer(house, "refresh", channel=b"x") is False

    def test_lost_items_are_repaired_where_that_is_possible(self, house: House) -> None:
        hold(house, channel=b"ch; prev-id=1")
        hold(house)
        house.hears((pipe.LOST,))
        assert len(house.worker.scheduler) == 1
        assert len(house.worker.registry.held) == 2
