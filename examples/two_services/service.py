"""One of two services that follow each other's state: its own table, and a copy of the other one's.

    NAME=left PORT=8001 PEER=http://127.0.0.1:8002 python service.py

    GET /             both tables
    PUT /state/KEY    sets a value of its own table, to the text of the body

The copy converges whatever dies: the service follows with ``griphub.Mailbox``, which begins again after a restart of
the other one and reads its table anew.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from aiohttp import web
from mounted import MountedMailboxes

from griphub import Mailbox

TOPIC = "state"
KEYS_MAX = 1000
VALUE_MAX = 10_000


class Copy:
    """Copy of the table of the other service."""

    def __init__(self) -> None:
        self.run = ""
        self.table: dict[str, object] = {}

    def take(self, run: str, key: str, value: object) -> None:
        """Take an event; the first one of another run ends the table of the run before."""
        if run != self.run:
            self.run, self.table = run, {}
        self.table[key] = value


async def follow(peer: str, copy: Copy) -> None:
    """Follow the other service, whether it is there or not."""
    async with Mailbox(peer + "/mailboxes", on_failure=lambda reason: print("the other one:", reason)) as mailbox:
        await mailbox.subscribe(TOPIC, after="0")
        async for message in mailbox:
            event = message.event
            copy.take(event.cursor.partition(".")[0], event.key or "", event.data)


def application(name: str, peer: str) -> web.Application:
    """Return the service."""
    mailboxes, copy, table = MountedMailboxes(TOPIC), Copy(), dict[str, object]()

    def put(key: str, value: object) -> None:
        table[key] = value
        mailboxes.publish(key, value)

    async def show(_: web.Request) -> web.Response:
        return web.json_response({"name": name, "pid": os.getpid(), "mine": table, "other": copy.table})

    async def change(request: web.Request) -> web.Response:
        key, value = request.match_info["key"], await request.text()
        if len(value) > VALUE_MAX or (key not in table and len(table) >= KEYS_MAX):
            return web.Response(status=413, text=f"at most {KEYS_MAX} keys of {VALUE_MAX} characters\n")
        put(key, value)
        return web.Response(status=204)

    async def following(_: web.Application) -> AsyncIterator[None]:
        # A run has at least this one event, by which the other service sees that it is another one.
        put("started", mailboxes.epoch)
        task = asyncio.create_task(follow(peer, copy))
        yield
        task.cancel()
        await asyncio.wait([task])

    app = web.Application()
    app.router.add_get("/", show)
    app.router.add_put("/state/{key}", change)
    mailboxes.mount(app, "/mailboxes")
    app.cleanup_ctx.append(following)
    return app


if __name__ == "__main__":
    web.run_app(
        application(os.environ["NAME"], os.environ["PEER"]),
        host="127.0.0.1",
        port=int(os.environ["PORT"]),
        shutdown_timeout=1.0,
        print=None,
    )
