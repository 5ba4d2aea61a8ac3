"""Thousands of held clients at once, and what they cost: for the tests that measure it."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import re
import resource
from collections.abc import Callable, Iterator

from tests.support.service import descendants

__all__ = ["Crowd", "Member", "Served", "pss_kb", "publish", "room_for_files"]

AT_ONCE = 200  # connections being opened, or closed, at the same time
PATIENCE = 60.0  # seconds for a group to be held, or for all to get the item


class Member(asyncio.Protocol):
    """One client. Its crowd is told when it is ``held``, ``got`` the item, ``got more``, or was ``lost``."""

    def __init__(self, crowd: Crowd) -> None:
        self.crowd = crowd
        self.tail = b""
        """The end of what came: enough to find a text that was split, and to show in a failure."""
        self.state = "asking"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def come(self, state: str) -> None:
        """The next state is reached; what came until now is done with."""
        self.state, self.tail = state, b""
        self.crowd.note(state)

    def connection_lost(self, exc: Exception | None) -> None:
        self.crowd.note("lost")


class Served(asyncio.Protocol):
    """A connection of a backend in this process. ``everyone`` holds those that are open."""

    everyone: set[Served]

    def __init__(self) -> None:
        self.received = b""

    def __init_subclass__(cls) -> None:
        cls.everyone = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.everyone.add(self)
        self.left = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.everyone.discard(self)
        self.left.set()

    @classmethod
    async def close_all(cls, server: asyncio.Server) -> None:
        """Close ``server`` and what is left of its connections, and return when they are closed.

        To be called when nobody connects any more.
        """
        # A connection that was just accepted is a task of its own until it is one of these; closing the server under
        # it would leave a transport that nobody ever closes.
        async with asyncio.timeout(PATIENCE):
            while accepted := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(accepted)
        server.close()
        for one in (open_ones := list(cls.everyone)):
            one.transport.abort()
        for one in open_ones:
            await one.left.wait()


class Crowd:
    """Many clients, made by ``make``, and how many of them have come how far."""

    def __init__(self, port: int, make: Callable[[Crowd], Member]) -> None:
        self.port = port
        self.make = make
        self.counts = {"held": 0, "got": 0, "got more": 0, "lost": 0}
        self.members: list[Member] = []
        self._changed = asyncio.Event()

    def note(self, what: str) -> None:
        """One more has come so far."""
        self.counts[what] += 1
        self._changed.set()

    async def until(self, what: str, number: int) -> None:
        """Return when ``number`` clients have come so far. Fails when one is cut before, or it takes too long."""
        try:
            async with asyncio.timeout(PATIENCE):
                while self.counts[what] < number:
                    assert what == "lost" or not self.counts["lost"], self.what_others_got()
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{number} clients {what!r} wanted, {self.counts}; {self.what_others_got()}") from None

    def what_others_got(self) -> set[bytes]:
        """The last bytes that came to those who are not held."""
        return {member.tail for member in self.members if member.state not in ("held", "got")}

    async def join(self, number: int) -> None:
        """Open ``number`` connections, a few at a time, and return when all are held."""
        loop = asyncio.get_running_loop()
        for start in range(0, number, AT_ONCE):
            size = min(AT_ONCE, number - start)
            made = await asyncio.gather(
                *(loop.create_connection(lambda: self.make(self), "127.0.0.1", self.port) for _ in range(size))
            )
            self.members += [member for _, member in made]
            await self.until("held", start + size)

    async def leave(self) -> None:
        """Close them all, a few at a time, and return when they are closed."""
        lost = self.counts["lost"]
        for start in range(0, len(self.members), AT_ONCE):
            leaving = self.members[start : start + AT_ONCE]
            for member in leaving:
                member.transport.close()
            await self.until("lost", lost + start + len(leaving))


def pss_kb(pid: int) -> int:
    """Proportional set size of a process and all below it, in KB: pages that processes share are counted once.

    Without pages of files: those are no client's, and how many processes share one changes while other tests run.
    """
    total = 0
    for one in descendants(pid):
        rollup = pathlib.Path(f"/proc/{one}/smaps_rollup").read_text()
        found = re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+)", rollup, re.MULTILINE)
        assert len(found) == 2, rollup
        total += sum(map(int, found))
    return total


async def publish(port: int, body: bytes) -> None:
    """Post items, as JSON, to a control port."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /publish HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    writer.close()
    await writer.wait_closed()


@contextlib.contextmanager
def room_for_files(number: int) -> Iterator[None]:
    """So many sockets of this process; gripproxy raises its own limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= number, f"the hard limit of open files is {hard}; this test needs {number} (ulimit -Hn)"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, number), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
