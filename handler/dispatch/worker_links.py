"""The handler's end of the pipe: the connections of the workers, and the back-pressure of their queues."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gripproxy import pipe
from gripproxy.pipe import PipeConnection
from gripproxy.process.endpoints import BindError
from gripproxy.process.log import log

from .dispatcher import Dispatcher

__all__ = ["WorkerLinks"]

AHEAD: Final = 0.3
"""Length of a worker's queue, in seconds of its own pace, from which publishers that can wait are paused: a queued item
is late."""

HIGH_WATER: Final = 2000
"""Least length from which publishers are paused, in messages, large ones counting as several: enough for the time
between two checks of a slow worker."""

FIRST_WATER: Final = 20_000
"""Length from which publishers are paused until a worker's pace is known. The pipe drops a queue of ten times that: the
remaining space is for publishers that cannot wait."""

PACE_TIME: Final = 0.25
"""Seconds over which a worker's pace is measured while messages wait for it."""

LOW_WATER: Final = 500
"""Length of a queue, in messages, at which a stalled worker counts as alive again, and its pace as unknown."""

STALL_TIME: Final = 3.0
"""Seconds without a read after which publishers do not wait for a worker: its queue will be dropped, and it is sent
LOST. A stuck worker must not stop the others."""


class _ConnectedWorker:
    """A worker that has sent HELLO: identity, queue, and pace."""

    __slots__ = (
        "epoch",
        "last_read",
        "link",
        "name",
        "number",
        "pace",
        "queued",
        "retiring",
        "room",
        "send",
        "stalled",
        "unsent",
    )

    def __init__(self, name: str, epoch: int, link: PipeConnection, now: float) -> None:
        self.number = name
        self.name = name
        """Name in the log: the number, and the process if it retires."""
        self.epoch = epoch
        self.link = link
        self.send = link.send
        self.queued = self.unsent = 0
        self.room = FIRST_WATER
        self.pace = (0.0, 0)
        """Time of the last measurement of the pace in seconds, and messages written until then."""
        self.last_read = now
        """Time at which the worker last read from its queue, in seconds."""
        self.stalled = False
        self.retiring = False
        """True once RETIRING arrived: it accepts no new clients; a worker with its number replaces it."""


class WorkerLinks:
    """The listening socket of the pipe and the connections of the workers.

    Args:
        dispatcher: receiver of the workers' messages.
        on_change: called after each batch of messages, and when a worker has joined or left.
        clock: the time in seconds; the loop's by default.
        queue_max: ``worker_queue_max`` in bytes.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        on_change: Callable[[], None],
        clock: Callable[[], float] | None = None,
        queue_max: int = pipe.MAX_QUEUE * pipe.LOAD_BYTES,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._dispatcher = dispatcher
        self._on_change = on_change
        self._now = clock or self._loop.time
        self._queue_max = queue_max
        self._server: asyncio.Server | None = None
        self._path: str | None = None
        self._workers: dict[PipeConnection, _ConnectedWorker | None] = {}

    @property
    def joined(self) -> int:
        """Number of connected workers that have sent HELLO, without retiring ones."""
        return sum(worker is not None and not worker.retiring for worker in self._workers.values())

    @property
    def announced(self) -> int:
        """Number of connected workers that have sent HELLO, retiring ones included."""
        return sum(worker is not None for worker in self._workers.values())

    @property
    def connected(self) -> int:
        """Number of open connections."""
        return len(self._workers)

    def workers(self) -> Iterator[tuple[str, int, Mapping[str, int]]]:
        """Yield each worker's number, the number of messages queued for it, and its gauges."""
        for link, worker in self._workers.items():
            if worker is not None:
                yield worker.number, link.queued, self._dispatcher.gauges.get(worker, {})

    def pids(self) -> Iterator[tuple[str, int]]:
        """Yield each worker's number and process id."""
        for link, worker in self._workers.items():
            if worker is not None and (pid := link.peer_pid):
                yield worker.number, pid

    async def open(self, path: str) -> None:
        """Listen on a path. Its directory is made with mode 0700 if missing; the socket of a dead handler is removed.

        Args:
            path: of the socket.

        Raises:
            BindError: the path cannot be used, or another handler serves there.
        """
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            sock = _bind(path)
        except OSError as error:
            raise BindError("rundir", path, error.strerror or str(error)) from error
        self._path = path
        self._server = await self._loop.create_unix_server(self.accept, sock=sock, backlog=1024)

    def congested(self) -> bool:
        """Return whether publishers that can wait have to: a worker has a long queue and reads from it.

        Called every few milliseconds while it is true, see STALL_TIME.
        """
        now = 0.0
        congested = False
        for worker in self._workers.values():
            if worker is None:
                continue
            queued = worker.link.load
            if queued <= LOW_WATER:
                worker.queued, worker.stalled, worker.room, worker.pace = 0, False, FIRST_WATER, (0.0, 0)
                continue
            now = now or self._now()
            since, written = worker.pace
            if not since:
                worker.pace = (now, worker.link.written)
            elif now >= since + PACE_TIME:
                pace = (worker.link.written - written) / (now - since)
                worker.room, worker.pace = max(HIGH_WATER, int(AHEAD * pace)), (now, worker.link.written)
            if queued <= worker.room:
                worker.queued = 0
                continue
            if worker.stalled:
                continue
            # Reading a part of the written bytes counts too, although the queue does not shrink by it.
            unsent = worker.link.unsent
            if queued < worker.queued or unsent < worker.unsent or not worker.queued:
                worker.last_read = now
            elif now - worker.last_read > STALL_TIME:
                worker.stalled = True
                log.warning("worker does not take its items", worker=worker.name, waiting=queued)
                continue
            worker.queued, worker.unsent = queued, unsent
            congested = True
        return congested

    def close(self) -> None:
        """Stop listening, and close all connections after their queues are written."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for link in list(self._workers):
            link.close()
        if self._path is not None:
            try:
                os.unlink(self._path)
            except FileNotFoundError:
                pass
            self._path = None

    def accept(self) -> PipeConnection:
        """Return the protocol of a new connection, whose worker has not sent HELLO yet."""
        link = PipeConnection.sized(self._received, self._lost, self._queue_max, self._overflowed)
        self._workers[link] = None
        return link

    def _received(self, link: PipeConnection, messages: list[pipe.Message]) -> None:
        now = self._now()
        worker = self._workers.get(link)
        received = self._dispatcher.received
        message: pipe.Message = ()
        try:
            for message in messages:
                if worker is None:
                    worker = self._hello(link, message, now)
                elif message[0] == pipe.RETIRING:
                    worker.retiring = True
                    worker.name = f"{worker.name} (retiring, process {message[1]})"
                else:
                    received(worker, message, now)
        except (ValueError, TypeError, LookupError) as error:
            # Both ends are gripproxy's: a bug, or two versions. Further messages of the link cannot be trusted.
            name = "unknown" if worker is None else worker.name
            log.error(
                "wrong message of a worker",
                "its link is closed",
                worker=name,
                received=str(message)[:200],
                reason=error,
            )
            link.close()
        self._on_change()

    def _hello(self, link: PipeConnection, message: pipe.Message, now: float) -> _ConnectedWorker:
        if message[0] != pipe.HELLO:
            raise ValueError("the first message must be HELLO")
        _, version, epoch, name, channels = message
        if version != pipe.VERSION:
            raise ValueError(f"protocol version {version}, this handler speaks {pipe.VERSION}")
        for other_link, other in list(self._workers.items()):
            if other is not None and other.number == name and other.epoch == epoch:
                # The worker reconnected before the end of its old link was noticed. Another process with its number
                # is another worker: while one retires there are two.
                self._lost(other_link)
                other_link.close()
        worker = _ConnectedWorker(name, epoch, link, now)
        self._workers[link] = worker
        self._dispatcher.joined(worker, channels, now)
        log.info("worker joined", worker=name, channels=len(channels))
        return worker

    def _lost(self, link: PipeConnection) -> None:
        worker = self._workers.pop(link, None)
        if link.error is not None:
            log.error("link to a worker closed", reason=link.error)
        if worker is not None:
            log.info("worker left", worker=worker.name)
            self._dispatcher.left(worker, self._now())
            self._on_change()

    def _overflowed(self, link: PipeConnection) -> None:
        worker = self._workers.get(link)
        self._dispatcher.counters.overflows += 1
        log.warning(
            "queue of a worker dropped", "it was too slow; what can be recovered is", worker=worker and worker.name
        )
        link.send((pipe.LOST,))


def _bind(path: str) -> socket.socket:
    """Return a socket bound to ``path`` with mode 0600."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except FileNotFoundError:
            pass
        except ConnectionRefusedError:
            os.unlink(path)
        else:
            raise OSError(None, "another handler is serving there")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
        # Before listen: messages are unmarshalled, so no other user may ever connect.
        os.chmod(path, 0o600)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock
