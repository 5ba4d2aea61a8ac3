"""Callback of a run with a hub: a standing subscription, so that there is a sender, and the events that it pushes."""

from __future__ import annotations

import secrets
import time
from typing import Final

import aiohttp
import jwt
from aiohttp import web

from tests.faults.hub_crowd import Topic

__all__ = ["CONFIG", "Callback"]

SECRET: Final = secrets.token_urlsafe(32)

CONFIG: Final = {
    "hub.hub_key": SECRET,
    "hub.callback_allow": "127.0.0.0/8",
    "hub.callback_pause": "0.1",
    # This machine is busy with the crowd: an answer that takes its time is no failure.
    "hub.callback_timeout": "60",
}
"""Changes of the config of ``hub_site``: only an owner with a token has subscriptions."""

LIFE: Final = 86_400
"""Seconds for which the token is valid: longer than any run."""


class Callback:
    """Receiver of the events of one topic.

    Args:
        topic: the topic.
    """

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.name = f"callback of {topic.name}"
        self.ids: set[int] = set()
        """Ids of the events received."""
        self.repeated = 0
        """Pushes of events that were there."""

    @property
    def place(self) -> int:
        """Greatest id that was received."""
        return max(self.ids, default=0)

    async def open(self, session: aiohttp.ClientSession) -> web.AppRunner:
        """Listen, and make the subscription.

        Args:
            session: of HTTP.

        Returns:
            The server, to be cleaned up.
        """
        application = web.Application()
        application.router.add_post("/callback", self._receive)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        [(host, port, *_)] = runner.addresses
        claims = {"iss": "soak", "sub": "callback", "aud": "gripproxy-hub", "exp": int(time.time()) + LIFE}
        token = jwt.encode({**claims, "subscribe": ["*"]}, SECRET, "HS256")
        body = {"subscription_id": "soak", "callback": f"http://{host}:{port}/callback", "after": "0"}
        async with session.post(
            f"{self.topic.url}/subscriptions", json=body, headers={"Authorization": f"Bearer {token}"}
        ) as response:
            assert response.status == 201, await response.text()
        return runner

    async def _receive(self, request: web.Request) -> web.Response:
        document = await request.json()
        if document.get("type") == "challenge":
            return web.Response(text=document["challenge"])
        id = int(document["id"])
        self.repeated += id in self.ids
        self.ids.add(id)
        return web.Response(status=204)
