"""Lines and counters of a worker: what is said, how often, and at which level."""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import pytest

from gripproxy.client.http_connection import HttpConnection
from gripproxy.process.log import DEBUG, WARNING, Log, log
from gripproxy.worker.worker import Worker
from tests.support.doubles import Browser, House
from tests.support.log_lines import LogLines
from tests.support.sockets import HANDSHAKE, switching


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> LogLines:
    return LogLines(monkeypatch)


def without_ids(lines: LogLines) -> list[str]:
    """Return the lines without the ids of each request."""
    return [text.partition(" connection=")[0] for text in lines.take()]


@pytest.fixture
def house(lines: LogLines) -> House:
    house = House()
    lines.take()
    return house


def request(house: House, head: bytes = b"GET /x HTTP/1.1\r\nHost: h\r\n", answer: bytes = b"") -> Browser:
    browser = house.browser().says(head + b"\r\n")
    house.pool.connect().says(b"HTTP/1.1 200 OK\r\n%bContent-Length: 2\r\n\r\nhi" % answer)
    return browser


class TestRequests:
    def test_one_line_each(self, lines: LogLines, house: House) -> None:
        browser = house.browser().says(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        house.loop.now += 0.25
        house.pool.connect().says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        browser.take()
        assert lines.levels == ["info"]
        [text] = lines.take()
        start = "request: method=GET scheme=http host=h path=/x status=200 bytes=2 ms=250 route=* target="
        assert text.startswith(start)
        assert " connection=gripproxy:1-" in text

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
        self, lines: LogLines, house: House, head: bytes, secure: bool
    ) -> None:
        said = []
        for _ in range(5):
            browser = house.browser(secure).says(head + b"\r\n")
            house.loop.now += 0.25
            backend = house.pool.connect() if house.pool.wanted else house.pool.opened[-1]
            backend.says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
            assert browser.take()
            said.append(without_ids(lines))
        assert said.count(said[0]) == 5
        with mock.patch.object(house.worker.context.access_log, "_plain", False):
            browser = house.browser(secure).says(head + b"\r\n")
            house.loop.now += 0.25
            house.pool.opened[-1].says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        assert without_ids(lines) == said[0]

    def test_a_secret_parameter_is_left_out_also_for_a_head_that_came_before(
        self, lines: LogLines, monkeypatch: pytest.MonkeyPatch
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
                    context.setattr(Log, "write", None)
                backend.says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
            [text] = lines.take()
            said.append(text.partition(" path=")[2].partition(" ")[0])
        assert said == ["/x?a=1", "/x", "/x?a=1", "/x"] * 3

    @pytest.mark.parametrize("serial", [0, 1 << 20, (1 << 32) - 4096, 1 << 40])
    @pytest.mark.parametrize("own", [b"", b"X-Request-Id: of-the-client\r\n"])
    def test_ids_are_those_that_the_backend_got(
        self, lines: LogLines, house: House, serial: int, own: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of the first request with a head and of further ones, which are formatted by another way."""
        monkeypatch.setattr(house.worker.registry, "_serial", serial)
        for _ in range(5):
            house.browser().says(b"GET /x HTTP/1.1\r\nHost: h\r\n" + own + b"\r\n")
            backend = house.pool.connect() if house.pool.wanted else house.pool.opened[-1]
            sent = backend.take().decode()
            backend.says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
            [text] = lines.take()
            found = re.fullmatch(r"request: .* connection=(\S+) request_id=(\S+) traceparent=(\S+)", text)
            assert found is not None, text
            number = int(found[1].rpartition("-")[2], 16)
            assert found[1] == house.worker.registry.connection_id(number).decode()
            assert f"X-Request-Id: {found[2]}\r\n" in sent
            assert f"traceparent: {found[3]}\r\n" in sent
            assert int(found[3].split("-")[1][16:], 16) == number > serial
            assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00", found[3])

    def test_with_address_and_agent_if_wanted(self, lines: LogLines) -> None:
        house = House(log_from=True, log_user_agent=True)
        lines.take()
        request(house, b"GET /x HTTP/1.1\r\nHost: h\r\nUser-Agent: me\xff'\r\n")
        [text] = lines.take()
        assert text.endswith(" client=192.0.2.1:4000 user_agent=me\xff'")

    def test_a_client_that_leaves(self, lines: LogLines, house: House) -> None:
        house.browser().says(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n").transport.lose()
        [text] = lines.take()
        assert " status=client-left " in text


class TestHolds:
    HOLD = b"Grip-Hold: stream\r\nGrip-Channel: a, b\r\n"

    def test_one_line_for_the_beginning_and_one_for_the_end(
        self, lines: LogLines, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log, "level", DEBUG)
        browser = request(house, answer=self.HOLD)
        [serial] = house.worker.registry.held
        name = house.worker.registry.connection_id(serial).decode()
        [line] = [line for line in lines.take() if line.startswith("hold:")]
        fields = "client=192.0.2.1:4000 host=h route=* target=one:80"
        pattern = rf"hold: mode=stream method=GET path=/x channels=a,b {re.escape(fields)} connection={name} "
        ids = re.fullmatch(rf"{pattern}request_id=(\S+) traceparent=00-[0-9a-f]{{32}}-[0-9a-f]{{16}}-0[01]", line)
        assert ids is not None, line
        assert f"X-Request-Id: {ids[1]}\r\n".encode() in house.pool.opened[-1].take()  # as the backend got it
        browser.transport.lose()
        assert f"held client left: connection={name}" in lines.take()

    def test_none_if_nobody_reads_them(self, lines: LogLines, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log, "level", WARNING)
        request(house, answer=self.HOLD).transport.lose()
        assert lines.take() == []


class TestWebSockets:
    def test_opened_broken_and_dropped(self, lines: LogLines, house: House) -> None:
        browser = house.browser().says(HANDSHAKE)
        backend = house.pool.connect()
        backend.says(switching(backend.take()))
        assert lines.levels == ["info"]
        [text] = lines.take()
        assert text.startswith("WebSocket: method=GET host=example path=/path status=101 route=* target=")
        browser.transport.protocol.data_received(b"\x81\x00")
        assert lines.levels == ["info"]
        [text] = lines.take()
        assert text.startswith("WebSocket client disconnected: client=192.0.2.1:4000 reason=")
        assert house.worker.events.bad == 1


class TestCounters:
    @pytest.fixture
    def worker(self, house: House) -> Worker:
        return house.worker

    @pytest.fixture
    def client(self, house: House) -> HttpConnection:
        return house.browser().connection

    def test_slow_clients(self, lines: LogLines, worker: Worker, client: HttpConnection) -> None:
        worker.events.slow_client(client, "10 bytes wait")
        assert worker.events.slow == 1
        assert lines.levels == ["warning"]
        assert lines.take() == ['slow client cut off: client=192.0.2.1:4000 reason="10 bytes wait"']

    def test_bad_clients(self, lines: LogLines, worker: Worker, client: HttpConnection) -> None:
        worker.events.bad_client(client, "a bad head")
        assert worker.events.bad == 1
        assert lines.levels == ["info"]
        assert lines.take() == ['client disconnected: client=192.0.2.1:4000 reason="a bad head"']

    def test_refused_clients_are_one_line_a_second(self, lines: LogLines, house: House) -> None:
        client = house.browser().connection
        for _ in range(3):
            house.worker.events.refused(client, "too many", "client_maxconn")
        house.pass_time(1.1)
        house.worker.events.refused(client, "too many", "client_maxconn")
        assert house.worker.events.turned_away == 4
        start = 'client refused: client=192.0.2.1:4000 reason="too many" key=client_maxconn refused='
        assert lines.take() == [f"{start}{n}" for n in (1, 4)]

    def test_stalled_websockets_are_one_line_a_second_and_side(self, lines: LogLines, house: House) -> None:
        client: Any = house.browser().connection
        for side in ("client", "backend", "client"):
            house.worker.events.stalled(client, side, 10, "60")
        house.pass_time(1.1)
        house.worker.events.stalled(client, "client", 10, "61")
        assert house.worker.events.stalls == {"client": 3, "backend": 1}
        assert house.worker.events.totals()["stalled-client"] == 3
        start = "WebSocket stalled, dropped: client=192.0.2.1:4000"
        assert lines.take() == [
            f"{start} side=client waiting=10 seconds=60 dropped=1; see ws_stall_timeout",
            f"{start} side=backend waiting=10 seconds=60 dropped=1; see ws_stall_timeout",
            f"{start} side=client waiting=10 seconds=61 dropped=3; see ws_stall_timeout",
        ]

    def test_clients_for_whom_too_much_waits_are_one_line_a_second(self, lines: LogLines, house: House) -> None:
        client = house.browser().connection
        for _ in range(3):
            house.worker.events.overfull(client, 10, 300)
        assert house.worker.events.totals()["buffer-cuts"] == 3
        start = "buffers full, client cut off: client=192.0.2.1:4000 waiting=10 total=300"
        assert lines.take() == [f"{start} buffers_max=256000000 cut=1"]

    def test_faults_of_backends_are_one_line_a_second(self, lines: LogLines, house: House) -> None:
        client: Any = house.browser().connection
        for _ in range(1000):
            house.worker.events.ignored(client, "control message ignored: not JSON")
        house.pass_time(1.1)
        house.worker.events.ignored(client, "control message ignored: not JSON")
        assert house.worker.events.totals()["ignored-control"] == 1001
        start = (
            'fault of a WebSocket\'s backend: client=192.0.2.1:4000 reason="control message ignored: not JSON" faults='
        )
        assert lines.levels == ["warning"] * 2
        assert lines.take() == [f"{start}{n}" for n in (1, 1001)]

    def test_dropped_deliveries_are_one_line(self, lines: LogLines, worker: Worker) -> None:
        worker.events.deliveries_dropped(2)
        worker.events.deliveries_dropped(3)
        assert worker.events.dropped == 5
        assert lines.take() == ["deliveries dropped: more than message_hwm, or than 32 MiB, wait"]

    def test_ids_are_of_this_worker_and_this_start(self, worker: Worker) -> None:
        assert worker.registry.connection_id(255) == b"gripproxy:1-%x-ff" % (worker.epoch // 1_000_000)


class TestForms:
    """What ``log_format``, ``access_log_sample``, a log of their own and the level of a route make of the lines."""

    def ask(self, house: House, path: bytes = b"/x", code: bytes = b"200 OK") -> None:
        browser = house.browser().says(b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n" % path)
        backend = house.pool.connect() if house.pool.wanted else house.pool.opened[-1]
        backend.says(b"HTTP/1.1 %b\r\nContent-Length: 2\r\n\r\nhi" % code)
        browser.take()

    def held(self, house: House, channel: bytes = b"") -> None:
        house.browser().says(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        backend = house.pool.connect() if house.pool.wanted else house.pool.opened[-1]
        backend.says(b"HTTP/1.1 200 OK\r\nGrip-Hold: stream\r\n%bContent-Length: 2\r\n\r\nhi" % channel)

    def test_json_and_text_have_the_same_fields(self, lines: LogLines, monkeypatch: pytest.MonkeyPatch) -> None:
        house = House()
        for _ in range(3):
            self.ask(house)
        lines.take()
        self.ask(house)
        [quick] = lines.take()
        monkeypatch.setattr(log, "json", True)
        self.ask(house)
        [fields] = list(lines.fields)
        [slow] = lines.take()
        assert [pair.partition("=")[0] for pair in quick.split()[1:]] == [
            name for name, value in fields.items() if value is not None
        ]
        assert quick.partition(" connection=")[0] == slow.partition(" connection=")[0]

    def test_one_of_so_many_and_all_that_fail(self, lines: LogLines) -> None:
        house = House(access_log_sample=5)
        lines.take()
        for number in range(20):
            self.ask(house, code=b"404 Not Found" if number % 10 == 3 else b"200 OK")
        statuses = [fields.partition(" status=")[2].split()[0] for fields in lines.take()]
        assert (statuses.count("200"), statuses.count("404")) == (3, 2)

    @pytest.mark.parametrize(("routes", "wanted"), [("*,log_level=1 one:80", 0), ("*,log_level=2 one:80", 1)])
    @pytest.mark.parametrize("level", [WARNING, DEBUG])
    def test_the_level_of_a_route_goes_before(
        self, lines: LogLines, monkeypatch: pytest.MonkeyPatch, routes: str, wanted: int, level: int
    ) -> None:
        house = House(routes)
        lines.take()
        monkeypatch.setattr(log, "level", level)
        self.ask(house)
        assert sum(line.startswith("request:") for line in lines.take()) == wanted

    def test_a_log_of_their_own_has_them_at_any_level(self, lines: LogLines, monkeypatch: pytest.MonkeyPatch) -> None:
        house = House()
        lines.take()
        monkeypatch.setattr(log, "level", WARNING)
        self.ask(house)
        assert lines.take() == []
        house = House(access_log="requests")
        lines.take()
        self.held(house, b"Grip-Channel: a\r\n")
        self.ask(house)
        assert [line.partition(":")[0] for line in lines.take()] == ["hold", "request"]

    def test_a_hold_without_a_channel_is_a_warning_a_second(self, lines: LogLines, house: House) -> None:
        for _ in range(3):
            self.held(house)
        warned = [line for line, level in zip(lines.lines, lines.levels, strict=True) if level == "warning"]
        assert warned == [
            "hold without a channel: route=* path=/x holds=1; "
            "the backend has to send Grip-Channel, or the target needs sub="
        ]
        assert house.worker.events.totals()["holds-without-channel"] == 3
