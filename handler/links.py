"""The handler's end of the pipe: workers connect, announce themselves, and are sent what is theirs."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gripproxy import pipe
from gripproxy.log import log
from gripproxy.pipe import Link

from .endpoints import BindError
from .exchange import Exchange

__all__ = ["Links"]

AHEAD: Final = 0.3
"""Seconds' worth of messages that wait for one worker when publishers that can wait are made to: what waits is late."""

HIGH_WATER: Final = 2000
"""The same in messages, large ones counting as several, for a worker that takes few: enough for the time between two
looks."""

FIRST_WATER: Final = 20_000
"""The same until it is known how many a worker takes. What the pipe takes before it drops the whole queue is ten times
that: the rest is for publishers that cannot wait."""

PACE_TIME: Final = 0.25
"""Seconds over which it is measured how many a worker takes, while messages wait for it."""

LOW_WATER: Final = 500
"""Messages waiting for a worker at which one that was found stalled counts as alive again, and all is forgotten."""

STALL_TIME: Final = 3.0
"""Seconds without any progress after which a worker is not waited for any more: it then loses its queue and is told
so. One stuck worker must not stop the others."""


class _Worker:
    """A worker that has announced itself, as the exchange sees it."""

    __slots__ = (
        "epoch",
        "link",
        "name",
        "number",
        "pace",
        "progress",
        "queued",
        "retiring",
        "room",
        "send",
        "stalled",
        "unsent",
    )

    def __init__(self, name: str, epoch: int, link: Link, now: float) -> None:
        self.number = name
        self.name = name
        """For people: the number, and more if it retires."""
        self.epoch = epoch
        self.link = link
        self.send = link.send
        self.queued = self.unsent = 0
        self.room = FIRST_WATER
        self.pace = (0.0, 0)
        """When its pace was measured last, and how many messages had been written until then."""
        self.progress = now
        self.stalled = False
        self.retiring = False
        """It takes no new clients: another one of its number is there, or will be."""


class Links:
    """The listening socket of the pipe and its links.

    Arguments: ``exchange`` takes what workers say; ``on_change()`` is called after each batch of messages, and when a
    worker has joined or left (``joined`` tells how many there are);
    ``clock()`` is the time in seconds, the loop's by default; ``queue_max`` is ``worker_queue_max``, in bytes.
    """

    def __init__(
        self,
        exchange: Exchange,
        on_change: Callable[[], None],
        clock: Callable[[], float] | None = None,
        queue_max: int = pipe.MAX_QUEUE * pipe.LOAD_BYTES,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._exchange = exchange
        self._on_change = on_change
        self._now = clock or self._loop.time
        self._queue_max = queue_max
        self._server: asyncio.Server | None = None
        self._path: str | None = None
        self._workers: dict[Link, _Worker | None] = {}

    @property
    def joined(self) -> int:
        """Workers that have announced themselves and are still there, without those that retire."""
        return sum(worker is not None and not worker.retiring for worker in self._workers.values())

    @property
    def announced(self) -> int:
        """Workers that have announced themselves and are still there, those that retire included."""
        return sum(worker is not None for worker in self._workers.values())

    @property
    def connected(self) -> int:
        """Links that are not closed yet, announced or not."""
        return len(self._workers)

    def workers(self) -> Iterator[tuple[str, int, Mapping[str, int]]]:
        """Yield the number of each worker that has announced itself, how many messages wait for it, and its gauges."""
        for link, worker in self._workers.items():
            if worker is not None:
                yield worker.number, link.queued, self._exchange.gauges.get(worker, {})

    async def open(self, path: str) -> None:
        """Listen on ``path``; its directory is made with mode 0700 if missing, a socket left behind is removed.

        Raises BindError when that is impossible, or when another handler serves there.
        """
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            sock = _bind(path)
        except OSError as error:
            raise BindError("rundir", path, error.strerror or str(error)) from error
        self._path = path
        self._server = await self._loop.create_unix_server(self.accept, sock=sock, backlog=1024)

    def congested(self) -> bool:
        """Whether a publisher that can wait should: a worker has a long queue and is still working on it.

        To be asked every few milliseconds while it is true, see STALL_TIME.
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
            # It also gets on when it has read a part of what was written, which makes no room for more yet.
            unsent = worker.link.unsent
            if queued < worker.queued or unsent < worker.unsent or not worker.queued:
                worker.progress = now
            elif now - worker.progress > STALL_TIME:
                worker.stalled = True
                log.warning("worker %s does not take its items (%d wait)", worker.name, queued)
                continue
            worker.queued, worker.unsent = queued, unsent
            congested = True
        return congested

    def close(self) -> None:
        """Close all links after what is queued, and stop listening."""
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

    def accept(self) -> Link:
        """Return the end of a new connection, from a worker that has yet to announce itself."""
        link = Link.sized(self._received, self._lost, self._queue_max)
        link.overflow = self._overflowed
        self._workers[link] = None
        return link

    def _received(self, link: Link, messages: list[pipe.Message]) -> None:
        now = self._now()
        worker = self._workers.get(link)
        told = self._exchange.told
        message: pipe.Message = ()
        try:
            for message in messages:
                if worker is None:
                    worker = self._hello(link, message, now)
                elif message[0] == pipe.RETIRING:
                    worker.retiring = True
                    worker.name = f"{worker.name} (retiring, process {message[1]})"
                else:
                    told(worker, message, now)
        except (ValueError, TypeError, LookupError) as error:
            # Both ends are ours, so this is a bug or two versions meeting; what the link says cannot be trusted now.
            name = "unknown" if worker is None else worker.name
            log.error("pipe: worker %s sent %.200r: %s; closing its link", name, message, error)
            link.close()
        self._on_change()

    def _hello(self, link: Link, message: pipe.Message, now: float) -> _Worker:
        if message[0] != pipe.HELLO:
            raise ValueError("the first message must be HELLO")
        _, version, epoch, name, channels = message
        if version != pipe.VERSION:
            raise ValueError(f"protocol version {version}, this handler speaks {pipe.VERSION}")
        for other_link, other in list(self._workers.items()):
            if other is not None and other.number == name and other.epoch == epoch:
                # The worker connected anew before the end of its old link was noticed. Another process of the same
                # number is another worker: while one retires there are two.
                self._lost(other_link)
                other_link.close()
        worker = _Worker(name, epoch, link, now)
        self._workers[link] = worker
        self._exchange.joined(worker, channels, now)
        log.info("worker %s joined with %d channels", name, len(channels))
        return worker

    def _lost(self, link: Link) -> None:
        worker = self._workers.pop(link, None)
        if link.error is not None:
            log.error("pipe: %s; link closed", link.error)
        if worker is not None:
            log.info("worker %s left", worker.name)
            self._exchange.left(worker, self._now())
            self._on_change()

    def _overflowed(self, link: Link) -> None:
        worker = self._workers.get(link)
        self._exchange.counters.overflows += 1
        log.warning(
            "worker %s was too slow: its queue was dropped, it will recover what can be", worker and worker.name
        )
        link.send((pipe.LOST,))


def _bind(path: str) -> socket.socket:
    """Return a socket bound to ``path`` that only this user can connect to."""
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
        # Before listen: what arrives here is unmarshalled, so nobody else may ever connect.
        os.chmod(path, 0o600)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock
