"""A backend with the truth: ``python -m tests.faults.backend``, a process of its own so that it can be killed.

It serves held streams, long-polls and WebSockets on the channels of tests.faults.truth. The reliable forms (``stream``,
``poll``, ``socket``) begin after the id that the client has and name ``prev-id``; the others (``plain``, ``ask``,
``chat``, ``direct``) only subscribe. Between reading and answering it waits now and then, so that items are published
in that window. On command it answers 500, hangs, or sends half of its answers.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import pathlib
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import WSMsgType, web

from tests.faults.history import Diary
from tests.faults.truth import ChannelLog, content, event, item_id

__all__ = ["Backend", "last_ids", "pack_events", "unpack_events"]

PAGE: Final = 20
"""Items in one answer to a stream; more come in pages (docs/grip.md §6.9)."""

HANG_MAX: Final = 20.0
"""Seconds a hanging request waits at most."""

EVENTS: Final = "application/websocket-events"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def last_ids(values: list[str]) -> dict[str, str]:
    """Return the ids by channel in the values of Grip-Last headers (docs/grip.md §6.5)."""
    found = {}
    for value in ",".join(values).split(","):
        channel, _, rest = value.partition(";")
        for parameter in rest.split(";"):
            name, _, identifier = parameter.strip().partition("=")
            if name == "last-id":
                found[channel.strip()] = identifier.strip('"')
    return found


def unpack_events(body: bytes) -> list[tuple[str, bytes]]:
    """Return the WebSocket events of a request: type and content (docs/grip.md §8.3)."""
    found = []
    while body:
        head, _, body = body.partition(b"\r\n")
        kind, _, length = head.partition(b" ")
        size = int(length, 16) if length else 0
        found.append((kind.decode(), body[:size]))
        body = body[size + 2 :] if length else body
    return found


def pack_events(events: list[tuple[str, bytes]]) -> bytes:
    """Return the body of an answer with these events."""
    return b"".join(
        b"%s %x\r\n%b\r\n" % (kind.encode(), len(text), text) if text else kind.encode() + b"\r\n"
        for kind, text in events
    )


class Stale(Exception):
    """A client named an id that the truth does not have: somebody made it up, or mixed up two channels."""


class Wish:
    """What one request wants: channels, the number of the last item the client has of each, and who it is."""

    def __init__(self, backend: Backend, request: web.Request) -> None:
        query = request.query
        self.client = query.get("who", "")
        self.channels = query["c"].split(".")
        named = last_ids(request.headers.getall("Grip-Last", []))
        self.recovery = bool(named)
        self.named = [channel for channel in self.channels if channel in named]
        """Channels that the proxy asks about."""
        ids = dict(zip(self.channels, query["after"].split("."), strict=True)) if "after" in query else {}
        if "Last-Event-ID" in request.headers:
            ids[self.channels[0]] = request.headers["Last-Event-ID"]
        ids |= named
        if "page" in query:
            # Within pages the proxy still names what the client had before them.
            ids = dict(zip(self.channels, query["page"].split("."), strict=True))
        self.after = {}
        for channel in self.channels:
            log = backend.log(channel)
            number = log.number(ids[channel]) if channel in ids else 0
            if number is None:
                raise Stale(f"{channel} has no item {ids[channel]!r}")
            self.after[channel] = number


class Backend:
    """The application. ``window`` is the share of answers that are delayed after reading."""

    def __init__(self, name: str, truth: pathlib.Path, diary: Diary, link: float, window: float, seed: int) -> None:
        self.name = name
        self._truth = truth
        self._diary = diary
        self._link = link
        self._window = window
        self._random = random.Random(seed)
        self._logs: dict[str, ChannelLog] = {}
        self._fault = ""
        self._until = 0.0
        self._told = asyncio.Event()
        self.application = web.Application(middlewares=[self._trouble])
        add = self.application.router.add_route
        for form, handler in (
            ("stream", self.stream),
            ("plain", self.plain),
            ("poll", self.poll),
            ("ask", self.ask),
            ("direct", self.direct),
        ):
            add("GET", f"/{name}/{form}", handler)
        add("POST", f"/{name}/socket", self.socket)
        add("POST", f"/{name}/chat", self.chat)
        add("POST", "/fault", self.fault)

    def log(self, channel: str) -> ChannelLog:
        """Return a channel's log, as of now."""
        found = self._logs.get(channel)
        if found is None:
            found = self._logs[channel] = ChannelLog(self._truth, channel)
        found.refresh()
        return found

    # --- trouble

    async def fault(self, request: web.Request) -> web.Response:
        """Be in trouble for some time: ``{"form": "error" | "hang" | "half" | "think", "seconds": s}``.

        ``think`` holds answers back between reading and sending.
        """
        order = await request.json()
        self._fault, self._until = order["form"], time.monotonic() + order["seconds"]
        self._told.set()
        self._told = asyncio.Event()
        return web.Response(text="so be it\n")

    @web.middleware
    async def _trouble(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        fault = self._fault if time.monotonic() < self._until and request.path != "/fault" else ""
        if fault == "error":
            return web.Response(status=500, text="in trouble\n")
        if fault == "hang":
            await asyncio.sleep(min(HANG_MAX, self._until - time.monotonic()))
        try:
            response = await handler(request)
        except Stale as error:
            self._diary.add("refused", request.query.get("who", ""), str(error))
            return web.Response(status=409, text=f"{error}\n")
        if fault != "half" or not isinstance(response, web.Response):
            return response
        body = response.body if isinstance(response.body, bytes) else b""
        half = web.StreamResponse(status=response.status, headers=response.headers)
        half.content_length = len(body) + 1
        await half.prepare(request)
        await half.write(body[: len(body) // 2])
        if request.transport is not None:
            request.transport.abort()
        return half

    async def _think(self) -> None:
        """Take one's time between reading and answering, now and then."""
        if self._fault == "think" and time.monotonic() < self._until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._until - time.monotonic()):
                    await self._told.wait()
        if self._random.random() < self._window:
            await asyncio.sleep(self._random.uniform(0.05, 0.4))

    def _wish(self, request: web.Request, form: str) -> Wish:
        wish = Wish(self, request)
        for channel in wish.channels:
            self._diary.add("asked", wish.client, channel, form, wish.after[channel], wish.recovery)
        return wish

    def _holding(self, wish: Wish, upto: dict[str, int]) -> str:
        for channel, number in upto.items():
            self._diary.add("answered", wish.client, channel, number)
        return ", ".join(f"{channel}; prev-id={item_id(channel, number)}" for channel, number in upto.items())

    # --- HTTP

    async def stream(self, request: web.Request) -> web.Response:
        """A stream with ids and a next link, in pages when much is missing."""
        wish = self._wish(request, "stream")
        now = {channel: self.log(channel).length for channel in wish.channels}
        upto = dict(wish.after)
        room = PAGE
        for channel in wish.channels:
            upto[channel] = min(now[channel], upto[channel] + room)
            room -= upto[channel] - wish.after[channel]
        body = "".join(
            event(channel, number)
            for channel in wish.channels
            for number in range(wish.after[channel] + 1, upto[channel] + 1)
        )
        if wish.client and "page" not in request.query:
            body = f": hello {wish.client}\n\n{body}"
        headers = {"Content-Type": "text/event-stream"}
        again = f"/{self.name}/stream?c={'.'.join(wish.channels)}"
        if upto != now:
            page = ".".join(item_id(channel, upto[channel]) for channel in wish.channels)
            headers["Grip-Link"] = f"<{again}&page={page}>; rel=next"
        else:
            # Once for the delay: an item written now is in this window.
            headers["Grip-Hold"] = "stream"
            headers["Grip-Link"] = f"<{again}>; rel=next; timeout={self._link_timeout(wish):g}"
            await self._think()
            headers["Grip-Channel"] = self._holding(wish, upto)
        return web.Response(body=body.encode(), headers=headers)

    def _link_timeout(self, wish: Wish) -> float:
        # Some channels rely on it, for others it is too far away to help.
        return self._link if sum(map(ord, wish.channels[0])) % 3 else max(60.0, self._link)

    async def poll(self, request: web.Request) -> web.Response:
        """A long-poll with ids: answered at once when there is something new."""
        wish = self._wish(request, "poll")
        now = {channel: self.log(channel).length for channel in wish.channels}
        lines = [f": {wish.client}"]
        for channel, length in now.items():
            lines += [content(channel, number) for number in range(wish.after[channel] + 1, length + 1)]
        await self._think()
        body = "\n".join(lines) + "\n"
        if len(lines) > 1:
            return web.Response(text=body)
        headers = {"Grip-Hold": "response", "Grip-Timeout": "5", "Grip-Channel": self._holding(wish, now)}
        return web.Response(text=body, headers=headers)

    async def plain(self, request: web.Request) -> web.Response:
        """A stream without ids."""
        wish = self._wish(request, "plain")
        headers = {
            "Content-Type": "text/event-stream",
            "Grip-Hold": "stream",
            "Grip-Channel": ", ".join(wish.channels),
            "Grip-Keep-Alive": ":\\n\\n; format=cstring; timeout=5",
        }
        return web.Response(text=f": hello {wish.client}\n\n", headers=headers)

    async def ask(self, request: web.Request) -> web.Response:
        """A long-poll without ids."""
        wish = self._wish(request, "ask")
        headers = {"Grip-Hold": "response", "Grip-Timeout": "10", "Grip-Channel": ", ".join(wish.channels)}
        return web.Response(text=f": {wish.client}\n", headers=headers)

    # --- WebSockets

    async def socket(self, request: web.Request) -> web.Response:
        """A WebSocket over HTTP whose subscriptions have ids."""
        wish = self._wish(request, "socket")
        events = unpack_events(await request.read())
        answer: list[tuple[str, bytes]] = []
        opening = bool(events) and events[0][0] == "OPEN"
        if opening:
            answer = [("OPEN", b""), ("TEXT", f"m:hello {wish.client}".encode())]
        if opening or wish.recovery:
            await self._read(wish, wish.channels if opening else wish.named, answer)
        return self._spoken(events, answer, opening)

    async def _read(self, wish: Wish, channels: list[str], answer: list[tuple[str, bytes]]) -> None:
        upto = {channel: self.log(channel).length for channel in channels}
        for channel, length in upto.items():
            numbers = range(wish.after[channel] + 1, length + 1)
            answer += [("TEXT", b"m:" + content(channel, number).encode()) for number in numbers]
        await self._think()
        self._holding(wish, upto)
        for channel, length in upto.items():
            order = {"type": "subscribe", "channel": channel, "prev-id": item_id(channel, length)}
            answer.append(("TEXT", b"c:" + json.dumps(order).encode()))

    async def chat(self, request: web.Request) -> web.Response:
        """A WebSocket over HTTP that only subscribes."""
        wish = self._wish(request, "chat")
        events = unpack_events(await request.read())
        answer: list[tuple[str, bytes]] = []
        opening = bool(events) and events[0][0] == "OPEN"
        if opening:
            answer.append(("OPEN", b""))
            for channel in wish.channels:
                order = {"type": "subscribe", "channel": channel}
                answer.append(("TEXT", b"c:" + json.dumps(order).encode()))
            answer.append(("TEXT", f"m:hello {wish.client}".encode()))
        return self._spoken(events, answer, opening)

    def _spoken(self, events: list[tuple[str, bytes]], answer: list[tuple[str, bytes]], opening: bool) -> web.Response:
        for kind, text in events:
            if kind == "TEXT":
                answer.append(("TEXT", b"m:echo " + text))
            elif kind == "CLOSE":
                answer.append(("CLOSE", text))
        headers = {"Content-Type": EVENTS}
        if opening:
            headers["Sec-WebSocket-Extensions"] = "grip"
        return web.Response(body=pack_events(answer), headers=headers)

    async def direct(self, request: web.Request) -> web.WebSocketResponse:
        """A WebSocket spoken directly, without ids."""
        wish = self._wish(request, "direct")
        socket = web.WebSocketResponse(timeout=1.0)
        socket.headers["Sec-WebSocket-Extensions"] = "grip"
        await socket.prepare(request)
        for channel in wish.channels:
            await socket.send_str("c:" + json.dumps({"type": "subscribe", "channel": channel}))
        await socket.send_str(f"m:hello {wish.client}")
        async for message in socket:
            if message.type == WSMsgType.TEXT:
                await socket.send_str(f"m:echo {message.data}")
        return socket


def main(arguments: list[str] | None = None) -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--truth", type=pathlib.Path, required=True)
    parser.add_argument("--diary", type=pathlib.Path, required=True)
    parser.add_argument("--link", type=float, default=3.0)
    parser.add_argument("--window", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    options: Any = parser.parse_args(arguments)
    diary = Diary(options.diary, f"backend {options.name}")
    backend = Backend(options.name, options.truth, diary, options.link, options.window, options.seed)
    web.run_app(
        backend.application,
        host="127.0.0.1",
        port=options.port,
        print=lambda *_: None,
        shutdown_timeout=0.2,
        access_log=None,
        handler_cancellation=True,
    )


if __name__ == "__main__":
    main()
