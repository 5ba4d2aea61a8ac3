"""The worker: routes, keys, commands of the handler, counters, limits. Its sockets and its loop are memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from gripproxy import pipe
from gripproxy.config import ConfigError
from gripproxy.grip.item import Item, StreamFormat
from gripproxy.process.log import log
from gripproxy.worker.worker import Worker
from tests.support.doubles import Browser, House, Loop, Parsed, config


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


class TestItems:
    def test_what_arrives_together_is_written_together(self, house: House) -> None:
        browser = hold(house, b"stream")
        house.publish(*(Item(b"ch", stream=StreamFormat("send", text)) for text in (b"a", b"b")))
        assert browser.transport.out == [b"1\r\na\r\n1\r\nb\r\n"]

    def test_deliveries_at_a_limited_rate(self) -> None:
        house = House(message_rate=40)
        browser = hold(house, b"stream")
        house.publish(*(Item(b"ch", stream=StreamFormat("send", b"%d" % n)) for n in range(3)))
        sizes = []
        for _ in range(4):
            house.pass_time(0.026)
            sizes.append(len(browser.transport.out))
        assert sizes == [2, 3, 3, 3]


class TestCounters:
    def test_only_what_changed_is_told(self, house: House) -> None:
        browser = hold(house, b"stream")
        house.publish(Item(b"ch", stream=StreamFormat("send", b"a")))
        house.pipe.take()
        house.pass_time(1)
        told = [message[1] for message in house.pipe.take() if message[0] == pipe.STATS]
        assert [t["deliveries"] for t in told] == [1]
        browser.says(b"")
        house.pass_time(5)
        assert [message for message in house.pipe.take() if message[0] == pipe.STATS] == []


class TestLimits:
    @pytest.mark.parametrize(("most", "workers", "each"), [(100, 1, 100), (100, 3, 34), (1, 4, 1)])
    def test_connections_are_shared_between_the_workers(self, most: int, workers: int, each: int) -> None:
        assert House(client_maxconn=most, workers=workers).worker.registry.max_connections == each


class TestKeys:
    def test_a_signer_is_made_once(self, house: House) -> None:
        assert house.worker.router.signer("key", "a") is house.worker.router.signer("key", "a")
        assert house.worker.router.signer("key", "a") is not house.worker.router.signer("key", "b")
        assert house.worker.router.signer("", "a") is None

    def test_a_route_has_its_own(self) -> None:
        house = House("*,sig_key=k,sig_iss=i one:80")
        (route,) = house.worker.router.routes.routes
        forwarder = house.worker.router.forwarder(route, 0)
        assert forwarder is house.worker.router.forwarder(route, 0)
        assert b"Grip-Sig" in forwarder.grip_headers()


class TestRoutes:
    def worker(self, path: Path) -> Worker:
        loop = Loop()
        return Worker(config((), routesfile=str(path)), 2, loop)  # type: ignore[arg-type]

    def test_a_file_that_never_was_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError):
            self.worker(tmp_path / "none").routes.load()

    def test_new_routes_have_their_signers_and_lose_those_of_old_ones(self) -> None:
        house = House("*,sig_key=one one:1")
        for key in ("two", "three"):
            house.worker.routes.source.lines = (f"*,sig_key={key},sig_iss=me one:1",)
            house.worker.routes.load()
        assert house.worker.router.generation == 3
        usual = (house.worker.config.proxy.sig_key, house.worker.config.proxy.sig_iss)
        assert set(house.worker.router._signers) == {usual, ("three", "me")}

    def test_the_generation_is_told_to_the_handler(self) -> None:
        house = House("* one:1")
        house.worker.routes.load()
        house.pass_time(1.1)
        (gauges,) = [message[2] for message in house.pipe.take() if message[0] == pipe.STATS]
        assert gauges["routes-generation"] == 2

    def test_a_held_request_keeps_its_route_by_id_over_a_reload(self) -> None:
        house = House("*,id=r one:1")
        browser = hold(house)
        house.worker.routes.source.lines = ("*,id=other one:1", "never,id=r two:2")
        house.worker.routes.load()
        house.pool.idle.clear()
        house.hears((pipe.COMMAND, 0, "recover", {}))
        house.pass_time(0.2)
        assert [str(target) for _, target in house.pool.wanted] == ["two:2"]
        house.pool.connect().says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        assert Parsed(browser.take()).body == b"hi"

    def test_a_held_request_whose_route_is_gone(self) -> None:
        house = House("*,id=r one:1")
        browser = hold(house)
        house.worker.routes.source.lines = ("*,id=other two:2",)
        house.worker.routes.load()
        house.hears((pipe.COMMAND, 0, "recover", {}))
        house.pass_time(0.2)
        assert Parsed(browser.take()).code == 502


def test_connection_ids_are_of_this_worker_and_unique(house: House) -> None:
    ids = {house.worker.registry.connection_id(house.worker.registry.next_serial()) for _ in range(10)}
    assert len(ids) == 10
    assert all(cid.startswith(b"gripproxy:1-") for cid in ids)


def test_stopping_twice_is_once(house: House) -> None:
    house.worker.drain.stop()
    house.worker.drain.stop()
    house.pass_time(0.1)
    assert house.worker._stopped.done()
