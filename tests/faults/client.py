"""The clients of a run. Each is one task that connects, notes everything it gets, and connects again after any end.

Reliable ones (``stream``, ``poll``, ``socket``) come back with the id of the last item they have, as an EventSource
does; the others (``plain``, ``ask``, ``chat``, ``direct``) just begin anew. A hostile one breaks what it can.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Final

from websockets.asyncio.client import connect as connect_websocket
from websockets.exceptions import WebSocketException

from tests.faults.answer import Answer, Broken, Events, ask, connect
from tests.faults.history import History
from tests.faults.truth import item_id, parse

__all__ = ["KINDS", "RELIABLE", "Client", "HostileClient", "PollClient", "SocketClient", "StreamClient", "make_client"]

PATIENCE: Final = 15.0
"""Seconds a client waits for the head of an answer: some more than the proxy waits for a backend."""

PAUSE: Final = (0.05, 0.5)
"""Seconds between an end and the next try."""


class Client:
    """One client: ``name``, ``form`` (path at the backend), the ``channels`` it listens to.

    ``last`` is the number of the last item it has, by channel. ``connection`` counts sessions. ``control``: it belongs
    to the group that no fault is aimed at.
    """

    def __init__(
        self, name: str, form: str, channels: list[str], port: int, history: History, seed: int, control: bool = False
    ) -> None:
        self.name = name
        self.form = form
        self.channels = channels
        self.port = port
        self.control = control
        self.reliable = form in RELIABLE
        self.last = dict.fromkeys(channels, 0)
        self.connection = 0
        self.history = history
        self.random = random.Random(seed)
        self.failures = 0
        """Tries that came to no session."""
        self.complaint = ""
        """Why the last one did not."""
        self.sleepy = False
        """Whether it has little room, so that not reading has an effect soon."""
        self._awake = asyncio.Event()
        self._awake.set()
        self._expects_hello = False

    # --- orders from outside

    def pause(self) -> None:
        """Stop reading, from the next piece on."""
        if self._awake.is_set():
            self._awake.clear()
            self.note("paused", self.connection)

    def go_on(self) -> None:
        """Read again."""
        if not self._awake.is_set():
            self._awake.set()
            self.note("reading", self.connection)

    async def run(self) -> None:
        """Live, until cancelled."""
        while True:
            begun = self.connection
            try:
                why = await self.session()
            except Broken as error:
                why = str(error)
            if self.connection > begun:
                self.note("ended", self.connection, why)
            else:
                self.failures += 1
                self.complaint = why
            if why:
                await asyncio.sleep(self.random.uniform(*PAUSE))

    async def session(self) -> str:
        """Connect and listen once. Returns why it ended, empty if it is the proper end of an answer."""
        raise NotImplementedError

    # --- what subclasses need

    @property
    def path(self) -> str:
        """What to ask for now."""
        backend = self.channels[0].partition("-")[0]
        path = f"/{backend}/{self.form}?c={'.'.join(self.channels)}&who={self.name}.{self.connection + 1}"
        if self.reliable and any(self.last.values()):
            path += "&after=" + ".".join(item_id(channel, self.last[channel]) for channel in self.channels)
        return path

    def note(self, what: str, *values: object) -> None:
        """Write into the history."""
        self.history.add(self.name, what, *values)

    def opened(self) -> None:
        """A session begins."""
        self.connection += 1
        self._expects_hello = True
        for channel in self.channels:
            self.note("opened", self.connection, channel, self.last[channel] if self.reliable else -1)

    def greeted(self, text: str) -> None:
        """The backend's word for this very session came, or one for another."""
        if text != f"{self.name}.{self.connection}" or not self._expects_hello:
            self.note("misled", self.connection, f"hello {text}")
        self._expects_hello = False

    def take(self, line: str) -> None:
        """An item's content has come, whole."""
        found = parse(line)
        if found is None or found[0] not in self.last:
            self.note("misled", self.connection, line[:120])
            return
        channel, number, identifier = found
        self.note("got", self.connection, channel, number, identifier)
        self.last[channel] = number

    async def awake(self) -> None:
        """Return at once, unless paused."""
        await self._awake.wait()


class StreamClient(Client):
    """Listens to a text/event-stream."""

    async def session(self) -> str:
        headers = {"Accept": "text/event-stream"}
        if self.reliable and len(self.channels) == 1 and self.last[self.channels[0]] and self.random.random() < 0.5:
            headers["Last-Event-ID"] = item_id(self.channels[0], self.last[self.channels[0]])
        reader, writer = await connect(self.port, self.sleepy)
        try:
            answer = await ask(reader, writer, self.path, headers, PATIENCE)
            if answer.status != 200:
                return f"status {answer.status}: {await answer.text():.200}"
            self.opened()
            await self._listen(answer)
            return "the stream was ended"
        finally:
            writer.transport.abort()

    async def _listen(self, answer: Answer) -> None:
        events = Events()
        async for piece in answer.pieces():
            for fields in events.feed(piece):
                if fields.get("", "").startswith("hello "):
                    self.greeted(fields[""].removeprefix("hello "))
                elif "data" in fields:
                    self.take(fields["data"])
            await self.awake()


class PollClient(Client):
    """Asks again and again, on one connection for as long as that lasts. Each answer is a session."""

    async def session(self) -> str:
        reader, writer = await connect(self.port)
        try:
            while True:
                answer = await ask(reader, writer, self.path, {}, PATIENCE)
                if answer.status != 200:
                    return f"status {answer.status}: {await answer.text():.200}"
                text = await answer.text()
                self.opened()
                for line in text.splitlines():
                    if line.startswith(": "):
                        self.greeted(line.removeprefix(": "))
                    else:
                        self.take(line)
                self.note("ended", self.connection, "")
                await self.awake()
        finally:
            writer.transport.abort()


class SocketClient(Client):
    """Listens to a WebSocket and sometimes says something, which comes back."""

    async def session(self) -> str:
        try:
            async with connect_websocket(
                f"ws://127.0.0.1:{self.port}{self.path}",
                compression=None,
                ping_interval=None,
                open_timeout=PATIENCE,
                close_timeout=1,
                max_size=2**24,
                proxy=None,
            ) as socket:
                self.opened()
                said: list[str] = []
                async for message in socket:
                    text = str(message)
                    if text.startswith("hello "):
                        self.greeted(text.removeprefix("hello "))
                        said.append(f"{self.name} {self.connection}")
                        await socket.send(said[-1])
                    elif text.startswith("echo "):
                        if text.removeprefix("echo ") not in said:
                            self.note("misled", self.connection, text)
                    else:
                        self.take(text)
                    await self.awake()
            return f"closed {socket.close_code}"
        except (WebSocketException, OSError, TimeoutError) as error:
            raise Broken(f"{error!r:.80}") from None


class HostileClient(Client):
    """Sends what nobody should, and leaves as nobody should."""

    async def session(self) -> str:
        reader, writer = await connect(self.port, small=True)
        path = self.path
        forms = (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + self.random.randbytes(200),
            b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100_000,
            b"GET " + path.encode() + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET " + path.encode() + b" HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"GET / HTTP/1.1\r\n" * 2000,
            b"POST /a/chat?c=a-0 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"POST /a/chat?c=a-0 HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\nhalf",
            b"GET /a/chat?c=a-0 HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" + b"\xff" * 100,
            b"GET /a/st",
        )
        self.connection += 1
        try:
            writer.write(self.random.choice(forms))
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(self.random.uniform(0.05, 1.5)):
                    await reader.read(100)
        finally:
            writer.transport.abort()
        return "enough"


RELIABLE: Final = ("stream", "poll", "socket")
"""Forms with ids."""

KINDS: Final[dict[str, type[Client]]] = {
    "stream": StreamClient,
    "poll": PollClient,
    "socket": SocketClient,
    "plain": StreamClient,
    "ask": PollClient,
    "chat": SocketClient,
    "direct": SocketClient,
    "hostile": HostileClient,
}
"""All forms, and what listens to them."""


def make_client(
    name: str, form: str, channels: list[str], port: int, history: History, seed: int, control: bool = False
) -> Client:
    """Return a client of one of the forms of KINDS."""
    return KINDS[form](name, "plain" if form == "hostile" else form, channels, port, history, seed, control)
