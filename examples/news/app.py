"""News: a publisher and two subscribers of the hub in one program, behind a network that loses pushes on request.

Each subscriber has a page's column, a switch and a knob. The hub pushes to ``/callback/NAME``, which stands for a bad
network: it loses three pushes of ten, or passes them on to the port of the subscriber itself. The list of each
subscriber becomes that of the publisher nevertheless, in order and without repetition.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import pathlib
import random
import tempfile
import time
from collections import Counter, deque
from dataclasses import asdict
from typing import Any

import aiohttp
import jwt
from aiohttp import web

from griphub import HubError, Publisher, ReceivedEvent, Report, Strategy, Subscriber
from griphub.client.connection import HubConnection

PAGE = (pathlib.Path(__file__).parent / "page.html").read_bytes()
TOPIC = "news"
SHOWN = 40  # lines of a list on the page
REMEMBERED = 10_000  # ids of pushes, of which the oldest are forgotten
LOSS = 0.3
MAX_TEXT = 500  # bytes of a posted line
WORDS = ["rain", "sun", "snow", "wind", "fog", "hail", "frost", "thaw", "storm", "calm"]


def token() -> str:
    """Make a token for the next request: a short one, since it is made anew each time."""
    claims = {"iss": "news", "sub": "example", "aud": "gripproxy-hub", "exp": int(time.time()) + 300}
    rights = {name: ["*"] for name in ("publish", "subscribe", "admin")}
    return jwt.encode({**claims, **rights}, os.environ["HUB_KEY"], "HS256")


class Reader:
    """One subscriber, its network, and the figures of both."""

    def __init__(self, name: str, hub: str, place: pathlib.Path) -> None:
        self.name = name
        self.hub = hub
        self.place = place
        self.callback = f"http://127.0.0.1:{os.environ['PORT']}/callback/{name}"
        self.strategy = Strategy.PUSH_AND_POLL
        self.loss = 0.0
        self.lost: dict[str, None] = {}
        self.passed: dict[str, None] = {}
        self.lines: deque[dict[str, str]] = deque(maxlen=SHOWN)
        self.received = self.repaired = self.faults = 0
        self.last: ReceivedEvent | None = None
        self.reports: deque[str] = deque(maxlen=5)
        self.counts: Counter[str] = Counter()  # of the subscribers before this one
        self.subscriber: Subscriber | None = None
        self.task: asyncio.Task[None] | None = None

    def switch_on(self) -> None:
        """Begin where it was: the file has the place."""
        if self.task is None:
            self.task = asyncio.create_task(self.read())

    async def switch_off(self) -> None:
        """End, as a process would that is stopped."""
        task, self.task = self.task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def read(self) -> None:
        """Read the topic until switched off."""
        while True:
            try:
                subscriber = Subscriber(
                    self.hub,
                    TOPIC,
                    token=token,
                    callback_url=self.callback,
                    port=0,
                    state_path=self.place,
                    strategy=self.strategy,
                    on_report=self.report,
                )
                async with subscriber as self.subscriber:
                    async for event in subscriber:
                        self.take(event)
            except HubError as error:
                # Until the topic is made.
                self.reports.appendleft(str(error))
                await asyncio.sleep(1)
            finally:
                if self.subscriber is not None:
                    self.counts.update(asdict(self.subscriber.counts))
                self.subscriber = None

    def take(self, event: ReceivedEvent) -> None:
        """Process one event. The one that was taken before a stop, and not processed, is given again."""
        if self.last is not None and event.id == self.last.id:
            return
        if self.last is not None and event.prev_id != self.last.id:
            self.faults += 1
        self.last = event
        self.received += 1
        way = "push" if event.id in self.passed else "repair" if event.id in self.lost else "poll"
        self.repaired += way == "repair"
        self.lines.appendleft({"id": event.id, "text": str(event.data), "way": way})

    def report(self, report: Report) -> None:
        """Show a report."""
        self.reports.appendleft(f"{report.kind.value}: {report.reason or f'{report.after} to {report.until}'}")

    async def network(self, request: web.Request, session: aiohttp.ClientSession) -> web.Response:
        """Pass a push on, or lose it: then the hub believes that it was received."""
        body = await request.read()
        id = str(json.loads(body).get("id", ""))
        if id and random.random() < self.loss:
            remember(self.lost, id)
            return web.Response(status=204)
        subscriber = self.subscriber
        if subscriber is None or not subscriber.port:
            return web.Response(status=503)
        headers = {name: value for name, value in request.headers.items() if name.lower().startswith("webhook-")}
        # Before it is received: its event is shown directly.
        remember(self.passed, id)
        try:
            async with session.post(
                f"http://127.0.0.1:{subscriber.port}/callback/{self.name}", data=body, headers=headers
            ) as answer:
                return web.Response(status=answer.status, body=await answer.read())
        except aiohttp.ClientError:
            return web.Response(status=503)

    def shown(self) -> dict[str, Any]:
        """Return the figures and the list for the page."""
        subscriber = self.subscriber
        return {
            "name": self.name,
            "on": self.task is not None,
            "strategy": self.strategy.value,
            "loss": self.loss > 0,
            "received": self.received,
            "lost": len(self.lost),
            "repaired": self.repaired,
            "faults": self.faults,
            "last": self.last.id if self.last else "0",
            "subscription": subscriber.subscription_id if subscriber else None,
            "counts": self.counts + Counter(asdict(subscriber.counts) if subscriber else {}),
            "lines": list(self.lines),
            "reports": list(self.reports),
        }


def remember(ids: dict[str, None], id: str) -> None:
    """Add an id, and forget the oldest beyond the bound."""
    ids[id] = None
    if len(ids) > REMEMBERED:
        del ids[next(iter(ids))]


class News:
    """The program: its page, its publisher and its readers."""

    def __init__(self, hub: str, folder: pathlib.Path) -> None:
        self.hub = hub
        self.readers = {name: Reader(name, hub, folder / name) for name in ("one", "two")}
        self.publishing = True
        self.published = 0
        self.last = "0"
        self.lines: deque[dict[str, str]] = deque(maxlen=SHOWN)
        self.publisher: Publisher
        self.session: aiohttp.ClientSession

    async def life(self, _: web.Application) -> Any:
        """Run beside the server, which aiohttp asks for: up to ``yield`` at the start, the rest at the end."""
        async with aiohttp.ClientSession() as self.session, Publisher(self.hub, TOPIC, token=token) as self.publisher:
            tasks = [asyncio.create_task(self.begin())]
            yield
            for task in tasks:
                task.cancel()
            await asyncio.gather(
                *tasks, *(reader.switch_off() for reader in self.readers.values()), return_exceptions=True
            )

    async def begin(self) -> None:
        """Make the topic once the hub is there, and publish a line now and then."""
        async with HubConnection(self.hub, token) as connection:
            while True:
                with contextlib.suppress(HubError):
                    if (await connection.request("PUT", ("topics", TOPIC), body=b"{}")).status in (200, 201):
                        break
                await asyncio.sleep(0.2)
        for reader in self.readers.values():
            reader.switch_on()
        for number in itertools.count(1):
            if self.publishing:
                with contextlib.suppress(HubError):
                    await self.publish(f"{number}: {random.choice(WORDS)}")
            await asyncio.sleep(1)

    async def publish(self, text: str) -> None:
        """Store a line; the hub pushes it to both."""
        receipt = await self.publisher.publish(text)
        self.published += 1
        self.last = receipt.id
        self.lines.appendleft({"id": receipt.id, "text": text})

    # --- requests

    async def page(self, _: web.Request) -> web.Response:
        """Answer the page."""
        return web.Response(body=PAGE, content_type="text/html", charset="utf-8")

    async def state(self, _: web.Request) -> web.Response:
        """Answer the figures and lists for the page."""
        document = {
            "publishing": self.publishing,
            "published": self.published,
            "last": self.last,
            "lines": list(self.lines),
            "readers": [reader.shown() for reader in self.readers.values()],
        }
        return web.json_response(document, headers={"Cache-Control": "no-store"})

    async def post(self, request: web.Request) -> web.Response:
        """Publish the posted line."""
        text = (await request.content.read(MAX_TEXT + 1)).decode("utf-8", "replace")
        if not 0 < len(text.encode()) <= MAX_TEXT:
            return web.Response(status=400, text=f"Post a text of at most {MAX_TEXT} bytes.\n")
        try:
            await self.publish(text)
        except HubError as error:
            return web.Response(status=503, text=f"The hub did not take it: {error}\n")
        return web.Response(text="Published\n")

    async def burst(self, _: web.Request) -> web.Response:
        """Publish a hundred lines, one after the other."""
        for number in range(1, 101):
            await self.publish(f"burst {number}")
        return web.Response(text="Published\n")

    async def publisher_switch(self, request: web.Request) -> web.Response:
        """Switch the publisher's own lines on or off."""
        self.publishing = request.match_info["to"] == "on"
        return web.Response(text="Done\n")

    async def reader_switch(self, request: web.Request) -> web.Response:
        """Switch a subscriber, its strategy, or the losses of its network."""
        reader = self.readers[request.match_info["name"]]
        match request.match_info["to"]:
            case "on":
                reader.switch_on()
            case "off":
                await reader.switch_off()
            case "lossy":
                reader.loss = LOSS
            case "sound":
                reader.loss = 0.0
            case to:
                reader.strategy = Strategy(to.replace("-", " "))
                if reader.subscriber is not None:
                    reader.subscriber.switch(reader.strategy)
        return web.Response(text="Done\n")

    async def callback(self, request: web.Request) -> web.Response:
        """Take a push of the hub."""
        return await self.readers[request.match_info["name"]].network(request, self.session)

    async def token(self, _: web.Request) -> web.Response:
        """Answer a token for the shell: this program is one for your own machine."""
        return web.Response(text=token())

    def application(self) -> web.Application:
        """Return the application."""
        application = web.Application(client_max_size=2**25)
        router = application.router
        router.add_get("/", self.page)
        router.add_get("/state", self.state)
        router.add_get("/token", self.token)
        router.add_post("/publish", self.post)
        router.add_post("/burst", self.burst)
        router.add_post("/publisher/{to:on|off}", self.publisher_switch)
        router.add_post(
            "/readers/{name:one|two}/{to:on|off|lossy|sound|push-and-poll|poll-only|push-only}", self.reader_switch
        )
        router.add_post("/callback/{name:one|two}", self.callback)
        application.cleanup_ctx.append(self.life)
        return application


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="news-") as folder:
        news = News(os.environ["HUB_URL"], pathlib.Path(folder))
        web.run_app(news.application(), host="127.0.0.1", port=int(os.environ["PORT"]), print=None, access_log=None)
