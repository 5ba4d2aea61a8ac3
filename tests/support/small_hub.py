"""A hub in memory, in a thread of its own: the HTTP of a hub for tests of its clients, and faults on request."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import pytest
from aiohttp import web

__all__ = ["EPOCH", "Fault", "SmallHub", "hub_of_commands", "small_hub", "wait_until"]

EPOCH: Final = "e1"
TOKEN: Final = "secret"


@dataclass(frozen=True)
class Fault:
    """One request that fails.

    Attributes:
        status: of the answer; None for a connection that is cut.
        headers: of the answer.
        body: of the answer.
        after: whether the request is carried out before.
    """

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: str = "fault"
    after: bool = False


@dataclass
class Topic:
    """Events of a topic, as objects of the API."""

    settings: dict[str, Any]
    events: list[dict[str, Any]] = field(default_factory=list)
    floor: int = 0


def problem(status: int, name: str, detail: str, **members: Any) -> web.Response:
    document = {"type": f"urn:gripproxy:hub:{name}", "title": name, "status": status, "detail": detail, **members}
    return web.json_response(document, status=status, content_type="application/problem+json")


class SmallHub:
    """Hub whose state tests may look at.

    Attributes:
        topics: by name.
        requests: method and path with query of each request, in order.
        keys: ``Idempotency-Key`` of each publishing request, in order.
        batches: numbers of events of the publishing requests that were carried out.
        faults: of the next requests, taken from the left.
        token: that requests must have; None for none.
        followers: streams that are open.
        whole: whether snapshots have their last line.
        mailboxes: objects of the list of mailboxes.
        subscriptions: objects of the list of subscriptions.
        url: of the hub.
    """

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {"t": Topic({})}
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.keys: list[str] = []
        self.batches: list[int] = []
        self.faults: deque[Fault | None] = deque()
        self.token: str | None = None
        self.followers = 0
        self.page = 1000
        self.whole = True
        self.mailboxes: list[dict[str, Any]] = []
        self.subscriptions: list[dict[str, Any]] = []
        self.url = ""
        self.gate = threading.Event()
        self.gate.set()
        self._names: dict[str, tuple[bytes, dict[str, Any]]] = {}
        self._last = 0
        self._changed: asyncio.Event
        self._cut: asyncio.Event
        self._loop: asyncio.AbstractEventLoop

    # --- of tests

    def add(self, *data: Any, topic: str = "t", key: str | None = None) -> list[str]:
        """Store JSON events; return their cursors."""
        events = [{"data": value, **({"key": key} if key else {})} for value in data]
        stored: list[dict[str, Any]] = self._call(lambda: self._store(topic, events))
        return [event["cursor"] for event in stored]

    def cut(self) -> None:
        """Cut the streams of all followers."""

        def cut() -> None:
            self._cut.set()
            self._cut = asyncio.Event()

        self._call(cut)

    def forget(self, floor: int, topic: str = "t") -> None:
        """Raise the floor: events up to it are not retained."""

        def forget() -> None:
            self.topics[topic].floor = floor
            self.topics[topic].events = [event for event in self.topics[topic].events if int(event["id"]) > floor]

        self._call(forget)

    def _call(self, work: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    # --- state

    def _cursor(self, id: int) -> str:
        return f"{EPOCH}.{id}"

    def _store(self, name: str, drafts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        topic = self.topics[name]
        stored = []
        version = self._last + len(drafts)
        for draft in drafts:
            self._last += 1
            event = {
                "type": "event",
                "id": str(self._last),
                "cursor": self._cursor(self._last),
                "prev_id": topic.events[-1]["id"] if topic.events else "0",
                "version": str(version),
                "version_cursor": self._cursor(version),
                "time": f"2026-01-01T00:00:00.{self._last:06}Z",
                **({"op": "put"} if "key" in draft else {}),
                "content_type": "application/json" if "data" in draft else "application/octet-stream",
                **draft,
            }
            topic.events.append(event)
            stored.append(event)
        self._changed.set()
        self._changed = asyncio.Event()
        return stored

    # --- HTTP

    @web.middleware
    async def _around(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self.requests.append((request.method, request.rel_url.raw_path_qs))
        self.headers.append(dict(request.headers))
        if not self.gate.is_set():
            await asyncio.to_thread(self.gate.wait)
        fault = self.faults.popleft() if self.faults else None
        if fault is None:
            return await self._checked(request, handler)
        if fault.after:
            await self._checked(request, handler)
        if fault.status is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return web.Response(status=fault.status, headers=fault.headers, text=fault.body)

    async def _checked(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            return problem(401, "unauthorized", "no token that the hub knows")
        name = request.match_info.get("topic")
        if name is not None and name not in self.topics and request.method != "PUT":
            return problem(404, "not-found", f"there is no topic {name!r}")
        return await handler(request)

    def _topic(self, request: web.Request) -> tuple[str, Topic]:
        name = request.match_info["topic"]
        return name, self.topics[name]

    def _described(self, name: str) -> dict[str, Any]:
        topic = self.topics[name]
        last = int(topic.events[-1]["id"]) if topic.events else topic.floor
        return {
            "name": name,
            "retention": {"age": None, "events": None, "bytes": None, "compact": False},
            "store": "disk",
            "progress": 10,
            "labels": {},
            **topic.settings,
            "birth": "0",
            "floor": str(topic.floor),
            "floor_cursor": self._cursor(topic.floor),
            "oldest_time": None,
            "last": str(last),
            "last_cursor": self._cursor(last),
            "count": len(topic.events),
            "bytes": sum(len(json.dumps(event.get("data"))) for event in topic.events),
        }

    async def _list(self, request: web.Request) -> web.Response:
        limit = int(request.query.get("limit", "100"))
        names = sorted(name for name in self.topics if name > request.query.get("after", ""))
        following = names[limit - 1] if len(names) > limit else None
        return web.json_response({"topics": [self._described(name) for name in names[:limit]], "next": following})

    async def _subscribers(self, request: web.Request) -> web.Response:
        return web.json_response({"subscribers": self.mailboxes})

    async def _subscriptions(self, request: web.Request) -> web.Response:
        name, after = request.match_info.get("topic"), int(request.query.get("after", "0"))
        found = [each for each in self.subscriptions if name in (None, each["topic"])]
        page = found[after : after + min(self.page, int(request.query["limit"]))]
        end = after + len(page)
        return web.json_response({"subscriptions": page, **({"next": str(end)} if end < len(found) else {})})

    async def _settings(self, request: web.Request) -> web.Response:
        name = request.match_info["topic"]
        if request.method == "DELETE":
            del self.topics[name]
            return web.Response(status=204)
        made = name not in self.topics
        if request.method == "PUT":
            topic = self.topics.setdefault(name, Topic({}))
            body = await request.read()
            topic.settings = json.loads(body) if body else {}
        return web.json_response(self._described(name), status=201 if made else 200)

    async def _publish(self, request: web.Request) -> web.Response:
        name, topic = self._topic(request)
        body = await request.read()
        key = request.headers["Idempotency-Key"].strip('"')
        self.keys.append(key)
        content_type = request.headers.get("Content-Type", "")
        if key in self._names:
            if self._names[key][0] != body:
                return problem(422, "unprocessable", "this Idempotency-Key was used for another request")
            return web.json_response(self._names[key][1], status=201, headers={"Idempotency-Replayed": "true"})
        if content_type == "application/vnd.griphub.events+json":
            drafts = json.loads(body)["events"]
        else:
            draft: dict[str, Any] = {"content_type": content_type}
            if "Event-Key" in request.headers:
                draft["key"] = unquote(request.headers["Event-Key"])
            if content_type == "application/json":
                draft["data"] = json.loads(body)
            else:
                draft["data_base64"] = base64.b64encode(body).decode()
            drafts = [draft]
        if any(draft.get("data") == "bad" for draft in drafts):
            return problem(400, "bad-request", "bad data")
        match = request.headers.get("If-Match")
        of_key = unquote(request.headers.get("Event-Key", ""))
        last = [event["cursor"] for event in topic.events if not of_key or event.get("key") == of_key][-1:] or ["0"]
        if match is not None and match.strip('"') != last[0]:
            return problem(412, "condition", f"the last event is {last[0]}", last_cursor=last[0])
        stored = self._store(name, drafts)
        self.batches.append(len(stored))
        answer = {
            "events": [{"id": event["id"], "cursor": event["cursor"], "time": event["time"]} for event in stored],
            "version": stored[-1]["version"],
            "version_cursor": stored[-1]["version_cursor"],
        }
        self._names[key] = (body, answer)
        return web.json_response(answer, status=201)

    def _place(self, request: web.Request, topic: Topic) -> int:
        """Return the id behind which a reading begins; -1 if it is gone."""
        text = request.headers.get("Last-Event-ID") or request.query.get("after", "0")
        if "since" in request.query and "Last-Event-ID" not in request.headers:
            times = [int(event["id"]) for event in topic.events if event["time"] <= request.query["since"]]
            return max(times, default=topic.floor)
        epoch, _, number = text.rpartition(".")
        id = int(number)
        known = epoch in ("", EPOCH) and id <= self._last
        if known and id >= topic.floor:
            return id
        return topic.floor if request.query.get("truncated") == "allow" else -1

    def _chosen(self, request: web.Request, topic: Topic, after: int) -> list[dict[str, Any]]:
        low, high = request.query.get("low"), request.query.get("high")
        until = request.query.get("until")
        return [
            event
            for event in topic.events
            if int(event["id"]) > after
            and (until is None or event["time"] <= until)
            and (low is None or event.get("key", "") >= low)
            and (high is None or ("key" in event and event["key"] < high))
        ]

    def _loss(self, topic: Topic) -> dict[str, Any]:
        return {
            "floor": str(topic.floor),
            "floor_cursor": self._cursor(topic.floor),
            "oldest_time": "2026-01-01T00:00:00.000000Z",
            "snapshot": "snapshot",
        }

    async def _read(self, request: web.Request) -> web.StreamResponse:
        _, topic = self._topic(request)
        if "text/event-stream" in request.headers.get("Accept", ""):
            return await self._follow(request, topic)
        after = self._place(request, topic)
        if after < 0:
            return problem(410, "gone", "events up to the floor are not retained", **self._loss(topic))
        limit = min(int(request.query.get("limit", self.page)), self.page)
        chosen = self._chosen(request, topic, after)
        page, more = chosen[:limit], len(chosen) > limit
        cursor = page[-1]["cursor"] if more else self._cursor(self._last)
        answer: dict[str, Any] = {"events": page, "cursor": cursor, "more": more}
        if request.query.get("truncated") == "allow" and topic.floor > 0 and after == topic.floor:
            answer["truncated"] = {"type": "truncated", **self._loss(topic)}
        return web.json_response(answer)

    async def _snapshot(self, request: web.Request) -> web.Response:
        _, topic = self._topic(request)
        version = int(request.query.get("version", self._cursor(self._last)).rpartition(".")[2])
        if version < topic.floor:
            return problem(410, "gone", f"the version {version} is not retained", **self._loss(topic))
        place = {"version": str(version), "cursor": self._cursor(version)}
        chosen = [event for event in self._chosen(request, topic, 0) if int(event["id"]) <= version]
        table = {event["key"]: event for event in chosen if "key" in event}
        lines = [{"type": "snapshot", **place}, *(event for _, event in sorted(table.items()))]
        if self.whole:
            lines.append({"complete": place["version"], "cursor": place["cursor"]})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        return web.Response(text=text, content_type="application/x-ndjson")

    async def _follow(self, request: web.Request, topic: Topic) -> web.StreamResponse:
        if request.headers.get("Last-Event-ID") == "resync":
            return web.Response(status=204)
        after = self._place(request, topic)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if after < 0:
            data = json.dumps({"type": "resync", "reason": "not retained", **self._loss(topic)})
            await response.write(f"event: resync\nid: resync\ndata: {data}\n\n".encode())
            return response
        if after == topic.floor > 0 and "Last-Event-ID" not in request.headers:
            data = json.dumps({"type": "truncated", **self._loss(topic)})
            await response.write(f"event: truncated\ndata: {data}\n\n".encode())
        cut = self._cut
        self.followers += 1
        try:
            while not cut.is_set():
                changed = self._changed
                for event in self._chosen(request, topic, after):
                    after = int(event["id"])
                    await response.write(f"id: {event['cursor']}\ndata: {json.dumps(event)}\n\n".encode())
                waits = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(cut.wait())]
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for wait in waits:
                        wait.cancel()
        finally:
            self.followers -= 1
        assert request.transport is not None
        request.transport.abort()
        return response

    def application(self) -> web.Application:
        """Return the application."""
        self._changed, self._cut = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        application = web.Application(middlewares=[self._around], client_max_size=2**26)
        application.router.add_get("/hub/topics", self._list)
        application.router.add_get("/hub/subscribers", self._subscribers)
        application.router.add_get("/hub/subscriptions", self._subscriptions)
        application.router.add_get("/hub/push-subscriptions", self._subscriptions)
        application.router.add_get("/hub/topics/{topic:[^/]+}/subscriptions", self._subscriptions)
        for method in ("GET", "PUT", "DELETE"):
            application.router.add_route(method, "/hub/topics/{topic:[^/]+}", self._settings)
        application.router.add_get("/hub/topics/{topic:[^/]+}/events", self._read)
        application.router.add_get("/hub/topics/{topic:[^/]+}/snapshot", self._snapshot)
        application.router.add_post("/hub/topics/{topic:[^/]+}/events", self._publish)
        return application


@contextlib.contextmanager
def small_hub() -> Iterator[SmallHub]:
    """A hub on a free port, ended with the context."""
    hub = SmallHub()
    ready = threading.Event()
    end: list[Callable[[], object]] = []

    async def serve() -> None:
        runner = web.AppRunner(hub.application(), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        hub.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hub"
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        end.append(lambda: loop.call_soon_threadsafe(ended.set))
        ready.set()
        await ended.wait()
        hub._cut.set()
        await runner.cleanup()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield hub
    finally:
        hub.gate.set()
        end[0]()
        thread.join(30)


@contextlib.contextmanager
def hub_of_commands(patch: pytest.MonkeyPatch) -> Iterator[SmallHub]:
    """A hub that ``gripproxy hub`` finds by its environment, ended with the context.

    Args:
        patch: of the test.
    """
    patch.delenv("GRIPPROXY_HUB_TOKEN", raising=False)
    with small_hub() as hub:
        patch.setenv("GRIPPROXY_HUB_URL", hub.url)
        yield hub


def wait_until(true: Callable[[], bool]) -> None:
    """Wait until something is true.

    Args:
        true: returns whether it is.
    """
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)
