"""Receiver of callbacks: a server that answers as a test wants, and records all that it is sent."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests.support.hub import until

__all__ = ["Behaviour", "PushRequest", "WebhookReceiver", "hang", "signed_by", "usual", "webhook_receiver"]

Behaviour = Callable[["PushRequest"], Awaitable[web.StreamResponse | None]]
"""Answer to a request; None for the usual one."""


@dataclass(frozen=True, slots=True)
class PushRequest:
    """Request of the sender.

    Attributes:
        path: of its target.
        headers: names in lower case.
        body: its content.
        document: the content as JSON.
        began: monotonic time in seconds.
    """

    path: str
    headers: Mapping[str, str]
    body: bytes
    document: dict[str, Any]
    began: float

    @property
    def challenge(self) -> str | None:
        """Token that is to be repeated; None for an event."""
        return self.document.get("challenge") if self.document.get("type") == "challenge" else None

    @property
    def subscription(self) -> str:
        """Id of the subscription."""
        return str(self.document["subscription_id"])


def signed_by(request: PushRequest, key: str) -> bool:
    """Return whether a request is signed by a key, as Standard Webhooks have it.

    Args:
        request: the request.
        key: ``whsec_`` and base64.
    """
    secret = base64.b64decode(key.removeprefix("whsec_"))
    head = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode()
    expected = base64.b64encode(hmac.digest(secret, head + request.body, "sha256")).decode()
    fresh = abs(time.time() - int(request.headers["webhook-timestamp"])) < 60
    return fresh and f"v1,{expected}" in request.headers["webhook-signature"].split(" ")


class WebhookReceiver:
    """Receiver on a port of its own.

    Args:
        host: address that it listens on.

    Attributes:
        host: that of the arguments.
        port: of the server.
        requests: all requests, in the order of their beginnings.
        events: those with an event that were answered with 2xx, in order.
        behaviour: answers further requests.
    """

    def __init__(self, host: str) -> None:
        self.host = host
        self.port = 0
        self.requests: list[PushRequest] = []
        self.events: list[PushRequest] = []
        self.behaviour: Behaviour = usual

    @property
    def url(self) -> str:
        """URL of the callback."""
        return f"http://{self.host}:{self.port}/callback"

    @property
    def data(self) -> list[Any]:
        """Data of the events that were answered with 2xx, in order."""
        return [request.document["data"] for request in self.events]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request of aiohttp."""
        began = time.monotonic()
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        push = PushRequest(request.path, headers, body, json.loads(body), began)
        self.requests.append(push)
        response = await self.behaviour(push)
        if response is None:
            response = web.Response(text=push.challenge) if push.challenge else web.Response(status=204)
        if push.challenge is None and 200 <= response.status <= 299:
            self.events.append(push)
        return response

    async def wait(self, count: int) -> None:
        """Wait until ``count`` events were answered with 2xx."""
        await until(lambda: len(self.events) >= count, f"{count} events")

    async def wait_for_requests(self, count: int) -> None:
        """Wait until ``count`` requests have begun."""
        await until(lambda: len(self.requests) >= count, f"{count} requests")


async def usual(request: PushRequest) -> web.StreamResponse | None:
    """Confirm challenges and acknowledge events."""
    return None


@contextlib.asynccontextmanager
async def webhook_receiver(port: int = 0, host: str = "127.0.0.1") -> AsyncIterator[WebhookReceiver]:
    """A receiver of callbacks for the time of the block.

    Args:
        port: to listen on; 0 for a free one.
        host: address to listen on.
    """
    receiver = WebhookReceiver(host)
    application = web.Application(client_max_size=2**26)
    application.router.add_post("/{path:.*}", receiver.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        receiver.port = runner.addresses[0][1]
        yield receiver
    finally:
        await runner.cleanup()


async def hang(request: PushRequest) -> web.StreamResponse | None:
    """Never answer."""
    await asyncio.Event().wait()
    return None
