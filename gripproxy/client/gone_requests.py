"""Requests to links with ``rel=gone``: the backend learns that a client has left (docs/grip.md §4.4)."""

from __future__ import annotations

from typing import Final

from gripproxy.backend.context import BackendContext
from gripproxy.backend.subrequest import Subrequest
from gripproxy.grip.response import Response
from gripproxy.routing.route import Route

__all__ = ["GONE_TIMEOUT", "GoneRequests"]

GONE_TIMEOUT: Final = 30.0
"""Seconds the request to a gone link may take; its outcome does not matter."""


class GoneRequests:
    """Requests to gone links of one worker.

    Args:
        context: The backend context.
    """

    __slots__ = ("_context", "under_way")

    def __init__(self, context: BackendContext) -> None:
        self._context = context
        self.under_way = 0
        """Requests without an answer so far; a process that ends waits for them."""

    def send(self, route: Route, base: bytes, link: bytes, untrusted: bool) -> None:
        """POST to a gone link; failures do not matter.

        Args:
            route: The route of the held request.
            base: Absolute URI of the held request.
            link: The link, relative to it or absolute.
            untrusted: The link comes from an untrusted target.
        """
        self.under_way += 1
        Subrequest(self._context, route, base, link, [], b"", GONE_TIMEOUT, self._ended, untrusted)

    def _ended(self, _: Response | None) -> None:
        self.under_way -= 1
