"""A whole handler in this process, with workers that are only pipes."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator
from typing import Any

from gripproxy import pipe
from gripproxy.config import Config, load_config
from gripproxy.grip.item_pack import unpack_item
from handler.service import Service

__all__ = ["PATIENCE", "FakeWorker", "config_file", "eventually", "handler", "read_config"]

PATIENCE = 40.0
"""Seconds to wait for an expected event."""


def config_file(folder: pathlib.Path, workers: int = 1, **settings: object) -> pathlib.Path:
    """Write a config with only the ``[handler]`` keys given and return its path."""
    path = folder / "gripproxy.conf"
    lines = [
        "[global]",
        f"rundir={folder / 'run'}",
        "[proxy]",
        f"workers={workers}",
        "[handler]",
        "id_cache_ttl=60",
        *(f"{key}={value}" for key, value in settings.items()),
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def read_config(folder: pathlib.Path, workers: int = 1, **settings: object) -> Config:
    """Write a config with only the given ``[handler]`` keys, and load it."""
    return load_config(str(config_file(folder, workers, **settings)))


class FakeWorker:
    """A worker that sends the test's messages, and keeps the handler's."""

    def __init__(self) -> None:
        self.got: list[pipe.Message] = []
        self._news = asyncio.Event()
        self.lost = asyncio.Event()
        self.link = pipe.PipeConnection(self._received, lambda link: self.lost.set())

    @classmethod
    async def connect(
        cls, config: Config, name: str = "1", *channels: Any, hello: bool = True, epoch: int = 1
    ) -> FakeWorker:
        """Connect, as soon as the handler listens, and announce ``channels`` as pipe.HELLO has them."""
        worker = cls()
        loop = asyncio.get_running_loop()

        async def attempt() -> bool:
            try:
                await loop.create_unix_connection(lambda: worker.link, pipe.socket_path(config))
            except OSError:
                return False
            return True

        await eventually(attempt)
        if hello:
            worker.link.send((pipe.HELLO, pipe.VERSION, epoch, name, list(channels)))
        return worker

    def _received(self, link: pipe.PipeConnection, messages: list[pipe.Message]) -> None:
        self.got += messages
        self._news.set()

    async def expect(self, kind: int, count: int = 1) -> list[pipe.Message]:
        """Wait for ``count`` messages of ``kind``; return them, and clear all messages up to now."""

        async def wait() -> list[pipe.Message]:
            while sum(message[0] == kind for message in self.got) < count:
                self._news.clear()
                await self._news.wait()
            found = [message for message in self.got if message[0] == kind]
            self.got.clear()
            return found

        return await asyncio.wait_for(wait(), PATIENCE)

    async def subscribe(self, channel: bytes, number: int = 1) -> pipe.Message:
        """Subscribe and return the confirmation."""
        self.link.send((pipe.SUBSCRIBE, channel, number))
        return (await self.expect(pipe.SUBSCRIBED))[0]

    async def contents(self, count: int) -> list[bytes]:
        """Wait for ``count`` stream items and return their contents."""
        items = [unpack_item(message[1]).stream for message in await self.expect(pipe.ITEM, count)]
        return [stream.content for stream in items if stream is not None]


async def eventually(attempt: Any) -> None:
    """Call the coroutine function ``attempt`` until it returns true, a few times per second."""
    for _ in range(int(PATIENCE * 50)):
        if await attempt():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"not in {PATIENCE:g} s: {attempt}")


@contextlib.asynccontextmanager
async def handler(config: Config, *channels: Any) -> AsyncIterator[tuple[Service, FakeWorker]]:
    """A running handler with one worker, which has ``channels``."""
    service = Service(config)
    try:
        opening = asyncio.create_task(service.open(), name="open the handler")
        joining = asyncio.create_task(FakeWorker.connect(config, "1", *channels), name="join")
        await opening
        worker = await joining
        yield service, worker
        worker.link.close()
    finally:
        await service.close()
