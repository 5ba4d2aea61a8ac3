"""A hub in memory whose topics can be watched, in the loop of the test. Progress is written on request."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import web

from tests.support.small_hub import EPOCH, SmallHub, Topic

__all__ = ["WatchHub", "watch_hub"]


class WatchHub(SmallHub):
    """Hub whose state tests may look at.

    Attributes:
        watchers: streams of watches that are open.
        opened: cursors that watches began at, in order.
        mute: whether streams are open and have no line.
        progressed: number of the version of the last progress.
    """

    def __init__(self) -> None:
        super().__init__()
        self.watchers = 0
        self.opened: list[str] = []
        self.mute = False
        self.progressed = -1

    @property
    def newest(self) -> int:
        """Number of the newest version."""
        return self._last

    def commit(self, **values: Any) -> str:
        """Store a transaction of the topic ``t``.

        Args:
            values: by key; None for a deletion.

        Returns:
            The cursor of its version.
        """
        drafts = [
            {"key": key, "op": "delete"} if value is None else {"key": key, "data": value}
            for key, value in values.items()
        ]
        cursor: str = self._store("t", drafts)[-1]["version_cursor"]
        return cursor

    def bind(self, port: int) -> None:
        """Note the ``port`` on loopback at which it is reached."""
        self.url = f"http://127.0.0.1:{port}/hub"

    def progress(self) -> str:
        """Write progress to all watchers; return the cursor of its version."""
        self.progressed = self._last
        self._changed.set()
        self._changed = asyncio.Event()
        return f"{EPOCH}.{self._last}"

    def _call(self, work: Callable[[], Any]) -> Any:
        return work()

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        _, topic = self._topic(request)
        text = request.query.get("version", f"{EPOCH}.{self._last}")
        self.opened.append(text)
        epoch, place = text.split(".")[:2] if text != "0" else ("", "0")
        after = int(place)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        cut = self._cut
        self.watchers += 1
        try:
            while not cut.is_set() and request.transport is not None:
                changed = self._changed
                if epoch not in ("", EPOCH) or not topic.floor <= after <= self._last:
                    line = {"type": "resync", "reason": "not retained", **self._loss(topic)}
                    await response.write(json.dumps(line).encode() + b"\n")
                    return response
                if not self.mute:
                    after = await self._write(request, response, topic, after)
                waits = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(cut.wait())]
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for wait in waits:
                        wait.cancel()
        finally:
            self.watchers -= 1
        if request.transport is not None:
            request.transport.abort()
        return response

    async def _write(self, request: web.Request, response: web.StreamResponse, topic: Topic, after: int) -> int:
        """Write all that has happened; return the number that was reached."""
        reached = self._last
        lines: list[dict[str, Any]] = self._chosen(request, topic, after)
        if self.progressed == reached:
            bounds = {"low": request.query.get("low"), "high": request.query.get("high")}
            place = {"version": str(reached), "cursor": f"{EPOCH}.{reached}.1700000000000000"}
            lines = [*lines, {"type": "progress", **bounds, **place}]
        if lines:
            await response.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        return reached

    def application(self) -> web.Application:
        """Return the application."""
        application = super().application()
        application.router.add_get("/hub/topics/{topic:[^/]+}/watch", self._watch)
        return application


@contextlib.asynccontextmanager
async def watch_hub() -> AsyncIterator[WatchHub]:
    """A hub on a free port, ended with the context."""
    hub = WatchHub()
    runner = web.AppRunner(hub.application(), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    hub.bind(runner.addresses[0][1])
    try:
        yield hub
    finally:
        hub.cut()
        await runner.cleanup()
