"""HTTP server of the hub, over sockets: ordinary requests, and bytes of clients that mean harm."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import socket
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from griphub.api import server
from griphub.api.problem import Problem
from griphub.api.request import Answer, Request
from griphub.api.server import HEAD_MAX, HEADERS_MAX, HubConnection, HubServer
from griphub.api.server_limits import ServerLimits
from gripproxy.process.log import ERROR
from tests.support.log_lines import LogLines

# The hook that replaces the fixture counts for all tests of a run.
pytestmark = pytest.mark.filterwarnings('ignore:Overriding the "event_loop_policy" fixture is deprecated')

PATIENCE = 20.0
"""Seconds for anything that a test waits for."""


@pytest.fixture(params=["asyncio", "uvloop"])
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    """Both loops: they differ in the order of callbacks, and in what a closed transport allows."""
    return uvloop.EventLoopPolicy() if request.param == "uvloop" else asyncio.DefaultEventLoopPolicy()


class Application:
    """Application that answers with what it was asked; ``/hold`` waits for ``release``."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.held: list[HubConnection] = []
        self.admitted: list[tuple[bytes, bool]] = []
        self.repeated: list[tuple[bytes, bytes, bytes]] = []
        """Target and body of an earlier request, and body of one with the same head."""

    def admits(self, request: Request, *, private: bool) -> str:
        self.admitted.append((request.raw_target, private))
        if request.target.path == ("forbidden",):
            raise Problem(403, "forbidden", "not here")
        return (request.header(b"owner") or b"").decode()

    def again(self, first: Request, body: bytes, connection: HubConnection) -> bool:
        self.repeated.append((first.raw_target, first.body, body))
        if first.target.path != ("quick",):
            return False
        connection.created(body)
        return True

    def start(self, request: Request, connection: HubConnection) -> None:
        self.requests.append(request)
        match request.target.path[0]:
            case "hold":
                self.held.append(connection)
            case "fault":
                raise RuntimeError("a fault")
            case "big":
                connection.answer(Answer(200, b"x" * 1_000_000, "text/plain"))
            case _:
                connection.answer(Answer(200, request.method + b" " + request.raw_target + b" " + request.body, ""))

    def release(self, body: bytes = b"released") -> None:
        self.held.pop(0).answer(Answer(201, body, ""))


class Client:
    """A connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def says(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, *, head: bool = False) -> tuple[int, bytes]:
        """Return status and body of the next response."""
        async with asyncio.timeout(PATIENCE):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
            length = [int(line[15:]) for line in lines if line.startswith(b"content-length:")]
            body = await self.reader.readexactly(length[0]) if length and not head else b""
        return int(lines[0].split(b" ")[1]), body

    async def ended(self) -> bool:
        """Return True when the server has closed; fail if bytes arrive."""
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                assert await self.reader.read() == b""
        return True

    async def refused(self, status: int) -> str:
        """Check that the next response is a refusal with a status, and the last one; return its text."""
        found, body = await self.answer()
        assert found == status, body
        assert await self.ended()
        return body.decode()


class House:
    """A server on a Unix socket."""

    def __init__(self, application: Application, server: HubServer, path: pathlib.Path) -> None:
        self.application, self.server, self.path = application, server, path
        self.clients: list[Client] = []

    async def client(self, data: bytes = b"") -> Client:
        client = Client(*await asyncio.open_unix_connection(str(self.path)))
        self.clients.append(client)
        client.says(data)
        return client

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not true():  # noqa: ASYNC110 - a turn of the loop each
                await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def serving(path: pathlib.Path, limits: ServerLimits | None = None) -> AsyncIterator[House]:
    """A server, closed afterwards, whose accounts must be even then."""
    application = Application()
    hub = HubServer(application, limits or ServerLimits())
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path / "hub"))
    sock.listen()
    sock.setblocking(False)
    await hub.open(sock, private=True)
    house = House(application, hub, path / "hub")
    try:
        yield house
        for client in house.clients:
            client.writer.close()
        await house.until(lambda: not hub.connections)
        assert hub.accounts.bodies == 0
    finally:
        for client in house.clients:
            client.writer.close()
        hub.close()
        await asyncio.sleep(0)


@pytest.fixture
async def house(tmp_path: pathlib.Path) -> AsyncIterator[House]:
    async with serving(tmp_path) as house:
        yield house


class TestRequests:
    async def test_requests_of_a_connection_are_answered_in_turn(self, house: House) -> None:
        client = await house.client(b"GET /a?b=c HTTP/1.1\r\nX-Y: Z\r\n\r\n")
        assert await client.answer() == (200, b"GET /a?b=c ")
        client.says(b"POST /b HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")
        assert await client.answer() == (200, b"POST /b abc")
        client.says(b"HEAD /c HTTP/1.1\r\n\r\n")
        assert await client.answer(head=True) == (200, b"")
        client.says(b"GET /d HTTP/1.1\r\n\r\n")
        assert await client.answer() == (200, b"GET /d ")
        assert house.application.requests[0].headers == [(b"x-y", b"Z")]
        assert house.application.admitted == [(target, True) for target in (b"/a?b=c", b"/b", b"/c", b"/d")]

    async def test_a_root_is_no_part_of_the_targets(self, house: House, tmp_path: pathlib.Path) -> None:
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(str(tmp_path / "public"))
        sock.listen()
        sock.setblocking(False)
        await house.server.open(sock, private=False, root=b"/hub")
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "public"))
        client = Client(reader, writer)
        house.clients.append(client)
        for path, below in ((b"/hub/a", b"/a"), (b"/hub/a", b"/a"), (b"/hub/hub/a", b"/hub/a")):
            client.says(b"GET %b HTTP/1.1\r\n\r\n" % path)
            assert await client.answer() == (200, b"GET %b " % below)
        assert [request.target.path for request in house.application.requests] == [("a",), ("a",), ("hub", "a")]
        # The head of a request at the other socket, which has no root, has another meaning.
        other = await house.client(b"GET /hub/a HTTP/1.1\r\n\r\n")
        await other.answer()
        client.says(b"GET /hub/a HTTP/1.1\r\n\r\n")
        await client.answer()
        assert [request.target.path for request in house.application.requests[-2:]] == [("hub", "a"), ("a",)]
        client.says(b"GET /a HTTP/1.1\r\n\r\n")
        assert "begin with /hub (listen_path)" in await client.refused(404)

    async def test_a_request_may_arrive_byte_by_byte(self, house: House) -> None:
        client = await house.client()
        for byte in b"POST /a HTTP/1.1\r\nContent-Length: 2\r\nA: b\r\n\r\nxy":
            client.says(bytes([byte]))
            await client.writer.drain()
            await asyncio.sleep(0)
        assert await client.answer() == (200, b"POST /a xy")
        assert house.application.requests[0].headers == [(b"content-length", b"2"), (b"a", b"b")]

    async def test_a_long_body_arrives_in_parts(self, house: House) -> None:
        body = bytes(range(256)) * 20_000
        client = await house.client(b"PUT /a HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        status, answered = await client.answer()
        assert (status, answered) == (200, b"PUT /a " + body)

    async def test_a_chunked_body(self, house: House) -> None:
        client = await house.client(b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n")
        client.says(b"1\r\nd\r\n0\r\n\r\n")
        assert await client.answer() == (200, b"POST /a abcd")

    async def test_very_many_chunks(self, house: House) -> None:
        client = await house.client(b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.says(b"1\r\nx\r\n" * 100_000 + b"0\r\n\r\n")
        assert await client.answer() == (200, b"POST /a " + b"x" * 100_000)

    async def test_a_head_that_came_before_may_be_carried_out_at_once(self, house: House) -> None:
        head = b"POST /quick HTTP/1.1\r\nContent-Length: 2\r\n\r\n"
        client = await house.client(head + b"ab")
        assert await client.answer() == (200, b"POST /quick ab")
        for body in (b"cd", b"ef"):
            client.says(head + body)
            assert await client.answer() == (201, body)
        assert house.application.repeated == [(b"/quick", b"", b"cd"), (b"/quick", b"", b"ef")]
        assert len(house.application.requests) == 1

    async def test_a_head_that_came_before_is_otherwise_begun_as_the_first_one(self, house: House) -> None:
        head = b"POST /a HTTP/1.1\r\nContent-Length: 2\r\n\r\n"
        client = await house.client()
        for body in (b"ab", b"cd"):
            client.says(head + body)
            assert await client.answer() == (200, b"POST /a " + body)
        assert house.application.repeated == [(b"/a", b"", b"cd")]

    async def test_trailers_are_no_headers(self, house: House) -> None:
        client = await house.client(b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.says(b"0\r\nAuthorization: Bearer x\r\n\r\n")
        assert await client.answer() == (200, b"POST /a ")
        assert house.application.requests[0].headers == [(b"transfer-encoding", b"chunked")]

    @pytest.mark.parametrize("head", [b"GET /a HTTP/1.0\r\n\r\n", b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\n"])
    async def test_a_connection_that_is_to_be_closed(self, house: House, head: bytes) -> None:
        client = await house.client(head)
        assert await client.answer() == (200, b"GET /a ")
        assert await client.ended()

    async def test_http_1_0_is_not_kept_alive(self, house: House) -> None:
        client = await house.client(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert await client.answer() == (200, b"GET /a ")
        assert await client.ended()

    async def test_an_answer_may_be_late(self, house: House) -> None:
        client = await house.client(b"GET /hold HTTP/1.1\r\n\r\n")
        await house.until(lambda: bool(house.application.held))
        assert [connection.busy for connection in house.server.connections] == [True]
        house.application.release()
        assert await client.answer() == (201, b"released")
        assert [connection.busy for connection in house.server.connections] == [False]


class TestExpect:
    async def test_a_client_that_waits_before_its_body(self, house: House) -> None:
        client = await house.client(b"POST /a HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n")
        assert await client.answer() == (100, b"")
        client.says(b"x")
        assert await client.answer() == (200, b"POST /a x")

    @pytest.mark.parametrize("version_and_value", [b"HTTP/1.0\r\nExpect: 100-continue", b"HTTP/1.1\r\nExpect: 200-ok"])
    async def test_others_wait_for_nothing(self, house: House, version_and_value: bytes) -> None:
        client = await house.client(b"POST /a %b\r\nContent-Length: 1\r\n\r\n" % version_and_value)
        client.says(b"x")
        assert await client.answer() == (200, b"POST /a x")

    async def test_a_refusal_precedes_the_body(self, house: House) -> None:
        client = await house.client(b"POST /forbidden HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
        assert "not here" in await client.refused(403)
        assert house.application.requests == []


class TestPipelining:
    async def test_requests_of_one_read_that_are_answered_directly(self, house: House) -> None:
        client = await house.client(b"GET /a HTTP/1.1\r\n\r\nPOST /b HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
        assert await client.answer() == (200, b"GET /a ")
        assert await client.answer() == (200, b"POST /b x")

    async def test_a_request_behind_one_that_waits_is_refused_after_its_answer(self, house: House) -> None:
        client = await house.client(b"POST /hold HTTP/1.1\r\nContent-Length: 1\r\n\r\nxGET /b HTTP/1.1\r\n\r\n")
        await house.until(lambda: bool(house.application.held))
        house.application.release()
        assert await client.answer() == (201, b"released")
        assert "must follow the answer" in await client.refused(400)
        assert [request.raw_target for request in house.application.requests] == [b"/hold"]

    async def test_bytes_that_are_no_request_do_not_hide_the_answer_before_them(self, house: House) -> None:
        client = await house.client(b"GET /hold HTTP/1.1\r\n\r\n\0\0\0\r\n\r\n")
        await house.until(lambda: bool(house.application.held))
        house.application.release()
        assert await client.answer() == (201, b"released")
        await client.refused(400)

    async def test_later_reads_wait_for_the_answer(self, house: House) -> None:
        client = await house.client(b"GET /hold HTTP/1.1\r\n\r\n")
        await house.until(lambda: bool(house.application.held))
        client.says(b"GET /b HTTP/1.1\r\n\r\nPOST /c HTTP/1.1\r\nContent-Length: 400000\r\n\r\n" + b"1" * 300_000)
        client.says(b"2" * 100_000)
        house.application.release()
        assert await client.answer() == (201, b"released")
        assert await client.answer() == (200, b"GET /b ")
        assert await client.answer() == (200, b"POST /c " + b"1" * 300_000 + b"2" * 100_000)
        client.says(b"GET /d HTTP/1.1\r\n\r\n")
        assert await client.answer() == (200, b"GET /d ")

    @pytest.mark.parametrize("first", [b"/a", b"/hold"])
    async def test_an_upgrade_is_ignored(self, house: House, first: bytes) -> None:
        upgrade = b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        client = await house.client(b"GET %b HTTP/1.1\r\n%bGET /b HTTP/1.1\r\n%b" % (first, upgrade, upgrade))
        client.says(b"GET /c HTTP/1.1\r\n\r\n")
        if first == b"/hold":
            await house.until(lambda: bool(house.application.held))
            house.application.release()
            assert await client.answer() == (201, b"released")
        else:
            assert await client.answer() == (200, b"GET /a ")
        assert await client.answer() == (200, b"GET /b ")
        assert await client.answer() == (200, b"GET /c ")


class TestRefusals:
    @pytest.mark.parametrize(
        "data",
        [
            b"\0\0\0\0\r\n\r\n",
            b"GET /\r\n\r\n",
            b"BREW / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\nA: b\n\n",
            b"GET / HTTP/1.1\r\nA b\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\0c\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
            b"GET topics HTTP/1.1\r\n\r\n",
            b"CONNECT hub:80 HTTP/1.1\r\n\r\n",
            b"GET /%FF HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello \r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ],
    )
    async def test_other_bytes_than_requests(self, house: House, data: bytes) -> None:
        client = await house.client(data)
        await client.refused(400)
        assert house.application.requests == []
        other = await house.client(b"GET /a HTTP/1.1\r\n\r\n")
        assert await other.answer() == (200, b"GET /a ")

    @pytest.mark.parametrize(
        "data",
        [
            b"GET /" + b"x" * (HEAD_MAX + 1) + b" HTTP/1.1\r\n\r\n",
            b"GET /a HTTP/1.1\r\nA: " + b"x" * HEAD_MAX + b"\r\n\r\n",
            b"GET /a HTTP/1.1\r\n" + b"A: %b\r\n" % (b"x" * 1000) * 66 + b"\r\n",
            b"GET /a HTTP/1.1\r\n" + b"A:\r\n" * (HEADERS_MAX + 1) + b"\r\n",
        ],
        ids=["target", "header", "headers", "short headers"],
    )
    async def test_a_long_head(self, house: House, data: bytes) -> None:
        client = await house.client(data)
        await client.refused(431)
        assert house.application.requests == []

    @pytest.mark.parametrize(
        "start",
        [
            b"GET /",
            b"GET /a HTTP/1.1\r\nA: ",
            b"GET /a HTTP/1.1\r\nA",
            b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: ",
            b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nA",
            b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;x=",
        ],
        ids=["target", "value", "name", "trailer", "name of a trailer", "extension of a chunk"],
    )
    async def test_a_line_without_end(self, house: House, start: bytes) -> None:
        client = await house.client(start)
        for _ in range(10 * HEAD_MAX // 50_000):
            client.says(b"x" * 50_000)
        await client.refused(431)
        assert house.application.requests == []

    async def test_a_fault_of_the_application_is_no_fault_of_the_client(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        logged = LogLines(monkeypatch, ERROR).lines
        client = await house.client(b"GET /fault HTTP/1.1\r\n\r\n")
        await client.refused(500)
        assert len(logged) == 1

    async def test_a_request_that_is_not_admitted(self, house: House) -> None:
        client = await house.client(b"HEAD /forbidden HTTP/1.1\r\n\r\n")
        assert await client.answer(head=True) == (403, b"")
        assert await client.ended()
        assert house.application.requests == []


class TestBodies:
    async def test_a_long_body_is_refused_by_its_length(self, tmp_path: pathlib.Path) -> None:
        async with serving(tmp_path, ServerLimits(body=10)) as house:
            client = await house.client(b"POST /a HTTP/1.1\r\nContent-Length: 11\r\n\r\n")
            assert '"max":10' in await client.refused(413)
            other = await house.client(b"POST /a HTTP/1.1\r\nContent-Length: 10\r\n\r\n0123456789")
            assert await other.answer() == (200, b"POST /a 0123456789")
            assert len(house.application.requests) == 1

    async def test_a_client_that_sends_it_all_the_same_reads_the_refusal(self, tmp_path: pathlib.Path) -> None:
        async with serving(tmp_path, ServerLimits(body=10)) as house:
            client = await house.client(b"POST /a HTTP/1.1\r\nContent-Length: 5000000\r\n\r\n" + b"x" * 5_000_000)
            await client.writer.drain()
            await client.refused(413)

    async def test_a_long_chunked_body_is_refused_when_it_has_grown(self, tmp_path: pathlib.Path) -> None:
        async with serving(tmp_path, ServerLimits(body=10)) as house:
            client = await house.client(b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
            client.says(b"a\r\n0123456789\r\n")
            client.says(b"1\r\nx\r\n")
            await client.refused(413)
            assert house.application.requests == []

    async def test_all_bodies_together_are_bounded(self, tmp_path: pathlib.Path) -> None:
        async with serving(tmp_path, ServerLimits(bodies=15)) as house:
            first = await house.client(b"POST /hold HTTP/1.1\r\nContent-Length: 10\r\n\r\n0123456789")
            await house.until(lambda: bool(house.application.held))
            second = await house.client(b"POST /a HTTP/1.1\r\nContent-Length: 10\r\n\r\n0123456789")
            assert "later" in await second.refused(503)
            house.application.release()
            assert await first.answer() == (201, b"released")
            third = await house.client(b"POST /a HTTP/1.1\r\nContent-Length: 10\r\n\r\n0123456789")
            assert await third.answer() == (200, b"POST /a 0123456789")

    async def test_the_bodies_of_an_owner_are_bounded(self, tmp_path: pathlib.Path) -> None:
        head = b"POST /a HTTP/1.1\r\nHost: h\r\nOwner: %b\r\nContent-Length: 10\r\n\r\n"
        async with serving(tmp_path, ServerLimits(owner_bodies=15)) as house:
            first = await house.client(head % b"a" + b"012345678")
            await house.until(lambda: house.server.accounts.owner_bodies == {"a": 9})
            second = await house.client(head % b"a" + b"0123456")
            assert "for this owner" in await second.refused(429)
            other = await house.client(head % b"b" + b"012345678")
            await house.until(lambda: house.server.accounts.owner_bodies == {"a": 9, "b": 9})
            for client in (first, other):
                client.says(b"9")
                assert await client.answer() == (200, b"POST /a 0123456789")
            assert house.server.accounts.owner_bodies == {}
            third = await house.client(head % b"a" + b"012345678")
            await house.until(lambda: house.server.accounts.owner_bodies == {"a": 9})
            third.writer.close()
            await house.until(lambda: not house.server.accounts.owner_bodies)

    @pytest.mark.parametrize("part", [b"", b"x" * 5])
    async def test_a_client_that_ends_within_its_body(self, house: House, part: bytes) -> None:
        client = await house.client(b"POST /a HTTP/1.1\r\nContent-Length: 10\r\n\r\n" + part)
        await house.until(lambda: bool(house.application.admitted))
        client.writer.close()
        await house.until(lambda: not house.server.connections)
        assert (house.application.requests, house.server.accounts.bodies) == ([], 0)


class TestEnds:
    async def test_a_half_closed_client_gets_its_answer(self, house: House) -> None:
        client = await house.client(b"GET /hold HTTP/1.1\r\n\r\n")
        client.writer.write_eof()
        await house.until(lambda: bool(house.application.held))
        house.application.release()
        assert await client.answer() == (201, b"released")
        assert await client.ended()

    async def test_a_half_closed_client_gets_all_answers(self, house: House) -> None:
        client = await house.client(b"GET /hold HTTP/1.1\r\n\r\n")
        await house.until(lambda: bool(house.application.held))
        client.says(b"GET /b HTTP/1.1\r\n\r\nGET /c HTTP/1.1\r\n")
        client.writer.write_eof()
        house.application.release()
        assert await client.answer() == (201, b"released")
        assert await client.answer() == (200, b"GET /b ")
        assert await client.ended()

    async def test_a_half_closed_client_within_a_request_gets_nothing(self, house: House) -> None:
        client = await house.client(b"GET /a HTTP/1.1\r\n")
        client.writer.write_eof()
        assert await client.ended()

    async def test_an_answer_for_a_client_that_has_gone(self, house: House) -> None:
        client = await house.client(b"POST /hold HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody")
        await house.until(lambda: bool(house.application.held))
        client.writer.transport.abort()
        [connection] = house.server.connections
        connection.abort()
        house.application.held[0].answer(Answer(200, b"at the same moment"))
        await house.until(lambda: not house.server.connections)
        house.application.release()
        assert house.server.accounts.bodies == 0

    async def test_a_slow_head(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "HEAD_TIME", 0.0)
        client = await house.client(b"GET /a HTTP/1.1\r\n")
        assert "in time" in await client.refused(408)

    async def test_a_slow_body(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "BODY_TIME", 0.0)
        client = await house.client(b"POST /a HTTP/1.1\r\nContent-Length: 9\r\n\r\n")
        await house.until(lambda: bool(house.application.admitted))
        client.says(b"x")
        assert "in time" in await client.refused(408)

    async def test_a_client_that_does_not_close_after_a_refusal(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "CLOSE_TIME", 0.0)
        client = await house.client(b"GET /forbidden HTTP/1.1\r\n\r\n")
        assert (await client.answer())[0] == 403
        client.says(b"GET /a HTTP/1.1\r\n\r\n")
        await house.until(lambda: not house.server.connections)
        assert house.application.requests == []

    async def test_connections_are_bounded(self, tmp_path: pathlib.Path) -> None:
        async with serving(tmp_path, ServerLimits(connections=1)) as house:
            first = await house.client(b"GET /a HTTP/1.1\r\n\r\n")
            assert await first.answer() == (200, b"GET /a ")
            second = await house.client(b"GET /a HTTP/1.1\r\n\r\n")
            assert await second.ended()
            first.writer.close()
            await house.until(lambda: not house.server.connections)
            third = await house.client(b"GET /b HTTP/1.1\r\n\r\n")
            assert await third.answer() == (200, b"GET /b ")

    async def test_a_retiring_server_finishes_its_requests(self, house: House) -> None:
        busy = await house.client(b"GET /hold HTTP/1.1\r\n\r\n")
        idle = await house.client(b"GET /a HTTP/1.1\r\n\r\n")
        assert await idle.answer() == (200, b"GET /a ")
        await house.until(lambda: bool(house.application.held))
        house.server.retire()
        assert await idle.ended()
        house.application.release()
        assert await busy.answer() == (201, b"released")
        assert await busy.ended()
        with pytest.raises(OSError):  # noqa: PT011 - refused, or the path is gone
            await house.client()
