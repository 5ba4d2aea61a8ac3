"""A held request on its way to the backend again (docs/grip.md §6.5): one of those whose number is limited."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from gripproxy.edge.exchange import Exchange
from gripproxy.edge.heads import ResponseHead
from gripproxy.edge.parser import Request
from gripproxy.grip.response import Response
from gripproxy.routes import Route
from gripproxy.sessions.updates import failing

if TYPE_CHECKING:
    from gripproxy.edge.client import ClientConnection
    from gripproxy.worker import Worker

__all__ = ["Repeat"]


class Repeat(Exchange):
    """An exchange that counts as one of the requests under way in ``lane`` until the backend is done with it.

    The other arguments are those of Exchange.
    """

    __slots__ = ("_failed", "_place")

    def __init__(
        self,
        client: ClientConnection,
        worker: Worker,
        request: Request,
        serial: int,
        route: Route,
        last_ids: tuple[tuple[bytes, bytes], ...],
        because: tuple[tuple[bytes, bytes], ...],
        lane: Hashable,
    ) -> None:
        super().__init__(client, worker, request, serial, route, last_ids, because)
        self._place = worker.updates.begin(lane)
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
        """The client does not take the response as fast as it comes: what is left of it is at the client's pace."""
        if blocked and self._failed is not None:
            self._place.end(self._failed)
        super().client_blocked(blocked)

    def _respond(self, response: Response) -> None:
        # Without a head of the backend it is our own response, which tells of a failure.
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
