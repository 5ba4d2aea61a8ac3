"""A service with a hub as real processes, and followers that read it over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import aiohttp

from tests.support.ports import free_ports
from tests.support.service import START_PATIENCE, Service, alive, descendants, freeze

__all__ = ["PATIENCE", "HubSite", "Stream", "hub_site", "until"]

PATIENCE: Final = 30.0
"""Seconds for anything that a test waits for."""

CONFIG: Final[Mapping[str, str]] = {
    "global.rundir": "{dir}/run",
    "runner.http_port": "127.0.0.1:{http}",
    "runner.process_beat_timeout": "60",
    "proxy.routesfile": "{dir}/routes",
    "proxy.workers": "2",
    "proxy.sig_key": "changeme",
    "handler.push_in_http_port": "{control}",
    "hub.store": "{dir}/hub.db",
    "hub.hub_anonymous": "all",
    "hub.ballast": "0",
}


async def until(true: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Wait until ``true`` returns true, for ``patience`` seconds."""
    deadline = time.monotonic() + patience
    while not true():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.01)


class HubSite:
    """A running service with a hub.

    Args:
        changes: further values by ``section.key``; None leaves a key out.
        routes: lines of the routes file.
    """

    def __init__(self, changes: Mapping[str, str | None] | None = None, routes: str = "*,path_beg=/hub hub\n") -> None:
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="hub-"))
        self.http, self.control, self.listen, self.metrics = free_ports(4)
        names = {
            "dir": str(self.directory),
            "http": self.http,
            "control": self.control,
            "listen": self.listen,
            "metrics": self.metrics,
        }
        values = {**CONFIG, **(changes or {})}
        sections: dict[str, list[str]] = {}
        for name, value in values.items():
            if value is not None:
                section, _, key = name.partition(".")
                for place, text in names.items():
                    value = value.replace("{" + place + "}", str(text))
                sections.setdefault(section, []).append(f"{key}={value}")
        text = "".join(f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sections.items())
        (self.directory / "gripproxy.conf").write_text(text)
        (self.directory / "routes").write_text(routes)
        self.base = f"http://127.0.0.1:{self.http}"
        self.url = self.base + "/hub"
        self.service: Service | None = None
        self._past = ""
        """Log of earlier lives of the service."""

    def start(self) -> None:
        """Start the service, and wait until it serves."""
        config = str(self.directory / "gripproxy.conf")
        self.service = Service([sys.executable, "-m", "gripproxy", f"--config={config}"])
        self.service.wait_for_log("hub ready")
        self.service.wait_for_port(self.http)

    def stop(self) -> None:
        """End the service and remove its files."""
        try:
            if self.service is not None and self.service.process.returncode is None:
                self.service.stop()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def log(self) -> str:
        """Return the log so far."""
        assert self.service is not None
        return self._past + self.service.log

    def pids(self, kind: str) -> list[int]:
        """Return the process ids of all children of a kind: ``worker``, or one of those of ``pid``."""
        assert self.service is not None
        found = []
        for pid in descendants(self.service.process.pid):
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if any(word == kind.encode() or word.endswith(b"." + kind.encode()) for word in words):
                    found.append(pid)
        return found

    def pid(self, kind: str) -> int:
        """Return the process id of a child: ``hub``, ``handler``, ``writer_process``, ``reader_process``."""
        deadline = time.monotonic() + START_PATIENCE
        while time.monotonic() < deadline:
            if pids := self.pids(kind):
                return pids[0]
            time.sleep(0.01)
        raise AssertionError(f"no process {kind}; the log:\n{self.log}")

    def kill(self, kind: str, pid: int = 0) -> int:
        """Kill a child, wait for its end, and return its process id.

        Args:
            kind: of the child.
            pid: one of several; 0 for any.
        """
        pid = pid or self.pid(kind)
        os.kill(pid, signal.SIGKILL)
        _gone([pid])
        return pid

    # --- the whole service

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the runner and with it the service; its files stay.

        Args:
            number: signal to the runner. SIGKILL leaves its children to themselves: they notice it.
        """
        assert self.service is not None
        if number is signal.SIGKILL:
            pids = descendants(self.service.process.pid)
            self.service.process.kill()
            self.service.process.wait()
            _gone(pids)
        self._past = self.log
        self.service.stop(number)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Kill the hub, and have it started again only behind the block: workers and handler stay."""
        assert self.service is not None
        runner, pids = self.service.process.pid, descendants(self.pid("hub"))
        freeze(runner)
        try:
            os.kill(pids[0], signal.SIGKILL)
            _gone(pids)
            yield
        finally:
            os.kill(runner, signal.SIGCONT)


def _gone(pids: Iterable[int]) -> None:
    """Wait for the end of processes."""
    deadline = time.monotonic() + PATIENCE
    for pid in pids:
        while alive(pid):
            assert time.monotonic() < deadline, f"process {pid} does not end"
            time.sleep(0.001)


@contextlib.contextmanager
def hub_site(
    changes: Mapping[str, str | None] | None = None, routes: str = "*,path_beg=/hub hub\n"
) -> Iterator[HubSite]:
    """A running service with a hub, ended afterwards."""
    site = HubSite(changes, routes)
    try:
        site.start()
        yield site
    finally:
        site.stop()


class Stream:
    """A follower that collects the events of an event stream or of lines.

    Args:
        response: of the stream.
    """

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.events: list[dict[str, Any]] = []
        """Events, as JSON."""
        self.controls: list[tuple[str, Any]] = []
        """Name and data of each other block, or type and object of each other line."""
        self.last_id = ""
        self.ended = False

    async def read(self) -> None:
        """Read until the end of the stream."""
        sse = self.response.content_type == "text/event-stream"
        name, data = "", ""
        rest = b""
        try:
            async for chunk in self.response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for raw in lines:
                    line = raw.decode()
                    if not sse:
                        if line:
                            self._take(line)
                    elif not line:
                        if data:
                            if name:
                                self.controls.append((name, json.loads(data)))
                            else:
                                self.events.append(json.loads(data))
                        name, data = "", ""
                    elif line.startswith("id: "):
                        self.last_id = line[4:]
                    elif line.startswith("event: "):
                        name = line[7:]
                    elif line.startswith("data: "):
                        data += line[6:]
        finally:
            self.ended = True

    def _take(self, line: str) -> None:
        value = json.loads(line)
        if value.get("type") == "event":
            self.events.append(value)
        else:
            self.controls.append((value.get("type", ""), value))

    @property
    def ids(self) -> list[int]:
        """Ids of the events so far."""
        return [int(event["id"]) for event in self.events]

    async def wait(self, count: int) -> None:
        """Wait until there are ``count`` events."""
        await until(lambda: len(self.events) >= count or self.ended, f"{len(self.events)} of {count} events")
        assert len(self.events) >= count, f"ended after {len(self.events)} of {count} events: {self.controls}"


@contextlib.asynccontextmanager
async def following(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str] | None = None, *, again: bool = False
) -> AsyncIterator[Stream]:
    """Follow a URL for the time of the block; ``again``: ask again after 503."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE)
    headers = headers or {"Accept": "text/event-stream"}
    response = await session.get(url, headers=headers, timeout=timeout)
    while again and response.status == 503:
        response.close()
        response = await session.get(url, headers=headers, timeout=timeout)
    async with response:
        assert response.status == 200, await response.text()
        stream = Stream(response)
        reading: Awaitable[None] = asyncio.ensure_future(stream.read())
        try:
            yield stream
        finally:
            assert isinstance(reading, asyncio.Future)
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, aiohttp.ClientError):
                await reading
