"""Lines and counters of a worker: what is said, how often, and at which level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from gripproxy.client.http_connection import HttpConnection
from gripproxy.process.log import DEBUG, INFO, WARNING, Log, log
from gripproxy.worker.worker import Worker
from tests.support.doubles import Browser, House
from tests.support.sockets import HANDSHAKE, switching


class Lines:
    """What was logged, as (level, text)."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []

    def method(self, level: int) -> Callable[..., None]:
        """A stand-in for a method of the log."""

        def note(log: Log, fmt: str, *args: object) -> None:
            if level <= log.level:
                texts = tuple(
                    [arg.decode("utf-8", "backslashreplace") if isinstance(arg, bytes) else arg for arg in args]
                )
                self.lines.append((level, fmt % texts if texts else fmt))

        return note

    def printable(self, log: Log, text: bytes) -> None:
        """A stand-in for the method that takes whole lines."""
        assert text.endswith(b"\n")
        assert text[:-1].decode("ascii").isprintable()
        self.lines.append((INFO, text[:-1].decode("ascii")))

    def take(self) -> list[tuple[int, str]]:
        lines, self.lines = self.lines, []
        return lines


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    lines = Lines()
    for name, level in (("warning", WARNING), ("info", INFO), ("debug", DEBUG)):
        monkeypatch.setattr(Log, name, lines.method(level))
    monkeypatch.setattr(Log, "printable", lambda log, text: lines.printable(log, text))
    monkeypatch.setattr(log, "level", INFO)
    return lines


@pytest.fixture
def house(lines: Lines) -> House:
    house = House()
    lines.take()
    return house


def request(house: House, head: bytes = b"GET /x HTTP/1.1\r\nHost: h\r\n", answer: bytes = b"") -> Browser:
    browser = house.browser().says(head + b"\r\n")
    house.pool.connect().says(b"HTTP/1.1 200 OK\r\n%bContent-Length: 2\r\n\r\nhi" % answer)
    return browser


class TestRequests:
    def test_one_line_each(self, lines: Lines, house: House) -> None:
        browser = house.browser().says(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        house.loop.now += 0.25
        house.pool.connect().says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        browser.take()
        [(level, text)] = lines.take()
        assert level == INFO
        assert text.startswith("GET http://h/x -> ")
        assert " 200 2 bytes 250 ms" in text

    @pytest.mark.parametrize(
        "head",
        [
            b"GET /x?a=b&c=%20 HTTP/1.1\r\nHost: h\r\n",
            b"DELETE /~x HTTP/1.1\r\nHost: \x80\xff\r\n",
            b"GET /x HTTP/1.1\r\nHost: a%20b\r\n",
            b"GET /x HTTP/1.1\r\nX: y\r\n",
            b"GET /%b HTTP/1.1\r\nHost: h\r\n" % (b"x" * 3600),
        ],
    )
    @pytest.mark.parametrize("secure", [False, True])
    def test_the_line_of_a_head_that_came_before_is_the_same(
        self, lines: Lines, house: House, head: bytes, secure: bool
    ) -> None:
        said = []
        for _ in range(5):
            browser = house.browser(secure).says(head + b"\r\n")
            house.loop.now += 0.25
            backend = house.pool.connect() if house.pool.wanted else house.pool.opened[-1]
            backend.says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
            assert browser.take()
            said.append(lines.take())
        assert said.count(said[0]) == 5
        with mock.patch.object(house.worker.context.access_log, "_plain", False):
            browser = house.browser(secure).says(head + b"\r\n")
            house.loop.now += 0.25
            house.pool.opened[-1].says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        assert lines.take() == said[0]

    def test_a_secret_parameter_is_left_out_also_for_a_head_that_came_before(
        self, lines: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        house = House("*,secret_query=token one:80")
        lines.take()
        said: list[str] = []
        for target in (b"/x?a=1&token=s3cret", b"/x?token=s3cret", b"/x?a=1", b"/x") * 3:
            house.browser().says(b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n" % target)
            backend = house.pool.connect() if house.pool.wanted else house.pool.opened[-1]
            with monkeypatch.context() as context:
                if len(said) > 3:
                    # Only the quick way may be taken.
                    context.setattr(Log, "info", None)
                backend.says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
            [(_, text)] = lines.take()
            said.append(text.partition(" -> ")[0].removeprefix("GET http://h"))
        assert said == ["/x?a=1", "/x", "/x?a=1", "/x"] * 3

    def test_with_address_and_agent_if_wanted(self, lines: Lines) -> None:
        house = House(log_from=True, log_user_agent=True)
        lines.take()
        request(house, b"GET /x HTTP/1.1\r\nHost: h\r\nUser-Agent: me\xff'\r\n")
        [(_, text)] = lines.take()
        assert text.endswith(""" from=192.0.2.1:4000 agent="me\xff'\"""")

    def test_a_client_that_leaves(self, lines: Lines, house: House) -> None:
        house.browser().says(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n").transport.lose()
        [(_, text)] = lines.take()
        assert "client left" in text


class TestHolds:
    HOLD = b"Grip-Hold: stream\r\nGrip-Channel: a, b\r\n"

    def test_one_line_for_the_beginning_and_one_for_the_end(
        self, lines: Lines, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log, "level", DEBUG)
        browser = request(house, answer=self.HOLD)
        [serial] = house.worker.registry.held
        name = house.worker.registry.connection_id(serial).decode()
        assert (INFO, f"GET /x: hold stream on a, b for 192.0.2.1:4000 as {name}") in lines.take()
        browser.transport.lose()
        assert (DEBUG, f"{name} left") in lines.take()

    def test_none_if_nobody_reads_them(self, lines: Lines, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log, "level", WARNING)
        request(house, answer=self.HOLD).transport.lose()
        assert lines.take() == []


class TestWebSockets:
    def test_opened_broken_and_dropped(self, lines: Lines, house: House) -> None:
        browser = house.browser().says(HANDSHAKE)
        backend = house.pool.connect()
        backend.says(switching(backend.take()))
        [(level, text)] = lines.take()
        assert level == INFO
        assert text.startswith("WebSocket example/path -> ")
        assert " open as " in text
        browser.transport.protocol.data_received(b"\x81\x00")
        [(level, text)] = lines.take()
        assert level == INFO
        assert text.startswith("WebSocket client 192.0.2.1:4000: ")
        assert house.worker.events.bad == 1


class TestCounters:
    @pytest.fixture
    def worker(self, house: House) -> Worker:
        return house.worker

    @pytest.fixture
    def client(self, house: House) -> HttpConnection:
        return house.browser().connection

    def test_slow_clients(self, lines: Lines, worker: Worker, client: HttpConnection) -> None:
        worker.events.slow_client(client, "10 bytes wait")
        assert worker.events.slow == 1
        assert lines.take() == [(WARNING, "slow client 192.0.2.1:4000 cut off: 10 bytes wait")]

    def test_bad_clients(self, lines: Lines, worker: Worker, client: HttpConnection) -> None:
        worker.events.bad_client(client, "a bad head")
        assert worker.events.bad == 1
        assert lines.take() == [(INFO, "client 192.0.2.1:4000: a bad head")]

    def test_refused_clients_are_one_line_a_second(self, lines: Lines, house: House) -> None:
        client = house.browser().connection
        for _ in range(3):
            house.worker.events.refused(client, "too many", "client_maxconn")
        house.pass_time(1.1)
        house.worker.events.refused(client, "too many", "client_maxconn")
        assert house.worker.events.turned_away == 4
        start = "client 192.0.2.1:4000 refused: too many (client_maxconn; "
        assert [text for _, text in lines.take()] == [f"{start}{n} refused so far)" for n in (1, 4)]

    def test_stalled_websockets_are_one_line_a_second_and_side(self, lines: Lines, house: House) -> None:
        client: Any = house.browser().connection
        for side in ("client", "backend", "client"):
            house.worker.events.stalled(client, side, 10, "60")
        house.pass_time(1.1)
        house.worker.events.stalled(client, "client", 10, "61")
        assert house.worker.events.stalls == {"client": 3, "backend": 1}
        assert house.worker.events.totals()["stalled-client"] == 3
        start = "WebSocket stalled, dropped: client=192.0.2.1:4000"
        assert lines.take() == [
            (WARNING, f"{start} side=client waiting=10 seconds=60 key=ws_stall_timeout dropped=1"),
            (WARNING, f"{start} side=backend waiting=10 seconds=60 key=ws_stall_timeout dropped=1"),
            (WARNING, f"{start} side=client waiting=10 seconds=61 key=ws_stall_timeout dropped=3"),
        ]

    def test_clients_for_whom_too_much_waits_are_one_line_a_second(self, lines: Lines, house: House) -> None:
        client = house.browser().connection
        for _ in range(3):
            house.worker.events.overfull(client, 10, 300)
        assert house.worker.events.totals()["buffer-cuts"] == 3
        start = "buffers full, client cut off: client=192.0.2.1:4000 waiting=10 total=300"
        assert lines.take() == [(WARNING, f"{start} buffers_max=256000000 cut=1")]

    def test_faults_of_backends_are_one_line_a_second(self, lines: Lines, house: House) -> None:
        client: Any = house.browser().connection
        for _ in range(1000):
            house.worker.events.ignored(client, "control message ignored: not JSON")
        house.pass_time(1.1)
        house.worker.events.ignored(client, "control message ignored: not JSON")
        assert house.worker.events.totals()["ignored-control"] == 1001
        start = "WebSocket client 192.0.2.1:4000: backend: control message ignored: not JSON ("
        warned = [text for level, text in lines.take() if level == WARNING]
        assert warned == [f"{start}{n} faults so far)" for n in (1, 1001)]

    def test_dropped_deliveries_are_one_line(self, lines: Lines, worker: Worker) -> None:
        worker.events.deliveries_dropped(2)
        worker.events.deliveries_dropped(3)
        assert worker.events.dropped == 5
        assert lines.take() == [(WARNING, "deliveries dropped: more than message_hwm, or than 32 MiB, wait")]

    def test_ids_are_of_this_worker_and_this_start(self, worker: Worker) -> None:
        assert worker.registry.connection_id(255) == b"gripproxy:1-%x-ff" % (worker.epoch // 1_000_000)
