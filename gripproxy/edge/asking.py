"""The requests that filters make (docs/grip.md §7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gripproxy.edge.fetch import Fetch, Pace
from gripproxy.grip.filters import ASK_RATE, ASK_TIMEOUT, Ask, AskAnswer
from gripproxy.grip.response import Response
from gripproxy.log import log
from gripproxy.routes import Route

if TYPE_CHECKING:
    from gripproxy.worker import Worker

__all__ = ["WAITING_BYTES", "WAITING_MAX", "Asking"]

WAITING_MAX: Final = 10_000
"""Filter requests that may wait for their turn; further ones fail."""

WAITING_BYTES: Final = 32 * 1024 * 1024
"""Bytes of filter requests that wait or are under way, over all URLs; further ones fail. Sessions with equal requests
about an item share one; what ``http-modify`` posts is else a content of its own for each of them."""

PACES_MAX: Final = 1000
"""URLs whose pace is remembered; with one more all begin anew."""


class Asking:
    """Performs the requests of filters, at most ASK_RATE a second for one URL."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._paces: dict[bytes, Pace] = {}
        self._bytes = 0

    def ask(
        self, ask: Ask, uri: bytes, route: object, untrusted: bool, answer: Callable[[AskAnswer | None], None]
    ) -> None:
        """Perform one request; ``answer`` is called in a later turn, with None if there is no answer.

        Args:
            ask: the request; its URL is absolute.
            uri: of the client's request, which may be a WebSocket's; a URL on its host goes by the route.
            route: that of the client.
            untrusted: an untrusted target gave the meta that names the URL.
            answer: takes the answer.
        """
        assert isinstance(route, Route)
        if uri[:3] in (b"ws:", b"wss"):
            uri = b"http" + uri[2:]
        loop = self._worker.loop

        size = len(ask.body) + sum([len(name) + len(value) for name, value in ask.headers])

        def done(response: Response | None) -> None:
            self._bytes -= size
            answer(None if response is None else AskAnswer(response.code, response.headers, response.body))

        def start() -> None:
            Fetch(
                self._worker,
                route,
                uri,
                ask.url,
                b"POST",
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
            pace = self._paces[ask.url] = Pace(ASK_RATE, 0.025, WAITING_MAX, loop.call_later)
        if self._bytes + size <= WAITING_BYTES and pace.add(start):
            self._bytes += size
        else:
            log.warning("too many filter requests wait for %s", ask.url)
            loop.call_soon(answer, None)
