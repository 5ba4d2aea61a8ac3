"""docs/grip.md §5.5: framing, limits and times of the control port, on a transport that is only memory."""

from __future__ import annotations

import asyncio
import pathlib
import re
from collections.abc import Callable

import pytest

from gripproxy.grip.signature import Signer, load_key
from gripproxy.process.log import WARNING
from handler.control.api import Api
from handler.control.authenticator import Authenticator
from handler.control.http_server import (
    HEAD_KEPT,
    HEADS_MAX,
    LINGER_TIME,
    LOG_INTERVAL,
    HttpServer,
    HttpServerConnection,
    Limits,
)
from handler.dispatch.dispatcher import Dispatcher
from tests.support.log_lines import LogLines


class Wire(asyncio.Transport):
    """Records what is written. Unlike a real transport it has no buffer: everything is sent at once."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = False
        self.half_closed = False
        self.aborted = False
        self.reading = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        assert not self.half_closed
        self.sent += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.half_closed = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Client:
    """A client's view of one connection."""

    def __init__(self, server: HttpServer) -> None:
        self.wire = Wire()
        self.connection = HttpServerConnection(server)
        self.connection.connection_made(self.wire)

    def send(self, data: bytes) -> bytes:
        """Send ``data`` and return what comes back at once."""
        self.connection.data_received(data)
        sent, self.wire.sent = self.wire.sent, b""
        return sent

    @property
    def ended(self) -> bool:
        return self.wire.closed or self.wire.half_closed


@pytest.fixture
async def server() -> HttpServer:
    return HttpServer(Api(Dispatcher(), Authenticator(None), lambda: 0.0, lambda: 0.0), Limits(), max_connections=3)


@pytest.fixture
def client(server: HttpServer) -> Client:
    return Client(server)


BODY = b'{"items":[]}'
POST = b"POST /publish HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n" + BODY
PUBLISHED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\nPublished\n"


def refused(status: bytes, text: bytes, version: bytes = b"1.1", extra: bytes = b"") -> bytes:
    return b"HTTP/%b %b\r\n%bContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (
        version,
        status,
        extra,
        len(text),
        text,
    )


NO_LENGTH = refused(b"411 Length Required", b"Request requires Content-Length.\n")
BAD_LENGTH = refused(b"400 Bad Request", b"Bad Content-Length.\n")
TOO_LARGE = refused(b"400 Bad Request", b"Request body too large.\n")
EXCEEDED = refused(b"400 Bad Request", b"Request body exceeded Content-Length.\n")
HEAD_TOO_LARGE = refused(b"400 Bad Request", b"Request header too large.\n")
BAD_HEAD = refused(b"400 Bad Request", b"Failed to parse request header.\n")


class TestKeepAlive:
    def test_an_http_1_1_connection_stays_open(self, client: Client) -> None:
        for _ in range(3):
            assert client.send(POST) == PUBLISHED
        assert not client.ended

    @pytest.mark.parametrize("header", [b"Connection: close\r\n", b"Connection: x, Close\r\n"])
    def test_unless_the_client_says_close(self, client: Client, header: bytes) -> None:
        reply = client.send(POST.replace(b"Host: a\r\n", header))
        assert reply == PUBLISHED.replace(b"Content-Length", b"Connection: close\r\nContent-Length")
        assert client.wire.closed

    @pytest.mark.parametrize("header", [b"", b"Connection: keep-alive\r\n"])
    def test_http_1_0_is_always_closed(self, client: Client, header: bytes) -> None:
        reply = client.send(b"POST /publish HTTP/1.0\r\n" + header + b"Content-Length: 12\r\n\r\n" + BODY)
        assert reply == refused(b"200 OK", b"Published\n", b"1.0")
        assert client.wire.closed

    def test_unless_the_handler_ends_and_what_was_begun_is_answered(self, server: HttpServer, client: Client) -> None:
        idle = Client(server)
        assert client.send(POST[:-1]) == b""
        server.retire()
        assert not idle.ended
        assert client.send(POST[-1:]) == PUBLISHED.replace(b"Content-Length", b"Connection: close\r\nContent-Length")
        assert client.wire.closed
        assert idle.send(POST + POST).count(b"Connection: close") == 1  # pipelined: the last one says it
        assert idle.wire.closed

    def test_pipelined_requests_are_answered_in_order(self, client: Client) -> None:
        assert client.send(POST + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + POST).count(b"HTTP/1.1 200 OK") == 3

    def test_every_split_of_the_bytes_gives_the_same(self, server: HttpServer) -> None:
        both = POST + POST
        for at in range(1, len(both)):
            client = Client(server)
            assert client.send(both[:at]) + client.send(both[at:]) == PUBLISHED * 2
            client.connection.connection_lost(None)

    def test_byte_by_byte(self, client: Client) -> None:
        assert b"".join(client.send(bytes([byte])) for byte in POST) == PUBLISHED

    def test_a_line_end_after_the_body_is_forgiven(self, client: Client) -> None:
        assert client.send(POST + b"\r\n" + POST) == PUBLISHED * 2

    def test_a_get_with_a_body(self, client: Client) -> None:
        assert client.send(b"GET / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc" + POST).endswith(PUBLISHED)


class TestLengths:
    @pytest.mark.parametrize(
        ("head", "expected"),
        [
            (b"POST /publish HTTP/1.1\r\n", NO_LENGTH),
            (b"PUT / HTTP/1.1\r\n", NO_LENGTH),
            (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", NO_LENGTH),
            (b"POST /publish HTTP/1.1\r\nTransfer-Encoding: zip\r\n", NO_LENGTH),
            (b"POST /publish HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n", NO_LENGTH),
            (b"POST /publish HTTP/1.1\r\nContent-Length: abc\r\n", BAD_LENGTH),
            (b"POST /publish HTTP/1.1\r\nContent-Length: -1\r\n", BAD_LENGTH),
            (b"POST /publish HTTP/1.1\r\nContent-Length: \r\n", BAD_LENGTH),
            (b"POST /publish HTTP/1.1\r\nContent-Length: 3, 3\r\n", BAD_LENGTH),
            (b"POST /publish HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n", BAD_LENGTH),
            (b"POST /publish HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n", BAD_LENGTH),
            (b"GET / HTTP/1.1\r\nContent-Length: abc\r\n", BAD_LENGTH),
            (b"POST /publish HTTP/1.1\r\nContent-Length: 1000001\r\n", TOO_LARGE),
        ],
    )
    def test_refused(self, client: Client, head: bytes, expected: bytes) -> None:
        assert client.send(head + b"\r\n") == expected
        assert client.wire.half_closed
        assert client.send(b"more") == b"", "what still comes is thrown away"

    def test_the_largest_body_is_taken(self, client: Client) -> None:
        body = BODY.ljust(1_000_000)
        assert client.send(b"POST /publish HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n") == b""
        for start in range(0, len(body), 65536):
            reply = client.send(body[start : start + 65536])
        assert reply == PUBLISHED

    @pytest.mark.parametrize("method", [b"GET", b"HEAD", b"DELETE", b"OPTIONS"])
    def test_methods_that_need_none(self, client: Client, method: bytes) -> None:
        assert client.send(method + b" / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")

    @pytest.mark.parametrize("rest", [b"extra", b" ", b"}", POST.lower()])
    def test_more_than_the_length(self, client: Client, rest: bytes) -> None:
        assert client.send(POST + rest) == EXCEEDED
        assert client.wire.half_closed

    def test_more_than_the_length_on_a_connection_that_closes(self, client: Client) -> None:
        close = POST.replace(b"Host: a\r\n", b"Connection: close\r\n")
        assert client.send(close + POST) == EXCEEDED


class TestHeads:
    @pytest.mark.parametrize(
        "head",
        [
            b"junk\r\n\r\n",
            b"GET / HTTP/1.1\r\nbad\r\n\r\n",
            b"GET / HTTP/1.1\r\na: b\x00c\r\n\r\n",
            b"GET / HTTP/1.1\n\n",
            b"GET / HTTP/1.1\r\na: b\n",
            b"GET /\r\n\r\n",
            b"GET / HTTP/2.0\r\n\r\n",
            b"FOO /publish HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\r\n\r\n",
        ],
    )
    def test_unparseable(self, client: Client, head: bytes) -> None:
        assert client.send(head) == BAD_HEAD
        assert client.ended

    def test_an_old_clients_error_has_its_version(self, client: Client) -> None:
        assert client.send(b"PUT / HTTP/1.0\r\n\r\n") == refused(
            b"411 Length Required", b"Request requires Content-Length.\n", b"1.0"
        )

    def test_the_size_on_both_sides(self, server: HttpServer) -> None:
        frame = b"GET / HTTP/1.1\r\nX: %b\r\n\r\n"
        fits = frame % (b"a" * (10_000 - len(frame) + 2))
        assert len(fits) == 10_000
        assert Client(server).send(fits).startswith(b"HTTP/1.1 200 OK\r\n")
        assert Client(server).send(fits.replace(b"X: ", b"X: a")) == HEAD_TOO_LARGE

    def test_an_endless_head(self, client: Client) -> None:
        assert client.send(b"GET / HTTP/1.1\r\nX: " + b"a" * 9000) == b""
        assert client.send(b"a" * 2000) == HEAD_TOO_LARGE

    @pytest.mark.parametrize("extra", [b"Upgrade: websocket\r\nConnection: upgrade\r\n", b"Upgrade: h2c\r\n"])
    def test_an_upgrade_is_an_ordinary_request(self, client: Client, extra: bytes) -> None:
        assert client.send(POST.replace(b"Host: a\r\n", extra)) == PUBLISHED


class TestExpect:
    HEAD = b"POST /publish HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 12\r\n\r\n"

    def test_the_client_is_told_to_go_on(self, client: Client) -> None:
        assert client.send(self.HEAD) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert client.send(BODY) == PUBLISHED

    def test_not_if_it_went_on_already(self, client: Client) -> None:
        assert client.send(self.HEAD + BODY) == PUBLISHED

    def test_not_in_http_1_0(self, client: Client) -> None:
        """RFC 9110 §10.1.1: such a client could not tell it from the answer."""
        assert client.send(self.HEAD.replace(b"HTTP/1.1", b"HTTP/1.0")) == b""

    def test_not_if_the_body_is_refused(self, client: Client) -> None:
        assert client.send(self.HEAD.replace(b": 12", b": 12000000")) == TOO_LARGE


class TestKey:
    def test_without_it_the_body_is_not_even_read(self) -> None:
        async def scenario() -> None:
            authenticator = Authenticator(load_key("secret", pathlib.Path()))
            server = HttpServer(Api(Dispatcher(), authenticator, lambda: 0.0, lambda: 0.0), Limits())
            client = Client(server)
            reply = client.send(b"POST /publish HTTP/1.1\r\nContent-Length: 999999\r\n\r\n")
            assert reply == refused(b"401 Unauthorized", b"Unauthorized\n", extra=b"WWW-Authenticate: Bearer\r\n")
            assert client.ended
            shown = POST.replace(b"Host: a", b"Authorization: Bearer secret")
            assert Client(server).send(shown) == PUBLISHED
            assert Client(server).send(b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")

        asyncio.run(scenario())

    def test_each_request_without_it_has_one_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def scenario() -> None:
            authenticator = Authenticator(load_key("secret", pathlib.Path()))
            server = HttpServer(Api(Dispatcher(), authenticator, lambda: 0.0, lambda: 0.0), Limits())
            lines = LogLines(monkeypatch)
            for _ in range(2):
                Client(server).send(POST)
            first, second = lines.take()
            assert first.startswith("control request without a valid key: method=POST target=/publish client=")
            assert re.fullmatch(r"control request refused: client=\S+ status=401 reason=Unauthorized", second)

        asyncio.run(scenario())


class TestLimits:
    def test_for_one_too_many_the_one_idle_longest_goes(self, server: HttpServer) -> None:
        clients = []
        for now in (1, 2, 3):
            server.now = lambda now=now: now  # type: ignore[misc]
            clients.append(Client(server))
        assert clients[0].send(POST) == PUBLISHED
        one_more = Client(server)
        assert (clients[1].wire.closed, clients[1].wire.sent) == (True, b"")
        assert not clients[0].ended
        assert not clients[2].ended
        assert one_more.send(POST) == PUBLISHED
        assert clients[1].send(POST) == b""
        assert len(server.connections) == 3
        clients[1].connection.connection_lost(None)
        assert not server.leaving

    def test_if_none_is_idle_the_one_that_sent_nothing_for_longest_goes(self, server: HttpServer) -> None:
        clients = []
        for now in (1, 2, 3):
            server.now = lambda now=now: now  # type: ignore[misc]
            clients.append(Client(server))
            assert clients[-1].send(POST[:-5]) == b""
        server.now = lambda: 4
        assert clients[0].send(POST[-5:-1]) == b""
        one_more = Client(server)
        assert clients[1].wire.sent == refused(b"503 Service Unavailable", b"Too many connections.\n")
        assert clients[1].wire.closed
        assert clients[0].send(POST[-1:]) == PUBLISHED
        assert one_more.send(POST) == PUBLISHED

    def test_one_that_does_not_read_its_answers_is_aborted(self, server: HttpServer) -> None:
        clients = [Client(server) for _ in range(3)]
        for each in clients:
            each.connection.pause_writing()
        Client(server)
        assert sum(each.wire.aborted for each in clients) == 1

    def test_one_that_was_refused_already_goes_first(self, server: HttpServer) -> None:
        clients = [Client(server) for _ in range(3)]
        clients[2].send(b"nonsense\r\n\r\n")
        Client(server)
        assert [each.wire.aborted for each in clients] == [False, False, True]
        assert not clients[0].ended

    def test_one_that_gave_way_has_little_time_to_read_its_answer(self, server: HttpServer) -> None:
        server.now = lambda: 100
        clients = [Client(server) for _ in range(4)]
        (gone,) = server.leaving
        server.check(100 + LINGER_TIME - 0.1)
        assert not any(each.wire.aborted for each in clients)
        server.check(100 + LINGER_TIME)
        assert [each.wire.aborted for each in clients if each.connection is gone] == [True]

    def test_it_is_told_at_a_limited_rate(self, server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
        lines = LogLines(monkeypatch, WARNING).lines
        server.now = lambda: 0
        for _ in range(103):
            Client(server)
        server.now = lambda: LOG_INTERVAL
        Client(server)
        start = "control connections full: max=3 closed="
        end = "; the one idle longest is closed"
        assert lines == [f"{start}1{end}", f"{start}101{end}"]

    @pytest.mark.parametrize(
        "header", [b"Sec-Fetch-Site: cross-site", b"Origin: https://evil.example", b"Origin: null"]
    )
    def test_pages_of_other_sites_are_refused_each_time(self, server: HttpServer, header: bytes) -> None:
        for _ in range(2):
            client = Client(server)
            reply = client.send(POST.replace(b"Host: a\r\n", b"Host: a\r\n%b\r\n" % header))
            assert reply.startswith(b"HTTP/1.1 403 Forbidden\r\n")
            assert reply.endswith(b" refused unless control_key is set.\n")
            assert client.ended

    async def test_with_a_key_it_is_the_key_that_counts(self) -> None:
        key = load_key("secret", pathlib.Path())
        server = HttpServer(Api(Dispatcher(), Authenticator(key), lambda: 0.0, lambda: 0.0), Limits())
        headers = b"Host: a\r\nOrigin: https://dashboard.example\r\nSec-Fetch-Site: cross-site\r\n"
        assert Client(server).send(POST.replace(b"Host: a\r\n", headers)).startswith(b"HTTP/1.1 401 ")
        headers += b"Authorization: Bearer secret\r\n"
        assert Client(server).send(POST.replace(b"Host: a\r\n", headers)) == PUBLISHED

    def test_a_client_that_reads_nothing_is_not_read_from(self, client: Client) -> None:
        client.connection.pause_writing()
        assert not client.wire.reading
        assert client.send(POST * 3) == b""
        client.connection.resume_writing()
        assert client.wire.reading
        assert client.wire.sent == PUBLISHED * 3


class TestTimes:
    @pytest.fixture
    def clock(self, server: HttpServer) -> Callable[[float], None]:
        """Sets the time of the server."""

        def set_time(now: float) -> None:
            server.now = lambda: now

        set_time(100)
        return set_time

    def test_an_idle_connection_is_closed_without_a_word(
        self, server: HttpServer, clock: Callable[[float], None]
    ) -> None:
        client = Client(server)
        assert client.connection.deadline == 160
        clock(150)
        client.send(POST)
        assert client.connection.deadline == 210
        client.connection.time_out()
        assert (client.wire.sent, client.wire.closed) == (b"", True)

    def test_a_head_has_fifteen_seconds_from_its_first_byte(
        self, server: HttpServer, clock: Callable[[float], None]
    ) -> None:
        client = Client(server)
        client.send(POST[:10])
        clock(110)
        client.send(POST[10:20])
        assert client.connection.deadline == 115
        client.connection.time_out()
        assert client.wire.sent == refused(b"408 Request Timeout", b"Request timed out.\n")

    def test_a_body_may_take_its_time_while_something_comes(
        self, server: HttpServer, clock: Callable[[float], None]
    ) -> None:
        client = Client(server)
        client.send(POST[:-5])
        assert client.connection.deadline == 160
        clock(150)
        client.send(POST[-5:-2])
        assert client.connection.deadline == 210
        client.connection.time_out()
        assert client.wire.sent.startswith(b"HTTP/1.1 408 ")

    def test_a_refused_client_that_goes_on_sending_is_cut_off(
        self, server: HttpServer, clock: Callable[[float], None]
    ) -> None:
        client = Client(server)
        client.send(b"junk\r\n\r\n")
        assert client.connection.deadline == 102
        client.connection.time_out()
        assert client.wire.aborted

    def test_the_end_of_the_clients_side_ends_the_connection(self, client: Client) -> None:
        client.send(POST[:20])
        client.connection.eof_received()
        assert client.wire.closed


class TestKnownHeads:
    """A head that has come before is not parsed again."""

    def test_answers_are_the_same(self, client: Client) -> None:
        assert [client.send(POST) for _ in range(3)] == [PUBLISHED] * 3
        assert client.send(POST[:-1]) == b""
        assert client.send(b"}") == PUBLISHED
        assert client.send(POST + POST) == PUBLISHED * 2

    def test_bodies_are_each_clients_own(self, server: HttpServer) -> None:
        one, other = Client(server), Client(server)
        one.send(POST)
        assert one.send(POST[:-5]) == b""
        wrong = other.send(POST.replace(BODY, b'{"items":{}}'))
        assert wrong.startswith(b"HTTP/1.1 400 ")
        assert other.send(POST) == PUBLISHED
        assert one.send(POST[-5:]) == PUBLISHED

    def test_a_wrong_body_is_told_each_time(self, client: Client) -> None:
        client.send(POST)
        answers = {client.send(POST.replace(BODY, b'{"items": 3}')) for _ in range(2)}
        assert len(answers) == 1
        assert b"Invalid format: object contains 'items' with wrong type" in answers.pop()
        assert client.send(POST) == PUBLISHED

    def test_a_retiring_server_ends_the_connection(self, server: HttpServer, client: Client) -> None:
        client.send(POST)
        server.retiring = True
        assert b"Connection: close\r\n" in client.send(POST)
        assert client.ended
        server.retiring = False
        assert Client(server).send(POST) == PUBLISHED

    async def test_each_is_asked_for_its_key_again(self) -> None:
        key = load_key("secret", pathlib.Path())
        assert key is not None
        time = 1000.0
        authenticator = Authenticator(key)
        server = HttpServer(Api(Dispatcher(), authenticator, lambda: 0.0, lambda: time), Limits())
        client = Client(server)
        head, _, body = POST.partition(b"\r\n\r\n")
        signed = head + b"\r\nAuthorization: Bearer " + Signer(key, "").token(1000) + b"\r\n\r\n" + body
        assert client.send(signed) == client.send(signed) == PUBLISHED
        time = 100_000.0
        assert client.send(signed).startswith(b"HTTP/1.1 401 ")

    def test_few_are_kept_and_no_long_ones(self, server: HttpServer, client: Client) -> None:
        for number in range(HEADS_MAX + 10):
            assert client.send(POST.replace(b"Host: a", b"Host: %d" % number)) == PUBLISHED
        assert 0 < len(server.heads) <= HEADS_MAX
        server.heads.clear()
        client.send(POST.replace(b"Host: a", b"Host: a\r\nX: " + HEAD_KEPT * b"x"))
        assert not server.heads
        client.send(POST)
        assert len(server.heads) == 1
