"""Taking clients from the listening sockets, for as long as there are descriptors for them.

With plenty of room the event loop's own servers accept: that is fast, and a connection needs no object for its socket.
Some versions of them take one client in each turn of the loop (uvloop 0.23), so that each listening socket has several:
behind a thousand connections of one peer, another client would wait for a thousand turns. Other versions take the whole
queue in one turn, and all close clients without a descriptor. So near the limit this module accepts by itself, one
client after the other, and pauses when only the reserve is left: clients then wait in the queue of the listening socket
until others have gone.

The number of descriptors in use is found by the lowest free one: the kernel gives a new file the lowest number that is
free (POSIX, dup(2)), so that all below it are in use.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from gripproxy.process.limits import FILE_LIMIT_MAX
from gripproxy.process.listening_sockets import ListeningSocket
from gripproxy.process.log import log

__all__ = ["Acceptor", "files_in_use", "open_files_max"]

BACKLOG: Final = 4096
"""Connections that may wait in the queue of a listening socket: so many may be accepted in one turn of the loop."""

SERVERS: Final = 8
"""Servers of the loop for each listening socket: so many clients are accepted in one turn at least. With one
client in the queue, the other servers find it empty: some microseconds in all."""

SMALL: Final = 128
"""With a limit that leaves less than this for the queue, the loop's servers are not used at all."""

RESERVE: Final = 200
"""Descriptors kept for the pipe, libraries, and requests that clients are about to send; an eighth of the limit if that
is less. Beside them one is kept for each request that is waiting for a connection to its backend."""

PAUSE: Final = 0.1
"""Seconds between two looks whether there is room again."""

TURN: Final = 50
"""Clients accepted in one turn of the loop near the limit."""

Make = Callable[[bool], asyncio.Protocol]
"""Makes the protocol of a client; the argument: whether the connection has TLS."""


def files_in_use() -> int:
    """Return the lowest free descriptor of this process: at least so many are in use. The limit, if none is free."""
    try:
        descriptor = os.dup(0)
    except OSError as error:
        # EBADF: standard input is closed, so that there is nothing to copy.
        return open_files_max() if error.errno == errno.EMFILE else 0
    os.close(descriptor)
    return descriptor


def open_files_max() -> int:
    """Return how many files this process may have open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return FILE_LIMIT_MAX if limit == resource.RLIM_INFINITY else limit


class _ListeningSocket:
    """One listening socket: ours, and copies of it in the loop's servers while there are some."""

    __slots__ = ("context", "listener", "reading", "servers", "timeouts")

    def __init__(self, listener: ListeningSocket, context: ssl.SSLContext | None, handshake: float) -> None:
        self.listener = listener
        self.context = context
        self.timeouts = {"ssl_handshake_timeout": handshake} if context is not None else {}
        self.servers: list[asyncio.AbstractServer] = []
        self.reading = False

    def close_servers(self) -> None:
        for server in self.servers:
            server.close()
        self.servers = []


class Acceptor:
    """Accepts the clients of one worker. ``look`` is to be called about every second.

    Args:
        loop: The event loop.
        make: Makes a client's protocol.
        clients: Returns the number of connected clients.
        wanted: Returns the number of descriptors that requests of clients wait for, which are kept for them.
        near: Called when the limit of descriptors comes near (True), or is far again.
        limit: Files that the process may have open; None: the kernel's limit.
        in_use: Returns how many it has open, see files_in_use.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        make: Make,
        clients: Callable[[], int],
        wanted: Callable[[], int],
        near: Callable[[bool], None],
        limit: int | None = None,
        in_use: Callable[[], int] = files_in_use,
    ) -> None:
        self.pauses = 0
        """Times accepting had to pause."""
        self.paused = False
        self.limit = limit if limit is not None else open_files_max()
        self._loop = loop
        self._make = make
        self._clients = clients
        self._in_use = in_use
        self._wanted = wanted
        self._tell_near = near
        self._reserve = min(RESERVE, self.limit // 8)
        self._doors: list[_ListeningSocket] = []
        self._backlog = 0
        self._near = 0
        self.careful = True
        """True while the acceptor accepts by itself: the limit of descriptors is near, or low."""
        self._back_at = 0
        self._looking = False
        self._timer: asyncio.TimerHandle | None = None
        self._told = -10.0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(
        self, listeners: list[ListeningSocket], tls: Callable[[int], ssl.SSLContext], handshake: float
    ) -> None:
        """Begin to accept.

        Args:
            listeners: Listening sockets.
            tls: Makes the TLS context of a port; its exceptions are passed on.
            handshake: Seconds for a TLS handshake.
        """
        self._doors = [
            _ListeningSocket(each, tls(each.port or 0) if each.tls else None, handshake) for each in listeners
        ]
        # A whole queue is accepted in one turn, on every socket: that much room the loop's servers must have.
        self._backlog = min(BACKLOG, self.limit // (8 * max(1, len(self._doors))))
        self._near = self.limit - self._reserve - self._backlog * len(self._doors)
        self._set_careful(self._backlog < SMALL or self._in_use() >= self._near)
        if self.careful:
            self._read(True)
        else:
            await self._serve()

    def close(self) -> None:
        """Accept no more. Clients in the queues stay there: other processes have the same sockets."""
        self._read(False)
        for door in self._doors:
            door.close_servers()
            door.listener.sock.close()
        self._doors = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Give up accepted sockets that are no connections yet: the process ends."""
        self.close()
        for task in self._tasks:
            task.cancel()

    def look(self) -> None:
        """See whether there is room, and go on accordingly."""
        self._looking = False
        if not self._doors:
            return
        used = self._in_use()
        if not self.careful:
            if used >= self._near:
                self._be_careful()
            return
        if self.paused:
            if self._room():
                self.paused = False
                self._read(True)
            else:
                self._look_soon()
        elif self._backlog >= SMALL and used < self._near and self._clients() <= self._back_at:
            self._set_careful(False)
            self._read(False)
            self._keep(self._serve_again())

    def _room(self) -> bool:
        """Return whether there is a descriptor for one more client, beside those kept for connected ones."""
        return self._in_use() + self._wanted() < self.limit - self._reserve

    def _look_soon(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(PAUSE, self._looked_soon)

    def _looked_soon(self) -> None:
        self._timer = None
        self.look()

    # The loop's servers

    async def _serve(self) -> None:
        for door in [door for door in self._doors for _ in range(SERVERS)]:
            create: Any = self._loop.create_unix_server if door.listener.unix else self._loop.create_server
            copy = door.listener.sock.dup()
            try:
                server = await create(
                    self._factory(door), sock=copy, ssl=door.context, backlog=self._backlog, **door.timeouts
                )
            except BaseException:
                copy.close()
                raise
            if not self._doors or self.careful:  # it is over, or the room is, meanwhile
                server.close()
                return
            door.servers.append(server)

    async def _serve_again(self) -> None:
        try:
            await self._serve()
        except OSError as error:
            log.error("clients not accepted", "they are accepted as near the limit of files", reason=error.strerror)
            self._be_careful()

    def _factory(self, door: _ListeningSocket) -> Callable[[], asyncio.Protocol]:
        make, tls = self._make, door.listener.tls
        # Backends need as many descriptors as clients, at most: before a quarter is in use no look is needed.
        wary = self.limit // 4

        def arrived() -> asyncio.Protocol:
            if self._clients() >= wary and not self._looking:
                self._looking = True
                self._loop.call_soon(self.look)
            return make(tls)

        return arrived

    # By ourselves

    def _set_careful(self, careful: bool) -> None:
        self.careful = careful
        self._tell_near(careful)

    def _be_careful(self) -> None:
        self._set_careful(True)
        self._back_at = self._clients() * 3 // 4
        for door in self._doors:
            door.close_servers()
        self._read(True)

    def _read(self, go: bool) -> None:
        for door in self._doors:
            if go and not door.reading:
                self._loop.add_reader(door.listener.sock.fileno(), self._take, door)
            elif door.reading and not go:
                self._loop.remove_reader(door.listener.sock.fileno())
            door.reading = go

    def _take(self, door: _ListeningSocket) -> None:
        """Accept waiting clients, while there is room."""
        for _ in range(TURN):
            if not self._room():
                self._pause()
                return
            try:
                sock, _ = door.listener.sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No descriptor in the whole system, or no memory: not ours to solve, and no reason to spin.
                self._pause(error.strerror)
                return
            self._keep(self._connect(sock, door))

    async def _connect(self, sock: socket.socket, door: _ListeningSocket) -> None:
        sock.setblocking(False)
        tls = door.listener.tls
        try:
            await self._loop.connect_accepted_socket(lambda: self._make(tls), sock, ssl=door.context, **door.timeouts)
        except OSError as error:  # a failed TLS handshake is one
            log.debug("client not accepted", reason=error)

    def _keep(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _pause(self, error: str | None = None) -> None:
        self._read(False)
        self.paused = True
        self._look_soon()
        self.pauses += 1
        now = self._loop.time()
        if now >= self._told + 1:
            self._told = now
            if error:
                log.error("clients not accepted", reason=error)
            log.warning(
                "accepting pauses",
                "clients wait until others have gone; raise LimitNOFILE= or ulimit -n",
                files_max=self.limit,
                kept_for_backends=self._reserve,
                clients=self._clients() + len(self._tasks),
                pauses=self.pauses,
            )
