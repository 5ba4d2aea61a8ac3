"""Filter requests: rate and memory limits of the HTTP requests that filters make (docs/grip.md §7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gripproxy.backend.context import BackendContext
from gripproxy.backend.rate_limiter import RateLimiter
from gripproxy.backend.subrequest import Subrequest
from gripproxy.grip.filters import ASK_RATE, ASK_TIMEOUT, Ask, AskAnswer
from gripproxy.grip.response import Response
from gripproxy.process.log import log
from gripproxy.routing.route import Route

__all__ = ["WAITING_BYTES", "WAITING_MAX", "FilterRequests"]

WAITING_MAX: Final = 10_000
"""Filter requests to one URL that its rate limiter may queue; further ones fail."""

WAITING_BYTES: Final = 32 * 1024 * 1024
"""Bytes of queued and running filter requests to all URLs; further ones fail. Sessions with equal requests about an
item share one; each unequal one of ``http-modify`` may hold a content of its own."""

PACES_MAX: Final = 1000
"""Number of rate limiters kept, one per URL; a new URL beyond it clears all of them."""


class FilterRequests:
    """Sender of the requests of filters, at most ASK_RATE per second to one URL.

    Args:
        context: Parts of the worker that requests use.
    """

    def __init__(self, context: BackendContext) -> None:
        self._context = context
        self._paces: dict[bytes, RateLimiter] = {}
        self._bytes = 0

    def ask(
        self, ask: Ask, uri: bytes, route: object, untrusted: bool, answer: Callable[[AskAnswer | None], None]
    ) -> None:
        """Send one request, or refuse it with a warning if too many wait.

        Args:
            ask: The request; its URL is absolute.
            uri: URI of the client's request, of scheme http, https, ws or wss; a URL on its host follows the route.
            route: Route of the client.
            untrusted: True if the URL is from the meta of an untrusted target.
            answer: Called once in a later turn of the loop, with the response, or None if there is none.
        """
        assert isinstance(route, Route)
        if uri[:3] in (b"ws:", b"wss"):
            uri = b"http" + uri[2:]
        loop = self._context.loop

        size = len(ask.body) + sum([len(name) + len(value) for name, value in ask.headers])

        def done(response: Response | None) -> None:
            self._bytes -= size
            answer(None if response is None else AskAnswer(response.code, response.headers, response.body))

        def start() -> None:
            Subrequest(
                self._context,
                route,
                uri,
                ask.url,
                list(ask.headers),
                ask.body,
                ASK_TIMEOUT,
                done,
                untrusted=untrusted,
                got="item-skipped",
            )

        pace = self._paces.get(ask.url)
        if pace is None:
            if len(self._paces) > PACES_MAX:
                self._paces.clear()
            pace = self._paces[ask.url] = RateLimiter(ASK_RATE, 0.025, WAITING_MAX, loop.call_later)
        if self._bytes + size <= WAITING_BYTES and pace.add(start):
            self._bytes += size
        else:
            log.warning("filter request dropped", reason="too many wait", url=ask.url)
            loop.call_soon(answer, None)
