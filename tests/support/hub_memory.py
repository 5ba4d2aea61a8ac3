"""A hub on the running loop without processes and sockets: its children work in the loop, requests are bytes.

The store is a file. Everything between the bytes of a request and the rows of the store is the hub's own; the ends of
processes, and their signals, are tested with ``hub_api``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast
from unittest.mock import patch

from griphub import service
from griphub.api import body_process
from griphub.api.context import Context
from griphub.api.metrics import HubMetrics, MetricsApplication
from griphub.api.server import HubConnection, HubServer
from griphub.api.server_limits import ServerLimits
from griphub.notify.control_client import ControlClient
from griphub.processes import reader_process, readers, sender, sender_commands, writer, writer_process
from griphub.processes.checkpointer import Checkpointer
from griphub.processes.child import child_parser
from griphub.processes.frames import FrameBuffer, FrameSocket, frame
from griphub.store.plain_records import plain_state
from griphub.store.sqlite_reader import RowReader
from griphub.store.sqlite_writer import SqliteWriter
from gripproxy.grip.signature import Signer
from tests.support.hub_api import PATIENCE, HubApi, Response, hub_config

__all__ = ["MemoryHub", "Wire", "memory_hub"]

PIECE: Final = 65_536
"""Bytes of a request that the hub receives in one call."""


class _Channel:
    """Child's end of the connection."""

    ended = False

    def __init__(self, send: Callable[[Any], None]) -> None:
        self.waiting: list[Any] = []
        self.send = send

    def receive(self, wait: float | None, size: int = 0) -> list[Any]:
        """Return the values that have arrived; arguments are ignored."""
        waiting, self.waiting = self.waiting, []
        return waiting


class _NoCheckpoints:
    """The log is checkpointed by the commits of SQLite itself."""

    failure = ""
    behind = False

    def committed(self, size: int) -> None:
        """Ignore a commit of ``size`` bytes."""

    def passive(self) -> None:
        """Do nothing."""

    def truncate(self) -> bool:
        """Do nothing."""
        return True


class _Child:
    """Child that works in the loop of the hub, in place of ``ChildProcess``."""

    writable = True

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        on_value: Callable[[Any], None],
        on_end: Callable[[str], None],
        on_writable: Callable[[], None] = lambda: None,
    ) -> None:
        self._module, self._arguments = module, ["--fd", "0", *arguments]
        self._on_value, self._on_end = on_value, on_end
        self._loop = asyncio.get_running_loop()
        self._requests, self._answers = FrameBuffer(), FrameBuffer()
        self._channel = _Channel(self._send)
        self._work: Callable[[], object] | None = None
        self._held = False
        self._close: list[Callable[[], None]] = []

    @property
    def pid(self) -> int:
        """Raise: there is no process, and to signals any number could mean others."""
        raise AssertionError("a hub in memory has no processes: use hub_api")

    async def start(self) -> None:
        """Open the store."""
        starts = {writer.MODULE: self._writer, readers.MODULE: self._reader, sender.MODULE: self._sender}
        self._work = starts.get(self._module, self._bodies)()

    def write(self, data: bytes) -> None:
        """Take a frame; it is carried out in a later turn, with others of this one."""
        for value in self._requests.feed(data):
            if not self._channel.waiting:
                self._loop.call_soon(self._turn)
            self._channel.waiting.append(value)

    def kill(self) -> None:
        """Stop working."""
        self._end("signal SIGKILL")

    async def stop(self) -> None:
        """Finish the work, and close the store."""
        self._turn()
        self._end("status 0")
        await asyncio.sleep(0)

    def hold(self, *, held: bool) -> None:
        """Carry out nothing, and later all that has arrived."""
        self._held = held
        self._turn()

    def _turn(self) -> None:
        if self._work is not None and not self._held:
            self._work()

    def _end(self, reason: str) -> None:
        if self._work is not None:
            self._work = None
            self._loop.call_soon(self._on_end, reason)
            while self._close:
                self._close.pop()()

    def _send(self, value: Any) -> None:
        # Through a frame, so that types change as on the way to another process.
        for each in self._answers.feed(frame(value)):
            self._loop.call_soon(self._on_value, each)

    def _writer(self) -> Callable[[], object]:
        options = writer_process._options(self._arguments)
        store = SqliteWriter(options.store, options.sync, options.ballast, options.names_max)
        self._close.append(store.close)
        self._send((writer_process.READY, plain_state(store.state())))
        channel, checkpoints = cast(FrameSocket, self._channel), cast(Checkpointer, _NoCheckpoints())
        loop = writer_process.WriterLoop(channel, store, checkpoints)
        return lambda: loop.turn(0)

    def _reader(self) -> Callable[[], object]:
        rows = RowReader(child_parser().parse_args(self._arguments).store)
        self._close.append(rows.close)
        pieces = reader_process.PageRenderer(rows, lambda piece: self._send((reader_process.PIECE, piece)))
        methods = reader_process._methods(rows, pieces)
        self._send((reader_process.READY,))

        def work() -> None:
            for name, arguments in self._channel.receive(None):
                kind, method = methods[name]
                self._send((kind, method(*arguments)))

        return work

    def _sender(self) -> Callable[[], object]:
        """Return the work of a sender that sends nothing."""
        self._send((sender_commands.READY,))

        def work() -> None:
            for kind, *arguments in self._channel.receive(None):
                if kind == sender_commands.CANCEL:
                    self._send((sender_commands.CANCELLED, *arguments))

        return work

    def _bodies(self) -> Callable[[], object]:
        methods: dict[str, Callable[..., Any]] = {"drafts": body_process.drafts, "draft": body_process.draft}
        self._send((reader_process.READY,))

        def work() -> None:
            for name, arguments in self._channel.receive(None):
                self._send((reader_process.ANSWER, methods[name](*arguments)))

        return work


class _NoHandler(ControlClient):
    """The handler is away."""

    def start(self, signer: Signer | None = None) -> None:
        """Do not connect."""


class _NoChannels:
    """No channel is held."""

    def __init__(self, *_: object) -> None: ...

    def close(self) -> None:
        """Do nothing."""


class Wire(asyncio.Transport):
    """Connection of a client: bytes in, bytes out."""

    def __init__(self, server: HubServer) -> None:
        super().__init__()
        self.written = bytearray()
        self.ended = False
        self._changed = asyncio.Event()
        self._connection = HubConnection(server, private=True)
        self._connection.connection_made(self)

    # --- of the client

    def says(self, data: bytes) -> None:
        """Send bytes, in pieces as a socket would."""
        for start in range(0, len(data), PIECE):
            if self.ended:
                return
            self._connection.data_received(data[start : start + PIECE])

    def half_close(self) -> None:
        """End the bytes of the client."""
        if not self.ended and not self._connection.eof_received():
            self.close()

    def leave(self) -> None:
        """Close the connection."""
        if not self.ended:
            self.abort()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for bytes of the hub that fulfil a condition."""
        async with asyncio.timeout(PATIENCE):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    async def answer(self, *, head: bool = False) -> Response:
        """Return the next answer; ``head``: it has no body."""
        await self.until(lambda: b"\r\n\r\n" in self.written or self.ended)
        text, end, _ = bytes(self.written).partition(b"\r\n\r\n")
        assert end, "the connection was closed without an answer"
        lines = text.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
        length = 0 if head else int(headers.get("content-length", "0"))
        size = len(text) + 4 + length
        await self.until(lambda: len(self.written) >= size)
        body = bytes(self.written[len(text) + 4 : size])
        del self.written[:size]
        return Response(int(lines[0].split(" ")[1]), headers, body)

    # --- of the hub

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes of the hub."""
        self.written += data
        self._changed.set()

    def write_eof(self) -> None:
        """End the bytes of the hub; the client closes then."""
        self.close()

    def close(self) -> None:
        """End the connection in a later turn."""
        if not self.ended:
            self.ended = True
            self._changed.set()
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    def abort(self) -> None:
        """End the connection in a later turn."""
        self.close()

    def is_closing(self) -> bool:
        """Return whether it has ended."""
        return self.ended

    def get_write_buffer_size(self) -> int:
        """Return 0: the client takes all."""
        return 0

    def pause_reading(self) -> None:
        """Do nothing: bytes that are sent meanwhile wait in the hub."""

    def resume_reading(self) -> None:
        """Do nothing."""


class _Hub(service.Hub):
    """Hub whose server has no listening socket."""

    async def _listen(self, context: Context) -> None:
        assert self._application is not None
        self._servers.append(HubServer(self._application, ServerLimits()))
        figures = HubMetrics(context, self._outbox, self._control, lambda: [("hub", os.getpid())])
        self._servers.append(HubServer(MetricsApplication(figures, self.unready), ServerLimits()))

    @property
    def servers(self) -> tuple[HubServer, HubServer]:
        """That of the API, and that of the metrics."""
        api, metrics = self._servers
        return api, metrics

    @property
    def writer(self) -> _Child:
        """Child that writes the store."""
        return cast(_Child, self._writer._child)


class MemoryHub(HubApi):
    """A running hub, and connections to it.

    Args:
        hub: the hub.
        metrics: whether the connections are those to its metrics.
    """

    def __init__(self, hub: _Hub, *, metrics: bool = False) -> None:
        super().__init__(hub, "")
        self._hub, self._metrics = hub, metrics

    @property
    def metrics(self) -> MemoryHub:
        """Port of the metrics."""
        return MemoryHub(self._hub, metrics=True)

    @contextlib.contextmanager
    def writer_held(self) -> Iterator[None]:
        """Have the writer carry out nothing for the time of the block."""
        self._hub.writer.hold(held=True)
        try:
            yield
        finally:
            self._hub.writer.hold(held=False)

    def connect(self) -> Wire:
        """Open a connection."""
        return Wire(self._hub.servers[self._metrics])

    async def raw(self, data: bytes) -> Response:
        """Send bytes on a connection of their own, and return the answer."""
        wire = self.connect()
        try:
            wire.says(data)
            answer = await wire.answer(head=data.startswith(b"HEAD "))
            if answer.status == 100:
                answer = await wire.answer()
            return answer
        finally:
            wire.leave()
            # The hub sees the end in a turn of its own.
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def memory_hub(
    changes: Mapping[str, str] | None = None, directory: pathlib.Path | None = None
) -> AsyncIterator[MemoryHub]:
    """Run a hub for the time of the block; ``changes`` are further values of ``[hub]``."""
    with tempfile.TemporaryDirectory(prefix="hub-") as temporary, contextlib.ExitStack() as patches:
        for module, name, double in (
            (readers, "ChildProcess", _Child),
            (writer, "ChildProcess", _Child),
            (sender, "ChildProcess", _Child),
            (service, "ControlClient", _NoHandler),
            (service, "HeldChannels", _NoChannels),
        ):
            patches.enter_context(patch.object(module, name, double))
        hub = _Hub(hub_config(directory or pathlib.Path(temporary), changes))
        try:
            await hub.open()
            yield MemoryHub(hub)
            await hub.finish()
        finally:
            await hub.close()
