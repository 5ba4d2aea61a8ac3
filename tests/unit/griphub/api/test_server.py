"""Server of the hub without sockets: clients that do not read, and those that send nothing or a part of a request."""

from __future__ import annotations

import asyncio
import logging

import pytest

from griphub.api.request import Answer, Request
from griphub.api.server import IDLE_TIME, HubConnection, HubServer
from griphub.api.server_limits import ServerLimits

BIG = b"GET /big HTTP/1.1\r\n\r\n"
SMALL = b"GET /small HTTP/1.1\r\n\r\n"


class Application:
    """Application that admits everything and answers with the request; ``/wait`` waits for ``release``."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.held: list[HubConnection] = []

    def admits(self, request: Request, *, private: bool) -> str:
        return (request.header(b"owner") or b"").decode()

    def again(self, first: Request, body: bytes, connection: HubConnection) -> bool:
        return False

    def start(self, request: Request, connection: HubConnection) -> None:
        self.requests.append(request)
        match request.target.path[0]:
            case "wait":
                self.held.append(connection)
            case "big":
                connection.answer(Answer(200, b"x" * 1_000_000, "text/plain"))
            case _:
                connection.answer(Answer(200, request.method + b" " + request.raw_target + b" " + request.body, ""))

    def release(self) -> None:
        self.held.pop(0).answer(Answer(200, b"released"))


class Pipe(asyncio.Transport):
    """Transport of a client that takes bytes when the test does; writing is paused above 64,000."""

    def __init__(self, connection: HubConnection) -> None:
        super().__init__()
        self.connection = connection
        self.waiting = 0
        self.written = b""
        self.ended = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        before = self.waiting
        self.waiting += len(data)
        self.written += bytes(data)
        if before <= 64_000 < self.waiting:
            self.connection.pause_writing()

    def take(self, size: int) -> None:
        before = self.waiting
        self.waiting -= size
        if self.waiting <= 16_000 < before:
            self.connection.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def write_eof(self) -> None: ...

    def is_closing(self) -> bool:
        return bool(self.ended)

    def abort(self) -> None:
        self.ended = "abort"

    def close(self) -> None:
        self.ended = "close"


class House:
    """A server without sockets, whose deadlines are checked at times that the test gives."""

    def __init__(self, **limits: int) -> None:
        self.server = HubServer(Application(), ServerLimits(**limits))
        self.now = self.server.loop.time()

    def client(self, *, local: bool = True) -> Pipe:
        connection = HubConnection(self.server, private=local, local=local)
        pipe = Pipe(connection)
        connection.connection_made(pipe)
        return pipe

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.server.check(self.now)


class TestUnreadAnswers:
    async def test_an_answer_of_which_nothing_is_taken(self, caplog: pytest.LogCaptureFixture) -> None:
        house = House(stall=60)
        pipe = house.client()
        pipe.connection.data_received(BIG)
        house.later(1.0)
        house.later(59.0)
        assert pipe.ended == ""
        with caplog.at_level(logging.WARNING):
            house.later(1.0)
        assert pipe.ended == "abort"

    async def test_a_slow_client_takes_its_time(self) -> None:
        house = House(stall=60)
        pipe = house.client()
        pipe.connection.data_received(BIG)
        for _ in range(20):
            house.later(50.0)
            pipe.take(40_000)
        assert pipe.ended == ""
        house.later(50.0)
        house.later(60.0)
        assert pipe.ended == "abort"

    async def test_a_client_that_has_taken_all_may_ask_again_later(self) -> None:
        house = House(stall=60)
        pipe = house.client()
        for _ in range(3):
            pipe.connection.data_received(BIG)
            house.later(50.0)
            pipe.take(pipe.waiting)
            house.later(100.0)
        assert pipe.ended == ""

    async def test_the_last_answer_of_a_connection(self) -> None:
        house = House(stall=60)
        pipe = house.client()
        pipe.connection.data_received(b"GET /big HTTP/1.0\r\n\r\n")
        for _ in range(25):
            house.later(3.0)
            if not pipe.ended:
                pipe.take(10_000)
        assert pipe.ended == ""
        for _ in range(21):
            house.later(3.0)
        assert pipe.ended == "abort"

    async def test_others_are_not_ended(self) -> None:
        house = House(stall=60)
        stalled, waits = house.client(), house.client()
        stalled.connection.data_received(BIG)
        waits.connection.data_received(b"GET /wait HTTP/1.1\r\n\r\n")
        house.later(1.0)
        house.later(1000.0)
        assert (stalled.ended, waits.ended) == ("abort", "")
        waits.connection.answer(Answer(200, b"late"))
        assert waits.written.endswith(b"late")

    async def test_all_of_them_together_are_bounded(self) -> None:
        house = House(unread=3_500_000)
        pipes = [house.client() for _ in range(4)]
        pipes[0].connection.data_received(BIG)
        house.later(1.0)
        for pipe in pipes[1:3]:
            pipe.connection.data_received(BIG)
        house.later(1.0)
        assert [pipe.ended for pipe in pipes] == [""] * 4
        pipes[0].take(10)
        pipes[3].connection.data_received(BIG)
        house.later(1.0)
        assert sorted(pipe.ended for pipe in pipes) == ["", "", "", "abort"]
        assert (pipes[0].ended, pipes[3].ended) == ("", "")


class TestEnd:
    async def test_a_connection_that_the_loop_had_accepted_is_closed_too(self) -> None:
        house = House()
        early = house.client()
        house.server.close()
        late = house.client()
        assert (early.ended, late.ended) == ("abort", "abort")
        assert len(house.server.connections) == 1


class TestIdleConnections:
    async def test_a_peer_that_sends_nothing(self) -> None:
        house = House()
        peer, worker = house.client(local=False), house.client()
        house.later(1.0)
        house.later(IDLE_TIME - 1)
        assert peer.ended == ""
        house.later(2.0)
        assert (peer.ended, worker.ended) == ("close", "")
        assert peer.written == b""

    async def test_a_peer_between_its_requests(self) -> None:
        house = House()
        peer = house.client(local=False)
        for _ in range(3):
            house.later(IDLE_TIME - 1)
            peer.connection.data_received(SMALL)
            peer.take(peer.waiting)
        house.later(1.0)
        house.later(IDLE_TIME + 1)
        assert peer.ended == "close"

    async def test_an_answer_that_takes_long_is_waited_for(self) -> None:
        house = House()
        peer = house.client(local=False)
        peer.connection.data_received(b"GET /wait HTTP/1.1\r\n\r\n")
        for _ in range(5):
            house.later(IDLE_TIME)
        assert peer.ended == ""

    async def test_peers_leave_room_for_the_own_workers(self) -> None:
        house = House(connections=8)
        peers = [house.client(local=False) for _ in range(8)]
        assert [peer.ended for peer in peers] == [""] * 6 + ["abort"] * 2
        assert [house.client().ended for _ in range(3)] == ["", "", "abort"]


class TestHalfRequests:
    async def test_an_owner_does_not_hold_all_connections_with_them(self) -> None:
        house = House(owner_requests=2)
        head = b"POST /a HTTP/1.1\r\nOwner: %b\r\nContent-Length: 10\r\n\r\n"
        pipes = [house.client() for _ in range(4)]
        for pipe, owner in zip(pipes, (b"a", b"a", b"a", b"b"), strict=True):
            pipe.connection.data_received(head % owner)
        assert [pipe.written[9:12] for pipe in pipes] == [b"", b"", b"429", b""]
        pipes[0].connection.data_received(b"0123456789")
        pipes[1].connection.connection_lost(None)
        assert pipes[0].written.startswith(b"HTTP/1.1 200 ")
        for _ in range(2):
            pipe = house.client()
            pipe.connection.data_received(head % b"a")
            assert pipe.written == b""
        whole = house.client()
        whole.connection.data_received(head % b"a" + b"0123456789")
        assert whole.written.startswith(b"HTTP/1.1 200 ")


class Unread(asyncio.Transport):
    """Transport of a client that does not read: writing is paused by the first long answer."""

    def __init__(self) -> None:
        super().__init__()
        self.connection: HubConnection | None = None
        self.written = b""
        self.calls: list[str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)
        assert self.connection is not None
        if len(data) > 64_000:
            self.connection.pause_writing()

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def is_closing(self) -> bool:
        return False

    def write_eof(self) -> None:
        self.calls.append("eof")

    @property
    def answers(self) -> int:
        return self.written.count(b"HTTP/1.1 200 ")


class TestBackPressure:
    async def made(self) -> tuple[Application, HubConnection, Unread]:
        application, transport = Application(), Unread()
        connection = HubConnection(HubServer(application, ServerLimits()), private=True)
        transport.connection = connection
        connection.connection_made(transport)
        return application, connection, transport

    async def test_requests_of_a_client_that_does_not_read_wait(self) -> None:
        application, connection, transport = await self.made()
        connection.data_received(b"GET /big HTTP/1.1\r\n\r\n")
        assert (transport.answers, transport.calls) == (1, ["pause"])
        connection.data_received(b"GET /big?2 HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (transport.answers, len(application.requests), transport.calls[-1]) == (1, 1, "pause")
        connection.resume_writing()
        await asyncio.sleep(0)
        assert (transport.answers, len(application.requests)) == (2, 2)
        connection.resume_writing()
        assert transport.calls[-1] == "resume"

    async def test_requests_of_one_read_do_not_fill_the_memory(self) -> None:
        application, connection, transport = await self.made()
        connection.data_received(b"GET /big HTTP/1.1\r\n\r\n" * 1000)
        assert (transport.answers, len(application.requests)) == (1, 1)
        assert b"HTTP/1.1 400 " in transport.written
        assert transport.calls[-2:] == ["eof", "resume"]

    async def test_bytes_that_arrive_before_pending_ones_were_parsed_do_not_overtake_them(self) -> None:
        application, connection, transport = await self.made()
        connection.data_received(b"GET /wait HTTP/1.1\r\n\r\n")
        connection.data_received(b"POST /a HTTP/1.1\r\nContent-Le")
        application.release()
        connection.data_received(b"ngth: 2\r\n\r\nxy")
        await asyncio.sleep(0)
        assert transport.written.endswith(b"POST /a xy")
        assert transport.calls[-1] == "resume"
