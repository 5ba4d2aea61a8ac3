"""A held request on its way to the backend again (docs/grip.md §6.5): one of those whose number is limited."""

from __future__ import annotations

from collections.abc import Hashable

from gripproxy.client.context import ClientContext
from gripproxy.client.exchange import Exchange
from gripproxy.client.ports import Downstream
from gripproxy.grip.response import Response
from gripproxy.http1.head_cache import ResponseHead
from gripproxy.http1.request_parser import Request
from gripproxy.routing.route import Route
from gripproxy.sessions.recovery_scheduler import failing
from gripproxy.stats.counters import RouteCounters

__all__ = ["RetriedExchange"]


class RetriedExchange(Exchange):
    """Exchange of a repeated held request: takes a place in its lane until the backend is done or waits for the client.

    Args:
        client: The client's connection.
        context: The context of client connections.
        request: The held request.
        serial: Serial of the request in this process.
        route: The route of the request.
        figures: Counters of the route.
        last_ids: Last ids for the backend: (channel name, id).
        because: Items for which the request is repeated: (channel name, id).
        lane: Key of the backend, whose number of requests under way is limited.
    """

    __slots__ = ("_failed", "_place")

    def __init__(
        self,
        client: Downstream,
        context: ClientContext,
        request: Request,
        serial: int,
        route: Route,
        figures: RouteCounters,
        last_ids: tuple[tuple[bytes, bytes], ...],
        because: tuple[tuple[bytes, bytes], ...],
        lane: Hashable,
    ) -> None:
        super().__init__(client, context, request, serial, route, figures, last_ids, because)
        self._place = context.scheduler.begin(lane)
        self._failed: bool | None = None

    def on_head(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self._failed = failing(code)
        super().on_head(code, reason, headers)

    def on_whole(self, head: ResponseHead, data: bytes) -> None:
        self._failed = failing(head.code)
        self._place.end(self._failed)
        super().on_whole(head, data)

    def on_complete(self) -> None:
        self._place.end(self._failed)
        super().on_complete()

    def client_blocked(self, blocked: bool) -> None:
        """Stop or resume reading: with a slow client the request no longer counts as one of the lane."""
        if blocked and self._failed is not None:
            self._place.end(self._failed)
        super().client_blocked(blocked)

    def _respond(self, response: Response) -> None:
        # Without a head of the backend the response is the proxy's own, for a failure.
        self._place.end(self._failed is None or self._failed)
        super()._respond(response)

    def expire(self) -> None:
        """The deadline has passed."""
        self._place.end(True)
        super().expire()

    def abort(self, code: int = 0) -> None:
        """The client is gone."""
        self._place.end(None)
        super().abort(code)
