"""Hub with one soft topic, in this process: ingest over HTTP into a window, and followers that check each version."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from aiohttp import web

from griphub.windows.bounds import WindowBounds
from griphub.windows.decisions import Accepted, Refusal, Refused, Release, Resync, Settled
from griphub.windows.ingest_lines import BadLine, IngestLine, LineParser
from griphub.windows.span import ALL
from griphub.windows.window import Window

__all__ = ["SoftHub"]

STATUS = {Refusal.CONFLICT: 409, Refusal.EPOCH: 410, Refusal.LIMIT: 429}
PIECE = 65_536


class SoftHub:
    """Hub whose only topic is ``t``.

    Attributes:
        url: of the hub.
        versions: table of the follower of everything, at each progress that it got.
        seen: number of events that it got.
        resyncs: reasons for which it had to read a snapshot.
        faults: statuses that the next requests get, before or (negative) after they are carried out.
        cut: whether requests behind the first one with events get 503.
    """

    def __init__(self, bounds: WindowBounds | None = None) -> None:
        self._epochs = count(1)
        self._bounds = bounds
        self.window = Window(self._epoch, bounds)
        self.url = ""
        self.table: dict[str, Any] = {}
        self.versions: dict[int, dict[str, Any]] = {}
        self.seen = 0
        self.requests = 0
        self.resyncs: list[str] = []
        self.faults: list[int] = []
        self.cut = False
        self._runner: web.AppRunner | None = None

    def _epoch(self) -> str:
        return f"e{next(self._epochs)}"

    async def __aenter__(self) -> SoftHub:
        application = web.Application(client_max_size=20_000_000)
        application.router.add_post("/topics/t/ingest", self._ingest)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def restart(self) -> None:
        """Lose the window."""
        self.window = Window(self._epoch, self._bounds)
        self.resyncs.append("restart")

    async def follow(self, snapshot: Callable[[], Awaitable[tuple[int, dict[str, Any]] | None]]) -> bool:
        """Follow everything from a snapshot on; False if the snapshot is not one to start at."""
        found = await snapshot()
        if found is None or self.window.start(ALL, found[0]).kind.value != "known":
            return False
        version, self.table = found
        self.window.follow(ALL)
        upto = self.window.released(ALL)
        assert upto is not None
        for event in self.window.read(ALL, (version, 2**62), upto, 10**6):
            self._apply(event.key, event.op, event.data)
        self.versions[max(version, upto)] = dict(self.table)
        return True

    @property
    def followed(self) -> bool:
        """Whether everything is followed now."""
        return self.window.released(ALL) is not None

    def _apply(self, key: str, op: str, data: bytes) -> None:
        self.seen += 1
        if op == "delete":
            self.table.pop(key, None)
        else:
            self.table[key] = json.loads(data)

    async def _ingest(self, request: web.Request) -> web.Response:
        self.requests += 1
        body = await request.read()
        fault = self.faults.pop(0) if self.faults else 0
        if self.cut and len(self.window):
            fault = 503
        if fault > 0:
            return problem(fault, "a fault on request")
        parser = LineParser()
        lines = []
        try:
            for place in range(0, len(body), PIECE):
                lines += parser.feed(body[place : place + PIECE])
            parser.finish()
        except BadLine as error:
            return problem(400, str(error))
        outcome = self._carried_out(lines, request.query.get("epoch"))
        if fault < 0:
            return problem(-fault, "a fault after the request was carried out")
        if isinstance(outcome, Refused):
            return problem(STATUS[outcome.refusal], outcome.detail)
        progress = None if outcome.progress is None else str(outcome.progress)
        return web.json_response({"epoch": outcome.epoch, "progress": progress, "events": outcome.events})

    def _carried_out(self, lines: list[IngestLine], epoch: str | None) -> Accepted | Refused:
        window = self.window
        number = window.submit(lines, epoch)
        outcome: Accepted | Refused | None = None
        beaten = False
        while window.busy:
            for decision in window.turn(time.time_ns() // 1000):
                if isinstance(decision, Settled) and decision.number == number:
                    outcome = decision.outcome
                elif isinstance(decision, Release):
                    self._release(decision)
                elif isinstance(decision, Resync):
                    self.resyncs.append(decision.reason)
            if outcome is not None and not window.busy and not beaten:
                # A follower gets progress after each request here, which a hub gives at an interval.
                window.beat(ALL)
                beaten = True
        assert outcome is not None
        return outcome

    def _release(self, release: Release) -> None:
        events = release.events
        if release.many:
            place = (release.progress.version, 0)
            events = self.window.read(ALL, place, release.progress.version, 10**6)
        for event in events:
            self._apply(event.key, event.op, event.data)
        self.versions[release.progress.version] = dict(self.table)


def problem(status: int, detail: str) -> web.Response:
    document = {"type": "urn:gripproxy:hub:x", "status": status, "detail": detail}
    return web.json_response(document, status=status, content_type="application/problem+json")
