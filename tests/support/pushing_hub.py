"""A hub in memory on the running loop: history, subscriptions and pushes, which it loses, repeats and reorders."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import secrets
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp
from aiohttp import web

from griphub.sender.challenge import new_challenge
from griphub.sender.signature import Signer, SigningKey
from tests.support.small_hub import problem

__all__ = ["Network", "PushingHub", "Standing", "pushing_hub", "signed"]

PUSH_TIMEOUT: Final = 10.0


@dataclass
class Network:
    """Fate of each push.

    Attributes:
        loss: share that is not sent; the hub believes that it was received.
        repetition: share that is sent twice.
        delay: seconds of the longest delay; pushes do not wait for each other.
    """

    loss: float = 0.0
    repetition: float = 0.0
    delay: float = 0.0


@dataclass
class Standing:
    """Subscription.

    Attributes:
        id: chosen by the subscriber.
        callback: URL.
        key: that it is signed with.
        position: id up to which events were given to the network.
        state: as the API shows it.
        begun: requests that made it, or made it again.
        answers: status codes of the answers to its pushes.
    """

    id: str
    callback: str
    key: SigningKey
    position: int
    state: str = "challenging"
    begun: int = 1
    answers: list[int] = field(default_factory=list)


def signed(key: SigningKey, body: bytes, wall: float | None = None, id: str = "1") -> dict[str, str]:
    """Return the headers of a signed request."""
    return dict(Signer([key]).headers(id, time.time() if wall is None else wall, body))


class PushingHub:
    """Hub with one topic ``t``.

    Attributes:
        events: as objects of the API.
        floor: id up to which events are not retained.
        subscriptions: those that stand, by id.
        made: ids of all that were made, in order.
        network: fate of pushes.
        faults: status codes of the answers to requests, by method and kind (``POST subscriptions``).
        requests: method and path with query, in order.
        url: of the hub.
    """

    def __init__(self, seed: int = 1) -> None:
        self.chance = random.Random(seed)
        self.epoch = "e0"
        self.events: list[dict[str, Any]] = []
        self.floor = 0
        self.newest = 0
        self.subscriptions: dict[str, Standing] = {}
        self.made: list[str] = []
        self.network = Network()
        self.faults: dict[str, int] = {}
        self.requests: list[tuple[str, str]] = []
        self.page = 100
        self.clock = 0.0
        """Seconds by which the clock is ahead."""
        self.rights = 30 * 86_400.0
        """Seconds for which a subscription keeps its rights."""
        self.url = ""
        self._time = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None

    # --- publishing

    def publish(self, *data: Any) -> None:
        """Store events, and push them."""
        for each in data:
            previous = self.events[-1]["id"] if self.events else str(self.floor)
            self.newest += 1
            self._time = max(time.time() + self.clock, self._time + 1e-6)
            cursor = f"{self.epoch}.{self.newest}"
            self.events.append(
                {
                    "type": "event",
                    "id": str(self.newest),
                    "cursor": cursor,
                    "prev_id": previous,
                    "version": str(self.newest),
                    "version_cursor": cursor,
                    "time": datetime.fromtimestamp(self._time, UTC).isoformat(timespec="microseconds"),
                    "content_type": "application/json",
                    "data": each,
                }
            )
        for subscription in list(self.subscriptions.values()):
            self._push_all(subscription)

    def trim(self, floor: int) -> None:
        """Raise the floor: events up to it are not retained."""
        self.floor = floor
        self.events = [event for event in self.events if int(event["id"]) > floor]

    def _push_all(self, subscription: Standing) -> None:
        if subscription.state != "live":
            return
        for event in self.events:
            if int(event["id"]) > subscription.position:
                subscription.position = int(event["id"])
                if self.chance.random() >= self.network.loss:
                    for _ in range(2 if self.chance.random() < self.network.repetition else 1):
                        delay = self.network.delay * self.chance.random()
                        self._spawn(self._push(subscription, event, delay))

    async def _push(self, subscription: Standing, event: dict[str, Any], delay: float) -> None:
        await asyncio.sleep(delay)
        body = json.dumps({"subscription_id": subscription.id, "topic": "t", **event}).encode()
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            subscription.answers.append((await self.send(subscription, body))[0])

    async def send(self, subscription: Standing, body: bytes) -> tuple[int, str]:
        """Send a request to a callback; return status and content of its answer."""
        assert self._session is not None
        headers = signed(subscription.key, body)
        async with self._session.post(subscription.callback, data=body, headers=headers) as answer:
            return answer.status, await answer.text()

    # --- HTTP

    async def _handle(self, request: web.Request) -> web.Response:
        self.requests.append((request.method, request.rel_url.raw_path_qs))
        kind = request.match_info.get("kind", "topic")
        status = self.faults.get(f"{request.method} {kind}")
        if status is not None:
            return problem(status, "fault", "a fault", **self._loss())
        match request.method, kind:
            case "GET", "events":
                return self._read(request)
            case "POST", "subscriptions":
                return await self._subscribe(json.loads(await request.read()))
            case "GET", "subscriptions":
                found = self.subscriptions.get(request.match_info["id"])
                return problem(404, "not-found", "no such subscription") if found is None else self._shown(found)
            case "DELETE", "subscriptions":
                self.subscriptions.pop(request.match_info["id"], None)
                return web.Response(status=204)
        return web.json_response({"last_cursor": self._cursor(self.newest)})

    def _cursor(self, id: int) -> str:
        return f"{self.epoch}.{id}" if id else "0"

    def _loss(self) -> dict[str, Any]:
        return {"floor_cursor": self._cursor(self.floor), "oldest_time": None, "snapshot": "snapshot"}

    def _place(self, query: Any) -> int | None:
        if "since" in query:
            since = datetime.fromisoformat(query["since"])
            ids = [int(each["id"]) for each in self.events if datetime.fromisoformat(each["time"]) <= since]
            return max(ids, default=self.floor)
        epoch, _, number = query["after"].rpartition(".")
        id = int(number)
        return id if id >= self.floor and epoch in ("", self.epoch) and id <= self.newest else None

    def _read(self, request: web.Request) -> web.Response:
        after = self._place(request.query)
        if after is None:
            return problem(410, "gone", "not retained", **self._loss())
        if "until" in request.query:
            return web.json_response({"events": [], "cursor": self._cursor(after), "more": False})
        limit = min(self.page, int(request.query.get("limit", "100")))
        found = [event for event in self.events if int(event["id"]) > after]
        more = len(found) > limit
        cursor = found[limit - 1]["cursor"] if more else self._cursor(self.newest)
        return web.json_response({"events": found[:limit], "cursor": cursor, "more": more})

    async def _subscribe(self, body: dict[str, str]) -> web.Response:
        after = self._place(body)
        if after is None:
            return problem(410, "gone", "not retained", **self._loss())
        found = self.subscriptions.get(body["subscription_id"])
        if found is not None:
            found.begun += 1
            found.state = "live" if found.state == "resting" else found.state
            self._push_all(found)
            return self._shown(found)
        key = SigningKey.parse(body["signing_key"])
        made = Standing(body["subscription_id"], body["callback"], key, after)
        self.made.append(made.id)
        self.subscriptions[made.id] = made
        self._spawn(self._begin(made))
        return self._shown(made, 201)

    async def _begin(self, subscription: Standing) -> None:
        challenge = new_challenge(secrets.token_bytes, 0.0)
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            status, text = await self.send(subscription, challenge.body(subscription.id))
            if challenge.judge(status, text.encode(), 1.0).failure is None:
                subscription.state = "live"
                self._push_all(subscription)
                return
        subscription.state = "resting"

    def _shown(self, subscription: Standing, status: int = 200) -> web.Response:
        return web.json_response(
            {
                "subscription_id": subscription.id,
                "state": subscription.state,
                "position": self._cursor(subscription.position),
                "lag": 0.0,
                "created": datetime.fromtimestamp(0, UTC).isoformat(timespec="microseconds"),
                "rights_end": datetime.fromtimestamp(self.rights, UTC).isoformat(timespec="microseconds"),
            },
            status=status,
        )

    # --- life

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[PushingHub]:
        """Serve for the time of the block."""
        application = web.Application()
        for path in ("/hub/topics/t", "/hub/topics/t/{kind}", "/hub/topics/t/{kind}/{id}"):
            application.router.add_route("*", path, self._handle)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hub"
        timeout = aiohttp.ClientTimeout(total=PUSH_TIMEOUT)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as self._session:
                yield self
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            await runner.cleanup()


@contextlib.asynccontextmanager
async def pushing_hub(seed: int = 1) -> AsyncIterator[PushingHub]:
    """A hub on a free port, ended with the block."""
    async with PushingHub(seed).running() as hub:
        yield hub
