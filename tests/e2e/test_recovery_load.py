"""2,000 reliable streams miss an item: all get it, in order, and the backend is not swamped by their questions."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable

import pytest

from tests.e2e.crowd import PATIENCE, Crowd, Member, Served, publish, room_for_files
from tests.wire.wirekit import Proxy, Setup

STREAMS = 2_000
WORKERS = 2
MOST = 32
"""``recovery_max``: link requests that may be with the backend."""
ITEMS = {2: "lost\n", 3: "next\n", 4: "after\n"}


def hold(channel: str, last: int, link: str, body: str) -> bytes:
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nGrip-Hold: stream\r\n"
        f"Grip-Channel: {channel}; prev-id={last}\r\nGrip-Link: <{link}>; rel=next; timeout=1000\r\n\r\n"
    )
    return (head + body).encode()


def item(channel: str, number: int, content: str) -> dict[str, object]:
    """An item that goes to the sessions as it comes."""
    formats = {"http-stream": {"content": content}}
    return {"channel": channel, "id": str(number), "prev-id": str(number - 1), "no-seq": True, "formats": formats}


def together(*items: dict[str, object]) -> bytes:
    return json.dumps({"items": items}).encode()


class Backend(Served):
    """Opens streams at item 1, and answers their links with what comes behind the item they name, when ``go`` is set.

    ``/stream…`` gets the link ``/next…``, and ``/quiet`` is a stream of another channel.
    """

    known = 3
    """The newest item."""
    pause = 0.0
    """Seconds an answer takes."""
    broken = False
    """Links get a 503."""
    go: asyncio.Event
    came: asyncio.Event
    asked: list[str]
    times: list[float]
    busy: int
    """Link requests that are not answered."""
    most: int
    """The same, at most."""

    @classmethod
    def prepare(cls, pause: float) -> None:
        cls.go, cls.came = asyncio.Event(), asyncio.Event()
        cls.asked, cls.times = [], []
        cls.busy = cls.most = 0
        cls.known, cls.pause, cls.broken = 3, pause, False

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, self.received = self.received.partition(b"\r\n\r\n")
            path = head.split()[1].decode()
            if path.startswith("/next"):
                self.link(path, int(head.partition(b"\r\nGrip-Last: crowd; last-id=")[2].split()[0]))
            elif path == "/quiet":
                self.transport.write(hold("quiet", 1, "/never", "welcome\n"))
            else:
                self.transport.write(hold("crowd", 1, path.replace("stream", "next"), "welcome\n"))

    def link(self, path: str, last: int) -> None:
        cls = type(self)
        cls.asked.append(path)
        cls.times.append(asyncio.get_running_loop().time())
        cls.busy += 1
        cls.most = max(cls.most, cls.busy)
        cls.came.set()
        self.answering = asyncio.create_task(self.answer(path, last))

    async def answer(self, path: str, last: int) -> None:
        await self.go.wait()
        await asyncio.sleep(self.pause)
        type(self).busy -= 1
        if self.broken:
            self.transport.write(b"HTTP/1.1 503 Not now\r\nContent-Length: 0\r\n\r\n")
            return
        body = "".join(ITEMS[number] for number in range(last + 1, self.known + 1))
        self.transport.write(hold("crowd", self.known, path, body))


class Stream(Member):
    """One stream. It is held when it has the opening, ``got`` what was missing, and ``got more`` behind that."""

    path = "/stream"
    steps: tuple[tuple[str, str], ...] = (("held", "welcome\n"), ("got", "lost\nnext\n"), ("got more", "after\n"))

    def __init__(self, crowd: Crowd) -> None:
        super().__init__(crowd)
        self.text = ""
        self.missing = iter(self.steps)
        self.step = next(self.missing)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(f"GET {self.path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        self.tail += data
        if self.state == "asking":
            if b"\r\n\r\n" not in self.tail:
                return
            self.tail = self.tail.partition(b"\r\n\r\n")[2]
            self.state = "reading"
        while b"\r\n" in self.tail:
            size, _, rest = self.tail.partition(b"\r\n")
            length = int(size, 16)
            if len(rest) < length + 2:
                break
            self.text += rest[:length].decode()
            self.tail = rest[length + 2 :]
        while self.text.startswith(self.step[1]):
            self.text = self.text.removeprefix(self.step[1])
            rest, (state, _) = self.tail, self.step
            self.come(state)
            self.tail = rest
            self.step = next(self.missing, ("end", "nothing"))


def own_links() -> Callable[[Crowd], Stream]:
    """What makes streams whose links are ``/next?n=1``, ``/next?n=2`` and so on."""
    numbers = itertools.count(1)

    def make(crowd: Crowd) -> Stream:
        stream = Stream(crowd)
        stream.path = f"/stream?n={next(numbers)}"
        return stream

    return make


class Quiet(Stream):
    """The one stream of the other channel."""

    path = "/quiet"
    steps = (("held", "welcome\n"), ("got", "by push\n"))


@contextlib.asynccontextmanager
async def served(pause: float) -> AsyncIterator[Proxy]:
    """A proxy with default settings whose backend is this process, and answers links after a ``pause`` in seconds."""
    Backend.prepare(pause)
    server = await asyncio.get_running_loop().create_server(Backend, "127.0.0.1", 0, backlog=512)
    names = {"backend": f"127.0.0.1:{server.sockets[0].getsockname()[1]}"}
    config = {
        "proxy.workers": WORKERS,
        "runner.client_maxconn": 10_000,
        "handler.message_rate": None,
        "handler.message_hwm": None,
        # So that every question is about the gap.
        "handler.update_on_first_subscription": False,
    }
    proxy = await asyncio.to_thread(Proxy, Setup(config=config), names)
    try:
        with room_for_files(2 * STREAMS + 500):
            yield proxy
    finally:
        problems = await asyncio.to_thread(proxy.stop)
        await Backend.close_all(server)
    assert problems == []


@pytest.mark.timeout(300)
async def test_equal_questions_are_asked_once_and_hold_up_nobody(figure: Callable[[str], None]) -> None:
    async with served(0) as proxy:
        control = proxy.ports["control"]
        crowd, quiet = Crowd(proxy.ports["http"], Stream), Crowd(proxy.ports["http"], Quiet)
        await quiet.join(1)
        await crowd.join(STREAMS)
        # Item 2 never came.
        await publish(control, together(item("crowd", 3, "next\n")))
        await asyncio.wait_for(Backend.came.wait(), PATIENCE)
        # While the backend is asked, and does not answer, other channels go on. What comes on this one has to wait.
        Backend.known = 4
        await publish(control, together(item("quiet", 2, "by push\n"), item("crowd", 4, "after\n")))
        await quiet.until("got", 1)
        assert crowd.counts["got"] == 0
        Backend.go.set()
        await crowd.until("got", STREAMS)
        await crowd.until("got more", STREAMS)
        figure(f"{STREAMS} streams miss an item: {len(Backend.asked)} requests of {WORKERS} workers to the backend")
        assert set(Backend.asked) == {"/next"}
        assert len(Backend.asked) <= 5 * WORKERS
        # Nothing twice, nothing else.
        assert {member.text for member in crowd.members if isinstance(member, Stream)} == {""}
        assert crowd.counts["lost"] == 0
        await crowd.leave()
        await quiet.leave()


@pytest.mark.timeout(300)
async def test_different_questions_are_spread(figure: Callable[[str], None]) -> None:
    async with served(0.005) as proxy:
        control = proxy.ports["control"]
        crowd = Crowd(proxy.ports["http"], own_links())
        await crowd.join(STREAMS)
        Backend.go.set()
        begun = asyncio.get_running_loop().time()
        await publish(control, together(item("crowd", 3, "next\n")))
        await crowd.until("got", STREAMS)
        Backend.known = 4
        await publish(control, together(item("crowd", 4, "after\n")))
        await crowd.until("got more", STREAMS)
        seconds = Backend.times[-1] - begun
        figure(
            f"{STREAMS} streams with a link each: {len(Backend.asked)} requests within {seconds:.1f} s, "
            f"at most {Backend.most} at a time"
        )
        assert sorted(Backend.asked) == sorted({f"/next?n={n}" for n in range(1, STREAMS + 1)})
        assert Backend.most <= MOST
        # A thousand a second.
        assert seconds > 1.5
        # Nothing twice, nothing else.
        assert {member.text for member in crowd.members if isinstance(member, Stream)} == {""}
        assert crowd.counts["lost"] == 0
        await crowd.leave()


@pytest.mark.timeout(300)
async def test_a_backend_that_fails_is_not_hammered(figure: Callable[[str], None]) -> None:
    streams, tries = 500, MOST + 8
    async with served(0) as proxy:
        crowd = Crowd(proxy.ports["http"], own_links())
        await crowd.join(streams)
        Backend.go.set()
        Backend.broken = True
        begun = asyncio.get_running_loop().time()
        await publish(proxy.ports["control"], together(item("crowd", 3, "next\n")))
        async with asyncio.timeout(PATIENCE):
            while len(Backend.asked) < tries:
                Backend.came.clear()
                await Backend.came.wait()
        Backend.broken = False
        seconds = Backend.times[tries - 1] - begun
        figure(f"{streams} streams with a link each, a backend that fails: {tries} requests within {seconds:.1f} s")
        # Those that were on their way when the first failed, and then four of each worker, after 0.1 to 0.8 s.
        assert seconds > 1
        assert Backend.most <= MOST
        # It is back, and nobody was given up.
        await crowd.until("got", streams)
        assert crowd.counts["lost"] == 0
        await crowd.leave()
